"""``python -m validation.end_to_end.stored --data DIR``: keep every predicted and measured value for the dashboard.

Writes ``hardware_profiles/validation/end_to_end.csv``, for an installed package to show its errors, and
``today.jsonl``, the closed loops that it can predict anew. ``--check`` writes nothing and fails when a stored
prediction differs from today's by more than a percent.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple, fields
from datetime import UTC, datetime
from pathlib import Path

from simulator import __version__
from simulator.api.scored_runs import predicted_rows, run_facts
from simulator.specs.measured.validation_rows import (
    PackedRuns,
    RunsOrigin,
    ValidationRow,
    WholeRun,
    library_digest,
    load_validation_rows,
    runs_file,
    validation_file,
    validation_heading,
)
from validation.commands import exit_code_of
from validation.end_to_end.measured.inferencex import MODES, load_disaggregated, load_inferencex
from validation.end_to_end.measured.serving import METRICS, deployment_of, load_serving, predicted_stages, stage_metric
from validation.end_to_end.measured.sources import TABLES, load_source
from validation.end_to_end.today import thinned
from validation.writing import write_whole

TOLERANCE = 0.01


def packed_text(origin: RunsOrigin, runs: Iterable[WholeRun]) -> str:
    """The file of some runs: a heading, then one run a line."""
    lines = ({"scenario": dict(run.scenario), "measured": dict(run.measured)} for run in runs)
    return "".join(json.dumps(line) + "\n" for line in (asdict(origin), *lines))


def _serving_rows(data: Path) -> Iterator[ValidationRow]:
    for run in load_serving(data):
        if run.is_overload:
            continue
        stages = predicted_stages(run, deployment_of(run))
        rates = run.scenario.workload.stages if run.scenario.workload else ()
        for measured, stage, asked in zip(run.stages, stages, rates, strict=True):
            facts = run_facts(run.scenario, source="vllm under load", rate_per_s=asked.rate_per_s)
            for metric in METRICS:
                yield ValidationRow(
                    **asdict(facts),
                    metric=metric,
                    measured=measured[metric],
                    predicted=stage_metric(stage, metric),
                    low=math.nan,
                    high=math.nan,
                    provenance="calibrated",
                ).rounded()


TODAY_EVERY = {"aggregated": 3, "mtp": 3, "disaggregated": 9}
"""Each so manieth run of a mode is packed: pools take a second each to predict."""
TODAY_ORIGIN = RunsOrigin(
    source="inferencex",
    published="SemiAnalysisAI/InferenceX via MQubeAI/InferenceX-PCA-demo",
    revision="db9a587dcc329fce417d79d2d2790be0da22a6b0",
    date="2026-07-20",
    fitted="Fitted to runs of this source, with models left out in turn: the routing skew (one more for gpt-oss "
    "under TensorRT-LLM and ATOM), three numbers for each engine on AMD, the acceptance of prediction layers, power, "
    "the width of intervals; with runs of the table in view: SGLang's experts in prefill pools on Blackwell servers "
    "and its FP8 products on AMD, narrow FP8 experts on AMD, NVFP4 products, the hand-over between pools, a "
    "host's time of prompt tokens beyond 1,034; from unscored runs: sequences of SGLang's FP8 decode "
    "ranks on MI355X and its one guess a round on H200; not fitted to them: NVIDIA's other kernels and host times",
    selection="every third run of each accelerator, engine, model and weight format, of disaggregated ones every ninth",
)


def today_runs(data: Path) -> PackedRuns:
    """The sample of InferenceX that the package holds."""
    items = (*load_inferencex(data), *load_disaggregated(data))
    modes = {mode: [item for item in items if item.mode == mode] for mode in MODES}
    kept = [item.run for mode, same in modes.items() for item in thinned(same, every=TODAY_EVERY[mode])]
    return PackedRuns(origin=TODAY_ORIGIN, runs=tuple(kept))


def all_rows(data: Path, *, today: PackedRuns) -> list[ValidationRow]:
    """Every measured value below ``data`` that a scenario expresses, with its prediction."""
    runs = [run for name in sorted(TABLES) for run in load_source(name, data)]
    return [*predicted_rows(runs), *_serving_rows(data), *predicted_rows(today.runs)]


def as_csv(rows: list[ValidationRow]) -> str:
    """The rows as text under today's date."""
    stream = io.StringIO()
    stream.write(
        validation_heading(date=datetime.now(UTC).date().isoformat(), version=__version__, digest=library_digest())
    )
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([field.name for field in fields(ValidationRow)])
    for row in rows:
        writer.writerow(map(_cell, astuple(row)))
    return stream.getvalue()


def _cell(value: str | float | None) -> str:
    """Nothing stands for None and NaN."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.4g}"
    return "" if value is None else str(value)


def differing(stored: tuple[ValidationRow, ...], now: list[ValidationRow]) -> int:
    """How many stored predictions are not today's; all of them where rows came or went."""
    if [(row.source, row.run, row.metric) for row in stored] != [(row.source, row.run, row.metric) for row in now]:
        return max(len(stored), len(now))
    return sum(abs(old.predicted / new.predicted - 1) > TOLERANCE for old, new in zip(stored, now, strict=True))


def main() -> int:
    """Write or check the table."""
    parser = argparse.ArgumentParser(prog="python -m validation.end_to_end.stored", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds e2e/ and serving/")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    today = today_runs(arguments.data)
    rows = all_rows(arguments.data, today=today)
    if arguments.check:
        changed = differing(load_validation_rows(), rows)
        if changed:
            print(f"{changed} stored predictions are out of date: run it without --check", file=sys.stderr)
        return int(changed > 0)
    target = validation_file()
    target.parent.mkdir(exist_ok=True)
    write_whole(target, as_csv(rows))
    write_whole(runs_file(), packed_text(today.origin, today.runs))
    return 0


if __name__ == "__main__":
    raise SystemExit(exit_code_of(main))
