"""How a plan was derived, step by step with its numbers, what holds a replica back, and why the rest was refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from simulator.phases.memory import MemoryPlan
from simulator.planner.money.market import MarketPrice
from simulator.planner.serving.capacity import Limit, Resource
from simulator.reports.content.quantities import counted_text, money_text, price_text, seconds_text, served_unit
from simulator.reports.words.fields import flag_of, note_text, rejection_text, sentence
from simulator.specs.base import Note
from simulator.specs.money.prices import OfferKind
from simulator.specs.question.plan import NONE
from simulator.specs.question.plan_values import ObjectiveSpec, watched
from simulator.units import KILO, bound_text, percent_text

if TYPE_CHECKING:
    from simulator.planner.capacity_plan import BoughtFleet, CapacityPlan, PriceRanking, PriceRival
    from simulator.planner.fleet.records import Fleet, FleetCost
    from simulator.planner.records import FamilyFound, Rejection
    from simulator.planner.serving.pool_states import Transfer

TERMS: Mapping[OfferKind, str] = MappingProxyType(
    {
        "on_demand": "on demand",
        "reserved_1y": "1 year",
        "reserved_3y": "3 years",
        "spot": "spot",
        "capacity_block": "capacity block",
    }
)


CASES: Mapping[str, str] = MappingProxyType(
    {
        "planned": "as planned",
        "low": "all at their lowest",
        "median": "all at their median",
        "high": "all at their highest",
        "hyperscaler": "hyperscalers alone",
        "specialist": "specialists alone",
        "marketplace": "marketplaces alone",
    }
)


def terms_text(terms: Sequence[OfferKind]) -> str:
    """``on demand``, ``1 year``, or both of a median between them."""
    return " or ".join(TERMS[kind] for kind in terms)


def taken_text(price: MarketPrice) -> str:
    """``1 year, median of 6``, ``on demand, Oracle Cloud``: what was taken, for a column of a table."""
    old = ", old" if price.outdated else ""
    return f"{terms_text(price.terms)}, {_whose(price)}{old}"


def offers_text(cost: FleetCost) -> str:
    """What was taken of each accelerator's prices, and when it was asked: ``1 year, median of 6, 2026-09-27``."""
    return " + ".join(f"{taken_text(item)}, {item.date}" for item in cost.prices) or cost.offer


def _whose(price: MarketPrice) -> str:
    match price.taken:
        case "median" if price.of_median > 1:
            return f"median of {price.of_median}"
        case "low" | "high":
            return f"{price.taken} of {price.providers}"
        case "marked":
            return price.provider
    return f"{price.provider} only"


def price_source_text(price: MarketPrice, *, currency: str) -> str:
    """What was taken, between which ends, from how many offers of which days."""
    said = f"{price_text(price.per_hour, currency)} an hour ({terms_text(price.terms)}): "
    match price.taken:
        case "only":
            said += f"{price.provider}, the only offer"
        case "marked":
            said += f"{price.provider}, marked in the list"
        case "low" | "high":
            end = "lowest" if price.taken == "low" else "highest"
            said += f"{price.provider}, the {end} of {counted_text(price.providers, 'offer')}"
        case _:
            said += price.provider
    if price.providers > 1:
        low, high = price_text(price.low, currency), price_text(price.high, currency)
        said += f"; {price.providers} run from {low} ({price.low_provider}) to {high} ({price.high_provider})"
    days = price.date if price.oldest == price.date else f"{price.oldest} to {price.date}"
    said += f"; of {days}"
    if price.left_out:
        said += f"; {counted_text(price.left_out, 'stale price')} left out"
    return f"{said}; stale on the day of the list" if price.outdated else said


def price_switch_text() -> str:
    """How to take another of the listed prices."""
    return f"{flag_of('price_of')} and {flag_of('provider')} take others"


def _rival_text(rival: PriceRival, *, currency: str, first: bool) -> str:
    name = f"{rival.hardware} {rival.setup}"
    said = f"{name}{', the next,' if first and rival.per_hour is not None else ''} wins below "
    said += f"{price_text(rival.wins_below, currency)}"
    if rival.per_hour is None or rival.low is None:
        return f"{said}; nobody lists a price"
    planned = f"planned at {price_text(rival.per_hour, currency)}"
    lowest = f"{rival.low_provider} asks {price_text(rival.low, currency)}"
    return f"{said} ({planned}): {lowest}" if rival.offered else f"{said} ({planned}); nobody asks less"


def _limit_text(above: float, price: MarketPrice, *, currency: str, average: str) -> str:
    """Up to which price the chosen accelerator stays the choice, and what is asked for it."""
    low, high = price_text(price.low, currency), price_text(price.high, currency)
    said = f"{price.hardware} is chosen up to {price_text(above, currency)} an hour{average}"
    if price.providers == 1:
        return f"{said}; its only offer is {low} ({price.low_provider})"
    if price.high <= above:
        return f"{said}; all its offers are below that, {low} to {high}"
    return f"{said}; its offers run from {low} ({price.low_provider}) to {high} ({price.high_provider})"


