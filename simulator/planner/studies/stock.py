"""Fleets side by side: existing accelerators serve first, accelerators for the rest of the demand are bought; each of
them as a plan of its own for its share of the demand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, inf, isfinite
from types import MappingProxyType

from simulator.errors import InfeasibleError, Option, contradiction
from simulator.planner.capacity_plan import CapacityPlan, PlanBasis, StudyContext
from simulator.planner.fleet.fleet import Sized, complete, fleet_cost, housed, size, sized_as, spares_of
from simulator.planner.fleet.replica_load import latency_range, meeting_chances
from simulator.planner.gap.limits import rounded_up
from simulator.planner.money.facilities import racked
from simulator.planner.records import Platform
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question
from simulator.planner.search.screened_space import device_power_w
from simulator.planner.search.search import try_platforms
from simulator.planner.serving.shapes import Counts, Shape
from simulator.planner.studies.stock_fleets import FleetShare, Seen, StockPlan
from simulator.planner.verification.fleet_check import check_fleet, full_verification
from simulator.planner.verification.records import FleetVerification
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import stock_entry
from simulator.units import KILO, plain_text

_ROUNDS = 4
"""How often what serves is planned again at most."""


def _stock_platforms(question: Question) -> list[tuple[Platform, int]]:
    found: list[tuple[Platform, int]] = []
    for entry in question.spec.stock:
        name, count = stock_entry(entry)
        spec = question.spec.model_copy(update={"hardware": (name,)})
        (platform,) = platforms(spec)
        if any(platform.hardware.name == known.hardware.name for known, _ in found):
            raise contradiction(f"{platform.hardware.name} is given twice", field=Option("stock"))
        found.append((platform, count))
    return found


def _best_use(question: Question, platform: Platform, *, devices: int) -> Sized | None:
    """The set-up that carries most on ``devices`` of a platform, None where none fits."""
    trial = try_platforms(question, (platform,)).trial
    found = [(item, item.evaluated.most(devices)) for item in trial.sized]
    carried = [(item.evaluated.capacity_per_s(counts), item) for item, counts in found if counts is not None]
    return max(carried, key=lambda pair: pair[0])[1] if carried else None


def _from_stock(item: Sized, *, counts: Counts, spare: Counts, rate_per_s: float) -> FleetShare:
    candidate, shape = item.evaluated.candidate, item.evaluated
    devices = shape.devices(counts) + shape.devices(spare)
    return FleetShare(
        hardware=candidate.hardware,
        label=candidate.label,
        replicas=sum(counts),
        spares=sum(spare),
        devices=devices,
        from_stock=devices,
        bought=0,
        by_kind=(),
        kept_by_kind=((candidate.hardware, devices),),
        rate_per_s=rate_per_s,
        capacity_per_s=shape.capacity_per_s(counts),
        cost_per_hour=0.0,
        typical_w=devices * device_power_w(candidate.platform),
        maximum_w=devices * device_power_w(candidate.platform, nameplate=True),
        serving=shape,
        counts=counts,
        spare=spare,
    )


def _bought(question: Question, ranked: list[Sized], *, rate_per_s: float) -> FleetShare:
    """The cheapest new fleet for the rest of the planned rate."""
    demand = question.demand
    rest = replace(demand, mean_rate_per_s=demand.mean_rate_per_s * rate_per_s / demand.planned_rate_per_s)
    sized = (size(item.evaluated, demand=rest, spec=question.spec, prices=question.prices) for item in ranked)
    doubted = (replace(item, doubt=planned.doubt) for item, planned in zip(sized, ranked, strict=True))
    best = min(doubted, key=lambda item: item.rank)
    return _extended(question, best, stock={}, rate_per_s=rate_per_s)


def _per_device(use: tuple[Sized, int]) -> float:
    """Rate that an accelerator of a set-up carries, in the proportion in which the demand needs its parts [1/s]."""
    shape, counts = use[0].evaluated, use[0].counts
    return shape.capacity_per_s(counts) / shape.devices(counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Uses:
    """Fleets from stock before the demand is divided among them, idle stock, and the rate that stock cannot carry."""

    shares: tuple[FleetShare, ...]
    unused: tuple[Note, ...]
    left_per_s: float


def _filled(question: Question, uses: list[tuple[Sized, int]]) -> _Uses:
    """Load the kinds of stock one after the other, each up to its capacity."""
    left = question.demand.planned_rate_per_s
    shares: list[FleetShare] = []
    unused: list[Note] = []
    for use, count in uses:
        name, shape = use.evaluated.candidate.hardware, use.evaluated
        if left <= 0:
            unused.append(Note("carried_without", {"count": count, "hardware": name}))
            continue
        counts, spare = shape.within(count, rate_per_s=left, spare=use.spare)
        enough = counts == shape.counts(left)
        carried = left if enough else shape.capacity_per_s(counts)
        shares.append(_from_stock(use, counts=counts, spare=spare, rate_per_s=carried))
        rest = count - shares[-1].devices
        if rest:
            key = "stock_not_needed" if enough else "stock_below_replica"
            unused.append(Note(key, {"rest": rest, "count": count, "hardware": name}))
        left -= carried
    return _Uses(shares=tuple(shares), unused=tuple(unused), left_per_s=max(left, 0.0))


def _routed(shares: tuple[FleetShare, ...], *, rate_per_s: float) -> tuple[FleetShare, ...]:
    """Demand spread over fleets in proportion to what they carry within the objectives: all are equally loaded."""
    total = sum(share.capacity_per_s for share in shares)
    return tuple(replace(share, rate_per_s=rate_per_s * share.capacity_per_s / total) for share in shares)


def _extended(question: Question, sized: Sized, *, stock: Mapping[str, int], rate_per_s: float) -> FleetShare:
    """Stock and new accelerators of its kinds and set-up as one fleet with common spares, for ``rate_per_s``."""
    shape, left = sized.evaluated, dict(stock)
    counts = shape.counts(rate_per_s)
    spare = spares_of(shape, counts, spec=question.spec)
    more, kept_w, most_w = [], 0.0, 0.0
    for part, count, spares in zip(shape.parts, counts, spare, strict=True):
        name, each = part.candidate.hardware, part.replica.devices
        existing = min(left.get(name, 0) // each, count + spares)
        left[name] = left.get(name, 0) - existing * each
        more.append(count + spares - existing)
        kept_w += existing * each * device_power_w(part.candidate.platform)
        most_w += existing * each * device_power_w(part.candidate.platform, nameplate=True)
    kept = shape.devices(counts) + shape.devices(spare) - shape.devices(tuple(more))
    new = housed(shape, tuple(more), round_to=question.spec.round_to)
    prices = {price.hardware: price.per_hour for price in sized.cost.prices}
    bought = sum(item.devices for item in new)
    kept_by_kind = {name: count - left[name] for name, count in stock.items()}
    return FleetShare(
        hardware=shape.candidate.hardware,
        label=shape.candidate.label,
        replicas=sum(counts),
        spares=sum(spare),
        devices=kept + bought,
        from_stock=kept,
        bought=bought,
        by_kind=tuple((item.hardware, item.devices) for item in new if item.devices),
        kept_by_kind=tuple((name, count) for name, count in kept_by_kind.items() if count),
        rate_per_s=rate_per_s,
        capacity_per_s=shape.capacity_per_s(counts),
        cost_per_hour=sum(item.devices * prices[item.hardware] for item in new) if prices else None,
        typical_w=kept_w + sum(item.typical_w for item in new),
        maximum_w=most_w + sum(item.maximum_w for item in new),
        serving=shape,
        counts=counts,
        spare=spare,
    )


def _purchase(shares: tuple[FleetShare, ...]) -> tuple[bool, float, int, int]:
    """Sort key of a purchase: known prices first, then lower cost, fewer bought devices, fewer devices in all."""
    costs = [share.cost_per_hour for share in shares]
    bought, devices = (sum(counts) for counts in zip(*((item.bought, item.devices) for item in shares), strict=True))
    return (None in costs, sum(cost or 0.0 for cost in costs), bought, devices)


def _completed(
    question: Question, found: _Uses, uses: list[tuple[Sized, int]], ranked: list[Sized]
) -> tuple[FleetShare, ...]:
    """Shares with the cheapest purchase for the rest: a new fleet, or more accelerators of a kind that exists."""
    if found.left_per_s <= 0:
        return found.shares
    on_sale = {(item.evaluated.candidate.hardware, item.evaluated.candidate.label) for item in ranked}
    ways: list[tuple[FleetShare, ...]] = []
    for place, (share, use) in enumerate(zip(found.shares, uses, strict=False)):
        if (share.hardware, share.label) in on_sale:
            rate = share.rate_per_s + found.left_per_s
            grown = _extended(question, use[0], stock={share.hardware: use[1]}, rate_per_s=rate)
            ways.append((*found.shares[:place], grown, *found.shares[place + 1 :]))
    ways.append((*found.shares, _bought(question, ranked, rate_per_s=found.left_per_s)))
    return min(ways, key=_purchase)


def _worth_using(question: Question, uses: list[tuple[Sized, int]], ranked: list[Sized]) -> tuple[_Uses, list[Note]]:
    """Leave out kinds of stock, weakest first, that reduce no purchase: they would only draw power."""
    idle: list[Note] = []
    found = _filled(question, uses)
    while uses and ranked and found.left_per_s > 0:
        fewer = _filled(question, uses[:-1])
        now = _purchase(_completed(question, found, uses, ranked))
        then = _purchase(_completed(question, fewer, uses[:-1], ranked))
        if then[2] > now[2] or then[1] > now[1]:
            break
        use, count = uses[-1]
        name = use.evaluated.candidate.hardware
        idle.append(Note("saves_no_purchase", {"count": count, "hardware": name}))
        uses, found = uses[:-1], fewer
    return replace(found, shares=_completed(question, found, uses, ranked) if ranked else found.shares), idle


def _as_known(item: Sized, slower: Mapping[tuple[str, str], Shape]) -> Sized:
    candidate = item.evaluated.candidate
    return replace(item, evaluated=slower.get((candidate.hardware, candidate.label), item.evaluated))


def stock_plan(
    question: Question, ranked: list[Sized], *, slower: Mapping[tuple[str, str], Shape] = MappingProxyType({})
) -> StockPlan | None:
    """Existing accelerators in the order of what one carries, each filled before the next; then a new fleet.

    slower : set-ups that carry less than the steady state says, by accelerator and label

    ``ranked`` are the fleets that may be bought. New accelerators of a kind and set-up that exists share its spares;
    every other fleet keeps its own. Each gets the demand in proportion to what it carries. Stock costs nothing an hour
    here: it is paid for; its power counts.
    """
    if not question.spec.stock:
        return None
    unused: list[Note] = []
    uses: list[tuple[Sized, int]] = []
    stock = [(platform.hardware.name, count) for platform, count in _stock_platforms(question)]
    for platform, count in _stock_platforms(question):
        use = _best_use(question, platform, devices=count)
        if use is None:
            model, hardware = question.model.name, platform.hardware.name
            unused.append(Note("no_replica_on_stock", {"count": count, "hardware": hardware, "model": model}))
        else:
            uses.append((_as_known(use, slower), count))
    ranked = [_as_known(item, slower) for item in ranked]
    uses.sort(key=_per_device, reverse=True)
    found, idle = _worth_using(question, uses, ranked)
    if found.left_per_s > 0 and not ranked:
        raise InfeasibleError(
            f"the stock carries all but {found.left_per_s:.4g} requests/s, and no accelerator on sale can serve those",
            field=Option("stock"),
            code="over_budget",
        )
    rate = question.demand.planned_rate_per_s
    plan = StockPlan(shares=_routed(found.shares, rate_per_s=rate), unused=(*unused, *found.unused, *idle))
    plan = _unlike(question, ranked, dict(stock), beside=plan)
    _check_limits(question, plan)
    return replace(plan, shares=tuple(replace(share, seen=_seen(question, share)) for share in plan.shares))


def _seen(question: Question, share: FleetShare) -> Seen:
    (found,) = share.serving.at_counts(share.rate_per_s, share.counts, objectives=question.objectives)
    return Seen(
        ttft_p95_s=found.ttft_p95_s,
        tpot_p95_s=found.tpot_p95_s,
        objectives_s=found.objectives_s,
        ranges=latency_range(share, objectives=question.objectives),
        chances=meeting_chances(share, objectives=question.objectives),
    )


def _unlike(question: Question, ranked: list[Sized], stock: Mapping[str, int], *, beside: StockPlan) -> StockPlan:
    """One fleet with pools on two kinds of accelerator, one of them in stock, where that needs a smaller purchase."""
    best = beside
    for item in ranked:
        kinds = [part.hardware for part in item.housing]
        if len(kinds) == 1 or not any(name in stock for name in kinds):
            continue
        share = _extended(question, item, stock=stock, rate_per_s=question.demand.planned_rate_per_s)
        if _purchase((share,)) < _purchase(best.shares):
            idle = tuple(
                Note("no_part_of_fleet", {"count": count, "hardware": name})
                for name, count in stock.items()
                if name not in kinds
            )
            best = StockPlan(shares=(share,), unused=idle)
    return best


def _racks(question: Question, plan: StockPlan) -> float:
    """Racks of the servers in use, those that exist and new ones; infinite where no server is known."""
    found = 0
    for share in plan.shares:
        kept, new = dict(share.kept_by_kind), dict(share.by_kind)
        for platform in {part.candidate.hardware: part.candidate.platform for part in share.serving.parts}.values():
            name, server = platform.hardware.name, platform.server
            if server is None:
                return inf
            servers = sum(ceil(of.get(name, 0) / server.accelerators_per_server) for of in (kept, new))
            found += racked(server, platform.hardware, servers=servers, ownership=question.ownership).racks
    return found


def _check_limits(question: Question, plan: StockPlan) -> None:
    """All that works, and the money for what is new, against the limits that were given."""
    spec, cost = question.spec, plan.cost_per_hour
    taken: dict[str, tuple[str, float]] = {
        "max_gpus": ("GPUs", plan.devices),
        "max_cost_per_hour": (f"{question.prices.currency}/h", inf if cost is None else cost),
        "max_power_kw": ("kW nameplate", plan.maximum_w / KILO),
        "max_racks": ("racks", _racks(question, plan) if spec.max_racks is not None else 0.0),
    }
    for field, (unit, value) in taken.items():
        allowed = getattr(spec, field)
        if allowed is None or value <= allowed:
            continue
        held = isfinite(value)
        more = f"{plain_text(value - allowed)} more than the {plain_text(allowed)} allowed"
        raise InfeasibleError(
            f"{plain_text(value)} {unit} are needed with the stock ({plan.bought} GPUs to obtain), {more}"
            if held
            else f"what {plan.bought} GPUs to obtain take in {unit} is not known",
            field=Option(field),
            code="over_budget",
            hint=f"`{field}` {rounded_up(value)} is the nearest that is feasible" if held else "leave it out",
        ).offering({field: rounded_up(value)} if held else {})


def study(context: StudyContext) -> StockPlan | None:
    """Existing accelerators with their share of the demand, and what has to be bought beside them."""
    found = stock_plan(context.question, list(context.allowed))
    # Where the plan's own fleets are simulated, so is what serves.
    return found if found is None or context.plan.finalists is None else _held(context, found)


def _held(context: StudyContext, stock: StockPlan) -> StockPlan:
    """``stock`` with each of its fleets simulated. A set-up that misses carries what it does there, and all is planned
    again with that.
    """
    slower: dict[tuple[str, str], Shape] = {}
    for left in reversed(range(_ROUNDS)):
        fleets = [alone(context.plan, share, context.question.spec).basis for share in stock.shares]
        checks = [check_fleet(fleet.question, fleet.shown[0]) for fleet in fleets]
        grown = [(share, item) for share, item in zip(stock.shares, checks, strict=True) if item.is_grown]
        if not grown or not left:
            break
        slower |= {(share.hardware, share.label): item.sized.evaluated for share, item in grown}
        stock = stock_plan(context.question, list(context.allowed), slower=slower) or stock
    found = [full_verification(fleet.question, item) for fleet, item in zip(fleets, checks, strict=True)]
    return with_simulated(stock, found)


def parts(plan: CapacityPlan, spec: PlanSpec) -> tuple[CapacityPlan, ...]:
    """Each of them in whole servers, a plan of its own; none where nothing exists. What demand grows by goes to the one
    for which accelerators are obtained, else to the last that is filled."""
    stock = plan.study(StockPlan)
    if stock is None:
        return ()
    grows = next((place for place, share in enumerate(stock.shares) if share.bought), len(stock.shares) - 1)
    beside = sum(share.capacity_per_s for place, share in enumerate(stock.shares) if place != grows)
    found = []
    for place, share in enumerate(stock.shares):
        part = alone(plan, share, spec)
        whole, others = plan.demand.planned_rate_per_s, beside if place == grows else None
        found.append(replace(part, basis=replace(part.basis, whole_per_s=whole, beside_per_s=others)))
    return tuple(found)


def alone(plan: CapacityPlan, share: FleetShare, spec: PlanSpec) -> CapacityPlan:
    """One of them as ``spec`` asks for it. What is all there already may be a part of a server. Studies of it count no
    rent where a part of a fleet is paid for."""
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
    in_stock = sum(count for platform, count in _stock_platforms(whole) if platform.hardware.name == share.hardware)
    return replace(
        plan,
        demand=demand,
        best=best,
        alternatives=(),
        basis=PlanBasis(question=question, shown=(sized,), in_stock=in_stock if share.from_stock else 0),
        warnings=(),
        price_ranking=None,
        studies=(),
        verification=None,
        finalists=None,
        parts=(),
    )


def with_simulated(stock: StockPlan, checks: Sequence[FleetVerification | None]) -> StockPlan:
    """``stock`` with what the event simulation says of each of its fleets."""
    shares = (replace(share, simulated=found) for share, found in zip(stock.shares, checks, strict=True))
    return replace(stock, shares=tuple(shares))
