"""Every study that a report carries, whether or not the question asked for it. They change no figure of the plan."""

from __future__ import annotations

from dataclasses import replace

from simulator.planner.records import CapacityPlan
from simulator.specs.plan import PlanSpec

ILLUSTRATED_GROWTH_PER_MONTH = 0.05
"""Where no growth was given: an assumption to show what growth would ask for, no forecast. Enters no total."""
_DEARER = {"verify": False, "pareto": False, "explain_gap": False, "pools": False}
"""Studies that a completion does not repeat."""


def full_question(spec: PlanSpec) -> PlanSpec:
    """``spec`` with failure, growth, rental and uncertainty asked for too."""
    wanted: dict[str, object] = {"resilience": True, "rental": True, "uncertainty": True}
    if spec.growth is None:
        wanted["growth"] = ILLUSTRATED_GROWTH_PER_MONTH
    return spec.model_copy(update=wanted)


def is_complete(plan: CapacityPlan) -> bool:
    """Whether every study of a report was made; a rental that the price list cannot answer stays None."""
    return plan.resilience is not None and plan.growth is not None and plan.uncertainty is not None


def answered_in_full(spec: PlanSpec) -> CapacityPlan:
    """The plan of ``spec`` with every study of a report; its question stays ``spec``."""
    from simulator.planner.plan import plan_capacity

    return replace(plan_capacity(full_question(spec)), spec=spec)


def completed(plan: CapacityPlan) -> CapacityPlan:
    """``plan`` with the studies of a report that it lacks; one that has them all comes back as it is."""
    if is_complete(plan):
        return plan
    from simulator.planner.plan import plan_capacity

    again = plan_capacity(full_question(plan.spec).model_copy(update=_DEARER))
    return replace(
        plan,
        resilience=plan.resilience or again.resilience,
        growth=plan.growth or again.growth,
        rental=plan.rental or again.rental,
        uncertainty=plan.uncertainty or again.uncertainty,
    )


def as_asked(plan: CapacityPlan) -> CapacityPlan:
    """``plan`` without the studies that its question does not ask for."""
    spec = plan.spec
    return replace(
        plan,
        resilience=plan.resilience if spec.resilience or spec.availability is not None else None,
        growth=plan.growth if spec.growth is not None else None,
        rental=plan.rental if spec.rental else None,
        uncertainty=plan.uncertainty if spec.uncertainty else None,
    )
