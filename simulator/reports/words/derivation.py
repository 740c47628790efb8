"""How a plan was derived, step by step with its numbers, what holds a replica back, and why the rest was refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from simulator.phases.memory import MemoryPlan
from simulator.planner.serving.capacity import Limit, Resource
from simulator.reports.content.quantities import seconds_text, served_unit
from simulator.reports.words.fields import note_text, rejection_text, sentence
from simulator.reports.words.plan_inputs import offers_text, resource_text
from simulator.specs.base import Note
from simulator.specs.question.plan_values import ObjectiveSpec, watched
from simulator.units import KILO, bound_text, percent_text

if TYPE_CHECKING:
    from simulator.planner.capacity_plan import CapacityPlan
    from simulator.planner.fleet.records import Fleet
    from simulator.planner.records import Rejection
    from simulator.planner.serving.pool_states import Transfer

_SLOTS = {
    Resource.KV_MEMORY: "the KV cache is full",
    Resource.BATCH_LIMIT: "max_num_seqs is reached",
    Resource.TOKEN_BUDGET: "max_num_batched_tokens is reached",
}
_STEP_BOUND = {Resource.MEMORY: "memory", Resource.HOST: "host"}


def _own_detail(limit: Limit) -> str:
    if limit.objective is not None:
        moments = " (requests at random moments)" if limit.random_moments else ""
        slower = (
            f", where steps take {limit.step_margin:.2f} times as long as predicted" if limit.step_margin > 1 else ""
        )
        return (
            f"{limit.objective.name} reaches {bound_text(limit.objective.bound_s)} at "
            f"{percent_text(limit.utilization)} of the rate that saturates a replica{moments}{slower}"
        )
    if limit.resource in _SLOTS:
        return f"{_SLOTS[limit.resource]} with {limit.sequences} sequences at once"
    if limit.sequences is None:
        bound = _STEP_BOUND.get(limit.resource, str(limit.resource))
        return f"prompts keep a replica busy for {percent_text(limit.utilization)} of the time, mostly with {bound}"
    return f"steps of {limit.sequences:.0f} sequences wait mostly for {limit.resource}"


def detail_text(limit: Limit) -> str:
    """How the limit was met, as a clause."""
    return "; ".join(f"{role}: {_own_detail(own)}" for role, own in limit.of_pools) or _own_detail(limit)


def _memory_text(memory: MemoryPlan) -> str:
    return sentence(Note("derived_memory", {"memory": memory}))


def _pool_lines(plan: CapacityPlan, transfer: Transfer) -> list[str]:
    from simulator.engine.pools import HAND_OVER_S

    rate, first = plan.demand.planned_rate_per_s, plan.best.pools[0]
    sized = [sentence(Note("derived_pool", {"pool": pool, "rate": rate})) for pool in plan.best.pools]
    return [
        f"{first.role} pool, {_memory_text(first.replica.memory)}",
        f"{sized[0]}; limit: {detail_text(first.limit)}",
        *sized[1:],
        sentence(Note("derived_turns", {})),
        sentence(Note("derived_transfer", {"transfer": transfer, "hand_over_s": HAND_OVER_S})),
    ]


def _latencies_text(found: Mapping[str, float]) -> str:
    """``TTFT p95 658 ms, TPOT p95 40.0 ms``."""
    return ", ".join(f"{name} {seconds_text(value_s)}" for name, value_s in found.items())


def _against(fleets: list[Fleet], currency: str, objectives: Sequence[ObjectiveSpec]) -> str:
    best = fleets[0]
    cost = "price unknown" if best.cost.per_hour is None else f"{best.cost.per_hour:,.2f} {currency}/h"
    return (
        f"{best.devices} x {best.hardware} {best.label} ({cost}, {best.typical_w / KILO:,.0f} kW, with the spares "
        f"down: {_latencies_text(watched(best.degraded, objectives))})"
    )


def serving_lines(plan: CapacityPlan) -> list[str]:
    """The sizing of the prefill pool, where the best fleet has one; the best of both ways to serve, where compared."""
    fleets = [plan.best, *plan.alternatives]
    lines = _pool_lines(plan, plan.best.transfer) if plan.best.transfer else []
    apart = [fleet for fleet in fleets if len(fleet.pools) > 1]
    together = [fleet for fleet in fleets if len(fleet.pools) == 1]
    if apart and together:
        currency = plan.best.cost.currency
        lines.append(f"aggregated at best: {_against(together, currency, plan.objectives)}")
        lines.append(f"disaggregated at best: {_against(apart, currency, plan.objectives)}")
    return lines


def _demand_lines(plan: CapacityPlan) -> list[str]:
    demand = plan.demand
    several = f" x {demand.answers_per_request} answers" if demand.answers_per_request > 1 else ""
    return [sentence(Note("derived_demand", {"demand": demand, "several": several, "unit": served_unit(demand)}))]


def _memory_lines(fleet: Fleet) -> list[str]:
    replica = fleet.replica
    pool = f"{fleet.pools[-1].role} pool, ".removeprefix(" pool, ")
    ranks = replica.deployment.parallelism.dp_size
    each = f" in each of {ranks} attention ranks" if ranks > 1 else ""
    return [
        f"{pool}{_memory_text(replica.memory)}",
        sentence(Note("derived_cache", {"memory": replica.memory, "replica": replica, "each": each})),
    ]


def _capacity_lines(plan: CapacityPlan, fleet: Fleet) -> list[str]:
    loaded = fleet.replica.at_capacity
    prompts = f"prompts take {percent_text(loaded.prompt_share)} of the time" if len(fleet.pools) == 1 else "no prompts"
    values = {"replica": fleet.replica, "loaded": loaded, "unit": served_unit(plan.demand), "prompts": prompts}
    derived = (Note("derived_idle", values), Note("derived_saturated", values), Note("derived_planned", values))
    return [*map(sentence, derived), f"limit: {resource_text(fleet.limit)}: {detail_text(fleet.limit)}"]


def _fleet_lines(plan: CapacityPlan, fleet: Fleet) -> list[str]:
    values = {"fleet": fleet, "rate": plan.demand.planned_rate_per_s, "power_of": note_text(fleet.power_of)}
    lines = [sentence(Note("derived_replicas", values))] if len(fleet.pools) == 1 else []
    if fleet.server is not None and fleet.servers is not None:
        lines.append(sentence(Note("derived_servers", values)))
    for name, at in (("all replicas up", fleet.at_peak), ("spares down", fleet.degraded)):
        latencies = _latencies_text(watched(at, plan.objectives, free="ttft tpot e2e"))
        lines.append(sentence(Note("derived_peak", {"name": name, "latencies": latencies, "at": at})))
    return [*lines, sentence(Note("derived_interval", values))]


def _cost_lines(fleet: Fleet) -> list[str]:
    cost = fleet.cost
    if cost.per_hour is None or cost.per_device_hour is None or cost.per_million_output_tokens is None:
        return [f"cost: no price is known for {fleet.hardware}"]
    return [sentence(Note("derived_cost", {"fleet": fleet, "cost": cost, "offers": offers_text(cost)}))]


def nearest_rejections(plan: CapacityPlan) -> tuple[Rejection, ...]:
    """For accelerators with no feasible replica, the refusal that came nearest."""
    served = {fleet.hardware for fleet in (plan.best, *plan.alternatives)}
    nearest: dict[str, Rejection] = {}
    for rejection in plan.rejections:
        known = nearest.get(rejection.hardware)
        if rejection.hardware not in served and (known is None or rejection.distance <= known.distance):
            nearest[rejection.hardware] = rejection
    return tuple(nearest.values())


def explanation(plan: CapacityPlan) -> tuple[str, ...]:
    """The derivation of the chosen fleet and the refusals, one sentence a line."""
    nearest = nearest_rejections(plan)
    refused = (f"refused {item.hardware} {item.label}: {rejection_text(item)}" for item in nearest)
    return (*derivation(plan), *refused)


def derivation(plan: CapacityPlan) -> tuple[str, ...]:
    """How the chosen fleet follows from the demand, one sentence a line."""
    return (
        *_demand_lines(plan),
        *serving_lines(plan),
        *_memory_lines(plan.best),
        *_capacity_lines(plan, plan.best),
        *_fleet_lines(plan, plan.best),
        *_cost_lines(plan.best),
    )
