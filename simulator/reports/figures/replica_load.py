"""Latency of a planned replica over its load, in the planner's steady state."""

from __future__ import annotations

from simulator.engine.steady_state import LatencyMetric
from simulator.planner.records import CapacityPlan
from simulator.planner.replica_load import ReplicaLoad
from simulator.reports.figures.chart import Annotation, Axis, Chart, Series, SeriesKind
from simulator.reports.quantities import percent_text
from simulator.units import bound_text

_SHOWN_BOUNDS = 1.6
_SHOWN_KNEES = 3.0
_HEADROOM = 1.2
"""Room above the highest value for the texts of vertical lines."""


def replica_load_chart(load: ReplicaLoad, *, plan: CapacityPlan) -> Chart:
    """TTFT percentiles over the load of one replica, with the objective, the planned load and the knee."""
    fleet = plan.best
    bounds = [item.bound_s for item in plan.objectives if item.metric is LatencyMetric.TTFT]
    highest = max([_SHOWN_BOUNDS * bound for bound in bounds] + [_SHOWN_KNEES * load.knee_ttft_s])
    shown = [index for index, value in enumerate(load.ttft_p95_s) if value <= highest]
    rates = tuple(load.rates_per_s[index] for index in shown)
    tall = [load.ttft_p95_s[index] for index in shown]
    notes = [
        Annotation(text=f"planned, {percent_text(fleet.degraded.load)} of saturation", x=fleet.degraded.rate_per_s),
        Annotation(text="knee", x=load.knee_load * fleet.replica.saturation_per_s, y=load.knee_ttft_s),
        *(Annotation(text=f"objective {bound_text(bound)}", y=bound) for bound in bounds),
    ]
    return Chart(
        key="load_latency",
        title=f"TTFT turns upwards at {percent_text(load.knee_load)} of the rate that saturates a replica",
        x=Axis(title="Arrival rate of one replica", unit="requests/s", low=0.0),
        y=Axis(title="TTFT", unit="s", low=0.0, high=_HEADROOM * max([*tall, *bounds])),
        series=(
            Series(
                name="TTFT p95",
                kind=SeriesKind.LINE,
                x=rates,
                y=tuple(load.ttft_p95_s[index] for index in shown),
                color=0,
            ),
            Series(
                name="TTFT p50",
                kind=SeriesKind.LINE,
                x=rates,
                y=tuple(load.ttft_p50_s[index] for index in shown),
                color=4,
                dashed=True,
            ),
        ),
        annotations=tuple(notes),
        caption="Steady state of continuous batching; queueing included. Planned: with the spare replicas down.",
    )
