"""Results to stdout or, whole or not at all, to a file."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from simulator.errors import FileError, Option

STANDARD_STREAM = "-"


def write_text(text: str, target: str, *, force: bool, flag: str = Option("output")) -> None:
    """Write ``text`` to stdout ("-") or to a new file; an existing one needs ``force``; refusals name ``flag``.

    The file appears under its name only when it is complete.
    """
    if target == STANDARD_STREAM:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write_bytes(text.encode("utf-8"), target, force=force, flag=flag)


def write_bytes(content: bytes, target: str, *, force: bool, flag: str = Option("output")) -> None:
    """Write ``content`` to a new file, as `write_text` does."""
    path = Path(target)
    if path.exists() and not force:
        raise FileError(f"{target!r} exists", field=flag, hint="choose another name or add `force`")
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(content)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FileError(f"cannot write {target!r}: {error.strerror}", field=flag) from error


def check_target(target: str | None, *, flag: str, force: bool) -> None:
    """Refuse a file that exists or a folder that does not, before work starts."""
    if target is None or target == STANDARD_STREAM:
        return
    path = Path(target)
    if path.exists() and not force:
        raise FileError(f"{target!r} exists", field=flag, hint="choose another name or add `force`")
    if not path.parent.is_dir():
        raise FileError(f"cannot write {target!r}: no folder {str(path.parent)!r}", field=flag)


def write_new_texts(texts: Sequence[tuple[Path, str]], *, force: bool, flag: str) -> None:
    """Write several files and their folders; none of them where one exists and ``force`` is not given."""
    for path, _ in texts:
        if path.exists() and not force:
            raise FileError(f"{str(path)!r} exists", field=flag, hint="choose another directory or add `force`")
    for path, text in texts:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise FileError(f"{path.parent}: cannot be made: {error.strerror or error}", field=flag) from None
        write_text(text, str(path), force=force)
