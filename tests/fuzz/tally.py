"""A campaign over several processes, and what it came to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.fuzz.campaign import Finding, bound_memory, campaign, share

_PARTS_A_PROCESS = 4
"""Of every kind: so often it is heard of."""


@dataclass
class Tally:
    """What one kind's part of a campaign came to."""

    kind: str
    cases: int = 0
    seconds: float = 0.0
    classes: Counter[str] = field(default_factory=Counter)
    first: dict[str, Finding] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        """Count another part of the same kind."""
        self.cases += other.cases
        self.seconds += other.seconds
        self.classes.update(other.classes)
        self.first = {**other.first, **self.first}


def part_of(name: str, *, cases: int, seed: int, part: int, parts: int) -> Tally:
    """One part of one kind's cases, in this process."""
    bound_memory()
    tally = Tally(kind=name)
    begin = time.perf_counter()
    for finding in campaign(name, cases=cases, seed=seed, part=part, parts=parts):
        tally.cases += 1
        if finding is not None:
            tally.classes[finding.place] += 1
            tally.first.setdefault(finding.place, finding)
    tally.seconds = time.perf_counter() - begin
    return tally


def run_all(
    names: list[str], *, cases: int, seed: int, jobs: int, told: Callable[[Tally, float], None] | None = None
) -> dict[str, Tally]:
    """Every kind's share of the cases over ``jobs`` processes.

    told : hears of every part that is done, and which share of all parts that makes
    """
    tallies = {name: Tally(kind=name) for name in names}
    parts = jobs * _PARTS_A_PROCESS
    with ProcessPoolExecutor(max_workers=jobs, mp_context=get_context("spawn")) as pool:
        waiting = [
            pool.submit(part_of, name, cases=share(name, cases, of=names), seed=seed, part=part, parts=parts)
            for name in names
            for part in range(parts)
        ]
        for number, done in enumerate(as_completed(waiting), start=1):
            tally = done.result()
            tallies[tally.kind].add(tally)
            if told is not None:
                told(tally, number / len(waiting))
    return tallies
