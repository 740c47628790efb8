"""Prediction error per source, hardware and metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.engine.runs.answers import answer
from simulator.errors import RoofcastError
from simulator.reports.answer import result_object
from simulator.reports.tables.validation import COLUMNS, score_cells
from simulator.specs.base import validate
from simulator.specs.measured.scores import EndToEndScore, end_to_end_scores
from simulator.specs.measured.validation_rows import Predicted
from simulator.specs.question.scenario import ScenarioSpec
from validation.end_to_end.measured.runs import MeasuredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction(Predicted):
    """One measured value beside its prediction and 80 % interval."""

    source: str
    hardware: str
    metric: str
    measured: float
    predicted: float
    low: float | None
    high: float | None


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


def scores(predictions: Iterable[Prediction]) -> list[EndToEndScore]:
    """One row per source, hardware and metric."""
    return end_to_end_scores(predictions)


def markdown_table(rows: Iterable[EndToEndScore]) -> str:
    """The scores as a table for people (percent)."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for row in rows:
        cells = score_cells(row)
        lines.append("| " + " | ".join((*cells[:2], f"`{cells[2]}`", *cells[3:])) + " |")
    return "\n".join(lines) + "\n"
