"""Latency against load, from idle to overload."""

from __future__ import annotations

from simulator.engine.load_sweep import LoadSweep, summary_of
from simulator.reports.figures.chart import Annotation, Axis, Chart, Series, SeriesKind

_PERCENTILES = (("p50", "p50_s", 4), ("p95", "p95_s", 0), ("p99", "p99_s", 3))
_SHOWN_FACTOR = 12.0
"""The axis ends at this many times the latency of an idle deployment: overload is off every scale."""


def load_latency_chart(sweep: LoadSweep, *, metric: str = "ttft") -> Chart:
    """Percentiles of ``ttft``, ``tpot`` or ``e2e`` over the arrival rate, with the knee and the saturation rate."""
    rates = tuple(point.rate_per_s for point in sweep.points)
    series = tuple(
        Series(
            name=f"{metric.upper()} {name}",
            kind=SeriesKind.LINE,
            x=rates,
            y=tuple(getattr(summary_of(point.stage, metric), field) for point in sweep.points),
            color=color,
            dashed=name == "p50",
        )
        for name, field, color in _PERCENTILES
    )
    highest = max(max(item.y) for item in series)
    shown = min(highest, series[-1].y[0] * _SHOWN_FACTOR)
    marks = [Annotation(text=f"saturated, {sweep.saturation_per_s:.3g}/s", x=sweep.saturation_per_s)]
    knee = sweep.knee_per_s
    if knee is not None:
        marks.insert(0, Annotation(text=f"knee, {knee:.3g}/s", x=knee))
    return Chart(
        key=f"load_latency_{metric}",
        title=_title(sweep, metric),
        x=Axis(title="Arrival rate", unit="requests/s"),
        y=Axis(title=metric.upper(), unit="s", low=0.0, high=shown),
        series=series,
        annotations=tuple(marks),
        caption="Event simulation of continuous batching, Poisson arrivals; percentiles over all requests of a rate.",
    )


def _title(sweep: LoadSweep, metric: str) -> str:
    if metric != "ttft" or sweep.knee_per_s is None:
        return f"{metric.upper()} up to {sweep.saturation_per_s:.3g} requests/s"
    return f"Waiting grows past {sweep.knee_per_s:.3g} requests/s"
