"""What an accelerator-hour costs on a price list: the term, one price a provider, and their low, median and high.

The rule of a plan. A fleet runs around the clock, so that a commitment is paid for hours that are used. A provider
counts once, with its cheapest offer of the accelerator, on demand or a commitment that ends within the horizon: that
is what it would be paid. Offers that were stale on the day of the list and surveys of what others take count only where
nothing else is known. The median is over providers of which the list holds two offers or more, of whatever accelerator:
a lone number is no price list; where fewer than two such providers are left, over all. Low and high are over all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import median
from types import MappingProxyType
from typing import get_args

from simulator.errors import Option, ProfileError, RoofcastError, did_you_mean
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.hardware.accelerator import list_hardware
from simulator.specs.money.prices import OfferKind, OfferSpec, PriceOf, PriceProfile, ProviderKind
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import DEFAULT_HORIZON_MONTHS, MONTHS_PER_YEAR

RENTALS: tuple[OfferKind, ...] = ("on_demand", "reserved_1y", "reserved_3y", "spot", "capacity_block")
COMMITMENT_MONTHS: Mapping[OfferKind, int] = MappingProxyType(
    {"reserved_1y": MONTHS_PER_YEAR, "reserved_3y": 3 * MONTHS_PER_YEAR}
)
"""How long each commitment binds [months]."""
_LISTED_OFFERS = 2
"""Offers of a provider from which on the list holds its prices, and not one number."""
_FEWEST_PROVIDERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRule:
    """Which of the listed prices to take.

    kind : the term; None takes of each provider the cheapest of on demand and commitments within ``horizon_months``
    of : low, median or high of the providers; None takes the offer that the list marks, or the median without one
    provider : the name of one, or a kind of provider, that others are left out for
    """

    kind: OfferKind | None = None
    of: PriceOf | None = None
    provider: str | None = None
    horizon_months: int = DEFAULT_HORIZON_MONTHS

    @property
    def terms(self) -> tuple[OfferKind, ...]:
        """The terms that may be taken, those that bind least first."""
        if self.kind is not None:
            return (self.kind,)
        return ("on_demand", *(kind for kind, months in COMMITMENT_MONTHS.items() if months <= self.horizon_months))

    def __str__(self) -> str:
        which = "median" if self.of is None else self.of
        whose = "one price a provider" if self.provider is None else self.provider
        term = self.kind or "cheapest of " + " and ".join(self.terms)
        return f"{term}, {which} of {whose}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketPrice:
    """What an accelerator-hour costs, and the offers that say so, in the currency of the list.

    terms : of the offers that make the price, one or the two in the middle
    taken : low, median, high, ``only`` for a lone offer, ``marked`` for the list's own choice
    provider : who asks ``per_hour``, or how many providers it is the median of; date : of the newest of those offers
    low, median, high : over the providers; low_provider, high_provider : who asks them
    providers : of low and high; of_median : of the median; left_out : offers that do not count; oldest : date of those
    that do; outdated : they were stale on the day of the list; surveyed : indexes, as nobody's own offer is listed
    """

    hardware: str
    terms: tuple[OfferKind, ...]
    per_hour: float
    taken: str
    provider: str
    date: str
    source: str
    low: float
    median: float
    high: float
    low_provider: str
    high_provider: str
    providers: int
    of_median: int
    left_out: int
    oldest: str
    outdated: bool
    surveyed: bool

    @property
    def kind(self) -> str:
        """The term, or the two of a median between them: ``on_demand or reserved_1y``."""
        return " or ".join(self.terms)

    @property
    def spread(self) -> float:
        """Dearest over cheapest."""
        return self.high / self.low

    def above_median(self, per_hour: float) -> float:
        """Share by which another price lies above the median, below zero where it is under it."""
        return per_hour / self.median - 1

    def __str__(self) -> str:
        return f"{self.provider}, {self.kind}, {self.date}"


def mean_price(found: Sequence[tuple[MarketPrice, int]]) -> MarketPrice:
    """What one of so many accelerators of each kind costs on average; the price of an only kind as it is."""
    first, devices = found[0][0], sum(count for _, count in found)
    if len(found) == 1:
        return first
    prices = [price for price, _ in found]

    def mean(name: str) -> float:
        total: float = sum(getattr(price, name) * count for price, count in found)
        return total / devices

    def every(name: str, *, between: str = " + ") -> str:
        return between.join(dict.fromkeys(getattr(price, name) for price in prices))

    return MarketPrice(
        hardware=every("hardware"),
        terms=tuple(dict.fromkeys(term for price in prices for term in price.terms)),
        per_hour=mean("per_hour"),
        taken=every("taken"),
        provider=every("provider"),
        date=max(price.date for price in prices),
        source=every("source", between="; "),
        low=mean("low"),
        median=mean("median"),
        high=mean("high"),
        low_provider=every("low_provider"),
        high_provider=every("high_provider"),
        providers=min(price.providers for price in prices),
        of_median=min(price.of_median for price in prices),
        left_out=sum(price.left_out for price in prices),
        oldest=min(price.oldest for price in prices),
        outdated=any(price.outdated for price in prices),
        surveyed=any(price.surveyed for price in prices),
    )


def purchase_offer(prices: PriceProfile, *, hardware: str) -> OfferSpec:
    """The purchase price to plan with: the one the list marks, or the median of quotes or of all, the dearer of two.

    Cards and modules alone are no price of a fleet, unless somebody quoted them.

    Raises
    ------
    ProfileError
        The list has none for this accelerator with its server.
    """
    offers = [offer for offer in prices.offers if offer.hardware == hardware and offer.per_device is not None]
    quotes = [offer for offer in offers if offer.quote or offer.default]
    offers = quotes or [offer for offer in offers if offer.server_included]
    if not offers:
        strangers = sorted({offer.hardware for offer in prices.offers} - set(list_hardware()))
        misspelt = f"no accelerator is called {', '.join(strangers)}; " if strangers else ""
        raise ProfileError(
            f"the price list {prices.name} holds no purchase price of {hardware} with its server",
            field="offers",
            code="missing_price",
            hint=f"{misspelt}a quote of one, read by roofcast prices import, is priced with `prices` FILE",
        )
    usable = [offer for offer in offers if offer.default] or offers
    return sorted(usable, key=lambda item: item.per_device or 0.0)[len(usable) // 2]


@dataclass(frozen=True, slots=True, kw_only=True)
class PurchaseMarket:
    """Listed prices of an accelerator with its share of a server."""

    low: float
    median: float
    high: float

    def above_median(self, per_device: float) -> float:
        """How far a price lies above the median, as a share of it."""
        return per_device / self.median - 1


def purchase_market(prices: PriceProfile, *, hardware: str) -> PurchaseMarket | None:
    """Market of all purchases of an accelerator with its server; None where the list holds none."""
    found = sorted(
        offer.per_device
        for offer in prices.offers
        if offer.hardware == hardware and offer.per_device is not None and offer.server_included
    )
    return PurchaseMarket(low=found[0], median=found[len(found) // 2], high=found[-1]) if found else None


def mean_offer(found: Sequence[tuple[OfferSpec, int]]) -> OfferSpec:
    """The purchase of so many accelerators of each kind at what one costs on average; of an only kind its offer."""
    first, devices = found[0][0], sum(count for _, count in found)
    if len(found) == 1:
        return first
    offers = [offer for offer, _ in found]

    def every(name: str, *, between: str = " + ") -> str:
        return between.join(dict.fromkeys(getattr(offer, name) for offer in offers))

    each = [f"{offer.hardware} {offer.per_device or 0.0:,.2f}" for offer in offers]
    return OfferSpec(
        hardware=every("hardware"),
        kind="purchase",
        provider=every("provider"),
        per_device=sum((offer.per_device or 0.0) * count for offer, count in found) / devices,
        date=min(offer.date for offer in offers),
        source=every("source", between="; "),
        quote=all(offer.quote or offer.default for offer in offers),
        note=f"on average of {' and '.join(each)}",
    )


def plan_rule(spec: PlanSpec) -> PriceRule:
    """The rule that a plan's question asks for."""
    return PriceRule(
        kind=spec.price_kind,
        of=spec.price_of,
        provider=spec.provider,
        horizon_months=spec.horizon or DEFAULT_HORIZON_MONTHS,
    )


