"""Results to stdout or to files, each of which is there whole, as it was, or not at all.

A file is written without a name and gets it when it is complete, so that a process that is killed leaves nothing. What
replaces an older file has a name of its own for a moment in between; one that a killed process left there goes with
the next write to the same place.
Results that come line by line grow in a file beside their target, which takes the target's name when it is whole: what
a stopped run has answered is there to go on from.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from errno import ELOOP
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

from simulator.errors import FileError, Option
from simulator.records import dataclass
from simulator.units import KIB

STANDARD_STREAM = "-"
CACHE_VARIABLE, OFF = "ROOFCAST_CACHE", "off"
CACHE_FOLDER_VARIABLE = "ROOFCAST_CACHE_DIR"
_OTHER_NAME = "another name"


def keeps_nothing() -> bool:
    """Whether answers are neither looked up nor kept: ROOFCAST_CACHE=off."""
    return os.environ.get(CACHE_VARIABLE) == OFF


def cache_root() -> Path:
    """The user's folder for what can be made again: named by ROOFCAST_CACHE_DIR, or where the system keeps such.

    Who has no home (a container under any number of user) has none: nothing can be made below the device of that name.
    """
    root, home = os.environ.get(CACHE_FOLDER_VARIABLE) or os.environ.get("XDG_CACHE_HOME"), os.path.expanduser("~")
    return Path(root or (f"{home}/.cache" if os.path.isabs(home) else os.devnull)) / "roofcast"


def machine_code_roots() -> tuple[Path, ...]:
    """Folders in which machine code of the event loop may lie: below the cache's, or where that cannot be written."""
    return cache_root(), Path(tempfile.gettempdir()) / "roofcast"


def machine_code() -> list[str]:
    """Marks beside whole machine code that some version has left, of which a plan may simulate its fleet."""
    return sorted(str(mark) for root in machine_code_roots() for mark in root.glob("compiled-*/*.ready"))


def write_text(text: str, target: str, *, force: bool, flag: str = Option("output")) -> None:
    """Write ``text`` to stdout ("-") or to a new file; an existing one needs ``force``; refusals name ``flag``."""
    write_bytes(text.encode("utf-8"), target, force=force, flag=flag)


def write_bytes(content: bytes, target: str, *, force: bool, flag: str = Option("output")) -> None:
    """Write ``content`` to a new file, as `write_text` does."""
    write_targets((Target(path=Path(target), pieces=(content,), flag=flag),), force=force)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A file to be, or stdout ("-"): its content in pieces, of which one at a time is in memory, and the option that
    names it."""

    path: Path
    pieces: Iterable[bytes]
    flag: str


def write_targets(targets: Sequence[Target], *, force: bool) -> None:
    """Write several files, each asked for by an option of its own, or none of them."""
    for item in targets:
        check_target(str(item.path), flag=item.flag, force=force)
    _write_all(item for item in targets if str(item.path) != STANDARD_STREAM)
    for item in targets:
        if str(item.path) == STANDARD_STREAM:
            sys.stdout.writelines(piece.decode("utf-8") for piece in item.pieces)
            sys.stdout.flush()


def write_new_files(files: Sequence[tuple[Path, bytes]], *, force: bool, flag: str, instead: str = _OTHER_NAME) -> None:
    """Write several files and their folders, or none; ``instead`` : of an existing file, what a refusal proposes."""
    for path, _ in files:
        _refuse_existing(path, force=force, flag=flag, instead=instead)
        _refuse_locked(path, flag=flag)
    with made_folders([path.parent for path, _ in files], flag=flag):
        _write_all([Target(path=path, pieces=(content,), flag=flag) for path, content in files])


@contextmanager
def made_folders(folders: Sequence[Path], *, flag: str) -> Iterator[None]:
    """Make folders with those that they stand in; those that were not there go again where what follows fails."""
    above = {place for folder in folders for place in (folder, *folder.parents)}
    missing = sorted((place for place in above if not os.path.lexists(place)), reverse=True)
    try:
        for folder in folders:
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise FileError(f"{folder}: cannot be written: {error.strerror or error}", field=flag) from None
        yield
    except BaseException:
        for place in missing:  # The innermost first; one that holds something stays.
            with suppress(OSError):
                place.rmdir()
        raise


def check_target(target: str | None, *, flag: str, force: bool) -> None:
    """Refuse a file that exists or may not be written and a folder that does not exist, before work starts."""
    if target is None or target == STANDARD_STREAM:
        return
    path = Path(target)
    _refuse_existing(path, force=force, flag=flag, instead=_OTHER_NAME)
    if not os.path.isdir(path.parent):
        raise FileError(f"cannot write {target!r}: no folder {str(path.parent)!r}", field=flag)
    _refuse_locked(path, flag=flag)


def check_room(folder: Path, needed_bytes: float, *, of: str, flag: str, freed_bytes: int = 0) -> None:
    """Refuse what finds no room on its disk, before work starts; ``of`` : what takes it, in words."""
    free_bytes = shutil.disk_usage(folder).free + freed_bytes
    if needed_bytes > free_bytes:
        raise FileError(
            f"{str(folder)!r}: {of} take about {needed_bytes:,.0f} bytes, {free_bytes:,} are free",
            field=flag,
            hint="a disk with room, or fewer of them",
        )


def _refuse_existing(path: Path, *, force: bool, flag: str, instead: str) -> None:
    if os.path.exists(path) and not force and not is_stream(path):
        raise FileError(f"{str(path)!r} exists", field=flag, hint=f"choose {instead} or add `force`")


def _refuse_locked(path: Path, *, flag: str) -> None:
    """A folder is no file, and one that may not be written stays: a file put in its place would have replaced it."""
    if _leads_to_itself(path):
        raise FileError(f"cannot write {str(path)!r}: it is a link to itself", field=flag)
    if os.path.isdir(path):
        raise FileError(f"cannot write {str(path)!r}: it is a folder", field=flag)
    if os.path.exists(path) and not os.access(path, os.W_OK):
        raise FileError(f"cannot write {str(path)!r}: it is read-only", field=flag)


def _leads_to_itself(path: Path) -> bool:
    try:
        path.stat()
    except (OSError, ValueError) as error:
        return getattr(error, "errno", None) == ELOOP
    return False


def _behind(path: Path) -> Path:
    """What links lead to; of those that lead to themselves, one of them."""
    return Path(os.path.realpath(path))


def is_stream(path: Path) -> bool:
    """Whether ``path`` is a device or a pipe, which is written to and never replaced."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A complete file that waits for its name: open as ``handle``; ``name`` is its temporary one, if it has one."""

    handle: int
    name: Path | None
    target: Path
    flag: str


