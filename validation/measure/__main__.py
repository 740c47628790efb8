"""``python -m validation.measure --device cuda --out measured.csv --budget-s 480``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch

from validation.measure.bench import bench_of
from validation.measure.run import machine_of, run_families, say
from validation.measure.table import Row, check_target, write_table

USAGE, IO = 2, 5


def _arguments(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m validation.measure",
        description="Measure the kernels of LLM inference on this machine, as CSV for roofcast calibrate.",
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: cuda)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.csv", help="the table to write")
    parser.add_argument("--budget-s", type=float, default=480.0, help="seconds for all families (default: 480)")
    parser.add_argument("--points", type=int, default=1, help="of each group at least, budget or not (default: 1)")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU (default: 1, steady on a shared machine)")
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="groups whose name has WORD")
    parser.add_argument("--force", action="store_true", help="overwrite FILE.csv")
    return parser.parse_args(words)


def main(words: list[str] | None = None) -> int:
    """Measure, and write what was measured even when stopped by Ctrl-C; returns the exit code."""
    arguments = _arguments(words)
    if not arguments.budget_s > 0:
        say(f"--budget-s {arguments.budget_s}: must be positive")
        return USAGE
    if arguments.device.startswith("cuda") and not torch.cuda.is_available():
        say("--device cuda: this torch sees no CUDA device; --device cpu measures this machine's CPU")
        return USAGE
    if not arguments.device.startswith("cuda"):
        torch.set_num_threads(max(1, arguments.threads))
    rows: list[Row] = []
    try:
        check_target(arguments.out, force=arguments.force)
        bench = bench_of(arguments.device)
        try:
            for row in run_families(
                bench, budget_s=arguments.budget_s, only=arguments.only, points_at_least=arguments.points
            ):
                rows.append(row)
        except KeyboardInterrupt:
            say("stopped; writing what was measured")
        if not rows:
            say("nothing was measured; no file written")
            return USAGE
        write_table(rows, arguments.out, machine=machine_of(bench), force=arguments.force)
    except OSError as error:
        say(f"--out: {error}")
        return IO
    say(f"{len(rows)} rows in {arguments.out}; next: roofcast calibrate {arguments.out} --hardware NAME")
    return 0


if __name__ == "__main__":
    sys.exit(main())
