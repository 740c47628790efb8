"""Processes beside the server's own, in which long answers are worked out.

One interpreter runs one answer at a time: what takes 100 ms there keeps every other visitor's page waiting. A worker
takes one question at a time from a pipe and gives its answer back; there are as many as processors, and few. One
more, which yields to all others, makes what no reader waits for. Where none runs (in tests, or before the first one
is ready) answers are made in the process that asks.

Sizes, on Linux: 95 MB a worker, 280 MB once it simulates requests.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import Empty, LifoQueue
from typing import IO, Any, ParamSpec, TypeVar

from app.hosting.front import of_servers
from simulator.errors import RoofcastError

_MOST_REMEMBERED_BYTES = 8_388_608
"""Sent bytes, 8 MiB, after which both ends forget: what they remember is not let go of before."""
_ANEW, _ON = b"*", b"+"


class Sender:
    """The end that objects go into. They must not change afterwards: the other end would not see it."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._forget()

    def _forget(self) -> None:
        self._sent = io.BytesIO()
        self._pickler = pickle.Pickler(self._sent, pickle.HIGHEST_PROTOCOL)

    def send(self, item: object) -> None:
        """Send ``item``. What cannot be packed raises before anything is sent, and the next item comes whole."""
        before = self._sent.tell()
        try:
            self._pickler.dump(item)
        except BaseException:
            self._forget()
            raise
        self._pipe.write(_ON if before else _ANEW)
        with self._sent.getbuffer() as sent:
            self._pipe.write(sent[before:])
        self._pipe.flush()
        if self._sent.tell() > _MOST_REMEMBERED_BYTES:
            self._forget()


class Receiver:
    """The end that objects come out of."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._unpickler = pickle.Unpickler(pipe)

    def receive(self) -> object:
        """The next object. EOFError where the other end is closed."""
        start = self._pipe.read(len(_ANEW))
        if not start:
            raise EOFError
        if start == _ANEW:
            self._unpickler = pickle.Unpickler(self._pipe)
        return self._unpickler.load()


MOST_WORKERS = 3
LARGEST_WORKER_BYTES = 6_442_450_944
"""Address space of a worker, 6 GiB: a question that needs more is refused, and the server lives on."""
_PATIENCE = 10
"""How far the patient one yields, in the system's own steps of niceness."""
_HOME = str(Path(__file__).resolve().parents[2])
_READY = "ready"
_OBJECTS, _ROUNDS = 50_000, 20
"""Objects until the youngest are looked through for garbage, and rounds of that until older ones are."""
_LOOK_S = 1.0
"""How often one who waits for a worker looks whether there still are any."""
_Asked = ParamSpec("_Asked")
_Found = TypeVar("_Found")


