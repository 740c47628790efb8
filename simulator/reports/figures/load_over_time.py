"""What a replica does step by step: sequences in the batch, requests that wait, cache in use."""

from __future__ import annotations

import numpy as np

from simulator.engine.request import Floats
from simulator.engine.state import (
    TRACE_DECODES,
    TRACE_PREFILLS,
    TRACE_START_S,
    TRACE_USED,
    TRACE_WAITING,
)
from simulator.errors import RoofcastError
from simulator.reports.figures.chart import Axis, Chart, Series, SeriesKind

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
