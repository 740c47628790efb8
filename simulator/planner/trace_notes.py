"""What a recorded trace says of prefix hits and burstiness, which a plan counts only where it is asked to."""

from __future__ import annotations

from simulator.planner.plan_warnings import TraceLeftOut
from simulator.specs.question.plan import PlanSpec
from simulator.traffic.recorded.demand import RecordedDemand, measured_demand
from simulator.traffic.recorded.importers import prefix_hits
from simulator.traffic.recorded.traces import RequestTrace

# From here on what is left out moves a plan: worth a warning, not only a word among the assumptions. Assumed.
_NOTABLE_HITS = 0.05
_NOTABLE_CV = 1.2


def measured_trace(trace: RequestTrace) -> RecordedDemand:
    """Prefix hits of an endless cache and the variation of the gaps; None where the trace does not tell."""
    if trace.hashes is None:
        return measured_demand(trace, tool="trace")
    hits = prefix_hits(zip(trace.hashes, trace.isl_tokens.tolist(), strict=True))
    return measured_demand(trace, tool="trace", prefix_hit=hits)


def left_out(spec: PlanSpec, found: RecordedDemand) -> tuple[TraceLeftOut, ...]:
    """Where the trace's own hits or bursts would move the plan, and nothing was given for them."""
    hits = found.prefix_hit if spec.prefix_hit is None and (found.prefix_hit or 0.0) >= _NOTABLE_HITS else None
    bursts = found.arrival_cv if spec.arrival_cv is None and (found.arrival_cv or 0.0) >= _NOTABLE_CV else None
    return () if hits is None and bursts is None else (TraceLeftOut(prefix_hit=hits, arrival_cv=bursts),)
