"""How many set-ups a wide search screens, and how long it takes: 12 accelerators x TP x PP x formats x engine limits.

Run with ``python -m benchmarks.search_speed [--runs 5]``. The first run reads every profile and prices each kernel; the
others find the profiles read. Wall and processor time of this one process; finalists are evaluated exactly within it.
"""

from __future__ import annotations

import argparse
import os
import time

from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import resolve
from simulator.planner.search.search import wide_search
from simulator.planner.search.wide_search import screen_space
from simulator.specs.question.plan import plan_spec

GPUS = (
    "h100", "h200", "b200", "a100", "mi300x", "mi325x", "l40s", "rtx-pro-6000", "b300-sxm", "gb200", "h20-96gb", "l4",
)  # fmt: skip
BAR_CANDIDATES, BAR_S = 100_000, 2.0


def main() -> None:
    """Print candidates, time per run and whether the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--model", default="llama-3.1-70b")
    parser.add_argument("--serving", action="append", default=[], help="aggregated, disaggregated; repeatable")
    chosen = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    asked = {"rps": 1000, "model": chosen.model, "hardware": GPUS, "serving": tuple(chosen.serving)}
    spec = plan_spec({**asked, "search": "wide", "any_precision": True, "pareto": True})
    slowest_s = 0.0
    for run in range(chosen.runs):
        question = resolve(spec)
        start_s, busy_s = time.perf_counter(), time.process_time()
        _, summary = wide_search(question, platforms(spec))
        wall_s, cpu_s = time.perf_counter() - start_s, time.process_time() - busy_s
        slowest_s = max(slowest_s, wall_s)
        print(
            f"run {run}: {summary.candidates:,} set-ups ({' x '.join(summary.axes)}), {summary.feasible:,} can serve, "
            f"{summary.finalists} evaluated exactly: wall {wall_s:.2f} s, cpu {cpu_s:.2f} s, "
            f"{summary.candidates / wall_s:,.0f} /s"
        )
    start_s = time.perf_counter()
    screen_space(question, platforms(spec))
    print(f"screening alone: {time.perf_counter() - start_s:.2f} s")
    met = summary.candidates >= BAR_CANDIDATES and slowest_s <= BAR_S
    print(f"bar of {BAR_CANDIDATES:,} in {BAR_S:g} s: {'met' if met else 'MISSED'} (slowest run {slowest_s:.2f} s)")


if __name__ == "__main__":
    main()
