"""``python -m validation.end_to_end --data DIR``: score the predictions against measured end-to-end runs.

``--scenarios FILE`` writes the scenarios for ``roofcast simulate`` and stops. ``python -m validation.readme`` puts the
table into the README.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from simulator.errors import RoofcastError
from validation.commands import exit_code_of
from validation.end_to_end.guess_gains import gains_table, guess_gains
from validation.end_to_end.measured.inferencex import MODES, TodayRun, load_disaggregated, load_inferencex
from validation.end_to_end.measured.sources import ALL_TABLES, TABLES, load_source, scenario_lines
from validation.end_to_end.score import markdown_table, predict, scores
from validation.end_to_end.speedups import SOURCES as GAIN_SOURCES
from validation.end_to_end.speedups import speedup_table, speedups
from validation.end_to_end.steps import groups_table, loop_parts, loops, steps_table
from validation.end_to_end.today import deployment_scores, predict_today, thinned, today_table, without_recipe
from validation.writing import write_whole


def _chosen(data: Path, *, mode: str, only: str, every: int) -> tuple[TodayRun, ...]:
    """Runs of a mode whose accelerator, engine or model contains ``only``, thinned to every n-th."""
    items = load_disaggregated(data) if mode == "disaggregated" else load_inferencex(data)
    kept = [
        item
        for item in items
        if item.mode == mode and any(only.lower() in name.lower() for name in (item.hardware, item.engine, item.model))
    ]
    return thinned(kept, every=every)


def _score_today(items: Iterable[TodayRun]) -> int:
    """Print the errors of InferenceX's runs over all and by deployment, and what was refused."""
    rows = predict_today(items)
    sys.stdout.write(markdown_table(scores([one for row in rows for one in row.predictions])) + "\n")
    sys.stdout.write(today_table(deployment_scores(rows)))
    for (hardware, model, reason), count in Counter(
        (row.item.hardware, row.item.model, str(row.refused)) for row in rows if row.refused is not None
    ).items():
        print(f"{hardware} {model}: {count} refused: {reason}", file=sys.stderr)
    return 0


def _print_steps(data: Path) -> int:
    """Print the time per token of closed loops by its parts, and what was refused."""
    found, refusals = loops(load_inferencex(data))
    parts = loop_parts(found)
    sys.stdout.write(steps_table(parts) + "\n" + groups_table(parts))
    for reason, count in Counter(map(str, refusals)).items():
        print(f"inferencex: {count} deployments refused: {reason}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m validation.end_to_end", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds e2e/")
    parser.add_argument("--source", action="append", choices=sorted(ALL_TABLES), help="only this source (repeatable)")
    parser.add_argument(
        "--today", action="store_true", help="InferenceX's closed loops instead: aggregated, without speculation"
    )
    parser.add_argument(
        "--mode",
        choices=MODES,
        default=MODES[0],
        help="--today: aggregated, aggregated with multi-token prediction (mtp), or disaggregated with and without it",
    )
    parser.add_argument(
        "--steps", action="store_true", help="with --today: time per token by its parts, measured and predicted"
    )
    parser.add_argument(
        "--gains", action="store_true", help="with --today --mode mtp: gain over the same run without guesses"
    )
    parser.add_argument("--every", type=int, default=1, help="--today: every n-th run of a deployment")
    parser.add_argument(
        "--without-recipes",
        action="store_true",
        help="--today: leave limits, cache format and guesses of the launch scripts to the engine's defaults",
    )
    parser.add_argument("--only", default="", help="--today: accelerators, engines, models with this in them")
    parser.add_argument("--scenarios", type=Path, help="write the scenarios as JSON lines and stop")
    parser.add_argument("--worst", type=int, default=0, help="print that many worst predictions")
    return parser


def main() -> int:
    """Score, print, and optionally write."""
    arguments = _parser().parse_args()
    if arguments.steps:
        if not arguments.today:
            raise RoofcastError("tells the parts of closed loops", field="--steps", hint="add --today")
        return _print_steps(arguments.data)
    if arguments.gains:
        if not arguments.today or arguments.mode != "mtp":
            raise RoofcastError("compares runs with guesses to others", field="--gains", hint="add --today --mode mtp")
        sys.stdout.write(gains_table(guess_gains(load_inferencex(arguments.data))))
        return 0
    if arguments.today:
        items = _chosen(arguments.data, mode=arguments.mode, only=arguments.only, every=max(1, arguments.every))
        if arguments.without_recipes:
            items = tuple(map(without_recipe, items))
        if not arguments.scenarios:
            return _score_today(items)
        runs = tuple(item.run for item in items)
    else:
        runs = tuple(run for name in arguments.source or sorted(TABLES) for run in load_source(name, arguments.data))
    if arguments.scenarios:
        write_whole(arguments.scenarios, scenario_lines(runs))
        return 0
    predictions, refused = predict(runs)
    table = markdown_table(scores(predictions))
    sys.stdout.write(table)
    gains = [run for run in runs if run.source in GAIN_SOURCES]
    if gains:
        sys.stdout.write("\n" + speedup_table(speedups(gains)))
    for (source, reason), count in Counter((run.source, str(error)) for run, error in refused).items():
        print(f"{source}: {count} refused: {reason}", file=sys.stderr)
    for item in sorted(predictions, key=lambda prediction: -abs(prediction.error))[: arguments.worst]:
        print(
            f"{item.source} {item.hardware} {item.metric} measured {item.measured:.4g} predicted {item.predicted:.4g}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(exit_code_of(main))
