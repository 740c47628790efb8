"""What a fleet costs per hour and per million tokens, and what the range of listed prices does to the ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from simulator.planner.fleet.records import Fleet, FleetCost, Housing
from simulator.planner.money.market import MarketPrice, PriceRule, market_price, mean_price, plan_rule, provider_kinds
from simulator.planner.records import Demand
from simulator.records import dataclass
from simulator.specs.money.prices import OfferKind, PriceOf, PriceProfile
from simulator.specs.question.plan import PlanSpec
from simulator.units import HOURS_PER_MONTH, MEGA, SECONDS_PER_HOUR


def fleet_cost(
    *, prices: PriceProfile, bill: Sequence[tuple[MarketPrice | None, int]], demand: Demand, prompt_share: float
) -> FleetCost:
    """Money for the accelerators of a ``bill``, each kind with its price, that serve the mean demand.

    Input and output prices split the bill by the share of time that prompts take (``prompt_share``), so that
    input price x input tokens + output price x output tokens is the bill; ``all_in`` puts all of it on the output. A
    request's prompt counts once, whatever the number of its answers.
    """
    priced = [(price, devices) for price, devices in bill if price is not None]
    if len(priced) < len(bill):
        return FleetCost(currency=prices.currency, terms=(), offer="unknown price")
    per_hour = sum(devices * price.per_hour for price, devices in priced)
    requests_per_hour = demand.requests_per_s * demand.computed_fraction * SECONDS_PER_HOUR
    output_millions = requests_per_hour * demand.answers_per_request * demand.mix.osl.mean_tokens / MEGA
    input_millions = requests_per_hour * demand.mix.isl.mean_tokens / MEGA
    single = len(priced) == 1
    return FleetCost(
        currency=prices.currency,
        terms=tuple(dict.fromkeys(term for price, _ in priced for term in price.terms)),
        per_device_hour=priced[0][0].per_hour if single else per_hour / sum(devices for _, devices in priced),
        offer=" + ".join(dict.fromkeys(str(price) for price, _ in priced)),
        per_hour=per_hour,
        per_month=per_hour * HOURS_PER_MONTH,
        per_million_output_tokens=per_hour * (1 - prompt_share) / output_millions,
        per_million_input_tokens=per_hour * prompt_share / input_millions,
        per_million_output_tokens_all_in=per_hour / output_millions,
        per_million_requests=per_hour / requests_per_hour * MEGA,
        prices=tuple(price for price, _ in priced),
    )


def fleet_price(housing: Sequence[Housing], *, prices: PriceProfile, rule: PriceRule) -> MarketPrice | None:
    """What an accelerator of a fleet costs by a rule, on average where they are of two kinds; None without a price."""
    found = [(market_price(prices, hardware=item.hardware, rule=rule), item.devices) for item in housing]
    priced = [(price, devices) for price, devices in found if price is not None]
    return mean_price(priced) if len(priced) == len(found) else None


MOST_RIVALS = 4
_ENDS: tuple[PriceOf, ...] = ("low", "median", "high")


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceCase:
    """The ranking at other prices.

    name : ``planned``; ``low``, ``median`` or ``high`` of every accelerator; a kind of provider alone
    hardware, setup, devices, cost_per_hour : of the fleet that is chosen then; next_* : of the next one elsewhere
    priced : fleets that have such a price; chosen_priced : whether the plan's is one of them
    """

    name: str
    hardware: str
    setup: str
    devices: int
    cost_per_hour: float
    next_hardware: str | None
    next_cost_per_hour: float | None
    priced: int
    chosen_priced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRival:
    """A fleet of another accelerator that the price of an accelerator-hour could make the cheapest.

    wins_below : price at which it would be chosen, doubt included; per_hour : as planned with, None where nobody
    lists one; low, low_provider : the lowest that is listed
    """

    hardware: str
    setup: str
    devices: int
    wins_below: float
    per_hour: float | None
    low: float | None
    low_provider: str | None

    @property
    def offered(self) -> bool:
        """Whether somebody asks less than the price at which it wins."""
        return self.low is not None and self.low < self.wins_below


@dataclass(frozen=True, slots=True, kw_only=True)
class BoughtFleet:
    """The cheapest fleet to own of those whose accelerators somebody quoted a purchase of.

    accelerators : its kinds; provider : who quotes; capital : at the start; per_hour : with operation over ``years``
    rent_hardware, rent_kind, rent_per_hour : of the fleet that costs least to rent for as long, by a term or as planned
    chosen : whether owning costs less than that, doubt included
    """

    hardware: str
    accelerators: tuple[str, ...]
    setup: str
    devices: int
    provider: str
    capital: float
    per_hour: float
    years: int
    rent_hardware: str
    rent_kind: OfferKind | Literal["planned"]
    rent_per_hour: float
    chosen: bool

    @property
    def change(self) -> float:
        """Share by which owning costs more than the rent, below zero where it costs less."""
        return self.per_hour / self.rent_per_hour - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRanking:
    """How far the recommendation rests on prices.

    loses_above : price of the chosen accelerator at which the next fleet is chosen, on average where there are two;
    None where nothing else has a price
    rivals : the next fleet, those that win at a listed price of theirs, and smaller ones that nobody prices
    bought : what owning would cost; None where nobody quoted a purchase
    """

    cases: tuple[PriceCase, ...]
    loses_above: float | None
    rivals: tuple[PriceRival, ...]
    bought: BoughtFleet | None = None

    @property
    def steady(self) -> bool:
        """The chosen accelerators are chosen wherever they have a price."""
        return len({case.hardware for case in self.cases if case.chosen_priced}) == 1


def _cost(fleet: Fleet, *, prices: PriceProfile, rule: PriceRule) -> float | None:
    price = fleet_price(fleet.housing, prices=prices, rule=rule)
    return None if price is None else price.per_hour * fleet.devices


def _case(name: str, fleets: Sequence[Fleet], *, prices: PriceProfile, rule: PriceRule) -> PriceCase | None:
    costs = [(_cost(fleet, prices=prices, rule=rule), fleet) for fleet in fleets]
    known = ((cost, fleet) for cost, fleet in costs if cost is not None)
    priced = sorted(known, key=lambda item: item[0] * (1 + item[1].doubt))
    if not priced:
        return None
    cost, best = priced[0]
    after = next(((other, fleet) for other, fleet in priced if fleet.hardware != best.hardware), None)
    return PriceCase(
        name=name,
        hardware=best.hardware,
        setup=best.label,
        devices=best.devices,
        cost_per_hour=cost,
        next_hardware=None if after is None else after[1].hardware,
        next_cost_per_hour=None if after is None else after[0],
        priced=len(priced),
        chosen_priced=costs[0][0] is not None,
    )


def _rival(fleet: Fleet, *, counted: float, prices: PriceProfile, rule: PriceRule) -> PriceRival:
    price = fleet_price(fleet.housing, prices=prices, rule=rule)
    return PriceRival(
        hardware=fleet.hardware,
        setup=fleet.label,
        devices=fleet.devices,
        wins_below=counted / (1 + fleet.doubt) / fleet.devices,
        per_hour=None if price is None else price.per_hour,
        low=None if price is None else price.low,
        low_provider=None if price is None else price.low_provider,
    )


def _rivals(fleets: Sequence[Fleet], *, prices: PriceProfile, rule: PriceRule) -> list[PriceRival]:
    best = fleets[0]
    counted = best.counted_per_hour or 0.0
    seen, found = {best.hardware}, []
    for fleet in fleets[1:]:
        if fleet.hardware not in seen:
            seen.add(fleet.hardware)
            found.append(_rival(fleet, counted=counted, prices=prices, rule=rule))
    first = found[:1] if found and found[0].per_hour is not None else []
    others = found[len(first) :]
    winning = [item for item in others if item.offered]
    unpriced = [item for item in others if item.per_hour is None and item.devices < best.devices]
    return [*first, *winning, *unpriced][:MOST_RIVALS]


def price_ranking(fleets: Sequence[Fleet], *, prices: PriceProfile, spec: PlanSpec) -> PriceRanking | None:
    """How the ranking of a plan's fleets, best first, depends on prices; None where the best has none."""
    best = fleets[0]
    if best.cost.per_hour is None:
        return None
    rule = plan_rule(spec)
    ends = [(end, replace(rule, of=end)) for end in _ENDS if end != (rule.of or "median")]
    kinds = [(kind, replace(rule, provider=kind)) for kind in provider_kinds()] if spec.provider is None else []
    found = (_case(name, fleets, prices=prices, rule=asked) for name, asked in [("planned", rule), *ends, *kinds])
    cases = [case for case in found if case is not None]
    after = next((item.counted_per_hour for item in fleets if item.hardware != best.hardware), None)
    return PriceRanking(
        cases=tuple(cases),
        loses_above=None if after is None else after / (1 + best.doubt) / best.devices,
        rivals=tuple(_rivals(fleets, prices=prices, rule=rule)),
    )
