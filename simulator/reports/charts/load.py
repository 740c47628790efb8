"""Latency against load, from idle to overload.

What a replica does step by step: sequences in the batch, requests that wait, cache in use.
"""

from __future__ import annotations

import numpy as np

from simulator.engine.events.state import (
    TRACE_DECODES,
    TRACE_PREFILLS,
    TRACE_START_S,
    TRACE_USED,
    TRACE_WAITING,
)
from simulator.engine.runs.load_sweep import LoadSweep, summary_of
from simulator.errors import RoofcastError
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind
from simulator.traffic.requests import Floats

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


_POINTS = 300
"""Points drawn per line: more than a screen resolves."""


def _thinned(trace: Floats) -> Floats:
    """Every n-th step, the first included."""
    if not len(trace):
        raise RoofcastError("no step was recorded", field="trace_steps", hint="ask for more than none")
    return trace[:: max(1, len(trace) // _POINTS)]


def batch_over_time_chart(trace: Floats) -> Chart:
    """Running and waiting requests over time [steps of one replica, ``TRACE_*`` columns]."""
    kept = _thinned(trace)
    running, waiting = kept[:, TRACE_DECODES] + kept[:, TRACE_PREFILLS], kept[:, TRACE_WAITING]
    most = int((trace[:, TRACE_DECODES] + trace[:, TRACE_PREFILLS]).max())
    return Chart(
        key="batch_over_time",
        title=f"Up to {most} requests run at once",
        x=Axis(title="Time", unit="s"),
        y=Axis(title="Requests"),
        series=(
            _line("Running", kept, running, color=0),
            _line("Waiting", kept, waiting, color=3),
        ),
        caption="First replica of the event simulation.",
    )


def kv_over_time_chart(trace: Floats, *, kv_blocks: int) -> Chart:
    """Share of the KV blocks that are in use over time [steps of one replica, ``TRACE_*`` columns]."""
    kept = _thinned(trace)
    used = 100 * trace[:, TRACE_USED] / kv_blocks
    return Chart(
        key="kv_over_time",
        title=f"The KV cache fills to {used.max():.0f} %",
        x=Axis(title="Time", unit="s"),
        y=Axis(title="KV cache in use", unit="%", low=0.0, high=100.0),
        series=(_line("In use", kept, 100 * kept[:, TRACE_USED] / kv_blocks, color=2),),
        caption=f"First replica of the event simulation; {kv_blocks:,} blocks.",
    )


def _line(name: str, trace: Floats, values: np.ndarray, *, color: int) -> Series:
    return Series(
        name=name,
        kind=SeriesKind.STEP,
        x=tuple(float(value) for value in trace[:, TRACE_START_S]),
        y=tuple(float(value) for value in values),
        color=color,
    )