def _write_all(targets: Iterable[Target]) -> None:
    with ExitStack() as open_files:
        path, flag = Path(), ""
        try:
            waiting = []
            for item in targets:
                path, flag = item.path, item.flag
                if is_stream(path):
                    with path.open("wb") as stream:
                        stream.writelines(item.pieces)
                else:
                    waiting.append(_written(item, open_files))
            for written in waiting:
                path, flag = written.target, written.flag
                _named(written)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise FileError(f"cannot write {str(path)!r}: {reason}", field=flag) from error


def _mode(target: Path) -> int:
    """Of the file that is replaced, or of a new one; an impossible name fails here, before any file has its name."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return 0o666


def _written(item: Target, open_files: ExitStack) -> _Written:
    """The content on the disk without a name, or with a temporary one where the file system knows no other way."""
    # What a link points to is written, and the link stays.
    target = _behind(item.path)
    _remove_left_behind(target)
    mode = _mode(target)
    name = None
    try:
        handle = os.open(target.parent, os.O_TMPFILE | os.O_WRONLY, mode)
    except (AttributeError, OSError):
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f"{_prefix(target)}{os.getpid()}-")
        name = Path(temporary)
        open_files.callback(name.unlink, missing_ok=True)
        os.chmod(handle, mode & 0o644)
    # Without a buffer, which a full disk would refuse again when it is closed.
    stream = open_files.enter_context(os.fdopen(handle, "wb", buffering=0))
    for piece in item.pieces:
        rest = memoryview(piece)
        while rest:
            rest = rest[stream.write(rest) :]
    # A full disk may say so only here.
    os.fsync(handle)
    if target.exists():
        os.chmod(handle, mode)
    return _Written(handle=handle, name=name, target=target, flag=item.flag)


def _named(item: _Written) -> None:
    if item.name is not None:
        item.name.replace(item.target)
        return
    if not item.target.exists():
        with suppress(FileExistsError):
            _link(item.handle, item.target)
            return
    between = item.target.with_name(f"{_prefix(item.target)}{os.getpid()}")
    _link(item.handle, between)
    try:
        between.replace(item.target)
    except BaseException:
        between.unlink(missing_ok=True)
        raise


def _link(handle: int, path: Path) -> None:
    """The open file under a name. The call follows links only with a folder's descriptor, which it does not use."""
    os.link(f"/proc/self/fd/{handle}", path, src_dir_fd=handle, follow_symlinks=True)


