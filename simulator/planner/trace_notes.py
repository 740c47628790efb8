"""What a recorded trace says of prefix hits and burstiness, which a plan counts only where it is asked to."""

from __future__ import annotations

from simulator.specs.question.plan import PlanSpec
from simulator.traffic.recorded.demand import RecordedDemand, measured_demand
from simulator.traffic.recorded.importers import prefix_hits
from simulator.traffic.recorded.traces import RequestTrace
from simulator.units import percent_text

# From here on what is left out moves a plan: worth a warning, not only a word among the assumptions. Assumed.
_NOTABLE_HITS = 0.05
_NOTABLE_CV = 1.2


def measured_trace(trace: RequestTrace) -> RecordedDemand:
    """Prefix hits of an endless cache and the variation of the gaps; None where the trace does not tell."""
    if trace.hashes is None:
        return measured_demand(trace, tool="trace")
    hits = prefix_hits(zip(trace.hashes, trace.isl_tokens.tolist(), strict=True))
    return measured_demand(trace, tool="trace", prefix_hit=hits)


def prefix_note(found: RecordedDemand) -> str:
    """Beside the default of no hits; empty where the trace does not tell."""
    if not found.prefix_hit:
        return ""
    return (
        f"; an endless cache would hit {percent_text(found.prefix_hit)} of the trace's own: "
        f"--prefix-hit {found.prefix_hit:.2g} counts that much"
    )


def burstiness_note(found: RecordedDemand) -> str:
    """Beside the default of Poisson arrivals."""
    if found.arrival_cv is None:
        return "; the trace's clock is too coarse to tell its own"
    return f"; the trace's own is {found.arrival_cv:.2f}: --arrival-cv {found.arrival_cv:.2f}"


def left_out(spec: PlanSpec, found: RecordedDemand) -> tuple[str, ...]:
    """A warning where the trace's own hits or bursts would move the plan, and nothing was given for them."""
    parts, flags = [], []
    if spec.prefix_hit is None and (found.prefix_hit or 0.0) >= _NOTABLE_HITS:
        parts.append(f"shared prefixes (at most {percent_text(found.prefix_hit or 0.0)} of its prompt tokens)")
        flags.append(f"--prefix-hit {found.prefix_hit:.2g}")
    if spec.arrival_cv is None and (found.arrival_cv or 0.0) >= _NOTABLE_CV:
        parts.append(f"bursts (gaps with a cv of {found.arrival_cv:.2f})")
        flags.append(f"--arrival-cv {found.arrival_cv:.2f}")
    if not parts:
        return ()
    return (f"of the trace the plan leaves out {' and '.join(parts)}; {' '.join(flags)} counts them",)
