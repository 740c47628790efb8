"""The verdict on a plan: whether it serves, how surely, what more surety takes, how it is known."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.serving.replica_load import meeting_chances
from simulator.planner.studies.uncertainty import DEFAULT_DEMAND_SIGMA, DrawnFleet, drawn_fleet
from simulator.reports.content.quantities import count_text, percent_text
from simulator.reports.decide.evidence import Grade, evidence_grade
from simulator.reports.sections.answer import device_word, rival_text
from simulator.reports.studies import Studies

LIKELY, UNLIKELY = 0.8, 0.5
"""Shares of draws from which a fleet serves, and below which it does not. Chosen: 80 % is what plans are sized for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    """What a reader needs before the numbers.

    drawn : the fleet over draws of demand and step times; chances : that each objective of the plan holds at the
    planned peak with the spares down; grade : of the runs behind it; rival : what stands beside it, empty for nothing
    """

    drawn: DrawnFleet
    chances: tuple[float, ...]
    grade: Grade
    rival: str

    @property
    def word(self) -> str:
        """``Serves it``, ``May serve it`` or ``Too small as drawn``."""
        share = self.drawn.enough_share
        return "Serves it" if share >= LIKELY else "May serve it" if share >= UNLIKELY else "Too tight"


def plan_verdict(plan: CapacityPlan, studies: Studies) -> PlanVerdict:
    """Judge the recommended fleet."""
    return PlanVerdict(
        drawn=drawn_fleet(plan.basis.question, plan.basis.shown[0]),
        chances=meeting_chances(plan.best, objectives=plan.objectives),
        grade=evidence_grade(studies),
        rival="" if plan.rival is None else rival_text(plan.rival, plan.best),
    )


def verdict_text(verdict: PlanVerdict, plan: CapacityPlan) -> str:
    """``It carries 75 % of draws of demand (spread 15 %) and of step times; nine in ten need 216 GPUs, 24 more.``"""
    sigma = plan.spec.demand_sigma
    spread = percent_text(DEFAULT_DEMAND_SIGMA if sigma is None else sigma)
    needed, planned = verdict.drawn.devices.p90, plan.best.devices
    more = needed - planned
    tail = f"{count_text(needed)} {device_word(plan.best)}"
    tail += f", {count_text(more)} more" if more > 0 else ", no more than planned"
    return (
        f"Carries {percent_text(verdict.drawn.enough_share)} of draws of demand (spread {spread}) and step times; "
        f"nine in ten of them need {tail}."
    )
