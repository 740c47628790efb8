"""``python -m validation.measure --device cuda --out measured.csv --budget-s 480``."""

from __future__ import annotations

import argparse
import random
import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from validation.measure.anchors import preheat
from validation.measure.bench import Bench, Group, bench_of
from validation.measure.machine import machine_of
from validation.measure.restarts import BROKEN, run_with_restarts
from validation.measure.run import MEASURED, chosen_groups, run_groups, say
from validation.measure.table import Table, check_target
from validation.measure.timing import DeviceBrokenError

USAGE, IO = 2, 5


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m validation.measure",
        description="Measure the kernels of LLM inference on this machine, as CSV for roofcast calibrate. Every row is "
        "on the disk as soon as it was measured: a run that is stopped leaves a table that can be used.",
    )
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N or cpu (default: cuda)")
    parser.add_argument("--out", type=Path, metavar="FILE.csv", help="the table to write; needed without --list")
    parser.add_argument("--budget-s", type=float, default=480.0, help="seconds for all groups (default: 480)")
    parser.add_argument("--points", type=int, default=1, help="of each group at least, budget or not (default: 1)")
    parser.add_argument("--threads", type=int, default=1, help="of a CPU (default: 1, steady on a shared machine)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="this group; see --list")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each group's N-th cases alone (default: 1)")
    parser.add_argument("--skip", action="append", default=[], metavar="NAME", help="not this group")
    parser.add_argument("--list", action="store_true", help="print the names of the groups and stop")
    parser.add_argument("--seed", type=int, default=0, help="of the operands and the order of the groups (default: 0)")
    parser.add_argument("--append", action="store_true", help="add rows to FILE.csv of the same machine")
    parser.add_argument("--force", action="store_true", help="overwrite FILE.csv")
    parser.add_argument(
        "--isolate",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="measure in a process of its own, started again where a kernel breaks the device (default: on CUDA)",
    )
    parser.add_argument("--watched", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(words)
    if arguments.out is None and not arguments.list:
        parser.error("the following arguments are required: --out")
    return arguments


def _raise_interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _worker_command(words: Sequence[str], skipped: Sequence[str], left_s: float) -> list[str]:
    """The same run in a new process, which goes on in the table; later words win over earlier ones."""
    skips = [word for name in skipped for word in ("--skip", name)]
    changed = ["--no-isolate", "--watched", "--append", "--budget-s", f"{left_s:.1f}", *skips]
    return [sys.executable, "-m", "validation.measure", *words, *changed]


def _tell_parent(word: str, name: str) -> None:
    """Where the run is, for the process that watches it."""
    print(f"{word}\t{name}", flush=True)


def _tell_nobody(word: str, name: str) -> None:
    """A run in this process is not watched."""


def _measure(groups: Sequence[Group], *, bench: Bench, arguments: argparse.Namespace) -> int:
    """Measure into the table; returns the exit code."""
    torch.manual_seed(arguments.seed)
    random.seed(arguments.seed)
    machine = machine_of(bench, seed=arguments.seed)
    count = 0
    tell = _tell_parent if arguments.watched else _tell_nobody
    with Table(arguments.out, machine=machine, force=arguments.force, append=arguments.append) as table:
        try:
            preheat(bench)
            for row in run_groups(
                groups, bench=bench, budget_s=arguments.budget_s, tell=tell, points_at_least=arguments.points
            ):
                table.write(row)
                count += 1
                tell(MEASURED, row.family)
        except KeyboardInterrupt:
            say("stopped; the table holds what was measured")
        except DeviceBrokenError as error:
            say(f"the device answers nothing any more: {error}")
            return BROKEN
    say(f"{count} rows in {arguments.out}; next: roofcast calibrate {arguments.out} --hardware NAME")
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Measure; returns the exit code."""
    words = list(sys.argv[1:] if words is None else words)
    arguments = _arguments(words)
    if not arguments.budget_s > 0:
        say(f"--budget-s {arguments.budget_s}: must be positive")
        return USAGE
    if arguments.every < 1:
        say(f"--every {arguments.every}: must be at least 1")
        return USAGE
    if not re.fullmatch(r"cpu|cuda(:\d+)?", arguments.device):
        say(f"--device {arguments.device}: not allowed; allowed: cuda, cuda:N, cpu")
        return USAGE
    is_cuda = arguments.device.startswith("cuda")
    if is_cuda and not torch.cuda.is_available():
        say("--device cuda: this torch sees no CUDA device; --device cpu measures this machine's CPU")
        return USAGE
    if not is_cuda:
        torch.set_num_threads(max(1, arguments.threads))
    try:
        if not (arguments.append or arguments.list):
            check_target(arguments.out, force=arguments.force)
        bench = bench_of(arguments.device)
        groups = chosen_groups(bench, seed=arguments.seed, only=arguments.only, without=arguments.skip)
        groups = [replace(group, cases=group.cases[:: arguments.every]) for group in groups]
        if arguments.list:
            print("\n".join(sorted(group.name for group in groups)))
            return 0
        if arguments.isolate or (arguments.isolate is None and is_cuda):
            if arguments.force:
                arguments.out.unlink(missing_ok=True)
            return run_with_restarts(partial(_worker_command, words), budget_s=arguments.budget_s)
        return _measure(groups, bench=bench, arguments=arguments)
    except ValueError as error:
        say(str(error))
        return USAGE
    except OSError as error:
        say(f"--out: {error}")
        return IO


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _raise_interrupt)
    sys.exit(main())
