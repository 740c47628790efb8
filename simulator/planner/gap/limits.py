"""Limits of the whole fleet (devices, cost, power, racks): which fleets hold them, and by how much others miss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, Context
from math import isfinite
from typing import Literal

import numpy as np

from simulator.errors import InfeasibleError, Option
from simulator.planner.fleet.fleet import Sized, complete, quality_of
from simulator.planner.fleet.records import DEFAULT_SPARES
from simulator.planner.gap.changes import pinned_spec
from simulator.planner.gap.records import GapOption
from simulator.planner.money.facilities import facilities, racked
from simulator.planner.money.market import market_price, plan_rule
from simulator.planner.records import FieldValue, Platform, Rejection, reject
from simulator.planner.search.question import Question
from simulator.planner.search.screen_tables import ScreenTable
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.traffic.lengths import Array
from simulator.units import KILO, plain_text

_DIGITS = 4
LimitKind = Literal["devices", "cost", "power", "racks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetLimit:
    """A limit that was given: its field, unit and value, and what a fleet takes of it (None where that is unknown)."""

    kind: LimitKind
    field: str
    unit: str
    allowed: float
    taken: Callable[[Sized], float | None]

    def share(self, sized: Sized) -> float:
        """What a fleet takes over what is allowed; infinite where that is unknown."""
        value = self.taken(sized)
        return float("inf") if value is None else value / self.allowed

    def holds(self, sized: Sized) -> bool:
        """Whether a fleet stays within; one whose price is unknown does not."""
        return self.share(sized) <= 1


def _racks(question: Question) -> Callable[[Sized], float | None]:
    ownership = question.ownership

    def racks(sized: Sized) -> float | None:
        fleet = complete(sized, demand=question.demand, objectives=question.objectives, spec=question.spec)
        found = facilities(fleet, ownership=ownership).racks
        return None if found is None else float(found)

    return racks


def fleet_limits(question: Question) -> tuple[FleetLimit, ...]:
    """The limits that were given, in the order in which they are cheap to check."""
    spec = question.spec
    every: tuple[tuple[LimitKind, str, str, float | None, Callable[[Sized], float | None]], ...] = (
        ("devices", "max_gpus", "GPUs", spec.max_gpus, lambda item: float(item.devices)),
        (
            "cost",
            "max_cost_per_hour",
            f"{question.prices.currency}/h",
            spec.max_cost_per_hour,
            lambda item: item.cost.per_hour,
        ),
        ("power", "max_power_kw", "kW nameplate", spec.max_power_kw, lambda item: item.maximum_w / KILO),
        ("racks", "max_racks", "racks", spec.max_racks, _racks(question) if spec.max_racks else lambda _: None),
    )
    return tuple(
        FleetLimit(kind=kind, field=field, unit=unit, allowed=allowed, taken=taken)
        for kind, field, unit, allowed, taken in every
        if allowed is not None
    )


def within(limits: Sequence[FleetLimit], ranked: Sequence[Sized]) -> list[Sized]:
    """Fleets that hold every limit, in their order."""
    return [item for item in ranked if all(limit.holds(item) for limit in limits)]


def beyond(limits: Sequence[FleetLimit], ranked: Sequence[Sized]) -> tuple[Rejection, ...]:
    """Fleets that serve but break a limit, each with the limits that it breaks and by how much."""
    found = []
    for item in ranked:
        broken = [limit for limit in limits if not limit.holds(item)]
        if broken:
            reason = Note("limits_broken", {"broken": tuple(_by_how_much(limit, item) for limit in broken)})
            field, excess = Option(broken[0].field), max(limit.share(item) for limit in broken) - 1
            found.append(reject(item.evaluated.candidate, "limit", reason, field=field, excess=excess))
    return tuple(found)


def _by_how_much(limit: FleetLimit, sized: Sized) -> Note:
    known, taken = {"field": limit.field, "unit": limit.unit, "allowed": limit.allowed}, limit.taken(sized)
    if taken is None:
        return Note("share_unknown", known)
    whole = {"counted": limit.kind == "devices", "devices": sized.devices}
    return Note("limit_broken", {**known, **whole, "taken": taken, "above": taken - limit.allowed})


def name_of(sized: Sized) -> str:
    """``h100-sxm-80gb TP4``."""
    candidate = sized.evaluated.candidate
    return f"{candidate.hardware} {candidate.label}"


def _least(limit: FleetLimit, ranked: Sequence[Sized]) -> tuple[float, Sized] | None:
    taken = [(limit.taken(item), item) for item in ranked]
    known = [(value, item) for value, item in taken if value is not None]
    return min(known, key=lambda pair: (pair[0], pair[1].rank), default=None)


def _unknown(limit: FleetLimit) -> InfeasibleError:
    """No fleet can be shown to hold the limit."""
    racks = limit.kind == "racks"
    return InfeasibleError(
        "no server with a profile holds these accelerators, so racks cannot be counted"
        if racks
        else "no accelerator that can serve has a known price, so no fleet can be compared with the limit",
        field=Option(limit.field),
        code="over_budget",
        hint="add a server profile (`profiles`)" if racks else "add prices (`prices`)",
    )


def over_limits(question: Question, ranked: Sequence[Sized], limits: Sequence[FleetLimit]) -> InfeasibleError:
    """Fleets exist but none within the limits: the first limit that nothing holds, or two that contradict."""
    rate = question.demand.mean_rate_per_s
    for limit in limits:
        least = _least(limit, ranked)
        if least is None:
            return _unknown(limit)
        value, item = least
        if value > limit.allowed:
            return InfeasibleError(
                f"{rate:g} requests/s take at least {plain_text(value)} {limit.unit} "
                f"({item.devices} x {name_of(item)}), "
                f"{plain_text(value - limit.allowed)} more than the {plain_text(limit.allowed)} allowed",
                field=Option(limit.field),
                code="over_budget",
                hint=f"`{limit.field}` {rounded_up(value)} is the nearest that is feasible as asked",
            ).offering({limit.field: rounded_up(value)})
    nearest = min(ranked, key=lambda item: (max(limit.share(item) for limit in limits), item.rank))
    broken = [limit for limit in limits if not limit.holds(nearest)]
    shown = " and ".join(f"`{limit.field}` {limit.allowed:g}" for limit in limits)
    needs = ", ".join(f"`{limit.field}` {rounded_up(limit.taken(nearest) or float('inf'))}" for limit in broken)
    return InfeasibleError(
        f"no fleet holds {shown} together, though each alone can be held; nearest is "
        f"{nearest.devices} x {name_of(nearest)}",
        field=Option((broken or limits)[0].field),
        code="contradiction",
        hint=f"it needs {needs}",
    )


def rounded_up(value: float) -> str:
    """Four digits, or all before the point; never below ``value``, so that it can be typed."""
    before_point = len(str(int(value)))
    digits = Context(prec=max(_DIGITS, before_point), rounding=ROUND_CEILING)
    return f"{digits.create_decimal(repr(value)).normalize():f}"


Order = tuple[float, tuple[bool, float, int, str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun:
    """How far a fleet is over its limits: the largest ratio of needed to allowed; without limits its devices."""

    limits: tuple[FleetLimit, ...]

    def of(self, sized: Sized) -> float:
        """The ratio; at most 1 where every limit holds."""
        return max((limit.share(sized) for limit in self.limits), default=float(sized.devices))

    def order(self, sized: Sized) -> Order:
        """The nearest to the limits first; of those within them the cheapest."""
        over = self.of(sized)
        return (max(over, 1.0) if self.limits else over, sized.rank)

    def taken(self, sized: Sized) -> tuple[float | None, ...]:
        """What a fleet needs of each limited quantity."""
        return tuple(limit.taken(sized) for limit in self.limits)

    def holds(self, sized: Sized) -> bool:
        """Whether limits were given and all hold."""
        return bool(self.limits) and self.of(sized) <= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fleets:
    """Accelerators and servers of screened fleets; infinite where nothing serves. Servers are 0 for single devices."""

    devices: Array
    servers: Array


def _column(values: list[float]) -> Array:
    return np.array(values, dtype=np.float64).reshape(-1, 1, 1)


def _in_server(table: ScreenTable) -> float:
    server = table.platform.server
    return 0.0 if server is None else float(server.accelerators_per_server)


def _fleets(tables: tuple[ScreenTable, ...], capacity_per_s: Array, *, question: Question) -> _Fleets:
    """``size`` and ``pack`` over arrays, with the plain number of spares."""
    each = _column([float(table.parallelism.devices) for table in tables])
    with np.errstate(divide="ignore", invalid="ignore"):
        replicas = np.ceil(question.demand.planned_rate_per_s / capacity_per_s)
        total = replicas + (DEFAULT_SPARES if question.spec.spares is None else question.spec.spares)
        if question.spec.round_to == "device":
            return _Fleets(devices=total * each, servers=np.zeros_like(total))
        inside = _column([_in_server(table) for table in tables])
        spanned = np.ceil(each / np.maximum(inside, 1.0))
        servers = np.where(each <= inside, np.ceil(total / np.maximum(inside // each, 1.0)), total * spanned)
        return _Fleets(
            devices=np.where(inside > 0, servers * inside, total * each), servers=np.where(inside > 0, servers, 0.0)
        )


def _price(platform: Platform, *, question: Question) -> float:
    price = market_price(question.prices, hardware=platform.hardware.name, rule=plan_rule(question.spec))
    return price.per_hour if price is not None else float("inf")


def priced(found: tuple[Platform, ...], *, question: Question) -> tuple[Platform, ...]:
    """Those with a price; all where none has one."""
    return tuple(item for item in found if isfinite(_price(item, question=question))) or found


def _watts(table: ScreenTable) -> tuple[float, float]:
    """Nameplate power of a server, and of a single accelerator [W]."""
    server, hardware = table.platform.server, table.platform.hardware
    return (0.0 if server is None else server.nameplate_w(hardware)), hardware.limit_w


def _per_rack(platform: Platform, *, question: Question) -> float:
    """Servers of one rack; 0 without a server."""
    server = platform.server
    return racked(server, platform.hardware, servers=1, ownership=question.ownership).per_rack if server else 0.0


def screened_overrun(
    tables: tuple[ScreenTable, ...], capacity_per_s: Array, *, question: Question, limits: tuple[FleetLimit, ...]
) -> tuple[Array, Array]:
    """``Overrun.of`` and cost per hour of every set-up [tables, engine limits]; infinite where nothing serves."""
    fleets = _fleets(tables, capacity_per_s, question=question)
    serves = np.isfinite(fleets.devices)
    devices, servers = np.where(serves, fleets.devices, 0.0), np.where(serves, fleets.servers, 0.0)
    price = _column([_price(table.platform, question=question) for table in tables])
    cost = np.where(np.isfinite(price), devices * np.where(np.isfinite(price), price, 0.0), np.inf)
    over = np.zeros_like(devices) if limits else devices
    for limit in limits:
        match limit.kind:
            case "devices":
                taken = devices
            case "cost":
                taken = cost
            case "power":
                of_server, of_device = (_column([_watts(table)[i] for table in tables]) for i in (0, 1))
                taken = np.where(servers > 0, servers * of_server, devices * of_device) / KILO
            case "racks":
                per_rack = _column([_per_rack(table.platform, question=question) for table in tables])
                taken = np.where(servers > 0, np.ceil(servers / np.maximum(per_rack, 1.0)), np.inf)
        over = np.maximum(over, taken / limit.allowed)
    shape = (len(tables), -1)
    return np.where(serves, over, np.inf).reshape(shape), np.where(serves, cost, np.inf).reshape(shape)


def option_of(
    question: Question,
    item: Sized,
    *,
    name: str,
    given: tuple[FieldValue, ...],
    overrun: Overrun,
    start: Sized | None,
    texts: tuple[str, ...] = (),
) -> GapOption:
    """A fleet that follows from one change, as an option to close the gap."""
    candidate, closes = item.evaluated.candidate, overrun.holds(item)
    quality = quality_of(item.evaluated)
    if start is None:
        helps = True
    elif overrun.holds(start):  # then only a cheaper or a smaller fleet is of use
        helps = closes and item.rank[:3] < start.rank[:3]
    else:
        helps = closes or overrun.order(item)[0] < overrun.order(start)[0]
    reason = "" if helps else Note("needs_no_less")
    return GapOption(
        name=name,
        given=given,
        hardware=candidate.hardware,
        label=candidate.label,
        devices=item.devices,
        taken=overrun.taken(item),
        closes=closes,
        reason=reason,
        quality=quality.note,
        quality_loss=quality.loss,
        cost_per_hour=item.cost.per_hour,
        spec=pinned_spec(question, candidate, texts=texts, keeps_limits=closes),
    )
