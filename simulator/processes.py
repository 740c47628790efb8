"""Lines answered by processes of their own: a line that takes too long or kills its process costs that line alone. A
process reads one line, writes one line, and reads the next. It is started anew where it was stopped or died.

Where nothing but the asking thread runs yet, the first processes are forks of it, which have imported what they need;
later ones start from nothing, because what another thread held at a fork would stay held for ever.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Semaphore, Thread, Timer
from types import TracebackType
from typing import IO

from simulator.allocation import collect_seldom, keep_freed_memory
from simulator.errors import RoofcastError
from simulator.records import dataclass
from simulator.units import KIB

TIMEOUT_CODE, DIED_CODE = "timeout", "process_died"
"""Codes of the refusals that a line gets in place of its answer."""
AHEAD = 8
"""Lines taken in for each process before the first of them is handed out: what a stop loses, what memory holds."""
_READY = "ready"
_SHORT = KIB
"""Characters of a line that is handed over while the one before it is worked on: a pipe holds as much (POSIX promises
512 bytes, every system of today 16 KiB), so that neither end waits for the other to read."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line that was taken in, and what will be its answer."""

    text: str
    answer: Future[str | RoofcastError]

    @property
    def is_short(self) -> bool:
        """Whether a pipe holds it beside the line before: its characters are bytes, and few."""
        return len(self.text) <= _SHORT and self.text.isascii()


