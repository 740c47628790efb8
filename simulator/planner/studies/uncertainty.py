"""How sure a plan is: draws of step times and demand, and what the choice costs where it turns out wrong."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from simulator.planner.fleet.fleet import Sized
from simulator.planner.fleet.resizing import Array, Resizer, resizer
from simulator.planner.search.question import Question
from simulator.planner.studies.risk_records import Quantiles, Regret, Uncertainty
from simulator.planner.studies.sensitivity import breaks_first, tornado

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
            hardware=item.evaluated.candidate.platform.hardware.name,
            label=item.evaluated.candidate.label,
            mean_regret_per_hour=float(regret[index]),
            best_share=float(best[index]),
        )
        for index, item in enumerate(compared)
    ]
    return tuple(sorted(found, key=lambda item: item.mean_regret_per_hour))


def _drawn_devices(fleet: Resizer, *, rates_per_s: Array, deviates: Array) -> Array:
    """Devices of a fleet sized for each draw: its own log-normal factor on all its step times."""
    return fleet.devices_for(rates_per_s, capacity_factor=np.exp(-fleet.log_sigma * deviates))


def uncertainty_of(question: Question, ranked: Sequence[Sized]) -> Uncertainty:
    """Monte Carlo over demand and step times for the first (recommended) of ``ranked`` and its alternatives.

    Demand is log-normal around the planned rate (median 1, ``demand_sigma``). Step times of a fleet carry one
    log-normal factor with the spread of its kernel fits; factors of different fleets are independent. Left out:
    prices (see the tornado), errors of the queueing model, correlated errors of related accelerators.
    """
    spec = question.spec
    draws = spec.draws or DEFAULT_DRAWS
    sigma = DEFAULT_DEMAND_SIGMA if spec.demand_sigma is None else spec.demand_sigma
    seed = spec.seed or 0
    compared = [ranked[0], *[item for item in ranked[1:] if item.cost.per_hour is not None]][:_COMPARED]
    generator = np.random.default_rng(seed)
    rates = question.demand.planned_rate_per_s * np.exp(sigma * generator.standard_normal(draws))
    deviates = generator.standard_normal((len(compared), draws))
    fleets = [resizer(item) for item in compared]
    devices = np.array(
        [_drawn_devices(fleet, rates_per_s=rates, deviates=row) for fleet, row in zip(fleets, deviates, strict=True)]
    )
    best, price = fleets[0], fleets[0].price_per_hour
    paces = np.exp(-best.log_sigma * deviates[0])
    priced = [fleet.price_per_hour for fleet in fleets]
    regrets: tuple[Regret, ...] = ()
    if price is not None and len(compared) > 1:
        regrets = _regrets(compared, devices * np.array([value or 0.0 for value in priced])[:, None])
    bars = tornado(question, ranked[0])
    return Uncertainty(
        seed=seed,
        draws=draws,
        demand_sigma=sigma,
        devices=_quantiles(devices[0]),
        cost_per_hour=None if price is None else _quantiles(devices[0] * price),
        enough_share=float(best.carried(rates, capacity_factor=paces, replicas=ranked[0].replicas).mean()),
        tornado=bars,
        breaks_first=breaks_first(question, ranked[0]),
        regrets=regrets,
    )
