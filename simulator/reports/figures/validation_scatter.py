"""Predicted against measured, run by run."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.reports.figures.chart import Axis, Chart, Series, SeriesKind
from simulator.reports.quantities import percent_text, rate_text, seconds_text, signed_percent_text
from simulator.specs.validation_rows import ValidationRow

_BAND = 0.2
"""Half width of the band around the diagonal, as a fraction."""


def is_time(metric: str) -> bool:
    """Whether a metric is a time; the others are token rates."""
    return metric.endswith("_s") and not metric.endswith("_per_s")


def value_text(value: float, metric: str) -> str:
    """A time or a token rate in words."""
    return seconds_text(value) if is_time(metric) else rate_text(value, "tok")


def _label(row: ValidationRow) -> str:
    return (
        f"{row.deployment} on {row.hardware}, {row.load}: measured {value_text(row.measured, row.metric)}, "
        f"predicted {value_text(row.predicted, row.metric)} ({signed_percent_text(row.error)}), {row.provenance}"
    )


def validation_scatter_chart(rows: Sequence[ValidationRow]) -> Chart:
    """Points of one kind of metric (all times, or all rates) by source, with the diagonal and a band of 20 %."""
    times = is_time(rows[0].metric)
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
    sources = list(dict.fromkeys(row.source for row in rows))
    scatter = [
        Series(
            name=source,
            kind=SeriesKind.SCATTER,
            x=tuple(row.measured for row in rows if row.source == source),
            y=tuple(row.predicted for row in rows if row.source == source),
            labels=tuple(_label(row) for row in rows if row.source == source),
            color=place % 7,
        )
        for place, source in enumerate(sources)
    ]
    unit, what = ("s", "time") if times else ("tokens/s", "throughput")
    return Chart(
        key="validation_scatter",
        title=f"{percent_text(inside)} of {len(rows):,} values lie within 20 %",
        x=Axis(title=f"Measured {what}", unit=unit, log=True),
        y=Axis(title=f"Predicted {what}", unit=unit, log=True),
        series=(band, diagonal, *scatter),
        caption=(
            "Published measurements as their authors report them. Host overheads were fitted on the vLLM runs and on "
            "every third TensorRT-LLM row of H100; nothing else here was used in a fit."
        ),
    )
