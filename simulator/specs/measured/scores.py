"""How far predictions are off: held-out errors of kernel fits, and errors of whole runs against measured values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import get_args

import numpy as np

from simulator.records import dataclass
from simulator.specs.hardware.calibration import CalibrationGroup, FitError, calibrated_hardware, load_calibration
from simulator.specs.measured.validation_rows import Predicted, ValidationRow, coverage

GROUPS: tuple[CalibrationGroup, ...] = get_args(CalibrationGroup)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelScore:
    """Held-out error of one family and format, its variants weighted by their points (fractions).

    mape : mean absolute percentage error; bias : mean signed error, positive where predictions are slow
    coverage_80 : share of the points inside the stated 80 % interval
    points : held-out measurements; without any, the errors are None
    """

    hardware: str
    library: str
    group: str
    family: str
    format: str
    mape: float | None
    bias: float | None
    coverage_80: float | None
    points: int


def kernel_scores(
    library: str,
    *,
    groups: Sequence[CalibrationGroup] = GROUPS,
    hardware: str | None = None,
    profiles: str | None = None,
) -> list[KernelScore]:
    """One row per accelerator (or only ``hardware``), group, family and format of one library."""
    rows: list[KernelScore] = []
    for group in groups:
        for name in calibrated_hardware(library, group=group, profiles=profiles):
            if hardware not in (None, name):
                continue
            calibration = load_calibration(name, library=library, group=group, profiles=profiles)
            assert calibration is not None, "calibrated_hardware names files that exist"
            merged: dict[tuple[str, str], list[FitError]] = defaultdict(list)
            for fit in calibration.fits:
                merged[(fit.family, fit.format)].append(fit.error)
            rows += [
                KernelScore(
                    hardware=name,
                    library=library,
                    group=group,
                    family=family,
                    format=fmt,
                    mape=_mean(errors, attrgetter("score_mape")),
                    bias=_mean(errors, attrgetter("score_bias")),
                    coverage_80=_mean(errors, attrgetter("coverage_80")),
                    points=sum(error.score_points for error in errors),
                )
                for (family, fmt), errors in merged.items()
            ]
    return rows


def _mean(errors: Sequence[FitError], of: Callable[[FitError], float]) -> float | None:
    """Weighted by points; None without any."""
    points = sum(error.score_points for error in errors)
    return sum(of(error) * error.score_points for error in errors) / points if points else None


_TAIL = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorScore:
    """Errors of some values, as fractions.

    mean, median, p95 : of the absolute relative error; bias : mean signed error, positive where predictions are high
    coverage : share of measured values inside the 80 % interval, None where no value has one
    """

    runs: int
    mean: float
    median: float
    p95: float
    bias: float
    coverage: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndToEndScore:
    """Errors of one metric of a source on one accelerator."""

    source: str
    hardware: str
    metric: str
    score: ErrorScore


def scored_values(scores: Iterable[EndToEndScore]) -> int:
    """How many values were compared."""
    return sum(row.score.runs for row in scores)


def error_score(items: Sequence[Predicted]) -> ErrorScore:
    """What is said of the errors of at least one value."""
    errors = np.array([item.error for item in items])
    sizes = np.abs(errors)
    return ErrorScore(
        runs=len(items),
        mean=float(sizes.mean()),
        median=float(np.median(sizes)),
        p95=float(np.quantile(sizes, _TAIL)),
        bias=float(errors.mean()),
        coverage=coverage(items),
    )


def error_quantiles(items: Sequence[Predicted]) -> tuple[float, float, float]:
    """The tenth, the fiftieth and the ninetieth percentile of the absolute relative errors."""
    low, middle, high = np.quantile([abs(item.error) for item in items], (0.1, 0.5, 0.9)).tolist()
    return low, middle, high


def end_to_end_scores(predictions: Iterable[Predicted]) -> list[EndToEndScore]:
    """One row per source, hardware and metric, sorted."""
    groups: dict[tuple[str, str, str], list[Predicted]] = defaultdict(list)
    for item in predictions:
        groups[(item.source, item.hardware, item.metric)].append(item)
    return [
        EndToEndScore(source=source, hardware=hardware, metric=metric, score=error_score(items))
        for (source, hardware, metric), items in sorted(groups.items())
    ]


_COUNTED_AS = {"decode_energy_per_output_token_j": "energy_per_output_token_j"}
ALL = "all"
"""Stands for every engine, class of models and mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TodayScore:
    """Errors of one accelerator, engine, class of model and mode; "all" stands for every one.

    metrics : by metric; together : of all values at once, whose coverage is that of the group
    """

    hardware: str
    engine: str
    model_class: str
    mode: str
    runs: int
    metrics: Mapping[str, ErrorScore]
    together: ErrorScore


def today_scores(rows: Sequence[ValidationRow]) -> list[TodayScore]:
    """One score for each accelerator as a whole, then one per engine, class and mode on it."""
    groups: dict[tuple[str, ...], list[ValidationRow]] = defaultdict(list)
    for row in rows:
        groups[row.hardware, ALL, ALL, ALL].append(row)
        groups[row.hardware, row.engine, row.model_class, row.mode].append(row)
    wholes_first = sorted(groups, key=lambda key: (key[0], key[1] != ALL, key[1:]))
    return [_score(key, groups[key]) for key in wholes_first]


def _score(key: tuple[str, ...], rows: Sequence[ValidationRow]) -> TodayScore:
    by_metric: dict[str, list[ValidationRow]] = defaultdict(list)
    for row in rows:
        by_metric[_COUNTED_AS.get(row.metric, row.metric)].append(row)
    hardware, engine, model_class, mode = key
    return TodayScore(
        hardware=hardware,
        engine=engine,
        model_class=model_class,
        mode=mode,
        runs=len({(row.source, row.run) for row in rows}),
        metrics={metric: error_score(items) for metric, items in by_metric.items()},
        together=error_score(rows),
    )
