"""Predicted against measured, run by run; errors and coverage by source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind, marks, places
from simulator.reports.content.quantities import percent_text, signed_percent_text
from simulator.reports.words.runs import MetricKind, deployment_text, load_text, metric_kind, value_text
from simulator.specs.measured.scores import error_quantiles
from simulator.specs.measured.validation_rows import ValidationRow, coverage

_LEVEL = 80.0
_PERCENT = 100.0


def _by_source(rows: Sequence[ValidationRow]) -> dict[str, list[ValidationRow]]:
    found: dict[str, list[ValidationRow]] = {}
    for row in rows:
        found.setdefault(row.source, []).append(row)
    return found


def error_by_source_chart(rows: Sequence[ValidationRow]) -> Chart:
    """Median of the absolute error of every source [%], the closest first; whiskers hold the middle four fifths."""
    spread = {source: error_quantiles(items) for source, items in _by_source(rows).items()}
    names = sorted(spread, key=lambda name: spread[name][1])
    low, middle, high = (tuple(_PERCENT * spread[name][place] for name in names) for place in range(3))
    labels = tuple(f"median {value:.1f} %" for value in middle)
    return Chart(
        key="error_by_source",
        title=f"Medians from {middle[0]:.1f} % ({names[0]}) to {middle[-1]:.1f} % ({names[-1]})",
        x=Axis(title="", categories=tuple(names)),
        y=Axis(title="Absolute error", unit="%", low=0.0, high=1.05 * max(high)),
        series=(replace(_bars("median error", middle, color=0), low=low, high=high, labels=labels),),
        caption="Median by source; whiskers from the tenth to the ninetieth percentile of the absolute errors.",
    )


def _bars(name: str, values: Sequence[float], *, color: int) -> Series:
    return Series(name=name, kind=SeriesKind.BAR, x=places(len(values)), y=tuple(values), color=color)


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
        series=(_bars("in the 80 % interval", [found[name] for name in names], color=2),),
        annotations=(Annotation(text="", y=_LEVEL),),
        caption="The line is the promised share; well above it intervals are wider than they need to be.",
    )


_BAND = 0.2
"""Half width of the band around the diagonal, as a fraction."""


_AXES = {
    MetricKind.LATENCY: ("s", "time"),
    MetricKind.THROUGHPUT: ("tokens/s", "throughput"),
    MetricKind.ENERGY: ("J/token", "energy"),
}


def _label(row: ValidationRow) -> str:
    return (
        f"{deployment_text(row)} on {row.hardware}, {row.engine}, {row.mode}, {load_text(row)}: "
        f"measured {value_text(row.measured, row.metric)}, "
        f"predicted {value_text(row.predicted, row.metric)} ({signed_percent_text(row.error)}), {row.provenance}"
    )


def validation_scatter_chart(rows: Sequence[ValidationRow]) -> Chart:
    """Points of one kind of metric by source, with the diagonal and a band of 20 %."""
    values = [value for row in rows for value in (row.measured, row.predicted)]
    ends = (min(values) / 2, max(values) * 2)
    inside = sum(abs(row.error) <= _BAND for row in rows) / len(rows)
    band = Series(
        name="within 20 %",
        kind=SeriesKind.BAND,
        x=ends,
        low=tuple(end / (1 + _BAND) for end in ends),
        high=tuple(end * (1 + _BAND) for end in ends),
        color=7,
    )
    diagonal = Series(name="exact", kind=SeriesKind.CEILING, x=ends, y=ends, color=7, dashed=True)
    scatter = [
        marks(source, [(row.measured, row.predicted, _label(row)) for row in items], color=place % 7)
        for place, (source, items) in enumerate(_by_source(rows).items())
    ]
    unit, what = _AXES[metric_kind(rows[0].metric)]
    return Chart(
        key="validation_scatter",
        title=f"{percent_text(inside)} of {len(rows):,} values lie within 20 %",
        x=Axis(title=f"Measured {what}", unit=unit, log=True),
        y=Axis(title=f"Predicted {what}", unit=unit, log=True),
        series=(band, diagonal, *scatter),
        caption=(
            "Published measurements as their authors report them. Fitted on some: host overheads on vLLM's runs "
            "and every third TensorRT-LLM row of H100; routing skew, AMD's engines, power and widths on InferenceX."
        ),
    )
