"""What a recorded trace says of bursts, which a plan counts only where it is asked to."""

from __future__ import annotations

from simulator.planner.records import TraceLeftOut
from simulator.specs.question.plan import PlanSpec
from simulator.traffic.recorded.demand import RecordedDemand, measured_demand
from simulator.traffic.recorded.importers import trace_hits
from simulator.traffic.recorded.traces import RequestTrace

# From here on what is left out moves a plan: worth a warning, not only a word among the assumptions. Assumed.
_NOTABLE_DISPERSION = 1.5


def measured_trace(trace: RequestTrace) -> RecordedDemand:
    """Prefix hits in a cache of a replica's size, and bursts of all arrivals; None where the trace does not tell."""
    return measured_demand(trace, tool="trace", prefix_hit=trace_hits(trace))


def left_out(spec: PlanSpec, found: RecordedDemand) -> tuple[TraceLeftOut, ...]:
    """Where the trace's own bursts would move the plan of a few replicas, and nothing was given for them."""
    if spec.arrival_cv is not None or found.dispersion is None or found.dispersion < _NOTABLE_DISPERSION:
        return ()
    return (TraceLeftOut(dispersion=found.dispersion),)
