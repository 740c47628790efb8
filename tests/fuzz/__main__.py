"""``python -m tests.fuzz --cases 100000 --seed 1``: hostile inputs of every kind; exit code 1 where one does harm.

The first case of every class of failure is kept as a file under ``kept``, which the tests ask from then on.
"""

from __future__ import annotations

import argparse

from tests.fuzz.campaign import keep, say
from tests.fuzz.kinds import KINDS
from tests.fuzz.tally import Tally, run_all


def _progress(part: Tally, done: float) -> None:
    places = ", ".join(part.classes) or "nothing found"
    say(f"{done:4.0%} {part.kind}: {part.cases} cases in {part.seconds:.0f} s, {places}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="of all kinds together")
    parser.add_argument("--seed", type=int, default=1, help="the same seed, the same cases")
    parser.add_argument("--kind", action="append", choices=tuple(KINDS), help="only this kind; may be repeated")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--keep", action="store_true", help="keep the first case of every class as a file")
    given = parser.parse_args()
    names = given.kind or list(KINDS)
    tallies = run_all(names, cases=given.cases, seed=given.seed, jobs=given.jobs, told=_progress)
    for tally in tallies.values():
        say(f"{tally.kind}: {tally.cases} cases, {tally.classes.total()} findings, {tally.seconds:.0f} s")
        for place, count in tally.classes.most_common():
            first = tally.first[place]
            say(f"  {count:5d} {place}\n        {str(first.case)[:300]!r}\n{first.detail[-900:]}")
            if given.keep:
                keep(first)
    found = sum(tally.classes.total() for tally in tallies.values())
    print(f"{sum(tally.cases for tally in tallies.values())} cases, seed {given.seed}: {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
