"""Prediction error per source, hardware and metric."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.engine.answers import answer
from simulator.errors import RoofcastError
from simulator.reports.contract import result_object
from simulator.specs.documents import validate
from simulator.specs.scenario import ScenarioSpec
from validation.end_to_end.runs import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """One measured value beside its prediction and 80 % interval."""

    source: str
    hardware: str
    metric: str
    measured: float
    predicted: float
    low: float | None
    high: float | None

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of one group: fractions. ``coverage`` is the share of measured values inside the 80 % interval."""

    source: str
    hardware: str
    metric: str
    runs: int
    mean: float
    median: float
    p95: float
    bias: float
    coverage: float


def _prediction(run: MeasuredRun, result: Mapping[str, Any], metric: str) -> Prediction:
    low, high = result["interval"].get(metric, (None, None))
    return Prediction(
        source=run.source,
        hardware=str(run.scenario["hardware"]),
        metric=metric,
        measured=run.measured[metric],
        predicted=result[metric],
        low=low,
        high=high,
    )


def predict(runs: Iterable[MeasuredRun]) -> tuple[list[Prediction], list[tuple[MeasuredRun, RoofcastError]]]:
    """Predictions of every measured value, and the runs that were refused with the reason."""
    predictions: list[Prediction] = []
    refused: list[tuple[MeasuredRun, RoofcastError]] = []
    for run in runs:
        try:
            result = result_object(answer(validate(ScenarioSpec, run.scenario, where=run.source)))
        except RoofcastError as error:
            refused.append((run, error))
            continue
        predictions += [_prediction(run, result, metric) for metric in run.measured]
    return predictions, refused


def scores(predictions: Iterable[Prediction]) -> list[Score]:
    """One row per source, hardware and metric."""
    groups: dict[tuple[str, str, str], list[Prediction]] = defaultdict(list)
    for item in predictions:
        groups[(item.source, item.hardware, item.metric)].append(item)
    rows = []
    for (source, hardware, metric), items in sorted(groups.items()):
        errors = np.array([item.error for item in items])
        inside = [
            item.low <= item.measured <= item.high for item in items if item.low is not None and item.high is not None
        ]
        rows.append(
            Score(
                source=source,
                hardware=hardware,
                metric=metric,
                runs=len(items),
                mean=float(np.abs(errors).mean()),
                median=float(np.median(np.abs(errors))),
                p95=float(np.quantile(np.abs(errors), 0.95)),
                bias=float(errors.mean()),
                coverage=float(np.mean(inside)) if inside else float("nan"),
            )
        )
    return rows


def markdown_table(rows: Iterable[Score]) -> str:
    """The scores as a table for people (percent)."""
    lines = [
        "| source | hardware | metric | runs | mean error | median | p95 | bias | in 80 % interval |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        coverage = "-" if np.isnan(row.coverage) else f"{100 * row.coverage:.0f} %"
        lines.append(
            f"| {row.source} | {row.hardware} | `{row.metric}` | {row.runs} | {100 * row.mean:.1f} % | "
            f"{100 * row.median:.1f} % | {100 * row.p95:.1f} % | {100 * row.bias:+.1f} % | {coverage} |"
        )
    return "\n".join(lines) + "\n"
