"""What a fleet costs per hour and per million tokens, from dated price lists."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.errors import Option, RoofcastError
from simulator.planner.fleet.records import FleetCost
from simulator.planner.records import Demand
from simulator.specs.money.prices import OfferKind, OfferSpec, PriceProfile
from simulator.units import HOURS_PER_MONTH, MEGA, SECONDS_PER_HOUR

_RENTALS: tuple[OfferKind, ...] = ("on_demand", "reserved_1y", "reserved_3y", "spot")


def choose_offer(prices: PriceProfile, *, hardware: str, kind: OfferKind) -> OfferSpec | None:
    """The hourly offer of this kind that a plan uses: the list's default, otherwise the cheapest.

    None where the list has none for this accelerator: kinds are never mixed, so that options compare like with like.
    """
    offers = [
        offer
        for offer in prices.offers
        if offer.hardware == hardware and offer.per_hour is not None and offer.kind == kind
    ]
    preferred = [offer for offer in offers if offer.default]
    return min(preferred or offers, key=lambda offer: offer.per_hour or 0.0, default=None)


def check_kind(prices: PriceProfile, *, kind: OfferKind) -> None:
    """Refuse a kind of price that the list does not hold for anything."""
    if kind == "purchase":
        raise RoofcastError(
            "a purchase price is not a price per hour; allowed: " + ", ".join(_RENTALS), field=Option("price_kind")
        )
    known = sorted({offer.kind for offer in prices.offers})
    if kind not in known:
        raise RoofcastError(
            f"the price list {prices.name} holds no {kind} offers; it has {', '.join(known)}",
            field=Option("price_kind"),
        )


def fleet_cost(
    *, prices: PriceProfile, bill: Sequence[tuple[OfferSpec | None, int]], demand: Demand, prompt_share: float
) -> FleetCost:
    """Money for the accelerators of a ``bill``, each kind with its offer, that serve the mean demand.

    Input and output prices split the bill by the share of time that prompts take (``prompt_share``), so that
    input price x input tokens + output price x output tokens is the bill; ``all_in`` puts all of it on the output.
    """
    priced = [
        (offer, offer.per_hour, devices) for offer, devices in bill if offer is not None and offer.per_hour is not None
    ]
    if len(priced) < len(bill):
        return FleetCost(
            currency=prices.currency,
            kind="unknown",
            per_device_hour=None,
            offer="unknown price",
            per_hour=None,
            per_month=None,
            per_million_output_tokens=None,
            per_million_input_tokens=None,
            per_million_output_tokens_all_in=None,
        )
    per_hour = sum(devices * price for _, price, devices in priced)
    requests_per_hour = demand.served_mean_rate_per_s * SECONDS_PER_HOUR
    output_millions = requests_per_hour * demand.mix.osl.mean_tokens / MEGA
    input_millions = requests_per_hour * demand.mix.isl.mean_tokens / MEGA
    single = len(priced) == 1
    return FleetCost(
        currency=prices.currency,
        kind=priced[-1][0].kind,
        per_device_hour=priced[0][1] if single else per_hour / sum(devices for _, _, devices in priced),
        offer=" + ".join(dict.fromkeys(f"{offer.provider}, {offer.kind}, {offer.date}" for offer, _, _ in priced)),
        per_hour=per_hour,
        per_month=per_hour * HOURS_PER_MONTH,
        per_million_output_tokens=per_hour * (1 - prompt_share) / output_millions,
        per_million_input_tokens=per_hour * prompt_share / input_millions,
        per_million_output_tokens_all_in=per_hour / output_millions,
    )
