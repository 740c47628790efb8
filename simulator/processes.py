"""Lines answered by processes of their own: a line that takes too long or kills its process costs that line alone. A
process reads one line, writes one line, and reads the next. It is started anew where it was stopped or died."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore, Thread, Timer
from types import TracebackType

from simulator.errors import RoofcastError
from simulator.units import MIB

TIMEOUT_CODE, DIED_CODE = "timeout", "process_died"
"""Codes of the refusals that a line gets in place of its answer."""
AHEAD = 8
"""Lines taken in for each process before the first of them is handed out: what a stop loses, what memory holds."""
_READY = "ready"
_COLLECT_EVERY = 200_000
"""Allocations between garbage collections: lines leave few cycles."""
_KEPT_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": f"{64 * MIB:.0f}",
    "MALLOC_TOP_PAD_": f"{16 * MIB:.0f}",
    "MALLOC_MMAP_THRESHOLD_": f"{4 * MIB:.0f}",
}
"""For glibc, of which others know nothing: what the arrays of a line leave is kept for those of the next."""


class LineProcesses:
    """``jobs`` processes that turn lines into lines with the function ``entry`` (``"module:function"``).

    timeout_s : after which a process that has not answered is stopped; None for never
    """

    def __init__(self, entry: str, *, jobs: int, timeout_s: float | None = None) -> None:
        self._entry, self._jobs, self._timeout_s = entry, jobs, timeout_s
        self._threads = ThreadPoolExecutor(max_workers=jobs)
        self._idle: SimpleQueue[_LineProcess | None] = SimpleQueue()
        for _ in range(jobs):
            self._idle.put(None)
        self._started: list[_LineProcess] = []
        self._ended = False

    def __enter__(self) -> LineProcesses:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for process in tuple(self._started):  # their threads take them off it meanwhile
            process.stop()

    def answers(self, lines: Iterable[str]) -> Iterator[str | RoofcastError]:
        """The answer to each line, in their order, as soon as it and those before it are there; a refusal where there
        is none. ``lines`` are taken in by a thread, so that a source that waits holds nothing up."""
        room = Semaphore(self._jobs * AHEAD)
        waiting: SimpleQueue[Future[str | RoofcastError] | BaseException | None] = SimpleQueue()

        def take_in() -> None:
            try:
                for line in lines:
                    room.acquire()
                    waiting.put(self._threads.submit(self._ask, line))
                waiting.put(None)
            except BaseException as error:  # of the source: raised where the answers are read
                waiting.put(error)

        Thread(target=take_in, daemon=True).start()
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item.result()
            room.release()

    def _ask(self, line: str) -> str | RoofcastError:
        process = self._idle.get()
        if process is None:
            process = _LineProcess(self._entry)
            self._started.append(process)
            if self._ended:  # by another thread, while this one was started: nobody else would stop it
                process.stop()
        answer = process.ask(line, timeout_s=self._timeout_s)
        if isinstance(answer, RoofcastError):
            self._started.remove(process)
            process.stop()
            self._idle.put(None)
        else:
            self._idle.put(process)
        return answer


class _LineProcess:
    """One process, its standard streams, and whether its time ran out."""

    def __init__(self, entry: str) -> None:
        # The child finds this package where it is, and nothing in the folder that it happens to run in (-P).
        package = str(Path(__file__).resolve().parents[1])
        given = os.environ.get("PYTHONPATH")
        path = package if not given else os.pathsep.join((package, given))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import answer_lines; answer_lines({entry!r})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**_KEPT_MEMORY, **os.environ, "PYTHONPATH": path},
            text=True,
            encoding="utf-8",
        )
        self._expired = False
        self._greeted = False

    def ask(self, line: str, *, timeout_s: float | None) -> str | RoofcastError:
        """The answer to one line."""
        if not self._greeted:  # its imports are no part of a line's time
            self._greeted = self._line() == _READY + "\n"
        timer = None if timeout_s is None else Timer(timeout_s, self._expire)
        if timer is not None:
            timer.daemon = True
            timer.start()
        answer = self._exchange(line) if self._greeted else ""
        if timer is not None:
            timer.cancel()
        if answer.endswith("\n") and not self._expired:
            return answer[:-1]
        if self._expired:
            return RoofcastError(
                f"no answer within {timeout_s:g} s", code=TIMEOUT_CODE, hint="give more time, or ask for less work"
            )
        self.stop()
        return RoofcastError(
            f"its process ended without an answer ({_ending(self._process.returncode)})",
            code=DIED_CODE,
            hint="the other lines go on; it may have run out of memory",
        )

    def _exchange(self, line: str) -> str:
        assert self._process.stdin is not None, "a pipe"
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            return ""
        return self._line()

    def _line(self) -> str:
        assert self._process.stdout is not None, "a pipe"
        try:
            return self._process.stdout.readline()
        except (OSError, ValueError):
            return ""

    def _expire(self) -> None:
        self._expired = True
        self._process.kill()

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # what was not yet sent goes nowhere
                    continue


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def answer_lines(entry: str) -> None:
    """What a process does: answer lines of standard input until it ends. What else is printed goes to stderr."""
    # An interrupt is for the process that asks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    gc.set_threshold(_COLLECT_EVERY)
    module, _, name = entry.partition(":")
    answer = getattr(import_module(module), name)
    print(_READY, file=answers, flush=True)
    for line in open(sys.stdin.fileno(), encoding="utf-8", closefd=False):  # noqa: SIM115
        print(answer(line.rstrip("\n")), file=answers, flush=True)
