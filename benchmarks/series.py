"""How the cost of a command grows with what it is asked: whole processes, their history, and slopes in logarithms.

Run with ``python -m benchmarks [NAME ...] [--runs 3] [--history FILE] [--json]``. Of each series the median processor
time and the largest memory at every size are printed with the time's ratio to the last entry of the history, and the
slope of log(time over that of the smallest size) against log(size): 0 where the size does not matter, 1 where time
goes with it. With ``--history`` the results are added to the file, one JSON line a run. What takes over SLOWER times as
long as the last entry is a warning on stderr; a slope or a memory beyond its bar ends with exit code 1. Machines differ
in speed: times are compared as multiples of a process that only imports the libraries of every command.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf, log
from pathlib import Path
from typing import Any

from benchmarks.plan_speed import IMPORTS, cost_of
from simulator import __version__
from simulator.units import GIGA, MEGA

Command = tuple[str, ...]
PLAN = (sys.executable, "-m", "simulator.cli.plan_capacity", "--model", "llama-3.1-70b")
SERVED = (sys.executable, "-m", "simulator.cli.roofcast", "serve", "--model", "llama-3.1-8b", "--hardware", "h100")
GPUS = ("h100", "h200", "b200", "a100", "mi300x", "mi325x", "l40s", "b300-sxm")
RATE_PER_S = 8
"""Of served requests: one replica keeps up with it."""
SLOWER = 1.15
"""Times the last entry's processor time beyond which a size is warned of: pairs of runs differ by less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One command at several sizes; ``bar`` : its largest slope, ``most_bytes`` : the largest memory it may have."""

    unit: str
    sizes: tuple[int, ...]
    command: Callable[[int], Command]
    bar: float
    most_bytes: float = inf


def _gpus(count: int) -> Command:
    return tuple(word for name in GPUS[:count] for word in ("--hardware", name))


