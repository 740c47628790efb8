"""How fast ``plan-capacity`` answers as a whole cold process: wall and processor time, and the memory it takes.

Run with ``python -m benchmarks.plan_speed [--runs 7] [-- --rps 1000 --model llama-3.1-70b]``. On a shared machine the
wall time says how busy the others are: compare processor times, and their ratio to the same interpreter that does
nothing or only imports the libraries which every command needs. Compiled modules are cached, as after an
installation; ``--uncached`` compiles this project's modules in every run, as a checkout does where
PYTHONDONTWRITEBYTECODE is set and nothing was compiled before.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simulator.units import KIB, MIB

QUESTION = ("--rps", "1000", "--model", "llama-3.1-70b")
WIDE = ("--any-technique", "--any-precision")
IMPORTS = "import numpy, pydantic, yaml, typer"
# ru_maxrss counts KiB on Linux and bytes on macOS.
RSS_BYTES = 1.0 if sys.platform == "darwin" else KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """One process: wall and processor time (user and system) [s], and peak memory [bytes]."""

    wall_s: float
    cpu_s: float
    peak_bytes: float


def cost_of(command: Sequence[str], *, environment: Mapping[str, str]) -> Cost:
    """Run a command to its end; it must succeed."""
    start = time.perf_counter()
    child = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    wall_s = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {child.returncode}")
    return Cost(wall_s=wall_s, cpu_s=used.ru_utime + used.ru_stime, peak_bytes=used.ru_maxrss * RSS_BYTES)


def measure(command: Sequence[str], *, runs: int, environment: Mapping[str, str]) -> tuple[Cost, ...]:
    """``runs`` processes one after another, after one that fills the caches of files and modules."""
    cost_of(command, environment=environment)
    return tuple(cost_of(command, environment=environment) for _ in range(runs))


def in_turn(
    first: Sequence[str], second: Sequence[str], *, runs: int, environment: Mapping[str, str]
) -> tuple[Sequence[Cost], Sequence[Cost]]:
    """Pairs of both after one of each that is not counted: a machine that slows down slows both."""
    pairs = [
        (cost_of(first, environment=environment), cost_of(second, environment=environment)) for _ in range(runs + 1)
    ]
    return [one for one, _ in pairs[1:]], [other for _, other in pairs[1:]]


def spread(values: Sequence[float]) -> str:
    """``min / median / max``."""
    return f"{min(values):.3f} / {statistics.median(values):.3f} / {max(values):.3f} s"


def at_other_rates(
    command: Sequence[str], *, runs: int, environment: Mapping[str, str]
) -> tuple[Sequence[Cost], Sequence[Cost]]:
    """What a plan costs that keeps its evaluations, and what those at rates beside it cost, which start from them.

    Each pair has a cache folder of its own, so that the machine's speed drifts for both alike.
    """
    place = command.index("--rps") + 1
    pairs = []
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as folder:
            kept = {**environment, "ROOFCAST_CACHE": "on", "ROOFCAST_CACHE_DIR": folder}
            first = cost_of(command, environment=kept)
            other = [*command[:place], str(float(command[place]) / 2), *command[place + 1 :]]
            pairs.append((first, cost_of(other, environment=kept)))
    return [first for first, _ in pairs], [second for _, second in pairs]


def report(name: str, costs: Sequence[Cost], *, base_s: Mapping[str, float]) -> float:
    """Print one line and return the median processor time [s]."""
    cpu_s = statistics.median(cost.cpu_s for cost in costs)
    ratios = "".join(f", {cpu_s / seconds:.1f} x {other}" for other, seconds in base_s.items())
    print(
        f"{name:<9} cpu {spread([cost.cpu_s for cost in costs])}  wall {spread([cost.wall_s for cost in costs])}"
        f"  peak {max(cost.peak_bytes for cost in costs) / MIB:.0f} MiB{ratios}"
    )
    return cpu_s


def main() -> None:
    """Print min / median / max of nothing, of the imports alone, of the plan, of the widest search in turn with it, of
    another rate, and of asking again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--uncached", action="store_true", help="compile this project in every run")
    parser.add_argument("question", nargs="*", default=QUESTION, help="arguments of plan-capacity, after --")
    chosen = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {chosen.runs} runs after a warm-up")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ROOFCAST_CACHE": "off"}
        if chosen.uncached:
            environment.pop("PYTHONPYCACHEPREFIX", None)
            environment["PYTHONDONTWRITEBYTECODE"] = "1"
        else:
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            environment["PYTHONPYCACHEPREFIX"] = folder
        base_s: dict[str, float] = {}
        for name, code in (("nothing", "pass"), ("imports", IMPORTS)):
            costs = measure((sys.executable, "-c", code), runs=chosen.runs, environment=environment)
            base_s[name] = report(name, costs, base_s=base_s)
        plan = (sys.executable, "-m", "simulator.cli.plan_capacity", *chosen.question)
        usual, wide = in_turn(plan, (*plan, *WIDE), runs=chosen.runs, environment=environment)
        report("plan", usual, base_s=base_s)
        report("wide", wide, base_s=base_s)
        ratio = statistics.median(found.cpu_s / by.cpu_s for found, by in zip(wide, usual, strict=True))
        print(f"          {ratio:.2f} x the plan beside it, at most 2 is asked")
        # The warm-up run keeps the answer that the others look up.
        kept = {**environment, "ROOFCAST_CACHE": "on", "ROOFCAST_CACHE_DIR": folder}
        if "--rps" in plan:
            first, second = at_other_rates(plan, runs=chosen.runs, environment=environment)
            base_s["first"] = report("first", first, base_s=base_s)
            report("other", second, base_s=base_s)
        report("again", measure(plan, runs=chosen.runs, environment=kept), base_s=base_s)


if __name__ == "__main__":
    main()
