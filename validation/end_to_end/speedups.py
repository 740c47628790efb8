"""What quantisation and sparsity gain: measured and predicted ratios to the unquantised run of the same deployment."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from validation.end_to_end.measured.runs import MeasuredRun
from validation.end_to_end.score import Prediction, predict

PLAIN_WEIGHTS = ("bf16", "fp16")
SOURCES = ("gpt-fast", "torchao", "tinychat")


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """Speed of one run over that of its unquantised counterpart."""

    source: str
    model: str
    hardware: str
    tp_size: int
    what: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Signed relative error of the predicted speedup."""
        return self.predicted / self.measured - 1


def is_plain(run: MeasuredRun) -> bool:
    """Whether the run is an unquantised one."""
    precision = run.scenario["precision"]
    return precision.get("weights") in PLAIN_WEIGHTS and not run.scenario.get("techniques", {}).get("sparsity")


def deployment_key(run: MeasuredRun) -> str:
    """What a run shares with its unquantised counterpart."""
    kept = {key: value for key, value in run.scenario.items() if key not in ("id", "precision", "techniques")}
    return json.dumps([run.source, kept, sorted(run.measured)], sort_keys=True)


def _name(run: MeasuredRun) -> str:
    precision: dict[str, Any] = run.scenario["precision"]
    parts = [precision.get("scheme") or precision["weights"], precision.get("kernel")]
    parts.append(run.scenario.get("techniques", {}).get("sparsity"))
    return " ".join(part for part in parts if part)


def _rate(item: Prediction) -> tuple[float, float]:
    """(measured, predicted) as a speed, whichever way the metric points."""
    if item.metric.endswith("_s") and "per_s" not in item.metric:
        return 1 / item.measured, 1 / item.predicted
    return item.measured, item.predicted


def speedups(runs: Iterable[MeasuredRun]) -> list[Speedup]:
    """Speedups of all quantised runs that have an unquantised counterpart in the same source."""
    found: dict[str, tuple[float, float]] = {}
    narrow: list[tuple[MeasuredRun, tuple[float, float]]] = []
    for run in runs:
        predictions, refused = predict([run])
        if refused or not predictions:
            continue
        if is_plain(run):
            found[deployment_key(run)] = _rate(predictions[0])
        else:
            narrow.append((run, _rate(predictions[0])))
    return [
        Speedup(
            source=run.source,
            model=run.scenario["model"],
            hardware=run.scenario["hardware"],
            tp_size=run.scenario.get("tp_size", 1),
            what=_name(run),
            measured=rates[0] / found[deployment_key(run)][0],
            predicted=rates[1] / found[deployment_key(run)][1],
        )
        for run, rates in narrow
        if deployment_key(run) in found
    ]


def speedup_table(rows: Iterable[Speedup]) -> str:
    """The speedups and their mean error by source, for people."""
    lines = [
        "| source | model | hardware | TP | what | measured | predicted | error |",
        "|---|---|---|---|---|---|---|---|",
    ]
    listed = list(rows)
    for row in listed:
        lines.append(
            f"| {row.source} | {row.model} | {row.hardware} | {row.tp_size} | {row.what} | {row.measured:.2f}x | "
            f"{row.predicted:.2f}x | {100 * row.error:+.1f} % |"
        )
    for source in sorted({row.source for row in listed}):
        errors = [abs(row.error) for row in listed if row.source == source]
        lines.append(f"| {source} | all | | | {len(errors)} speedups | | | {100 * float(np.mean(errors)):.1f} % mean |")
    return "\n".join(lines) + "\n"