SERIES: Mapping[str, Series] = {
    "plan": Series(
        unit="requests/s planned",
        sizes=(10, 100, 1000, 10_000),
        command=lambda rate: (*PLAN, "--rps", str(rate)),
        bar=0.05,
    ),
    "wide": Series(
        unit="accelerators searched widely",
        sizes=(1, 2, 4, 8),
        command=lambda count: (*PLAN, "--rps", "1000", "--search", "wide", "--any-precision", *_gpus(count)),
        bar=1.0,
    ),
    "serve": Series(
        unit="requests served",
        sizes=(1000, 10_000, 100_000, 1_000_000, 10_000_000),
        command=lambda requests: (*SERVED, "--rate", str(RATE_PER_S), "--duration", str(requests // RATE_PER_S)),
        bar=1.0,
        most_bytes=GIGA,
    ),
    "fleet": Series(
        unit="replicas of 800 requests each",
        sizes=(1, 10, 100, 1000),
        command=lambda replicas: (
            *(*SERVED, "--replicas", str(replicas)),
            *("--rate", str(RATE_PER_S * replicas), "--duration", "100"),
        ),
        bar=1.0,
        most_bytes=GIGA,
    ),
    "choices": Series(
        unit="of model, techniques, formats",
        sizes=(1, 2, 3),
        command=lambda open_: (*PLAN, "--rps", "1000", *("--any-technique", "--any-precision")[: open_ - 1]),
        bar=0.63,
    ),
}


def slope(seconds: Mapping[int, float]) -> float:
    """Least-squares slope of log(seconds) against log(size); 0 of a single size."""
    sizes, times = [log(size) for size in seconds], [log(value) for value in seconds.values()]
    return statistics.linear_regression(sizes, times).slope if len(sizes) > 1 else 0.0


def last_entry(history: Path, *, name: str, imports_s: float) -> Mapping[int, float]:
    """Seconds by size of the last run of a series, on a machine that imports in ``imports_s``; empty without one."""
    lines = history.read_text("utf-8").splitlines() if history.exists() else []
    entries = [entry for entry in map(json.loads, lines) if entry["series"] == name and "imports_s" in entry]
    last = entries[-1] if entries else {"cpu_s": {}, "imports_s": imports_s}
    return {int(size): value * imports_s / last["imports_s"] for size, value in last["cpu_s"].items()}


def commit() -> str:
    """The commit that is measured; empty outside a checkout."""
    found = subprocess.run(("git", "rev-parse", "--short", "HEAD"), capture_output=True, text=True, check=False)
    return found.stdout.strip()


def measured(series: Series, *, runs: int, environment: Mapping[str, str]) -> dict[str, Any]:
    """Median processor time [s] and largest peak memory [bytes] by size, the imports beside each run [s]; the first run
    of each fills caches."""
    cpu_s, peak_bytes, imports_s = {}, {}, []
    for size in series.sizes:
        commands = series.command(size), (sys.executable, "-c", IMPORTS)
        pairs = [[cost_of(command, environment=environment) for command in commands] for _ in range(runs + 1)][1:]
        cpu_s[size] = statistics.median(cost.cpu_s for cost, _ in pairs)
        peak_bytes[size] = max(cost.peak_bytes for cost, _ in pairs)
        imports_s += [imports.cpu_s for _, imports in pairs]
    return {"cpu_s": cpu_s, "peak_bytes": peak_bytes, "imports_s": statistics.median(imports_s)}


def said(entry: Mapping[str, object], *, before: Mapping[int, float], series: Series) -> Sequence[str]:
    """One line for every size, and one for each bar."""
    cpu_s, peak_bytes = entry["cpu_s"], entry["peak_bytes"]
    assert isinstance(cpu_s, dict)
    assert isinstance(peak_bytes, dict)
    lines = []
    for size, seconds in cpu_s.items():
        ratio = f", {seconds / before[size]:.2f} x the last" if size in before else ""
        memory = f"{peak_bytes[size] / MEGA:7,.0f} MB"
        lines.append(f"{entry['series']:<7} {size:>10,} {series.unit:<30} {seconds:8.3f} s {memory}{ratio}")
    verdict = "met" if slope(cpu_s) <= series.bar else "MISSED"
    lines.append(f"{entry['series']:<7} slope {slope(cpu_s):.2f}, bar {series.bar:g}: {verdict}")
    if series.most_bytes < inf:
        most = max(peak_bytes.values())
        verdict = "met" if most <= series.most_bytes else "MISSED"
        lines.append(
            f"{entry['series']:<7} memory {most / MEGA:,.0f} MB, bar {series.most_bytes / MEGA:,.0f} MB: {verdict}"
        )
    return lines


def slower(cpu_s: Mapping[int, float], *, before: Mapping[int, float]) -> Mapping[int, float]:
    """Ratio to the last entry of the sizes that take over SLOWER times as long."""
    ratios = {size: seconds / before[size] for size, seconds in cpu_s.items() if size in before}
    return {size: ratio for size, ratio in ratios.items() if ratio > SLOWER}


def main() -> int:
    """Measure the series asked for, all of them by default."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SERIES)}")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--history", type=Path, help="file of JSON lines to compare with and to add to")
    parser.add_argument("--json", action="store_true", help="the entries alone on stdout")
    chosen = parser.parse_args()
    unknown = set(chosen.names) - set(SERIES)
    if unknown:
        parser.error(f"no series {', '.join(sorted(unknown))}; there are {', '.join(SERIES)}")
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ROOFCAST_CACHE": "off", "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for name in chosen.names or SERIES:
            found = measured(SERIES[name], runs=chosen.runs, environment=environment)
            now = datetime.now(UTC).isoformat(timespec="seconds")
            entry = {"series": name, "when": now, "version": __version__, "commit": commit(), **found}
            imports_s = found["imports_s"]
            before = last_entry(chosen.history, name=name, imports_s=imports_s) if chosen.history else {}
            print(json.dumps(entry) if chosen.json else "\n".join(said(entry, before=before, series=SERIES[name])))
            if chosen.history:
                with chosen.history.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(entry) + "\n")
            for size, ratio in slower(found["cpu_s"], before=before).items():
                print(f"warning: {name} at {size:,} takes {ratio:.2f} x the last entry", file=sys.stderr)
            missed |= slope(found["cpu_s"]) > SERIES[name].bar
            missed |= max(found["peak_bytes"].values()) > SERIES[name].most_bytes
    return int(missed)
