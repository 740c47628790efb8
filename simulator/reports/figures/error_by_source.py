"""How far predictions are from what each source measured, and how often their intervals hold it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.reports.figures.chart import Annotation, Axis, Chart, Series, SeriesKind
from simulator.reports.quantities import percent_text
from simulator.specs.validation_rows import ValidationRow, coverage

_INNER = (0.1, 0.5, 0.9)
"""Quantiles of absolute errors: lower whisker, bar, upper whisker."""
_LEVEL = 80.0
_PERCENT = 100.0


def _by_source(rows: Sequence[ValidationRow]) -> dict[str, list[ValidationRow]]:
    found: dict[str, list[ValidationRow]] = {}
    for row in rows:
        found.setdefault(row.source, []).append(row)
    return found


def _error_quantiles(rows: Sequence[ValidationRow]) -> tuple[float, float, float]:
    low, middle, high = np.quantile([abs(row.error) for row in rows], _INNER)
    return float(low), float(middle), float(high)


def error_by_source_chart(rows: Sequence[ValidationRow]) -> Chart:
    """Median of the absolute error of every source [%], the closest first; whiskers hold the middle four fifths."""
    spread = {source: _error_quantiles(items) for source, items in _by_source(rows).items()}
    names = sorted(spread, key=lambda name: spread[name][1])
    low, middle, high = (tuple(_PERCENT * spread[name][place] for name in names) for place in range(len(_INNER)))
    return Chart(
        key="error_by_source",
        title=f"Medians from {middle[0]:.1f} % ({names[0]}) to {middle[-1]:.1f} % ({names[-1]})",
        x=Axis(title="", categories=tuple(names)),
        y=Axis(title="Absolute error", unit="%", low=0.0, high=1.05 * max(high)),
        series=(
            Series(
                name="median error",
                kind=SeriesKind.BAR,
                x=tuple(float(place) for place, _ in enumerate(names)),
                y=middle,
                low=low,
                high=high,
                labels=tuple(f"median {value:.1f} %" for value in middle),
                color=0,
            ),
        ),
        caption="Median by source; whiskers from the tenth to the ninetieth percentile of the absolute errors.",
    )


def coverage_by_source_chart(rows: Sequence[ValidationRow]) -> Chart:
    """Share of each source's measured values that lie in the 80 % interval [%], and the share that should."""
    shares = {source: coverage(items) for source, items in _by_source(rows).items()}
    found = {source: _PERCENT * share for source, share in shares.items() if share is not None}
    names = sorted(found, key=lambda name: found[name])
    within = coverage(rows)
    share = "No intervals" if within is None else f"{percent_text(within)} of all values lie in their 80 % interval"
    return Chart(
        key="coverage_by_source",
        title=share,
        x=Axis(title="", categories=tuple(names)),
        y=Axis(title="In the 80 % interval", unit="%", low=0.0, high=_PERCENT),
        series=(
            Series(
                name="in the 80 % interval",
                kind=SeriesKind.BAR,
                x=tuple(float(place) for place, _ in enumerate(names)),
                y=tuple(found[name] for name in names),
                color=2,
            ),
        ),
        annotations=(Annotation(text="", y=_LEVEL),),
        caption="The line is the promised share; well above it intervals are wider than they need to be.",
    )