def provider_kinds() -> tuple[ProviderKind, ...]:
    """Kinds of provider that can be asked for: those that sell."""
    return tuple(kind for kind in get_args(ProviderKind) if kind != "index")


def named_provider(prices: PriceProfile, text: str) -> str:
    """The kind of provider, or the provider of the list, that ``text`` means: its name in any case, or its beginning.

    Raises RoofcastError: nobody on the list is called so, or several are.
    """
    wanted, names = (
        text.strip().casefold(),
        sorted({item.provider for item in prices.offers if item.kind != "purchase"}),
    )
    for name in (*provider_kinds(), *names):
        if name.casefold() == wanted:
            return name
    begun = [name for name in names if wanted and name.casefold().startswith(wanted)]
    if len(begun) == 1:
        return begun[0]
    said = f"{text!r} may be {', '.join(begun)}" if begun else f"nobody on the price list {prices.name} is {text!r}"
    raise RoofcastError(
        f"{said}; allowed: {', '.join(provider_kinds())} or a provider ({', '.join(names)})",
        field=Option("provider"),
        hint=did_you_mean(text, [*provider_kinds(), *names]),
    )


def check_rule(prices: PriceProfile, *, rule: PriceRule) -> None:
    """Refuse a rule that the list answers for no accelerator.

    Raises RoofcastError: the list holds no such kind of price for anything, no such provider, or the provider none of
    that kind.
    """
    if rule.kind == "purchase":
        raise RoofcastError(
            "a purchase price is not a price per hour; allowed: " + ", ".join(RENTALS), field=Option("price_kind")
        )
    known = sorted({offer.kind for offer in prices.offers})
    if not {*rule.terms} & {*known}:
        raise RoofcastError(
            f"the price list {prices.name} holds no {' or '.join(rule.terms)} offers; it has {', '.join(known)}",
            field=Option("price_kind"),
        )
    if rule.provider is None:
        return
    provider = named_provider(prices, rule.provider)
    offered = sorted({offer.kind for offer in prices.offers if _sells(offer, provider)})
    if not {*rule.terms} & {*offered}:
        raise RoofcastError(
            f"{provider} has no {' or '.join(rule.terms)} offers on the price list {prices.name}; "
            f"it has {', '.join(offered)}",
            field=Option("provider"),
        )


