"""The end-to-end scorecard: errors of whole runs against published measurements, by source, hardware and metric."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

import numpy as np

from simulator.reports.text_table import text_table

COLUMNS = ("source", "hardware", "metric", "runs", "mean error", "median", "p95", "bias", "in 80 % interval")
_TAIL = 0.95


class Predicted(Protocol):
    """A measured value with its prediction."""

    @property
    def source(self) -> str:
        """Who published the measurement."""
        ...

    @property
    def hardware(self) -> str:
        """What it ran on."""
        ...

    @property
    def metric(self) -> str:
        """What was measured."""
        ...

    @property
    def error(self) -> float:
        """Signed relative error."""
        ...

    @property
    def is_covered(self) -> bool | None:
        """Whether the measured value lies in the 80 % interval; None without one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEndScore:
    """Errors of one group of runs, as fractions.

    mean, median, p95 : of the absolute relative error; bias : mean signed error, positive where predictions are high
    coverage : share of measured values inside the 80 % interval, None where no run of the group has one
    """

    source: str
    hardware: str
    metric: str
    runs: int
    mean: float
    median: float
    p95: float
    bias: float
    coverage: float | None


def end_to_end_scores(predictions: Iterable[Predicted]) -> list[EndToEndScore]:
    """One row per source, hardware and metric, sorted."""
    groups: dict[tuple[str, str, str], list[Predicted]] = defaultdict(list)
    for item in predictions:
        groups[(item.source, item.hardware, item.metric)].append(item)
    return [
        _score(items, source=source, hardware=hardware, metric=metric)
        for (source, hardware, metric), items in sorted(groups.items())
    ]


def _score(items: Sequence[Predicted], *, source: str, hardware: str, metric: str) -> EndToEndScore:
    errors = np.array([item.error for item in items])
    sizes = np.abs(errors)
    covered = [item.is_covered for item in items if item.is_covered is not None]
    return EndToEndScore(
        source=source,
        hardware=hardware,
        metric=metric,
        runs=len(items),
        mean=float(sizes.mean()),
        median=float(np.median(sizes)),
        p95=float(np.quantile(sizes, _TAIL)),
        bias=float(errors.mean()),
        coverage=fmean(covered) if covered else None,
    )


def score_cells(row: EndToEndScore) -> tuple[str, ...]:
    """One score in the order of COLUMNS, percent."""
    return (
        row.source,
        row.hardware,
        row.metric,
        str(row.runs),
        f"{100 * row.mean:.1f} %",
        f"{100 * row.median:.1f} %",
        f"{100 * row.p95:.1f} %",
        f"{100 * row.bias:+.1f} %",
        "-" if row.coverage is None else f"{100 * row.coverage:.0f} %",
    )


def end_to_end_lines(rows: Sequence[EndToEndScore]) -> list[str]:
    """The scores as aligned lines under a heading."""
    return text_table(COLUMNS, [score_cells(row) for row in rows]).splitlines()
