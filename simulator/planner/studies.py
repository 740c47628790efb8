"""Studies beside a plan, each made only when it was asked for, and imported only then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from simulator.planner.fleet import Sized
from simulator.planner.records import CapacityPlan
from simulator.planner.search import Question
from simulator.specs.plan import PlanSpec

if TYPE_CHECKING:
    from simulator.planner.verification import FleetVerification


def has_studies(spec: PlanSpec) -> bool:
    """Whether anything beside the plan was asked for."""
    return bool(
        spec.pareto
        or spec.explain_gap
        or spec.stock
        or spec.pools
        or spec.resilience
        or spec.availability is not None
        or spec.growth is not None
        or spec.rental
        or spec.uncertainty
        or spec.verify
    )


def _choices(plan: CapacityPlan, question: Question, *, allowed: Sequence[Sized]) -> CapacityPlan:
    spec = question.spec
    if spec.pareto:
        from simulator.planner.pareto import pareto_of

        plan = replace(plan, pareto=pareto_of(question, allowed))
    if spec.explain_gap:
        from simulator.planner.gap import gap_of

        smallest = min(allowed, key=lambda item: (item.devices, item.rank))
        plan = replace(plan, gap=gap_of(question, smallest))
    if spec.stock:
        from simulator.planner.stock import stock_plan

        plan = replace(plan, stock=stock_plan(question, list(allowed)))
    if spec.pools:
        from simulator.planner.pools import pools_of

        plan = replace(plan, pools=pools_of(question, devices=plan.best.devices))
    return plan


def _risks(plan: CapacityPlan, question: Question, *, shown: Sequence[Sized]) -> CapacityPlan:
    spec, best = question.spec, shown[0]
    if spec.resilience or spec.availability is not None:
        from simulator.planner.resilience import resilience_of

        plan = replace(plan, resilience=resilience_of(question, best, fleet=plan.best))
    if spec.growth is not None:
        from simulator.planner.growth import growth_of

        plan = replace(plan, growth=growth_of(question, best))
    if spec.rental:
        from simulator.planner.rental import rental_of

        plan = replace(plan, rental=rental_of(question, best))
    if spec.uncertainty:
        from simulator.planner.uncertainty import uncertainty_of

        plan = replace(plan, uncertainty=uncertainty_of(question, shown))
    return plan


def with_studies(
    plan: CapacityPlan, question: Question, *, allowed: Sequence[Sized], shown: Sequence[Sized]
) -> CapacityPlan:
    """``plan`` with every study that its question asks for.

    allowed : fleets within the limits, best first; shown : the best of every accelerator, best first
    """
    plan = _choices(plan, question, allowed=allowed)
    plan = _risks(plan, question, shown=shown)
    if question.spec.verify:
        from simulator.planner.verification import verify_fleet

        checked = verify_fleet(plan.best, demand=plan.demand, objectives=plan.objectives)
        plan = replace(plan, verification=checked, warnings=(*plan.warnings, *_unconfirmed(checked)))
    return plan


def _unconfirmed(checked: FleetVerification) -> tuple[str, ...]:
    if checked.holds:
        return ()
    why = checked.reason or "an objective fails there: plan with a lower --utilization"
    return (f"the event simulation does not confirm this fleet ({why})",)