class _Worker:
    """One process: questions go in, answers come out, one after the other."""

    def __init__(self, *, patient: bool, place: object) -> None:
        self.place = place
        path = os.pathsep.join(filter(None, (_HOME, os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            (sys.executable, "-m", "app.hosting.workers", *(["--patient"] if patient else [])),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._questions, self._answers = Sender(self.process.stdin), Receiver(self.process.stdout)

    def is_ready(self) -> bool:
        """Wait until it has warmed up; False where it ended before."""
        try:
            return self._answers.receive() == _READY
        except (EOFError, pickle.UnpicklingError):
            return False

    def ask(self, question: object) -> tuple[bool, object]:
        """Whether it was answered, and the answer or the refusal. OSError or EOFError where the process has ended."""
        self._questions.send(question)
        found: Any = self._answers.receive()
        return found[0], found[1]

    def end(self) -> None:
        """Let go of a process that answers no more."""
        self.process.kill()
        self.process.communicate()


class Crew:
    """Workers of one kind, of which each thread of a page takes the first that is free."""

    def __init__(self, *, most: int, patient: bool = False) -> None:
        self.most, self._patient = most, patient
        self._waits = patient
        """Whether a worker is worth waiting for: once there was one, what may have ended it is not tried here."""
        # Whoever answered last has everything at hand still.
        self._free: LifoQueue[_Worker] = LifoQueue()
        self._changes = threading.Lock()
        self._hired: dict[object, _Worker | None] = {}
        """By their places; None while one is starting."""

    def is_ready(self) -> bool:
        """Whether anybody is there to ask."""
        return any(self._hired.values())

    def end(self) -> None:
        """Let go of everybody who is free."""
        with self._changes:
            self.most = 0
        with suppress(Empty):
            while True:
                self._free.get_nowait().end()

    def grow(self) -> None:
        """Start one more worker, unless there are enough; it is asked once it is ready."""
        place = object()
        with self._changes:
            if len(self._hired) >= self.most:
                return
            self._hired[place] = None
        threading.Thread(target=self._start_one, args=(place,), name="worker", daemon=True).start()

    def _start_one(self, place: object) -> None:
        try:
            worker = _Worker(patient=self._patient, place=place)
        except OSError:
            # No memory, no process or no file is left: those who wait need not wait for this one.
            self._give_up(place)
            return
        if worker.is_ready():
            with self._changes:
                self._hired[place] = worker
                self._waits = True
            self._free.put(worker)
            # The next one warms up while nobody waits for it, rather than when five visitors do.
            self.grow()
        else:
            worker.end()
            self._give_up(place)

    def _give_up(self, place: object) -> None:
        """One that cannot start is not started again and again."""
        with self._changes:
            del self._hired[place]
            self.most = len(self._hired)

    def _taken(self) -> _Worker | None:
        """A free worker; None where there is none yet, and none ever."""
        with suppress(Empty):
            return self._free.get_nowait()
        self.grow()
        while self._hired and self._waits:
            with suppress(Empty):
                return self._free.get(timeout=_LOOK_S)
        return None

    def ask(self, work: Callable[_Asked, _Found], *asked: _Asked.args, **named: _Asked.kwargs) -> _Found:
        """``work`` of what is asked, in a worker; here while none is ready. Refusals are raised."""
        worker = self._taken()
        if worker is None:
            return work(*asked, **named)
        try:
            answered, found = worker.ask((work, asked, named))
        except BaseException as error:
            # Whatever happened, half of something may be left in its pipes.
            worker.end()
            with self._changes:
                del self._hired[worker.place]
            self.grow()
            if not isinstance(error, OSError | EOFError | pickle.UnpicklingError):
                raise
            raise RoofcastError(
                "the process that worked this out has ended", hint="ask again, or for less at once"
            ) from error
        self._free.put(worker)
        if not answered:
            assert isinstance(found, BaseException), "what a worker could not answer"
            raise found
        return found  # type: ignore[return-value] # what ``work`` returned there


CREW = Crew(most=0)
"""For what a reader waits for."""
PATIENT = Crew(most=0, patient=True)
"""For the rest."""


def start() -> None:
    """Let there be workers, one after the other; the patient one comes when it is needed."""
    share, _ = divmod(os.cpu_count() or 1, of_servers())
    CREW.most = max(1, min(MOST_WORKERS, share))
    PATIENT.most = 1
    CREW.grow()


def at_once() -> int:
    """Questions that are worked out at the same time without standing in each other's way."""
    return max(1, CREW.most)


def _answer_all(questions: Receiver, answers: Sender) -> None:
    """Answer until nobody asks any more."""
    while True:
        try:
            asked: Any = questions.receive()
        except EOFError:
            return
        work, words, named = asked
        try:
            answers.send((True, work(*words, **named)))
        except MemoryError:
            hint = "ask for less at once"
            answers.send((False, RoofcastError("this takes more memory than an answer may have", hint=hint)))
        except Exception as error:  # whatever it is, it is raised where it was asked
            # What was sent is remembered: not with the frames that it came through, and all that stood in them.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            answers.send((False, error))


def keep_what_is_read() -> None:
    """What is imported and read by now stays for good: collections of garbage need not look at it again.

    Nor need they come while one answer is unpacked, whose fifty thousand objects hold no circles.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS, _ROUNDS, _ROUNDS)


def _be_bounded() -> None:
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (LARGEST_WORKER_BYTES, LARGEST_WORKER_BYTES))


def main(words: list[str]) -> None:
    """A worker: nothing but answers leaves by the pipe that was its standard output."""
    from app.hosting.work import warm_up

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server's to obey; it ends when the server does
    answers = Sender(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)
    _be_bounded()
    if "--patient" in words and hasattr(os, "nice"):
        os.nice(_PATIENCE)
    with suppress(RoofcastError):
        warm_up()
    keep_what_is_read()
    with suppress(BrokenPipeError):  # of a server that has ended
        answers.send(_READY)
        _answer_all(Receiver(sys.stdin.buffer), answers)


if __name__ == "__main__":
    main(sys.argv[1:])