# Names may have 255 bytes; what stands before and behind a temporary one needs room.
_LONGEST_PART = 80


def _prefix(target: Path) -> str:
    return f".{target.name[:_LONGEST_PART]}.roofcast-"


def _remove_left_behind(target: Path) -> None:
    """Take away what a killed process left between two names."""
    named = re.compile(re.escape(_prefix(target)) + r"(\d+)(-.*)?")
    with suppress(OSError):
        for path in target.parent.iterdir():
            match = named.fullmatch(path.name)
            if match is not None and not _is_running(int(match[1])):
                path.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


ENDING = ".partial"
RESULT_BYTES = 2 * KIB
"""Of one result of ``simulate``: 2,500 to 3,600, refusals of 150 beside them (thousand mixed lines, 2026-11-27)."""


class LineSink:
    """Where lines go, each of them at once: stdout ("-"), a device or pipe, or a file with its partial beside it.

    resume : go on with a partial that an earlier run left; without it, one is refused unless ``force`` drops it
    results : so many are coming, as far as that is known; a file without room for them is refused
    """

    def __init__(
        self, target: str, *, force: bool, resume: bool = False, flag: str = Option("output"), results: int = 0
    ) -> None:
        self._target = _behind(Path(target))
        self._flag = flag
        self.partial: Path | None = None
        self._stream: IO[bytes] | None = None
        if target == STANDARD_STREAM or is_stream(Path(target)):
            if resume:
                raise FileError("needs a file to go on with", field=Option("resume"), hint=f"{flag} FILE")
            self._stream = None if target == STANDARD_STREAM else self._opened(Path(target), "wb")
            return
        partial = self._target.with_name(self._target.name + ENDING)
        check_target(target, flag=flag, force=force or (resume and partial.exists()))
        if partial.exists() and not resume and not force:
            raise FileError(
                f"{str(partial)!r} is what a stopped run has answered",
                field=flag,
                hint="`resume` goes on with it, `force` starts anew",
            )
        held = partial.stat().st_size if partial.exists() else 0
        what = f"{results:,} results"
        check_room(partial.parent, RESULT_BYTES * results, of=what, flag=flag, freed_bytes=held)
        self.partial = partial
        self._stream = self._opened(partial, "r+b" if resume and partial.exists() else "wb")

    def __enter__(self) -> LineSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._stream is not None:
            if kind is None and self.partial is not None:
                self._finish(self.partial, self._stream)
            self._stream.close()

    def _opened(self, path: Path, mode: Literal["wb", "r+b"]) -> IO[bytes]:
        try:
            return open(path, mode, buffering=0)
        except OSError as error:
            raise FileError(f"cannot write {str(path)!r}: {error.strerror or error}", field=self._flag) from error

    def kept(self) -> Iterator[bytes]:
        """The whole lines of an earlier run; read to the end, what follows is cut off and writing goes on there."""
        if self.partial is None or self._stream is None:
            return
        end = 0
        with self.partial.open("rb") as lines:
            for line in lines:
                if line.endswith(b"\n"):
                    end += len(line)
                    yield line
        self._stream.truncate(end)
        self._stream.seek(end)

    def write(self, line: str) -> None:
        """One line, of which nothing stays in this process."""
        if self._stream is None:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
            return
        left = memoryview((line + "\n").encode("utf-8"))
        try:
            while left:
                left = left[self._stream.write(left) :]
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failure(error) from error

    def _finish(self, partial: Path, stream: IO[bytes]) -> None:
        try:
            os.fsync(stream.fileno())
            if self._target.exists():
                os.chmod(stream.fileno(), stat.S_IMODE(self._target.stat().st_mode))
            partial.replace(self._target)
        except OSError as error:
            raise self._failure(error) from error

    def _failure(self, error: OSError) -> FileError:
        kept = "" if self.partial is None else f"; what was answered is kept in {str(self.partial)!r}"
        message = f"cannot write {str(self._target)!r}: {error.strerror or error}{kept}"
        return FileError(message, field=self._flag, hint="`resume` goes on with it" if kept else "")


def is_complete(target: str) -> bool:
    """Whether a run that may be resumed has nothing left to do: its file has its name."""
    path = _behind(Path(target))
    return path.is_file() and not path.with_name(path.name + ENDING).exists()
