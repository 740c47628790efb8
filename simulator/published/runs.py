"""Whole runs: each row is a scenario of the contract and one value that was printed of it."""

from __future__ import annotations

import json
from typing import Any

from simulator.engine.runs.answers import answer
from simulator.published.figures import FOLDER, PublishedFigure, by_scenario
from simulator.reports.answer import result_object
from simulator.specs.base import validate
from simulator.specs.question.scenario import ScenarioSpec

TOPIC = "engines"
DRIFT = 0.05
"""By how much a known miss may grow before it has to be looked at."""


def run_rows() -> list[dict[str, Any]]:
    """The rows of runs.jsonl."""
    return [json.loads(line) for line in (FOLDER / "runs.jsonl").read_text(encoding="utf-8").splitlines()]


def figures() -> list[PublishedFigure]:
    """Rows that come out within their tolerance, and known misses."""
    return [_figure(row) for row in run_rows()]


def _figure(row: dict[str, Any]) -> PublishedFigure:
    metric: str = row["metric"]

    def predict() -> float:
        scenario = validate(ScenarioSpec, row["scenario"], where=row["name"])
        return float(result_object(answer(scenario))[metric])

    return PublishedFigure(
        name=row["name"],
        topic=row.get("topic", TOPIC),
        published=row["published"],
        unit="tokens/s" if metric.endswith("_per_s") else "s",
        tolerance=row["tolerance"] if "tolerance" in row else abs(row["reached_error"]) + DRIFT,
        source=f"{row['citation']} ({row['version'][:12]})",
        statement=f"printed as {row['printed']}",
        reason=row.get("reason", ""),
        predict=predict,
        asked_by=by_scenario(row["scenario"], field=metric),
    )
