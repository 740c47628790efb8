"""Seconds from a default plan to its whole set of reports, in a fresh process and warm.

python -m benchmarks.report_speed [--rps 1000]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BAR_S = 5.0


def _cold_s(rps: float) -> float:
    """The command ``roofcast report`` from start to exit [s]."""
    with tempfile.TemporaryDirectory() as folder:
        question = Path(folder) / "question.yaml"
        question.write_text(f"rps: {rps}\n", encoding="utf-8")
        command = [sys.executable, "-m", "simulator.cli.roofcast", "report", str(question), "--out", f"{folder}/report"]
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        return time.perf_counter() - start


def _warm_s(rps: float) -> tuple[float, float]:
    """Planning, then gathering and writing all formats, imports done before [s]."""
    from simulator.planner.plan import plan_capacity
    from simulator.reports.formats.files import write_reports
    from simulator.specs.question.plan import plan_spec

    times = (0.0, 0.0)
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            plan = plan_capacity(plan_spec({"rps": rps}))
            planned = time.perf_counter()
            write_reports(plan, folder=folder, command="", force=True)
            times = (planned - start, time.perf_counter() - planned)
    return times


def main() -> None:
    """Print the three times and whether the bar is met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rps", type=float, default=1000.0)
    rps = parser.parse_args().rps
    cold_s, (plan_s, report_s) = _cold_s(rps), _warm_s(rps)
    print(f"roofcast report, whole process: {cold_s:.2f} s (bar {BAR_S:g} s: {'met' if cold_s <= BAR_S else 'missed'})")
    print(f"warm: plan {plan_s:.2f} s, all formats {report_s:.2f} s")


if __name__ == "__main__":
    main()
