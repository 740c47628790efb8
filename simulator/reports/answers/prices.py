"""``roofcast prices``: the offers of a price list, their low, median and high, and quotes beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date
from functools import partial

from simulator.planner.money.market import (
    RENTALS,
    MarketPrice,
    PriceRule,
    PurchaseMarket,
    check_rule,
    market_price,
    named_provider,
    purchase_market,
)
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Json, picked
from simulator.reports.content.document import EMPTY, Paragraph, Section, Table, count, table
from simulator.reports.content.quantities import price_text, signed_percent_text
from simulator.reports.formats.text import sections_text
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.money.prices import OfferKind, OfferSpec, PriceProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceFilter:
    """Which offers to show; empty and None leave nothing out."""

    hardware: tuple[str, ...] = ()
    kind: OfferKind | None = None
    provider: str | None = None


def asked_filter(
    prices: PriceProfile, *, hardware: Sequence[str], kind: OfferKind | None, provider: str | None, profiles: str | None
) -> PriceFilter:
    """A filter with names as profiles and the list spell them. Raises RoofcastError, ProfileError: no such name."""
    return PriceFilter(
        hardware=tuple(load_hardware(name, profiles=profiles).name for name in hardware),
        kind=kind,
        provider=None if provider is None else named_provider(prices, provider),
    )


def _listed(prices: PriceProfile, asked: PriceFilter) -> list[OfferSpec]:
    found = [
        offer
        for offer in prices.offers
        if (not asked.hardware or offer.hardware in asked.hardware)
        and asked.kind in (None, offer.kind)
        and asked.provider in (None, offer.provider, offer.provider_kind)
    ]
    return sorted(found, key=lambda offer: (offer.hardware, offer.kind, offer.per_hour or offer.per_device or 0.0))


def _text(prices: PriceProfile, shown: Table, *, said: str, listed: PriceProfile) -> str:
    """A table under what it is of; that its list has no such offer where it is empty."""
    if not shown.rows:
        return f"The price list {listed.name} has no such offer.\n"
    stale = "" if prices.stale_after_days is None else f"; stale after {prices.stale_after_days} days"
    head = Paragraph(text=f"Price list {prices.name} of {prices.date}, {prices.currency}{stale}. {said}")
    return sections_text([Section(key="prices", title="", blocks=(head, shown))], currency=prices.currency)


def offers_document(prices: PriceProfile, *, asked: PriceFilter, today: date) -> Json:
    """``roofcast prices list --json``."""
    return {
        "schema_version": SCHEMA_VERSION,
        **picked(prices, "name", "currency", "date", "stale_after_days"),
        "offers": [
            offer.model_dump(mode="json") | {"stale": prices.is_stale(offer, today=today)}
            for offer in _listed(prices, asked)
        ],
    }


def offers_text(prices: PriceProfile, *, asked: PriceFilter, today: date) -> str:
    """``roofcast prices list``."""
    offers = _listed(prices, asked)
    rows = [
        (
            offer.hardware,
            offer.kind,
            offer.provider,
            offer.provider_kind or EMPTY,
            offer.region or EMPTY,
            price_text(offer.per_hour or offer.per_device, prices.currency),
            offer.date,
            "stale" if prices.is_stale(offer, today=today) else "",
            offer.source,
        )
        for offer in offers
    ]
    said = f"{len(offers)} offers; rentals per accelerator-hour, purchases per accelerator."
    heads = "accelerator: | term: | provider: | kind of provider: | region: | price: | date: | age: | source:"
    shown = table("offers", "", heads, rows)
    return _text(prices, shown, said=said, listed=prices)


_PLAN = "as planned"
_ENDS = ("low", "median", "high")


def _market(prices: PriceProfile, asked: PriceFilter) -> list[tuple[PriceRule, MarketPrice]]:
    """What a plan takes that names no term, then each term alone; with ``asked.kind`` that term."""
    kinds = (None, *RENTALS) if asked.kind is None else (asked.kind,)
    rules = [PriceRule(kind=kind, provider=asked.provider) for kind in kinds]
    if asked.kind:
        check_rule(prices, rule=rules[0])
    names = asked.hardware or tuple(sorted({offer.hardware for offer in prices.offers}))
    found = ((rule, market_price(prices, hardware=name, rule=rule)) for name in names for rule in rules)
    return [(rule, price) for rule, price in found if price is not None]


def comparison_document(prices: PriceProfile, *, asked: PriceFilter, quotes: PriceProfile | None) -> Json:
    """``roofcast prices compare --json``: low, median and high; with ``quotes``, each of them beside its median."""
    document: Json = {"schema_version": SCHEMA_VERSION, "name": prices.name, "currency": prices.currency}
    if quotes is None:
        return document | {"prices": [{"rule": str(rule), **asdict(price)} for rule, price in _market(prices, asked)]}
    return document | {"quotes": [_beside(offer, prices) for offer in _listed(quotes, asked)]}


def _beside(offer: OfferSpec, prices: PriceProfile) -> Json:
    """A quote and the market of its accelerator and term; null where the list has none."""
    market: MarketPrice | PurchaseMarket | None = purchase_market(prices, hardware=offer.hardware)
    if offer.kind != "purchase":
        market = market_price(prices, hardware=offer.hardware, rule=PriceRule(kind=offer.kind))
    asks = offer.per_hour or offer.per_device or 0.0
    return {
        **offer.model_dump(mode="json", include={"hardware", "kind", "provider", "per_hour", "per_device", "date"}),
        **(dict.fromkeys(_ENDS) if market is None else picked(market, *_ENDS)),
        "over_median": None if market is None else market.above_median(asks),
    }


def comparison_text(prices: PriceProfile, *, asked: PriceFilter, quotes: PriceProfile | None) -> str:
    """``roofcast prices compare``."""
    if quotes is not None:
        said = "Quotes beside it, per accelerator-hour; of a purchase per accelerator with its share of a server."
        return _text(prices, quotes_table(prices, asked=asked, quotes=quotes), said=said, listed=quotes)
    said = "Per accelerator-hour, one price a provider."
    if asked.kind is None:
        terms = " and ".join(PriceRule().terms)
        said += f" {_PLAN.capitalize()}: of each provider the cheapest of {terms}, as a plan takes it."
    return _text(prices, _market_table(_market(prices, asked), prices), said=said, listed=prices)


def _market_table(found: Sequence[tuple[PriceRule, MarketPrice]], prices: PriceProfile) -> Table:
    from simulator.reports.words.plan_inputs import taken_text

    paid = partial(price_text, currency=prices.currency)
    rows = [
        (
            *(item.hardware, rule.kind or _PLAN, paid(item.low), item.low_provider, paid(item.median)),
            *(paid(item.high), item.high_provider, f"{item.spread:.1f}", count(item.providers)),
            *(f"{paid(item.per_hour)} {taken_text(item)}", item.date),
        )
        for rule, item in found
    ]
    ends = "low | lowest of: | median | high | highest of: | high/low"
    return table("market", "", f"accelerator: | term: | {ends} | providers | taken: | newest:", rows)


def quotes_table(prices: PriceProfile, *, asked: PriceFilter, quotes: PriceProfile) -> Table:
    """Offers of ``quotes`` beside the low, median and high of ``prices``; those that both hold are left out."""
    rows = [
        (
            offer.hardware,
            offer.kind,
            offer.provider,
            price_text(offer.per_hour or offer.per_device, prices.currency),
            *(price_text(found[end], prices.currency) for end in _ENDS),
            EMPTY if found["over_median"] is None else signed_percent_text(found["over_median"]),
        )
        for offer in _listed(quotes, asked)
        if offer not in prices.offers
        for found in (_beside(offer, prices),)
    ]
    heads = "accelerator: | term: | provider: | quote | low | median | high | against the median"
    return table("quotes", "", heads, rows)
