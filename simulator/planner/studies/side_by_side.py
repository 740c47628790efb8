"""Fleets that serve side by side where something exists, each as a plan of its own for its share of the demand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.planner.capacity_plan import CapacityPlan, PlanBasis, with_report_studies
from simulator.planner.fleet.fleet import complete, sized_as
from simulator.planner.money.cost import fleet_cost
from simulator.planner.studies.stock_fleets import FleetShare, StockPlan
from simulator.planner.verified import FleetVerification
from simulator.specs.question.plan import PlanSpec


def with_parts(plan: CapacityPlan, spec: PlanSpec) -> CapacityPlan:
    """``plan`` with each of them in whole servers and the studies that ``spec`` asks for; as it was where nothing
    exists. Studies count no rent where a part of a fleet is paid for.
    """
    stock = plan.study(StockPlan)
    if stock is None:
        return plan
    parts = tuple(alone(plan, share, spec) for share in stock.shares)
    warned = [item for part in parts for item in part.warnings if item not in plan.warnings]
    return replace(plan, parts=parts, warnings=(*plan.warnings, *warned))


def alone(plan: CapacityPlan, share: FleetShare, spec: PlanSpec) -> CapacityPlan:
    """One of them, with the studies that ``spec`` asks for. What is all there already may be a part of a server."""
    whole = plan.basis.question
    kept = spec if share.bought else spec.model_copy(update={"round_to": "device"})
    part = share.rate_per_s / whole.demand.planned_rate_per_s
    demand = replace(whole.demand, mean_rate_per_s=whole.demand.mean_rate_per_s * part)
    question = replace(whole, demand=demand, spec=kept.model_copy(update={"stock": ()}))
    prices = whole.prices
    sized = sized_as(share.serving, share.counts, share.spare, demand=demand, spec=kept, prices=prices)
    best = complete(sized, demand=demand, objectives=plan.objectives, spec=kept)
    if share.from_stock:
        unpriced = [(None, item.devices) for item in sized.housing]
        cost = fleet_cost(prices=prices, bill=unpriced, demand=demand, prompt_share=sized.prompt_share)
        sized = replace(sized, cost=cost)
    found = replace(
        plan,
        demand=demand,
        best=best,
        alternatives=(),
        basis=PlanBasis(question=question, shown=(sized,)),
        warnings=(),
        price_ranking=None,
        studies=(),
        verification=None,
        finalists=None,
        parts=(),
    )
    return with_report_studies(found, question, shown=found.basis.shown)


def with_simulated(stock: StockPlan, checks: Sequence[FleetVerification | None]) -> StockPlan:
    """``stock`` with what the event simulation says of each of its fleets."""
    shares = (replace(share, simulated=found) for share, found in zip(stock.shares, checks, strict=True))
    return replace(stock, shares=tuple(shares))
