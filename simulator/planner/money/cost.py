"""What a fleet costs per hour and per million tokens, from dated price lists."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.fleet.records import FleetCost
from simulator.planner.money.market import MarketPrice
from simulator.planner.records import Demand
from simulator.specs.money.prices import PriceProfile
from simulator.units import HOURS_PER_MONTH, MEGA, SECONDS_PER_HOUR


def fleet_cost(
    *, prices: PriceProfile, bill: Sequence[tuple[MarketPrice | None, int]], demand: Demand, prompt_share: float
) -> FleetCost:
    """Money for the accelerators of a ``bill``, each kind with its price, that serve the mean demand.

    Input and output prices split the bill by the share of time that prompts take (``prompt_share``), so that
    input price x input tokens + output price x output tokens is the bill; ``all_in`` puts all of it on the output.
    """
    priced = [(price, devices) for price, devices in bill if price is not None]
    if len(priced) < len(bill):
        return FleetCost(
            currency=prices.currency,
            terms=(),
            per_device_hour=None,
            offer="unknown price",
            per_hour=None,
            per_month=None,
            per_million_output_tokens=None,
            per_million_input_tokens=None,
            per_million_output_tokens_all_in=None,
            per_million_requests=None,
            prices=(),
        )
    per_hour = sum(devices * price.per_hour for price, devices in priced)
    requests_per_hour = demand.served_mean_rate_per_s * SECONDS_PER_HOUR
    output_millions = requests_per_hour * demand.mix.osl.mean_tokens / MEGA
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
