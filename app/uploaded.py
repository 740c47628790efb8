"""Profiles that this browser session has uploaded: kept in a private folder that ends with the session."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

_FOLDER = "_profiles_folder"
LARGEST_UPLOADS = 20


class _Folder:
    """A temporary folder that is removed when the session forgets it."""

    def __init__(self) -> None:
        self.directory = tempfile.TemporaryDirectory(prefix="roofcast-app-")
        self.kept: set[str] = set()


def session_profiles() -> str | None:
    """The ``profiles`` argument for the library: the session's folder, or None while nothing was uploaded."""
    folder = st.session_state.get(_FOLDER)
    return folder.directory.name if folder is not None else None


def upload_folder() -> Path:
    """The session's folder, made at the first upload. Its name never comes from the browser."""
    if _FOLDER not in st.session_state:
        st.session_state[_FOLDER] = _Folder()
    return Path(st.session_state[_FOLDER].directory.name)


def remember(name: str) -> bool:
    """Count an upload; False when the session has had its share."""
    kept: set[str] = st.session_state[_FOLDER].kept
    kept.add(name)
    return len(kept) <= LARGEST_UPLOADS
