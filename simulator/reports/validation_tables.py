"""What the stored measurements say about the predictions: errors and coverage by source, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from simulator.reports.figures.validation_scatter import value_text
from simulator.reports.quantities import percent_text
from simulator.reports.scorecard import KernelScore, kernel_scores
from simulator.specs.calibrations import calibrated_hardware
from simulator.specs.loading import list_hardware
from simulator.specs.validation_rows import ValidationRow

SOURCE_COLUMNS = ("source", "metric", "runs", "mean error", "median", "bias", "in 80 % interval")
RUN_COLUMNS = ("source", "accelerator", "deployment", "load", "metric", "measured", "predicted", "error")
KERNEL_COLUMNS = ("family", "format", "mean error", "bias", "in 80 % interval", "points")
KNOWN_COLUMNS = ("accelerator", "how its kernels are known")


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationSummary:
    """All stored runs in three numbers (fractions)."""

    runs: int
    sources: int
    median_error: float
    mean_error: float
    coverage: float | None


def validation_summary(rows: Sequence[ValidationRow]) -> ValidationSummary:
    """Errors of all rows, and the share of those with an interval that it covers."""
    errors = [abs(row.error) for row in rows]
    covered = [row.is_covered for row in rows if row.is_covered is not None]
    return ValidationSummary(
        runs=len(rows),
        sources=len({row.source for row in rows}),
        median_error=median(errors),
        mean_error=fmean(errors),
        coverage=fmean(covered) if covered else None,
    )


def _coverage(rows: Sequence[ValidationRow]) -> str:
    covered = [row.is_covered for row in rows if row.is_covered is not None]
    return percent_text(fmean(covered)) if covered else "–"


def source_rows(rows: Sequence[ValidationRow]) -> list[tuple[str, ...]]:
    """One line per source and metric, in the order of SOURCE_COLUMNS."""
    groups: dict[tuple[str, str], list[ValidationRow]] = {}
    for row in rows:
        groups.setdefault((row.source, row.metric), []).append(row)
    return [
        (
            source,
            metric,
            str(len(items)),
            percent_text(fmean(abs(item.error) for item in items)),
            percent_text(median(abs(item.error) for item in items)),
            f"{100 * fmean(item.error for item in items):+.1f} %",
            _coverage(items),
        )
        for (source, metric), items in sorted(groups.items())
    ]


def run_rows(rows: Sequence[ValidationRow]) -> list[tuple[str, ...]]:
    """Every run, the worst first, in the order of RUN_COLUMNS."""
    return [
        (
            row.source,
            row.hardware,
            row.deployment,
            row.load,
            row.metric,
            value_text(row.measured, row.metric),
            value_text(row.predicted, row.metric),
            f"{100 * row.error:+.1f} %",
        )
        for row in sorted(rows, key=lambda row: -abs(row.error))
    ]


def _percent(value: float | None) -> str:
    return "–" if value is None else percent_text(value)


def kernel_rows(hardware: str, *, library: str, profiles: str | None = None) -> list[tuple[str, ...]]:
    """Held-out errors of one accelerator's kernel fits, in the order of KERNEL_COLUMNS."""
    scores: list[KernelScore] = kernel_scores(library, hardware=hardware, profiles=profiles)
    return [
        (
            score.family.replace("_", " "),
            score.format,
            _percent(score.mape),
            "–" if score.bias is None else f"{100 * score.bias:+.1f} %",
            _percent(score.coverage_80),
            f"{score.points:,}",
        )
        for score in scores
        if score.group != "roofline"
    ]


def known_rows(*, library: str, profiles: str | None = None) -> list[tuple[str, str]]:
    """Every accelerator, and whether its kernels were measured or are derived, in the order of KNOWN_COLUMNS."""
    measured = set(calibrated_hardware(library, group="gemm", profiles=profiles))
    return [
        (
            name,
            "calibrated on its own measured kernels" if name in measured else "extrapolated from its nearest relative",
        )
        for name in list_hardware(profiles=profiles)
    ]
