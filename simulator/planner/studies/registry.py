"""Studies beside a plan, each made only when it was asked for, and imported only then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isclose
from typing import TYPE_CHECKING

from simulator.assumptions import Assumption, ValueOrigin
from simulator.errors import ProfileError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized
from simulator.planner.plan_warnings import BusiestMinute, NotConfirmed
from simulator.planner.search.question import Question
from simulator.specs.question.plan import PlanSpec

if TYPE_CHECKING:
    from simulator.planner.verification.finalists import Outcome


_SHOWN = 1 / 200
"""Peaks that are shown by the same three digits."""


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
        or replays_trace(spec)
    )


def _choices(plan: CapacityPlan, question: Question, *, allowed: Sequence[Sized]) -> CapacityPlan:
    spec = question.spec
    if spec.pareto:
        from simulator.planner.studies.pareto import pareto_of

        plan = replace(plan, pareto=pareto_of(question, allowed))
    if spec.explain_gap:
        from simulator.planner.gap.closing import gap_of

        smallest = min(allowed, key=lambda item: (item.devices, item.rank))
        plan = replace(plan, gap=gap_of(question, smallest))
    if spec.stock:
        from simulator.planner.studies.stock import stock_plan

        plan = replace(plan, stock=stock_plan(question, list(allowed)))
    if spec.pools:
        from simulator.planner.studies.length_split import length_split_of

        best = plan.best
        found = length_split_of(question, devices=best.devices, cost_per_hour=best.cost.per_hour)
        plan = replace(plan, length_split=found)
    return plan


def with_risks(plan: CapacityPlan, question: Question, *, shown: Sequence[Sized]) -> CapacityPlan:
    """``plan`` with failure, growth, rental and uncertainty as ``question`` asks for them; what it has stays.

    shown : the best of every accelerator, best first
    """
    spec, best = question.spec, shown[0]
    if plan.resilience is None and (spec.resilience or spec.availability is not None):
        from simulator.planner.studies.resilience import availability_warnings, resilience_of

        found = resilience_of(question, best)
        plan = replace(plan, resilience=found, warnings=(*plan.warnings, *availability_warnings(found)))
    if plan.growth is None and spec.growth is not None:
        from simulator.planner.studies.growth import growth_of

        plan = replace(plan, growth=growth_of(question, best))
    if plan.rental is None and spec.rental:
        from simulator.planner.studies.rental import rental_of

        plan = replace(plan, rental=rental_of(question, best, fleet=plan.best))
    if plan.uncertainty is None and spec.uncertainty:
        from simulator.planner.studies.uncertainty import uncertainty_of

        plan = replace(plan, uncertainty=uncertainty_of(question, shown))
        plan = _with_owning_bars(plan, question)
    return plan


def _with_owning_bars(plan: CapacityPlan, question: Question) -> CapacityPlan:
    """The plan's uncertainty with what moves its cost of owning, where that can be priced without being told how."""
    from simulator.planner.money.tco import total_cost
    from simulator.planner.money.tco_sensitivity import owning_bars
    from simulator.specs.money.ownership import load_ownership

    spec, prices = plan.spec, question.prices
    try:
        ownership = load_ownership(spec.ownership, prices=prices.name, profiles=spec.profiles)
        cost = total_cost(plan, prices=prices, ownership=ownership)
    except ProfileError:
        if spec.ownership is not None:
            raise
        return plan
    if plan.uncertainty is None:
        return plan
    bars = tuple(owning_bars(plan, cost=cost, prices=prices, ownership=ownership))
    return replace(plan, uncertainty=replace(plan.uncertainty, owning=bars))


def with_studies(
    plan: CapacityPlan, question: Question, *, allowed: Sequence[Sized], shown: Sequence[Sized]
) -> CapacityPlan:
    """``plan`` with every study that its question asks for.

    allowed : fleets within the limits, best first; shown : the best of every accelerator, best first
    """
    plan = _choices(plan, question, allowed=allowed)
    return with_risks(plan, question, shown=shown)


def with_finalists(plan: CapacityPlan, simulated: Outcome) -> CapacityPlan:
    """``plan`` with what the event simulation said about its best fleets."""
    finalists, verification = simulated.finalists, simulated.verification
    warnings = plan.warnings
    if not verification.holds:
        warnings = (*warnings, NotConfirmed(reason=verification.reason))
    if finalists.replayed and finalists.chosen.replicas < finalists.chosen.planned_replicas:
        warnings = (
            *warnings,
            BusiestMinute(peak_to_mean=_busiest(plan), replicas=finalists.chosen.planned_replicas),
        )
    return replace(
        plan,
        verification=verification,
        finalists=finalists,
        warnings=warnings,
        assumptions=tuple(_replayed_peak(item, simulated) for item in plan.assumptions),
    )


def _replayed_peak(item: Assumption, simulated: Outcome) -> Assumption:
    peak = simulated.question.demand.peak_to_mean
    if (
        item.key != "peak_to_mean"
        or (isinstance(item.value, float) and isclose(item.value, peak, rel_tol=_SHOWN))
        or not simulated.finalists.replayed
    ):
        return item
    return Assumption(key=item.key, value=peak, origin=ValueOrigin.RULE, detail=item)


def _busiest(plan: CapacityPlan) -> float:
    return next(
        float(item.value) for item in plan.assumptions if item.key == "peak_to_mean" and isinstance(item.value, float)
    )
