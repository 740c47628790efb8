"""How far fleets are beyond the limits of a question: one exactly, or all of a screen as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import numpy as np

from simulator.planner.candidate import Platform
from simulator.planner.fleet.constraints import FleetLimit
from simulator.planner.fleet.fleet import Sized
from simulator.planner.fleet.records import DEFAULT_SPARES
from simulator.planner.money.market import market_price, plan_rule
from simulator.planner.search.question import Question
from simulator.planner.search.screen_tables import ScreenTable
from simulator.specs.money.ownership import load_ownership
from simulator.traffic.lengths import Array
from simulator.units import KILO

Order = tuple[float, tuple[bool, float, int, str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun:
    """What a fleet takes over what is allowed, of the limit that it breaks most; without limits its accelerators."""

    limits: tuple[FleetLimit, ...]

    def of(self, sized: Sized) -> float:
        """At most 1 where every limit holds."""
        return max((limit.share(sized) for limit in self.limits), default=float(sized.devices))

    def order(self, sized: Sized) -> Order:
        """The nearest to the limits first; of those within them the cheapest."""
        over = self.of(sized)
        return (max(over, 1.0) if self.limits else over, sized.rank)

    def taken(self, sized: Sized) -> tuple[float | None, ...]:
        """Of every limit."""
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


def _price(table: ScreenTable, *, question: Question) -> float:
    price = market_price(question.prices, hardware=table.platform.hardware.name, rule=plan_rule(question.spec))
    return price.per_hour if price is not None else float("inf")


def _watts(table: ScreenTable) -> tuple[float, float]:
    """Nameplate power of a server, and of a single accelerator [W]."""
    server, hardware = table.platform.server, table.platform.hardware
    return (0.0 if server is None else server.nameplate_w(hardware)), hardware.limit_w


def _per_rack(platform: Platform, *, question: Question) -> float:
    """Servers of one rack as ``facilities`` counts them; 0 without a server."""
    server = platform.server
    if server is None:
        return 0.0
    ownership = load_ownership("default", profiles=question.policy.profiles)
    by_power = floor(ownership.rack_power_limit_w.value / server.nameplate_w(platform.hardware))
    return float(max(1, min(by_power, floor(ownership.rack_units_usable.value / server.rack_units))))


def screened_overrun(
    tables: tuple[ScreenTable, ...], capacity_per_s: Array, *, question: Question, limits: tuple[FleetLimit, ...]
) -> tuple[Array, Array]:
    """``Overrun.of`` and cost per hour of every set-up [tables, engine limits]; infinite where nothing serves."""
    fleets = _fleets(tables, capacity_per_s, question=question)
    serves = np.isfinite(fleets.devices)
    devices, servers = np.where(serves, fleets.devices, 0.0), np.where(serves, fleets.servers, 0.0)
    price = _column([_price(table, question=question) for table in tables])
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
