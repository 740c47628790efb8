"""The verdict on a plan: whether it serves, how surely, what more surety takes, how it is known."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.studies.uncertainty import DEFAULT_DEMAND_SIGMA, DrawnFleet, drawn_fleet
from simulator.reports.content.quantities import count_text, percent_text
from simulator.reports.decide.evidence import Confidence, confidence_in
from simulator.reports.sections.answer import device_word, rival_text
from simulator.reports.studies import Studies


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    """What a reader needs before the numbers.

    drawn : the fleet over draws of demand and step times; confidence : that it keeps its promise; rival : what stands
    beside it, empty for nothing
    """

    drawn: DrawnFleet
    confidence: Confidence
    rival: str


def plan_verdict(plan: CapacityPlan, studies: Studies) -> PlanVerdict:
    """Judge the recommended fleet."""
    return PlanVerdict(
        drawn=drawn_fleet(plan.basis.question, plan.basis.shown[0]),
        confidence=confidence_in(studies),
        rival="" if plan.rival is None else rival_text(plan.rival, plan.best),
    )


def verdict_text(verdict: PlanVerdict, plan: CapacityPlan) -> str:
    """``Confidence B, of A to D: ... Carries 75 % of draws of demand as well; nine in ten need 216 GPUs, 24 more.``"""
    sigma = plan.spec.demand_sigma
    spread = percent_text(DEFAULT_DEMAND_SIGMA if sigma is None else sigma)
    needed, planned = verdict.drawn.devices.p90, plan.best.devices
    more = needed - planned
    tail = f"{count_text(needed)} {device_word(plan.best)}"
    tail += f", {count_text(more)} more" if more > 0 else ", no more than planned"
    return (
        f"{verdict.confidence.text} Carries {percent_text(verdict.drawn.enough_share)} of draws where demand is "
        f"uncertain as well (spread {spread}); nine in ten of them need {tail}."
    )
