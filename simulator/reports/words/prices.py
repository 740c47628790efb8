"""Prices of an accelerator-hour in words: which was taken, of whom, and what another one would change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from simulator.planner.money.cost import PriceRanking, PriceRival
from simulator.planner.money.market import MarketPrice
from simulator.reports.content.quantities import counted_text, price_text
from simulator.reports.words.fields import flag_of
from simulator.specs.money.prices import OfferKind

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
        said += f"; {counted_text(price.left_out, 'stale offer or index')} left out"
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


def _limit_text(above: float, price: MarketPrice, *, currency: str) -> str:
    """Up to which price the chosen accelerator stays the choice, and what is asked for it."""
    low, high = price_text(price.low, currency), price_text(price.high, currency)
    said = f"{price.hardware} is chosen up to {price_text(above, currency)} an hour"
    if price.providers == 1:
        return f"{said}; its only offer is {low} ({price.low_provider})"
    if price.high <= above:
        return f"{said}; all its offers are below that, {low} to {high}"
    return f"{said}; its offers run from {low} ({price.low_provider}) to {high} ({price.high_provider})"


def ranking_texts(found: PriceRanking, price: MarketPrice | None, *, currency: str) -> tuple[str, ...]:
    """Where another fleet becomes the choice, a sentence each without its stop."""
    lines = []
    if price is not None and found.loses_above is not None:
        lines.append(_limit_text(found.loses_above, price, currency=currency))
    lines += [_rival_text(item, currency=currency, first=place == 0) for place, item in enumerate(found.rivals)]
    return tuple(lines)


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
