"""Files that were uploaded: a folder of each session's own, and the newest of all sessions for links to them."""

from __future__ import annotations

import io
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from weakref import WeakValueDictionary
from zipfile import ZIP_DEFLATED, ZipFile

import streamlit as st

from app.hosting.kept import Kept, OwnFolder
from simulator.specs.uploads import LARGEST_KEPT_BYTES, LARGEST_RECORD_BYTES

UPLOADS = "_profiles_folder"
"""Where a session keeps its uploads."""
FILES = "files"
"""What links call the uploads that they were made with."""
LARGEST_UPLOADS = 20
_MOST_FOLDERS = 100
"""Of a session: every file that is taken, renamed or removed makes one, of links to the same bytes."""
_kept = Kept("uploads", most=200, most_bytes=LARGEST_KEPT_BYTES)
"""Folders that links may still ask for."""


class Folder(OwnFolder):
    """A folder of uploads."""

    def files(self) -> list[Path]:
        """Every file, by its path within the folder."""
        found = (path.relative_to(self.path) for path in self.path.rglob("*") if path.is_file())
        return sorted(found, key=lambda path: (path.parent, path.stem, path.suffix))

    def size_bytes(self) -> int:
        """Of all files together."""
        return sum(self.path.joinpath(path).stat().st_size for path in self.files())

    def digest(self) -> str:
        """Of every name and content: the same files have the same one."""
        found = blake2b(digest_size=8)
        for path in self.files():
            found.update(path.as_posix().encode("utf-8"))
            found.update(self.path.joinpath(path).read_bytes())
        return found.hexdigest()

    def archive(self) -> bytes:
        """All of it as a ZIP: a folder for ``--profiles``."""
        packed = io.BytesIO()
        with ZipFile(packed, "w", ZIP_DEFLATED) as file:
            for path in self.files():
                file.write(self.path.joinpath(path), path)
        return packed.getvalue()


_at_hand: WeakValueDictionary[str, Folder] = WeakValueDictionary()
"""Folders of sessions by digest: answers are remembered by folder."""


def _linked(folder: Path, to: Path) -> None:
    """The same bytes under other paths: a file is written beside the one that it replaces, never into it."""
    shutil.copytree(folder, to, dirs_exist_ok=True, copy_function=os.link)


@dataclass(slots=True)
class _Uploads:
    """Folders of this session, the last one in use; they are removed when the session forgets them.

    Every upload makes a folder of its own, with all that came before: answers are remembered by folder, so that a
    file that was corrected and uploaded again is never answered with what the one before it gave.
    """

    folders: list[Folder] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    shared_id: str | None = None
    had: set[str] = field(default_factory=set)


def _uploads() -> _Uploads:
    found: _Uploads = st.session_state.setdefault(UPLOADS, _Uploads())
    return found


def session_profiles() -> str | None:
    """The ``profiles`` argument for the library: the session's folder, or None while nothing was uploaded."""
    found: _Uploads | None = st.session_state.get(UPLOADS)
    return str(found.folders[-1].path) if found is not None and found.folders else None


def session_folder() -> Folder | None:
    """The folder of all uploads; None while there are none."""
    found = _uploads().folders
    return found[-1] if found else None


def uploaded_paths(place: str) -> tuple[Path, ...]:
    """The uploads in one part of the folder, such as ``models``; accelerators stand in ``.``."""
    folder = session_folder()
    found = () if folder is None else folder.files()
    return tuple(path for path in found if path.parent.as_posix() == place)


def uploaded_names(place: str) -> tuple[str, ...]:
    """Their names."""
    return tuple(path.stem for path in uploaded_paths(place))


def uploaded_file(path: str) -> str:
    """The path of one of them, for the library."""
    folder = session_folder()
    assert folder is not None, "uploaded"
    return str(folder.path.joinpath(path))


def said_of(file_id: str) -> str | None:
    """What was said of an upload when it was kept; None for one that is new."""
    return _uploads().said.get(file_id)


def has_room() -> bool:
    """Whether this session may upload another file."""
    folder = session_folder()
    if folder is None:
        return True
    few = len(folder.files()) < LARGEST_UPLOADS and len(_uploads().folders) < _MOST_FOLDERS
    return few and folder.size_bytes() < LARGEST_RECORD_BYTES


def next_folder() -> Folder:
    """A folder with everything uploaded so far, to put one more file into. No part of its name is the browser's."""
    folder = Folder()
    before = session_profiles()
    if before is not None:
        _linked(Path(before), folder.path)
    return folder


def remember(folder: Folder, *, file_id: str, said: str, label: str = "") -> None:
    """Answer from ``folder`` from now on; label : what the page calls the file that came."""
    found = _uploads()
    found.said[file_id], found.labels[file_id] = said, label
    answer_from(folder)


def say_instead(label: str, said: str, *, renamed: str = "") -> None:
    """What is said of a file from now on that was removed, or is called otherwise."""
    found = _uploads()
    for file_id in [item for item, known in found.labels.items() if known == label]:
        found.said[file_id], found.labels[file_id] = said, renamed


def answer_from(folder: Folder) -> None:
    """Answer from the files of ``folder`` from now on, and keep them for links."""
    found, digest = _uploads(), folder.digest()
    found.folders.append(folder)
    # At once: whoever reloads the page now has the file still.
    found.shared_id = st.query_params[FILES] = digest
    found.had.add(digest)
    _at_hand[digest] = folder
    _kept.put(digest, partial(_linked, folder.path))


def _asked_folder(digest: str) -> Folder | None:
    """What a link names, where this server still has it."""
    at_hand, path = _at_hand.get(digest), _kept.find(digest)
    if path is None or at_hand is not None:
        return at_hand
    folder = Folder()
    # Another server may let go of it now.
    with suppress(OSError):
        _linked(path, folder.path)
        return _at_hand.setdefault(digest, folder)
    return None


def shared_id() -> str | None:
    """What a link calls this session's uploads; None while there are none."""
    return _uploads().shared_id


def has_files(digest: str) -> bool:
    """Whether this session answers from the uploads of that name."""
    return _uploads().shared_id == digest


def adopt_files() -> None:
    """Answer from the uploads that the address names, where this server still has them; keep ours in the address."""
    found, asked = _uploads(), st.query_params.get(FILES)
    if asked is not None and asked not in found.had:
        folder = _asked_folder(asked)
        if folder is not None:
            found.folders.append(folder)
            found.shared_id = asked
            found.had.add(asked)
    if found.shared_id is not None and asked != found.shared_id:
        st.query_params[FILES] = found.shared_id
