"""Profiles that this browser session has uploaded: kept in a private folder that ends with the session."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

_KEPT = "_profiles_folder"
LARGEST_UPLOADS = 20


class Folder:
    """A folder of its own that is removed when nobody holds it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="roofcast-app-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@dataclass(slots=True)
class _Uploads:
    """Folders of this session, the last one in use; they are removed when the session forgets them.

    Every upload makes a folder of its own, with all that came before: answers are remembered by folder, so that a
    file that was corrected and uploaded again is never answered with what the one before it gave.
    """

    folders: list[Folder] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)


def _uploads() -> _Uploads:
    found: _Uploads = st.session_state.setdefault(_KEPT, _Uploads())
    return found


def session_profiles() -> str | None:
    """The ``profiles`` argument for the library: the session's folder, or None while nothing was uploaded."""
    found: _Uploads | None = st.session_state.get(_KEPT)
    return str(found.folders[-1].path) if found is not None and found.folders else None


def uploaded_as(file_id: str) -> str | None:
    """The name that an upload was kept under; None for one that is new."""
    return _uploads().names.get(file_id)


def has_room() -> bool:
    """Whether this session may upload another file."""
    return len(_uploads().folders) < LARGEST_UPLOADS


def next_folder() -> Folder:
    """A folder with everything uploaded so far, to put one more file into. No part of its name is the browser's."""
    folder = Folder()
    before = session_profiles()
    if before is not None:
        shutil.copytree(before, folder.path, dirs_exist_ok=True)
    return folder


def remember(folder: Folder, *, file_id: str, name: str) -> None:
    """Answer from ``folder`` from now on."""
    _uploads().folders.append(folder)
    _uploads().names[file_id] = name
