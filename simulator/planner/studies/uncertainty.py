"""How sure a plan is: draws of step times and demand, and what the choice costs where it turns out wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from simulator.errors import ProfileError
from simulator.planner.capacity_plan import StudyContext
from simulator.planner.fleet.fleet import Sized
from simulator.planner.fleet.resizing import Array, Resizer, resizer
from simulator.planner.money.tco import total_cost
from simulator.planner.money.tco_records import OwningBar
from simulator.planner.records import Study
from simulator.planner.search.question import Question
from simulator.planner.studies.sensitivity import BreaksFirst, TornadoBar, breaks_first, owning_bars, tornado
from simulator.records import dataclass
from simulator.specs.money.ownership import load_ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Ten, fifty and ninety percent of the draws lie below."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """How a fleet fares over the draws: mean cost above the best choice of each draw, and how often it is the best."""

    hardware: str
    label: str
    mean_regret_per_hour: float
    best_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty(Study):
    """Monte Carlo over step times and demand.

    devices, cost_per_hour : of the best fleet sized for each draw; enough_share : draws that the planned fleet carries
    tornado : widest first; regrets : of the recommended fleet and its alternatives, smallest first
    owning : what figures of the bill, the price of a kWh among them, do to the cost of owning; empty where unpriced
    """

    key: ClassVar[str] = "uncertainty"

    seed: int
    draws: int
    demand_sigma: float
    devices: Quantiles
    cost_per_hour: Quantiles | None
    enough_share: float
    tornado: tuple[TornadoBar, ...]
    breaks_first: tuple[BreaksFirst, ...]
    regrets: tuple[Regret, ...]
    owning: tuple[OwningBar, ...] = ()


DEFAULT_DRAWS = 4000
# Assumed: nobody publishes how far capacity forecasts of LLM demand miss; set your own with --demand-sigma.
DEFAULT_DEMAND_SIGMA = 0.15
_COMPARED = 8


def _quantiles(values: Array) -> Quantiles:
    low, middle, high = np.percentile(values, [10, 50, 90])
    return Quantiles(p10=float(low), p50=float(middle), p90=float(high))


def _regrets(compared: Sequence[Sized], costs: Array) -> tuple[Regret, ...]:
    """``costs`` of each fleet in each draw [fleets, draws]."""
    least = costs.min(axis=0)
    regret, best = (costs - least).mean(axis=1), (costs <= least).mean(axis=1)
    found = [
        Regret(
            hardware=item.evaluated.candidate.hardware,
            label=item.evaluated.candidate.label,
            mean_regret_per_hour=float(regret[index]),
            best_share=float(best[index]),
        )
        for index, item in enumerate(compared)
    ]
    return tuple(sorted(found, key=lambda item: item.mean_regret_per_hour))


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnFleet:
    """One fleet over the draws of its step times and of demand.

    enough_share : of draws that it carries as planned; devices : of it, sized for each draw
    more_devices : over the planned ones, for nine in ten draws; not above 0 where those are enough
    """

    enough_share: float
    devices: Quantiles
    more_devices: float


def drawn_fleet(question: Question, chosen: Sized) -> DrawnFleet:
    """The recommended fleet over the draws of ``uncertainty_of``, the same ones, without its rivals and causes."""
    rates, (deviates, *_) = _draws(question, count=1)
    fleet = resizer(chosen)
    carried = fleet.carried(rates, capacity_factor=fleet.pace(deviates), replicas=chosen.replicas)
    devices = _quantiles(_drawn_devices(fleet, rates_per_s=rates, deviates=deviates))
    return DrawnFleet(enough_share=float(carried.mean()), devices=devices, more_devices=devices.p90 - chosen.devices)


def _draws(question: Question, *, count: int) -> tuple[Array, Array]:
    """Rates, and deviates of the step times of so many fleets, the first one's the same for any number."""
    spec = question.spec
    draws = spec.draws or DEFAULT_DRAWS
    sigma = DEFAULT_DEMAND_SIGMA if spec.demand_sigma is None else spec.demand_sigma
    generator = np.random.default_rng(spec.seed or 0)
    rates = question.demand.planned_rate_per_s * np.exp(sigma * generator.standard_normal(draws))
    return rates, generator.standard_normal((count, draws))


def _drawn_devices(fleet: Resizer, *, rates_per_s: Array, deviates: Array) -> Array:
    """Devices of a fleet sized for each draw: its own log-normal factor on all its step times."""
    return fleet.devices_for(rates_per_s, capacity_factor=fleet.pace(deviates))


def uncertainty_of(question: Question, ranked: Sequence[Sized]) -> Uncertainty:
    """Monte Carlo over demand and step times for the first (recommended) of ``ranked`` and its alternatives.

    Demand is log-normal around the planned rate (median 1, ``demand_sigma``). Step times of a fleet carry one
    log-normal factor with the spread of its kernel fits; factors of different fleets are independent. Left out:
    prices (see the tornado), errors of the queueing model, correlated errors of related accelerators.
    """
    spec = question.spec
    draws = spec.draws or DEFAULT_DRAWS
    sigma = DEFAULT_DEMAND_SIGMA if spec.demand_sigma is None else spec.demand_sigma
    compared = [ranked[0], *[item for item in ranked[1:] if item.cost.per_hour is not None]][:_COMPARED]
    rates, deviates = _draws(question, count=len(compared))
    fleets = [resizer(item) for item in compared]
    devices = np.array(
        [_drawn_devices(fleet, rates_per_s=rates, deviates=row) for fleet, row in zip(fleets, deviates, strict=True)]
    )
    best, price = fleets[0], fleets[0].price_per_hour
    paces = best.pace(deviates[0])
    priced = [fleet.price_per_hour for fleet in fleets]
    regrets: tuple[Regret, ...] = ()
    if price is not None and len(compared) > 1:
        regrets = _regrets(compared, devices * np.array([value or 0.0 for value in priced])[:, None])
    bars = tornado(question, ranked[0])
    return Uncertainty(
        seed=spec.seed or 0,
        draws=draws,
        demand_sigma=sigma,
        devices=_quantiles(devices[0]),
        cost_per_hour=None if price is None else _quantiles(devices[0] * price),
        enough_share=float(best.carried(rates, capacity_factor=paces, replicas=ranked[0].replicas).mean()),
        tornado=bars,
        breaks_first=breaks_first(question, ranked[0]),
        regrets=regrets,
    )


def _owning_bars(context: StudyContext) -> tuple[OwningBar, ...]:
    """What moves the plan's cost of owning, where that can be priced without being told how."""
    plan, prices = context.plan, context.question.prices
    spec = plan.spec
    if spec.stock and context.shown[0].cost.per_hour is None:
        return ()  # paid for, all or a part of it
    try:
        ownership = load_ownership(spec.ownership, prices=prices.name, profiles=spec.profiles)
        cost = total_cost(plan, prices=prices, ownership=ownership)
    except ProfileError:
        if spec.ownership is not None:
            raise
        return ()
    return tuple(owning_bars(plan, cost=cost, prices=prices, ownership=ownership))


def study(context: StudyContext) -> Uncertainty:
    """How sure the recommended fleet is, and what moves its cost of owning."""
    return replace(uncertainty_of(context.question, context.shown), owning=_owning_bars(context))
