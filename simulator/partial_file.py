"""Results that come line by line: beside its target a file grows, and takes the target's name when it is whole. So the
target is the old file or the new one, and what a stopped run has answered is there to go on from."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

from simulator.errors import FileError, Option
from simulator.files import STANDARD_STREAM, check_target, is_stream

ENDING = ".partial"


class LineSink:
    """Where lines go, each of them at once: stdout ("-"), a device or pipe, or a file with its partial beside it.

    resume : go on with a partial that an earlier run left; without it, one is refused unless ``force`` drops it
    """

    def __init__(self, target: str, *, force: bool, resume: bool = False, flag: str = Option("output")) -> None:
        self._target = Path(target).resolve()
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
            raise self._failure(error) from error

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
        return FileError(f"cannot write {str(self._target)!r}: {error.strerror or error}{kept}", field=self._flag)


def is_complete(target: str) -> bool:
    """Whether a run that may be resumed has nothing left to do: its file has its name."""
    path = Path(target).resolve()
    return path.is_file() and not path.with_name(path.name + ENDING).exists()
