"""What links name and hold not: uploads, questions that somebody kept, answers for previews.

In a folder, which servers behind one address share: a colleague's browser may be with another of them. The oldest goes
first.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path

FOLDER = "ROOFCAST_KEPT"
"""The variable that names the folder; without one, a server makes a folder of its own."""
_NAME = re.compile("[0-9a-f]{1,64}")


class OwnFolder:
    """A folder of this process, which is removed when nobody holds it any more."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="roofcast-app-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


@cache
def _own() -> OwnFolder:
    return OwnFolder()


def _size_bytes(path: Path) -> int:
    """Of a file, or of all in a folder."""
    return sum(item.stat().st_size for item in (path, *path.rglob("*")) if item.is_file())


class Kept:
    """Files or folders by the digest of what is in them. most, most_bytes : of all together"""

    def __init__(self, kind: str, *, most: int, most_bytes: float = inf) -> None:
        self._kind, self._most, self._most_bytes = kind, most, most_bytes

    def _folder(self) -> Path:
        root = Path(os.environ[FOLDER]) if FOLDER in os.environ else _own().path
        found = root / self._kind
        found.mkdir(parents=True, exist_ok=True)
        return found

    def find(self, digest: str) -> Path | None:
        """Where it is; None for what never was or no longer is."""
        path = self._folder() / digest
        return path if _NAME.fullmatch(digest) and path.exists() else None

    def put(self, digest: str, write: Callable[[Path], object]) -> None:
        """Keep what ``write`` puts at the path that it is given, whole or not at all."""
        folder = self._folder()
        path = folder / digest
        with suppress(FileNotFoundError):
            return os.utime(path)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            written = Path(place) / digest
            write(written)
            # Another session may have been faster, and a folder does not replace another.
            with suppress(OSError):
                written.rename(path)
        with suppress(OSError):
            self._trim(folder)

    def read(self, digest: str) -> str | None:
        """A text that is kept; None for what never was or no longer is."""
        path = self.find(digest)
        with suppress(FileNotFoundError):
            return None if path is None else path.read_text(encoding="utf-8")
        return None

    def write(self, digest: str, text: str) -> None:
        """Keep a text."""
        self.put(digest, lambda path: path.write_text(text, encoding="utf-8"))

    def _trim(self, folder: Path) -> None:
        found = sorted(folder.iterdir(), key=os.path.getmtime)
        sizes = [0] * len(found) if self._most_bytes == inf else [_size_bytes(path) for path in found]
        count, total = len(found), sum(sizes)
        for path, size in zip(found, sizes, strict=True):
            if count <= self._most and total <= self._most_bytes:
                return
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()
            count, total = count - 1, total - size
