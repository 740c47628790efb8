"""``python -m validation.end_to_end.stored --data DIR``: keep every predicted and measured value for the dashboard.

Writes ``hardware_profiles/validation/end_to_end.csv``, for an installed package to show its errors. ``--check``
writes nothing and fails when a stored prediction differs from today's by more than a percent.
"""

from __future__ import annotations

import argparse
import csv
import io
import math
import sys
from collections.abc import Iterator
from dataclasses import astuple, fields
from datetime import UTC, datetime
from pathlib import Path

from simulator.engine.runs.answers import answer
from simulator.errors import RoofcastError
from simulator.reports.contract import result_object
from simulator.specs.documents import validate
from simulator.specs.measured.validation_rows import (
    ValidationRow,
    load_validation_rows,
    validation_file,
    validation_heading,
)
from simulator.specs.question.scenario import ScenarioSpec
from simulator.version import __version__
from validation.commands import exit_code_of
from validation.end_to_end.runs import MeasuredRun
from validation.end_to_end.serving import METRICS, deployment_of, load_serving, predicted_stages, stage_metric
from validation.end_to_end.sources import TABLES, load_source
from validation.writing import write_whole

TOLERANCE = 0.01


def _load(scenario: ScenarioSpec) -> str:
    """What was asked of the deployment, in a few words."""
    many = scenario.batch_size or scenario.concurrency
    lengths = f"{scenario.isl_tokens} in, {scenario.osl_tokens} out"
    return f"{scenario.kind.replace('_', ' ')} {many or ''}: {lengths}".replace(" :", ":")


def _deployment(scenario: ScenarioSpec) -> str:
    weights = f", {scenario.precision.weights.value}" if scenario.precision.weights else ""
    return f"{scenario.model.rsplit('/', maxsplit=1)[-1]}, TP{scenario.tp_size}{weights}"


def _rows(run: MeasuredRun) -> Iterator[ValidationRow]:
    try:
        scenario = validate(ScenarioSpec, run.scenario, where=run.source)
        result = result_object(answer(scenario))
    except RoofcastError:
        return
    for metric, measured in run.measured.items():
        low, high = result["interval"].get(metric, (math.nan, math.nan))
        yield ValidationRow(
            source=run.source,
            hardware=scenario.hardware,
            deployment=_deployment(scenario),
            load=_load(scenario),
            metric=metric,
            measured=measured,
            predicted=result[metric],
            low=low,
            high=high,
            provenance=result["provenance"],
        )


def _serving_rows(data: Path) -> Iterator[ValidationRow]:
    for run in load_serving(data):
        if run.is_overload:
            continue
        stages = predicted_stages(run, deployment_of(run))
        rates = run.scenario.workload.stages if run.scenario.workload else ()
        for measured, stage, asked in zip(run.stages, stages, rates, strict=True):
            for metric in METRICS:
                yield ValidationRow(
                    source="vllm under load",
                    hardware=run.scenario.hardware,
                    deployment=_deployment(run.scenario),
                    load=f"serve at {asked.rate_per_s:g}/s",
                    metric=metric,
                    measured=measured[metric],
                    predicted=stage_metric(stage, metric),
                    low=math.nan,
                    high=math.nan,
                    provenance="calibrated",
                )


def all_rows(data: Path) -> list[ValidationRow]:
    """Every measured value below ``data`` that a scenario expresses, with its prediction."""
    runs = (run for name in sorted(TABLES) for run in load_source(name, data))
    return [*(row for run in runs for row in _rows(run)), *_serving_rows(data)]


def as_csv(rows: list[ValidationRow]) -> str:
    """The rows as text under today's date; figures with four digits, more than any measurement has."""
    stream = io.StringIO()
    stream.write(validation_heading(date=datetime.now(UTC).date().isoformat(), version=__version__))
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([field.name for field in fields(ValidationRow)])
    for row in rows:
        writer.writerow(
            "" if isinstance(cell, float) and math.isnan(cell) else f"{cell:.4g}" if isinstance(cell, float) else cell
            for cell in astuple(row)
        )
    return stream.getvalue()


def differing(stored: tuple[ValidationRow, ...], now: list[ValidationRow]) -> int:
    """How many stored predictions are not today's; all of them where rows came or went."""
    if [(row.source, row.load, row.metric) for row in stored] != [(row.source, row.load, row.metric) for row in now]:
        return max(len(stored), len(now))
    return sum(abs(old.predicted / new.predicted - 1) > TOLERANCE for old, new in zip(stored, now, strict=True))


def main() -> int:
    """Write or check the table."""
    parser = argparse.ArgumentParser(prog="python -m validation.end_to_end.stored", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds e2e/ and serving/")
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    rows = all_rows(arguments.data)
    if arguments.check:
        changed = differing(load_validation_rows(), rows)
        if changed:
            print(f"{changed} stored predictions are out of date: run it without --check", file=sys.stderr)
        return int(changed > 0)
    target = validation_file()
    target.parent.mkdir(exist_ok=True)
    write_whole(target, as_csv(rows))
    return 0


if __name__ == "__main__":
    raise SystemExit(exit_code_of(main))
