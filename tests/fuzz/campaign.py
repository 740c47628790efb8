"""A campaign: so many cases of every kind, each within its time, each answer held to the laws."""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType

from simulator.engine.events.warm_up import warm_up
from simulator.errors import RoofcastError
from simulator.units import GIB
from tests.fuzz.kinds import KINDS, Answer, Case, Kind
from tests.fuzz.laws import BrokenError, broken

KEPT = Path(__file__).resolve().parent / "kept"
"""Cases that once failed, one a file: they are asked again in every run of the tests."""
_TIMES_SEED = 20
_LEAST_S = 40.0
"""Below this a case is not slow, whatever its seed takes: ten million requests, the most that is allowed, take 32 s."""
_WAITING_TIMES = 20
"""Limits of processor time after which a case is slow by the clock as well: other programs may have the processor, but
what waits for ever takes none."""
_MEMORY_BYTES = int(12 * GIB)
"""Address space of a worker, most of which libraries reserve and never touch."""
_ASKED_AGAIN = 25
"""One case in so many is asked twice: the answer, or the refusal, must be the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A case that ended in no answer and no refusal, or in an answer that breaks a law. ``place`` names its class."""

    kind: str
    case: Case
    place: str
    detail: str


class _TooSlowError(BaseException):
    """Not an Exception: nothing that is tested may swallow it."""


@contextlib.contextmanager
def _within(seconds: float) -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise _TooSlowError

    timers = {
        signal.ITIMER_PROF: (signal.SIGPROF, seconds),
        signal.ITIMER_REAL: (signal.SIGALRM, _WAITING_TIMES * seconds),
    }
    before = {number: signal.signal(number, ring) for number, _ in timers.values()}
    for timer, (_, after_s) in timers.items():
        signal.setitimer(timer, after_s)
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _place(error: BaseException) -> str:
    """Where in the library it happened."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/simulator/" in frame.filename]
    last = frames[-1] if frames else None
    where = f"{Path(last.filename).name}:{last.name}" if last else "outside"
    return f"{type(error).__name__} in {where}"


def _said(kind: Kind, case: Case) -> tuple[str, Answer | None]:
    """What comes out, as text to compare, and the answer, if it is one, as a program reads it."""
    try:
        answer = kind.answer(case)
    except RoofcastError as error:
        line = str(error)
        if not line.isprintable() or len(line) > 1500:
            raise BrokenError(f"a refusal that is no line: {line[:100]!r}") from None
        return f"refused: {line}", None
    text = json.dumps(answer, sort_keys=True, default=str)
    return text, json.loads(text)


def find(name: str, case: Case, *, limit_s: float = 60.0, again: bool = False) -> Finding | None:
    """Ask one case; what is wrong with what comes out, if anything."""
    kind = KINDS[name]
    try:
        with warnings.catch_warnings(), _within(limit_s):
            warnings.simplefilter("error")
            said, answer = _said(kind, case)
            if again and _said(kind, case)[0] != said:
                return Finding(kind=name, case=case, place="another answer the second time", detail=said[:300])
    except _TooSlowError as error:
        return Finding(kind=name, case=case, place=f"too slow: {_place(error)}", detail=f"{limit_s:.0f} s")
    except BrokenError as error:
        return Finding(kind=name, case=case, place=str(error)[:120], detail=str(error))
    except RecursionError as error:
        return Finding(kind=name, case=case, place=_place(error), detail="")
    except Exception as error:
        detail = "".join(traceback.format_exception(error)[-3:])
        return Finding(kind=name, case=case, place=_place(error), detail=detail)
    laws = [] if answer is None else list(broken(answer))
    if laws:
        return Finding(kind=name, case=case, place=f"law: {laws[0]}", detail="; ".join(laws[:5]))
    return None


@cache
def _limit_s(name: str, chosen: int) -> float:
    """Processor time that a hostile variant of a seed may take [s]."""
    seed = KINDS[name].seeds()[chosen]
    begin = time.process_time()
    with contextlib.suppress(RoofcastError):
        KINDS[name].answer(seed)
    return max(_LEAST_S, _TIMES_SEED * (time.process_time() - begin))


def share(name: str, cases: int, *, of: Iterable[str]) -> int:
    """How many of all cases of these kinds are of one of them."""
    return max(1, round(cases * KINDS[name].weight / sum(KINDS[other].weight for other in of)))


def campaign(name: str, *, cases: int, seed: int, part: int = 0, parts: int = 1) -> Iterator[Finding | None]:
    """One kind's cases, or every ``parts``-th of them; case by case what was found. The same seed, the same cases."""
    seeds = KINDS[name].seeds()
    # A first run on a machine compiles, which is no case's fault.
    warm_up()
    for number in range(part, cases, parts):
        rng = random.Random(f"{seed} {name} {number}")
        chosen = rng.randrange(len(seeds))
        made = KINDS[name].make(rng, seeds[chosen])
        yield find(name, made, limit_s=_limit_s(name, chosen), again=number % _ASKED_AGAIN == 0)


def bound_memory() -> None:
    """Of this process: what would take all of the machine's ends in a MemoryError."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


def keep(finding: Finding, *, folder: Path = KEPT) -> Path:
    """The case as a file of its own."""
    folder.mkdir(exist_ok=True)
    content = json.dumps({"kind": finding.kind, "place": finding.place, "case": finding.case}, indent=1)
    path = folder / f"{finding.kind}-{hashlib.sha256(content.encode()).hexdigest()[:10]}.json"
    path.write_text(content + "\n", encoding="utf-8")
    return path


def kept() -> list[Path]:
    """All of them."""
    return sorted(KEPT.glob("*.json"))


def ask_kept(path: Path) -> Finding | None:
    """Ask a kept case again."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    return find(stored["kind"], stored["case"])


def say(text: str) -> None:
    """To the error stream, where commands that are tested write nothing that counts."""
    print(text, file=sys.__stderr__, flush=True)