def ranking_texts(found: PriceRanking, best: Fleet) -> tuple[str, ...]:
    """Where another fleet than the chosen one becomes the choice, a sentence each without its stop."""
    lines, price, currency = [], best.price, best.cost.currency
    if price is not None and found.loses_above is not None:
        average = " on average" if best.is_unlike else ""
        lines.append(_limit_text(found.loses_above, price, currency=currency, average=average))
    lines += [_rival_text(item, currency=currency, first=place == 0) for place, item in enumerate(found.rivals)]
    return tuple(lines)


def bought_text(bought: BoughtFleet, *, currency: str) -> str:
    """What the cheapest fleet costs that quotes allow to buy, beside the one that costs least to rent."""
    term = "as planned" if bought.rent_kind == "planned" else TERMS[bought.rent_kind]
    rent = f"renting {bought.rent_hardware} ({term}, {price_text(bought.rent_per_hour, currency)})"
    named = " ".join(f"{flag_of('hardware')} {name}" for name in bought.accelerators)
    advice = f": buy it, {named} plans it alone" if bought.chosen else ""
    return (
        f"Bought at the quote of {bought.provider}, {bought.devices:,} x {bought.hardware} {bought.setup} cost "
        f"{price_text(bought.per_hour, currency)} an hour over {bought.years} years with their operation "
        f"({money_text(bought.capital, currency)} at the start), {percent_text(abs(bought.change))} "
        f"{'less' if bought.change < 0 else 'more'} than {rent}{advice}."
    )


def steady_text(found: PriceRanking) -> str:
    """Whether the recommendation depends on the prices, in one sentence."""
    first = found.cases[0]
    unlisted = [CASES[case.name].removesuffix(" alone") for case in found.cases if not case.chosen_priced]
    absent = f" {' and '.join(unlisted).capitalize()} do not list it." if unlisted else ""
    if found.steady:
        return f"{first.hardware} is chosen at the lowest, planned and highest listed prices alike.{absent}"
    others = [
        f"{case.hardware} ({CASES[case.name]})"
        for case in found.cases
        if case.hardware != first.hardware and case.chosen_priced
    ]
    return f"The choice rests on prices: {first.hardware} wins as planned, {', '.join(others)}. Get quotes.{absent}"


_SLOTS = {
    Resource.KV_MEMORY: "the KV cache is full",
    Resource.BATCH_LIMIT: "max_num_seqs is reached",
    Resource.TOKEN_BUDGET: "max_num_batched_tokens is reached",
}
_STEP_BOUND = {Resource.MEMORY: "memory", Resource.HOST: "host"}


def _own_resource(limit: Limit) -> str:
    return str(limit.resource) if limit.objective is None else f"{limit.objective.name} ({limit.resource})"


def resource_text(limit: Limit) -> str:
    """``KV memory``, ``TPOT p95 (memory bandwidth)``; of both pools where they differ."""
    return "; ".join(f"{role}: {_own_resource(own)}" for role, own in limit.of_pools) or _own_resource(limit)


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


def order_text(fleets: Sequence[Fleet]) -> str:
    """How a table of fleets is sorted: what counts against kernels that nobody measured is part of it."""
    return "cheapest first" + (", unmeasured kernels counted as dearer" if any(item.doubt for item in fleets) else "")


def families_text(plan: CapacityPlan) -> str:
    """``Searched as well on h100, h200: engine limits save 6 % on h100; nothing is saved by pools.``"""
    families, spec = plan.families, plan.spec
    found = [_found(item) for item in families if item.saving > 0]
    nothing = "; ".join(item.family for item in families if item.saving <= 0)
    found += [f"nothing is saved by {nothing}"] if nothing else []
    open_options = (
        ("pipeline stages", f"{flag_of('search')} wide", spec.pp_size),
        ("speculation", flag_of("any_technique"), spec.speculation),
        ("other formats", flag_of("any_precision"), spec.weights),
        ("two pools", f"{flag_of('serving')} disaggregated", not spec.speculation or NONE in spec.speculation),
    )
    left = [(name, flag) for name, flag, asked in open_options if not asked]
    names, flags = ", ".join(name for name, _ in left), ", ".join(flag for _, flag in left)
    said = f" Left out: {names} ({flags})." if left else ""
    others = not spec.hardware and any(fleet.hardware not in plan.searched for fleet in plan.fleets)
    if others:
        said = f" Not searched so: the others, which may need fewer where {flag_of('hardware')} names them.{said}"
    where = f" on {', '.join(plan.searched)}" if others else ""
    return f"Searched as well{where}: {'; '.join(found)}.{said}"


def _found(item: FamilyFound) -> str:
    said = f"{item.family} save {percent_text(item.saving)} on {item.hardware}"
    return said if item.kept else f"{said} ({item.label}), too little for what they take to run"
