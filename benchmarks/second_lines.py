"""What a second line of one deployment takes beside the first: closed loops and served loads, processor time.

Run with ``python -m benchmarks.second_lines [--runs 5]``. Two ratios are printed: to the first line of the process,
which reads profiles and prices what every line of its deployment shares, and to the same question as a first line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

Line = Mapping[str, object]
DEPLOYED: Line = {"model": "llama-3.1-70b", "hardware": "h200", "tp_size": 4}
LOOP: Line = {**DEPLOYED, "kind": "closed_loop", "concurrency": 32, "isl_tokens": 1024, "osl_tokens": 128}
LOOPS: Mapping[str, Line] = {
    "the same": {},
    "osl_tokens 256": {"osl_tokens": 256},
    "isl_tokens 2048": {"isl_tokens": 2048},
    "isl_tokens 8192": {"isl_tokens": 8192},
    "isl_tokens 30000": {"isl_tokens": 30_000},
    "concurrency 128": {"concurrency": 128},
    "concurrency 200": {"concurrency": 200},
    "concurrency 256, isl_tokens 2048": {"concurrency": 256, "isl_tokens": 2048},
}
# Machine code, where there is some, is loaded by whoever serves first: another deployment.
BEFORE_SERVING: Line = {"kind": "serve", "model": "llama-3.1-8b", "hardware": "h200"}


def _served(rate_per_s: float, *, isl_tokens: int = 1024, osl_tokens: int = 128) -> Line:
    stages = [{"rate_per_s": rate_per_s, "duration_s": 60}]
    return {"workload": {"stages": stages, "isl_tokens": isl_tokens, "osl_tokens": osl_tokens}}


SERVED: Mapping[str, Line] = {
    "the same": {},
    "twice the rate": _served(4),
    "isl_tokens 4096": _served(2, isl_tokens=4096),
    "osl_tokens 512": _served(2, osl_tokens=512),
}
LOOP_BAR, SERVED_BAR = 1 / 4, 1 / 3


def seconds_of(lines: Sequence[Line]) -> list[float]:
    """Processor time of each line, one after another in this process [s]."""
    import simulator.cli  # noqa: F401 - how a command treats memory and threads
    from simulator.api.scenarios import simulate_line

    found = []
    for number, line in enumerate(lines, start=1):
        start = time.process_time()
        simulate_line(json.dumps({"id": str(number), **line}), number=number)
        found.append(time.process_time() - start)
    return found


def _fresh_s(lines: Sequence[Line]) -> list[float]:
    command = [sys.executable, "-m", "benchmarks.second_lines", "--lines", json.dumps(lines)]
    measured: list[float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return measured


def _compare(
    name: str, base: Line, others: Mapping[str, Line], *, before: Sequence[Line], runs: int, bar: float
) -> None:
    lines = [{**base, **line} for line in others.values()]
    after, alone = [], []
    for _ in range(runs):
        after.append(_fresh_s([*before, base, *lines])[len(before) :])
        alone.append([_fresh_s([*before, line])[-1] for line in lines])
    first_s = statistics.median(run[0] for run in after)
    print(f"{name}: the first line takes {1e3 * first_s:.1f} ms; a second at most {bar:.2f} of it is asked")
    for place, other in enumerate(others):
        second_s = statistics.median(run[place + 1] for run in after)
        of_first = statistics.median(run[place + 1] / run[0] for run in after)
        of_itself = statistics.median(run[place + 1] / own[place] for run, own in zip(after, alone, strict=True))
        print(f"  {other:<33} {1e3 * second_s:6.1f} ms, {of_first:.2f} of it, {of_itself:.2f} of itself as a first")


def main() -> None:
    """Print the times of loops and of served loads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--lines", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.lines:
        print(json.dumps(seconds_of(json.loads(chosen.lines))))
        return
    _compare("closed loops", LOOP, LOOPS, before=(), runs=chosen.runs, bar=LOOP_BAR)
    served = {**DEPLOYED, "kind": "serve", **_served(2)}
    warm = {**BEFORE_SERVING, **_served(2)}
    _compare("served loads", served, SERVED, before=(warm,), runs=chosen.runs, bar=SERVED_BAR)


if __name__ == "__main__":
    main()
