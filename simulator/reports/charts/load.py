"""Latency against load, from idle to overload; what a replica holds step by step."""

from __future__ import annotations

import numpy as np

from simulator.engine.events.state import TRACE_DECODES, TRACE_PREFILLS, TRACE_START_S, TRACE_WAITING
from simulator.engine.runs.load_sweep import LoadSweep, summary_of
from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.replica_load import ReplicaLoad
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind, with_room
from simulator.reports.content.quantities import rate_text, seconds_text
from simulator.specs.question.plan_values import LatencyMetric
from simulator.traffic.requests import Floats
from simulator.units import bound_text, percent_text

_PERCENTILES = (("p50", "p50_s", 4), ("p95", "p95_s", 0), ("p99", "p99_s", 3))
_SHOWN_FACTOR = 12.0
"""The axis ends at this many times the latency of an idle deployment: overload is off every scale."""


_SHOWN_BOUNDS = 1.6
_SHOWN_KNEES = 3.0
"""The same of a plan's replica, in bounds and in the latency at the knee."""


def _up_to(rates: tuple[float, ...], values: tuple[float, ...], highest: float) -> tuple[tuple[float, ...], ...]:
    """A rising line until it leaves the axis, which it reaches between two points."""
    for place, value in enumerate(values):
        if value > highest and place:
            share = (highest - values[place - 1]) / (value - values[place - 1])
            end = rates[place - 1] + share * (rates[place] - rates[place - 1])
            return (*rates[:place], end), (*values[:place], highest)
    return rates, values


def rate_label(rate_per_s: float) -> str:
    """What a point of the load chart is called: ``5.25 requests/s``."""
    return rate_text(rate_per_s, "requests")


def load_latency_chart(
    sweep: LoadSweep, *, metric: str = "ttft", at_per_s: float | None = None, bound_s: float | None = None
) -> Chart:
    """Percentiles of ``ttft``, ``tpot`` or ``e2e`` over the arrival rate, with the knee and the saturation rate.

    at_per_s : the rate that is asked about; bound_s : the objective on the p95
    """
    rates = tuple(point.rate_per_s for point in sweep.points)
    found = {
        name: tuple(getattr(summary_of(point.stage, metric), field) for point in sweep.points)
        for name, field, _ in _PERCENTILES
    }
    highest = max(max(values) for values in found.values())
    shown = min(highest, max(found["p99"][0] * _SHOWN_FACTOR, 2 * (bound_s or 0.0)))
    lines = {name: _up_to(rates, values, shown) for name, values in found.items()}
    # What was simulated is marked on the line that objectives bound; where it leaves the axis nothing was.
    marked = {"p95": tuple(rate_label(rate) if rate in rates else "" for rate in lines["p95"][0])}
    series = tuple(
        Series(
            name=f"{metric.upper()} {name}",
            kind=SeriesKind.LINE,
            x=lines[name][0],
            y=lines[name][1],
            labels=marked.get(name, ()),
            color=color,
            dashed=name == "p50",
        )
        for name, _, color in _PERCENTILES
    )
    named = [(sweep.saturation_per_s, "saturated"), (sweep.knee_per_s, "knee"), (at_per_s, "asked")]
    upright = sorted((rate, name) for rate, name in named if rate is not None and rate <= rates[-1])
    # The names of the lines across stand on top: room above the curves, which rise there.
    top = with_room(shown, lines=len(upright))
    marks = [Annotation(text=f"{name}, {rate:.3g}/s", x=rate) for rate, name in upright]
    caption = "Event simulation of continuous batching, Poisson arrivals; percentiles over all requests of a rate."
    if bound_s is not None and top is not None and bound_s <= top:
        marks.append(Annotation(text=f"p95 at most {bound_s:.3g} s", y=bound_s, missed="above"))
    elif bound_s is not None:
        caption += f" The objective, {seconds_text(bound_s)}, lies above."
    if at_per_s is not None and at_per_s > rates[-1]:
        caption += f" The rate that is asked about, {rate_text(at_per_s, 'requests')}, lies to the right."
    return Chart(
        key=f"load_latency_{metric}",
        title=_title(sweep, metric),
        x=Axis(title="Arrival rate", unit="requests/s"),
        y=Axis(title=metric.upper(), unit="s", low=0.0, high=top),
        series=series,
        annotations=tuple(marks),
        caption=caption,
    )


def _title(sweep: LoadSweep, metric: str) -> str:
    if metric != "ttft" or sweep.knee_per_s is None:
        return f"{metric.upper()} up to {sweep.saturation_per_s:.3g} requests/s"
    return f"Waiting grows past {sweep.knee_per_s:.3g} requests/s"


def replica_load_chart(load: ReplicaLoad, *, plan: CapacityPlan) -> Chart:
    """TTFT percentiles over the load of one replica, with the objective, the planned load and the knee."""
    fleet = plan.best
    bounds = [item.bound_s for item in plan.objectives if item.metric is LatencyMetric.TTFT]
    highest = max([_SHOWN_BOUNDS * bound for bound in bounds] + [_SHOWN_KNEES * load.knee_ttft_s])
    shown = [index for index, value in enumerate(load.ttft_slow_s) if value <= highest]
    rates = tuple(load.rates_per_s[index] for index in shown)
    tall, usual = ([values[index] for index in shown] for values in (load.ttft_slow_s, load.ttft_p50_s))
    notes = [
        Annotation(text=f"planned, {percent_text(fleet.degraded.load)} of saturation", x=fleet.degraded.rate_per_s),
        Annotation(text="knee", x=load.knee_per_s, y=load.knee_ttft_s),
        *(Annotation(text=f"objective {bound_text(bound)}", y=bound) for bound in bounds),
    ]
    return Chart(
        key="load_latency",
        title=f"TTFT turns upwards at {percent_text(load.knee_load)} of the rate that saturates a replica",
        x=Axis(title="Arrival rate of one replica", unit="requests/s", low=0.0),
        y=Axis(title="TTFT", unit="s", low=0.0, high=with_room(max([*tall, *bounds]))),
        series=(
            Series(name=f"TTFT p{load.percentile:g}", kind=SeriesKind.LINE, x=rates, y=tuple(tall), color=0),
            Series(name="TTFT p50", kind=SeriesKind.LINE, x=rates, y=tuple(usual), color=4, dashed=True),
        ),
        annotations=tuple(notes),
        caption="Steady state of continuous batching; queueing included. Planned: with the spare replicas down.",
    )


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
        series=(_line("Running", kept, running, color=0), _line("Waiting", kept, waiting, color=3)),
        caption="First replica of the event simulation.",
    )


def _line(name: str, trace: Floats, values: np.ndarray, *, color: int) -> Series:
    return Series(
        name=name,
        kind=SeriesKind.STEP,
        x=tuple(float(value) for value in trace[:, TRACE_START_S]),
        y=tuple(float(value) for value in values),
        color=color,
    )