def market_price(prices: PriceProfile, *, hardware: str, rule: PriceRule) -> MarketPrice | None:
    """What an hour of the accelerator costs by the rule; None where the list has no such offer.

    Raises RoofcastError: the rule names a provider that the list does not hold.
    """
    return _market_price(Same(prices), hardware, rule)


@lru_cache(maxsize=4096)
def _market_price(held: Same[PriceProfile], hardware: str, rule: PriceRule) -> MarketPrice | None:
    prices = held.held
    found = _asked(prices, hardware, rule)
    if not found:
        return None
    usable = _usable(found, prices)
    each = _sorted(usable, prices, rule)
    middle = _listed(each, prices=prices)
    taken, offer, per_hour = _taken(found, each, middle, rule=rule)
    counted = [offer] if offer is not None else middle
    # Without an offer of its own: that whose price is the median, or the two that it lies between.
    central = middle[(len(middle) - 1) // 2 : len(middle) // 2 + 1] if offer is None else [offer]
    return MarketPrice(
        hardware=hardware,
        terms=tuple(dict.fromkeys(item.kind for item in central)),
        per_hour=per_hour,
        taken=taken,
        provider=f"median of {len(middle)} providers" if offer is None else offer.provider,
        date=max(item.date for item in counted),
        source="; ".join(dict.fromkeys(item.source for item in counted)),
        low=_hourly(each[0]),
        median=median(map(_hourly, middle)),
        high=_hourly(each[-1]),
        low_provider=each[0].provider,
        high_provider=each[-1].provider,
        providers=len(each),
        of_median=len(middle),
        left_out=len(found) - len(usable),
        oldest=min(item.date for item in counted),
        outdated=not all(map(prices.is_current, counted)),
        surveyed=all(item.provider_kind == "index" for item in counted),
    )


def offers_of(prices: PriceProfile, *, hardware: str, rule: PriceRule) -> tuple[OfferSpec, ...]:
    """The offers that a price by the rule rests on, one a provider, the cheapest first."""
    return tuple(_sorted(_usable(_asked(prices, hardware, rule), prices), prices, rule))


def _asked(prices: PriceProfile, hardware: str, rule: PriceRule) -> list[OfferSpec]:
    """Every offer of the accelerator at the rule's terms, of whom the rule asks."""
    provider = None if rule.provider is None else named_provider(prices, rule.provider)
    of_terms = (offer for offer in prices.offers if offer.hardware == hardware and offer.kind in rule.terms)
    return [offer for offer in of_terms if _sells(offer, provider)]


def _usable(offers: Sequence[OfferSpec], prices: PriceProfile) -> Sequence[OfferSpec]:
    """Own quotes before all others; then those of today and of sellers; old ones and indexes where nothing else is."""
    usable = [offer for offer in offers if offer.quote] or offers
    usable = [offer for offer in usable if prices.is_current(offer)] or usable
    return [offer for offer in usable if offer.provider_kind != "index"] or usable


def _sorted(offers: Sequence[OfferSpec], prices: PriceProfile, rule: PriceRule) -> list[OfferSpec]:
    named = rule.provider is not None and named_provider(prices, rule.provider) not in provider_kinds()
    return sorted(offers if named and rule.kind else _one_each(offers), key=_hourly)


def _sells(offer: OfferSpec, provider: str | None) -> bool:
    return offer.per_hour is not None and (provider is None or provider in (offer.provider, offer.provider_kind))


def _hourly(offer: OfferSpec) -> float:
    return offer.per_hour or 0.0


def _one_each(offers: Iterable[OfferSpec]) -> list[OfferSpec]:
    """The cheapest offer of every provider, its own machines or others'."""
    cheapest: dict[str, OfferSpec] = {}
    for offer in sorted(offers, key=_hourly):
        cheapest.setdefault(offer.provider, offer)
    return list(cheapest.values())


@lru_cache(maxsize=4)
def _offers_of_each(prices: Same[PriceProfile]) -> Mapping[str, int]:
    return Counter(offer.provider for offer in prices.held.offers if offer.kind != "purchase")


def _listed(offers: Sequence[OfferSpec], *, prices: PriceProfile) -> Sequence[OfferSpec]:
    count = _offers_of_each(Same(prices))
    listed = [offer for offer in offers if count[offer.provider] >= _LISTED_OFFERS]
    return listed if len(listed) >= _FEWEST_PROVIDERS else offers


def _taken(
    found: Sequence[OfferSpec], each: Sequence[OfferSpec], middle: Sequence[OfferSpec], *, rule: PriceRule
) -> tuple[str, OfferSpec | None, float]:
    """What is taken, whose offer it is (None for a median), and what it costs."""
    marked = [offer for offer in found if offer.default] if rule.of is None else []
    if marked:
        offer = min(marked, key=_hourly)
        return "marked", offer, _hourly(offer)
    if len(each) == 1:
        return "only", each[0], _hourly(each[0])
    if rule.of in ("low", "high"):
        offer = each[0 if rule.of == "low" else -1]
        return rule.of, offer, _hourly(offer)
    return "median", middle[0] if len(middle) == 1 else None, median(map(_hourly, middle))
