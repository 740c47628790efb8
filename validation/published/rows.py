"""The published tables as rows, and what the simulator says to each."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simulator.errors import RoofcastError
from validation.end_to_end.runs import MeasuredRun
from validation.end_to_end.score import predict
from validation.end_to_end.sources import TABLES

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRun:
    """One transcribed measurement. ``limit`` bounds the absolute relative error: a tolerance, or what was reached."""

    label: str
    run: MeasuredRun
    limit: float
    reason: str = ""


def _read(file: str) -> list[dict[str, str]]:
    with (FOLDER / file).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _label(row: Mapping[str, str]) -> str:
    model, hardware = row["model"].split(" (")[0], row["hardware"].split(" (")[0]
    load = f"b{row['batch_or_concurrency']}-isl{row['isl']}"
    return "-".join([row["mapping"], model, hardware, f"tp{row['tp']}", load, row["metric"]]).replace(" ", "_")


def _run(row: dict[str, str]) -> MeasuredRun:
    _, mapping = TABLES[row["mapping"]]
    (run,) = mapping([row])
    return run


def measured_runs() -> list[PublishedRun]:
    """Rows that the simulator reproduces within their tolerance."""
    return [
        PublishedRun(label=_label(row), run=_run(row), limit=float(row["tolerance"]))
        for row in _read("measured_runs.csv")
    ]


def known_misses() -> list[PublishedRun]:
    """Rows that it does not, with the reason."""
    return [
        PublishedRun(label=_label(row), run=_run(row), limit=abs(float(row["reached_error"])), reason=row["reason"])
        for row in _read("known_misses.csv")
    ]


def error_of(published: PublishedRun) -> float:
    """Signed relative error of the prediction; raises what the simulator refused."""
    predictions, refused = predict([published.run])
    for _, refusal in refused:
        raise RoofcastError(f"{published.label}: {refusal}") from refusal
    (prediction,) = predictions
    return prediction.error