class LineProcesses:
    """``jobs`` processes, and as many threads that ask them, which turn lines into lines with the function ``entry``
    (``"module:function"``).

    timeout_s : after which a process that has not answered is stopped; None for never
    """

    def __init__(self, entry: str, *, jobs: int, timeout_s: float | None = None) -> None:
        self._entry, self._jobs, self._timeout_s = entry, jobs, timeout_s
        self._asked: SimpleQueue[_Line] = SimpleQueue()
        self._started: list[_LineProcess] = []
        if _may_fork(entry):
            for _ in range(jobs):
                self._started.append(_LineProcess(_Fork(entry)))
        self._waiting = deque(self._started)
        self._ended = False

    def __enter__(self) -> LineProcesses:
        for _ in range(self._jobs):
            Thread(target=self._ask, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended = True
        for _ in range(self._jobs):
            self._asked.put(_Line("", Future()))  # its thread wakes up and ends
        for process in tuple(self._started):  # their threads take them off it meanwhile
            process.stop()

    def answers(self, lines: Iterable[str]) -> Iterator[str | RoofcastError]:
        """The answer to each line, in their order, as soon as it and those before it are there; a refusal where there
        is none. ``lines`` are taken in by a thread, so that a source that waits holds nothing up."""
        room = Semaphore(self._jobs * AHEAD)
        taken: SimpleQueue[_Line | BaseException | None] = SimpleQueue()

        def take_in() -> None:
            try:
                for text in lines:
                    room.acquire()
                    line = _Line(text, Future())
                    taken.put(line)
                    self._asked.put(line)
                taken.put(None)
            except BaseException as error:  # of the source: raised where the answers are read
                taken.put(error)

        Thread(target=take_in, daemon=True).start()
        while (item := taken.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item.answer.result()
            room.release()

    def _ask(self) -> None:
        """What one thread does: it has a process answer one line after another, and hands over the next one meanwhile
        where enough wait for the other processes too."""
        process: _LineProcess | None = None
        held: deque[_Line] = deque()
        handed = 0
        while True:
            if not held:
                held.append(self._asked.get())
            with suppress(Empty):
                if len(held) == 1 and self._asked.qsize() >= self._jobs:
                    held.append(self._asked.get_nowait())
            if self._ended:
                return
            try:
                process, handed = (self._process(), 0) if process is None else (process, handed)
            except BaseException as error:  # no process could be started: raised where the answers are read
                held[0].answer.set_exception(error)
                return
            while handed < len(held) and (handed == 0 or held[handed].is_short):
                process.hand_over(held[handed].text)
                handed += 1
            answer = process.answer(timeout_s=self._timeout_s)
            handed -= 1
            if isinstance(answer, RoofcastError):
                self._started.remove(process)
                process.stop()
                process = None
            held.popleft().answer.set_result(answer)

    def _process(self) -> _LineProcess:
        """A process that has nothing to do: a fork that waits, or a new one."""
        with suppress(IndexError):
            return self._waiting.popleft()
        process = _LineProcess(_Interpreter(self._entry))
        self._started.append(process)
        if self._ended:  # by another thread, while this one was started: nobody else would stop it
            process.stop()
        return process


class _LineProcess:
    """One process that answers lines, and whether its time ran out."""

    def __init__(self, process: _Interpreter | _Fork) -> None:
        self._process = process
        self._expired = False
        self._greeted = False

    def hand_over(self, line: str) -> None:
        """Write a line to the process; one that it cannot take ends it."""
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            self._process.kill()

    def answer(self, *, timeout_s: float | None) -> str | RoofcastError:
        """The answer to the first line that was handed over and is not answered."""
        if not self._greeted:  # its imports are no part of a line's time
            self._greeted = self._line() == _READY + "\n"
        timer = None if timeout_s is None else Timer(timeout_s, self._expire)
        if timer is not None:
            timer.daemon = True
            timer.start()
        answer = self._line() if self._greeted else ""
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
            f"its process ended without an answer ({_ending(self._process.exit_code())})",
            code=DIED_CODE,
            hint="the other lines go on; it may have run out of memory",
        )

    def _line(self) -> str:
        try:
            return self._process.stdout.readline()
        except (OSError, ValueError):
            return ""

    def _expire(self) -> None:
        self._expired = True
        self._process.kill()

    def stop(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._process.exit_code()
        for stream in (self._process.stdin, self._process.stdout):
            with suppress(OSError):  # what was not yet sent goes nowhere
                stream.close()


class _Interpreter:
    """A process of Python's own: it imports what it needs, which takes it as long as it takes a command."""

    def __init__(self, entry: str) -> None:
        # The child finds this package where it is, and nothing in the folder that it happens to run in (-P).
        package = str(Path(__file__).resolve().parents[1])
        given = os.environ.get("PYTHONPATH")
        path = package if not given else os.pathsep.join((package, given))
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", f"from {__name__} import answer_lines; answer_lines({entry!r})"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
            encoding="utf-8",
        )
        assert self._process.stdin is not None, "a pipe"
        assert self._process.stdout is not None, "a pipe"
        self.stdin: IO[str] = self._process.stdin
        self.stdout: IO[str] = self._process.stdout

    def kill(self) -> None:
        self._process.kill()

    def exit_code(self) -> int | None:
        """What it ended with, once it has."""
        return self._process.wait()


class _Fork:
    """A copy of this process, with everything that it has imported."""

    def __init__(self, entry: str) -> None:
        from multiprocessing import get_context

        (asked, stdin), (stdout, answers) = os.pipe(), os.pipe()
        self._process = get_context("fork").Process(target=_answer_in_fork, args=(entry, asked, answers))
        self._process.start()
        os.close(asked)
        os.close(answers)
        self.stdin: IO[str] = open(stdin, "w", encoding="utf-8")  # noqa: SIM115
        self.stdout: IO[str] = open(stdout, encoding="utf-8")  # noqa: SIM115

    def kill(self) -> None:
        self._process.kill()

    def exit_code(self) -> int | None:
        """What it ended with, once it has; None where another thread was told it."""
        self._process.join()
        return self._process.exitcode


def _may_fork(entry: str) -> bool:
    """Whether a fork saves imports and is safe: nothing runs here but the thread that asks, none of libraries' either.
    Elsewhere than on Linux, systems' own libraries do not bear it."""
    if sys.platform != "linux" or entry.partition(":")[0] not in sys.modules:
        return False
    with suppress(OSError):
        return len(os.listdir("/proc/self/task")) == 1
    return False


def _ending(code: int | None) -> str:
    return f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name


def answer_lines(entry: str) -> None:
    """What a process does: answer lines of standard input until it ends. What else is printed goes to stderr."""
    answers = os.dup(1)
    os.dup2(2, 1)
    _answer(entry, asked=0, answers=answers)


def _answer_in_fork(entry: str, asked: int, answers: int) -> None:
    """The same of pipes. Files of the process that was forked are closed: a lock on one, or the end of a pipe, would
    outlive it."""
    os.dup2(2, 1)
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the folder's own, closed by now
            if int(name) not in (0, 1, 2, asked, answers):
                os.close(int(name))
    _answer(entry, asked=asked, answers=answers)


def _answer(entry: str, *, asked: int, answers: int) -> None:
    # An interrupt is for the process that asks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_seldom()
    keep_freed_memory()
    module, _, name = entry.partition(":")
    with open(answers, "w", encoding="utf-8") as written:
        answer = getattr(import_module(module), name)
        print(_READY, file=written, flush=True)
        for line in open(asked, encoding="utf-8", closefd=False):  # noqa: SIM115
            answered = answer(line.rstrip("\n"))
            sys.stdout.flush()  # what was printed meanwhile is out before the answer, after which the process may end
            print(answered, file=written, flush=True)
