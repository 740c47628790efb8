"""What happens inside a request, a step and the memory of a device, the same on every page that serves."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app.fields import widgets
from app.parts import charts
from simulator.engine.runs.served_run import ServedRun
from simulator.engine.uniform.record import UniformRun
from simulator.reports.charts.chart import Chart
from simulator.reports.charts.latency_breakdown import (
    memory_over_time_chart,
    request_waterfall_chart,
    step_timeline_chart,
)
from simulator.reports.charts.load import batch_over_time_chart
from simulator.reports.content.quantities import range_text, seconds_text
from simulator.reports.tables.serving import serving_quantities

_HEIGHT = 340
_REQUEST, _PREFILL, _DECODE, _MEMORY = "A request", "A prefill step", "A decode step", "Memory over time"
_BATCH = "Requests over time"


def _memory(run: ServedRun | UniformRun, document: dict[str, Any]) -> Chart:
    if isinstance(run, ServedRun):
        return memory_over_time_chart(run.memory, run.cache_use)
    return memory_over_time_chart(run.memory, run.cache_use(document["memory"]["kv_utilization"]))


def _mean_batch(document: dict[str, Any]) -> str:
    """Its 80 % interval."""
    return next(item.interval for item in serving_quantities(document) if item.key == "mean_batch")


@st.fragment
def inside(run: ServedRun | UniformRun, document: dict[str, Any]) -> None:
    """One of these at a time; another one is drawn without asking anything else again."""
    served = [_BATCH] if isinstance(run, ServedRun) else []
    views = (_REQUEST, _PREFILL, *([_DECODE] if run.decode else []), _MEMORY, *served)
    view = widgets.view("Inside", views, key="inside")
    ends, interval, provenance = document["interval"], "", document["provenance"]
    match view:
        case "A prefill step":
            described = step_timeline_chart("Prefill", run.prefill)
        case "A decode step":
            assert run.decode is not None, "offered only then"
            described = step_timeline_chart("Decode", run.decode)
        case "Memory over time":
            described = _memory(run, document)
        case "Requests over time":
            assert isinstance(run, ServedRun), "offered only then"
            described = batch_over_time_chart(run.decoding_trace)
            interval = f"mean batch {batch}" if (batch := _mean_batch(document)) else ""
        case _:
            described = request_waterfall_chart(run)
            interval = f"end to end {range_text(found, seconds_text)}" if (found := ends.get("e2e_s")) else ""
    charts.chart(described, key="inside_chart", provenance=provenance, interval=interval, height=_HEIGHT)
