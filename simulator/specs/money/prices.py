"""Dated, sourced price lists; one may state only what differs from another. Currencies (ISO 4217) never convert."""

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, PositiveFloat, ValidationInfo, model_validator

from simulator.errors import ProfileError, did_you_mean
from simulator.specs.base import Days, IsoDate, Spec, read_yaml
from simulator.specs.profiles import find_profile, list_profiles, load_spec

# Active codes of ISO 4217, without funds, metals and test codes.
_LISTED = (
    "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF "
    "CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD "
    "HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL "
    "LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP "
    "PKR PLN PYG QAR RON RSD RUB RWF SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT "
    "TND TOP TRY TTD TWD TZS UAH UGX USD UYU UZS VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG"
)
CODES = frozenset(_LISTED.split())


def known_currency(code: str) -> str:
    """The code itself. Raises ValueError: not a currency of ISO 4217; names the nearest."""
    if code not in CODES:
        near = code.upper() if code.upper() in CODES else ""
        hint = f"did you mean {near}?" if near else did_you_mean(code, CODES)
        raise ValueError(f"an ISO 4217 currency code such as USD or EUR is needed ({hint})")
    return code


def same_currency(prices: str, *, ownership: str) -> None:
    """Refuse to add amounts of two currencies. Raises ProfileError: they differ."""
    if prices != ownership:
        raise ProfileError(
            f"the price list is in {prices}, the ownership profile in {ownership}; amounts of different currencies are "
            "never added",
            field="currency",
            code="mixed_currencies",
            hint=f"write both in {prices}: `ownership` FILE with extends: default, currency: {prices} and its money",
        )


EXTENDS = "extends"


def base_of(
    data: Mapping[Any, Any], *, kind: Literal["ownership", "prices"], profiles: str | Path | None = None
) -> dict[str, Any] | None:
    """The fields of the profile that ``data`` extends, None where it extends none; one that extends its own name means
    the built-in profile.

    Raises ValueError: there is no such profile, or it extends another one.
    """
    if EXTENDS not in data:
        return None
    named = str(data[EXTENDS])
    path = find_profile(kind, named, profiles=profiles, built_in=named == data.get("name"))
    if path is None:
        raise ValueError(f"extends {named!r}, which is no profile of {kind}")
    base = read_yaml(path)
    if EXTENDS in base:
        raise ValueError(f"extends {named!r}, which extends another one: name that one")
    return base


def own_fields(data: Mapping[Any, Any]) -> dict[str, Any]:
    """``data`` without the word that names its base."""
    return {str(name): value for name, value in data.items() if name != EXTENDS}


Day = date
"""The class, in a profile that has a field of its name."""
OfferKind = Literal["on_demand", "reserved_1y", "reserved_3y", "spot", "capacity_block", "purchase"]
ProviderKind = Literal["hyperscaler", "specialist", "marketplace", "index"]
"""Who sells. An ``index`` is a survey of what others take: it is counted only where nobody's own offer is known."""
PriceOf = Literal["low", "median", "high"]


class OfferSpec(Spec):
    """What one accelerator costs: ``per_hour`` for rentals, ``per_device`` for purchases, in the profile's currency.

    kind : the term; a capacity block is rented ahead for days, and paid then
    region : where it is offered, as the provider calls it; empty where one price holds everywhere or none is stated
    lead_time_days : from the order of a purchase to its use, as the seller says
    quote : made to the owner of the list, who wrote it into a list that extends another; comes before all others
    default : the one to plan with, whatever others ask: a contract of one's own
    server_included : a purchase price covers the accelerator's share of its server, not the card alone
    """

    hardware: str
    kind: OfferKind
    provider: str
    provider_kind: ProviderKind | None = None
    region: str = ""
    per_hour: PositiveFloat | None = None
    per_device: PositiveFloat | None = None
    date: IsoDate
    source: str
    lead_time_days: Days | None = None
    quote: bool = False
    default: bool = False
    server_included: bool = True
    note: str = ""

    @model_validator(mode="after")
    def _is_priced(self) -> Self:
        bought = self.kind == "purchase"
        needed, other = ("per_device", "per_hour") if bought else ("per_hour", "per_device")
        if getattr(self, needed) is None or getattr(self, other) is not None:
            raise ValueError(f"an offer of kind {self.kind} has {needed} and no {other}")
        return self


class PriceProfile(Spec):
    """A price list. ``power_per_kwh`` and ``pue`` price the electricity of owned hardware.

    stale_after_days : age from which on a price is called stale; None where the list does not say
    Accelerators are named as everywhere, by profile or alias. A file with ``extends: default`` takes from there what it
    does not state: its own offers replace those of the same accelerator and kind. Both are in one currency.
    """

    name: str
    currency: Annotated[str, AfterValidator(known_currency)]
    date: IsoDate
    power_per_kwh: PositiveFloat
    power_source: str
    pue: float = Field(ge=1)
    pue_source: str
    stale_after_days: Days | None = None
    stale_source: str = ""
    offers: tuple[OfferSpec, ...]

    @cached_property
    def current_from(self) -> str:
        """The first day whose prices are no older than ``stale_after_days`` on the day of the list (ISO)."""
        if self.stale_after_days is None:
            return ""
        return (date.fromisoformat(self.date) - timedelta(days=self.stale_after_days)).isoformat()

    def is_current(self, offer: OfferSpec) -> bool:
        """Whether an offer was not stale on the day of the list: answers do not change with the day they are asked."""
        return offer.date >= self.current_from

    def is_stale(self, offer: OfferSpec, *, today: Day) -> bool:
        """Whether an offer is older than ``stale_after_days`` on the day that somebody looks at it."""
        age_days = (today - date.fromisoformat(offer.date)).days
        return self.stale_after_days is not None and age_days > self.stale_after_days

    @model_validator(mode="before")
    @classmethod
    def _extended(cls, data: Any, info: ValidationInfo) -> Any:
        if not isinstance(data, Mapping):
            return data
        fields = own_fields(data)
        offers = fields.get("offers", ())
        if not isinstance(offers, list | tuple):
            return fields
        own = _canonical(offers, profiles=info.context)
        base = base_of(data, kind="prices", profiles=info.context)
        if base is None:
            return {**fields, "offers": own} if "offers" in fields else fields
        currency = fields.get("currency", base["currency"])
        if currency != base["currency"]:
            raise ValueError(f"extends a list in {base['currency']}, itself in {currency}: nothing is converted")
        # Lists, which a file may hold in place of names, belong in no set.
        replaced = [(offer.get("hardware"), offer.get("kind")) for offer in own if isinstance(offer, Mapping)]
        listed = _canonical(base["offers"], profiles=info.context)
        kept = [offer for offer in listed if (offer["hardware"], offer["kind"]) not in replaced]
        quoted = [{"quote": True, **offer} if isinstance(offer, Mapping) else offer for offer in own]
        return {**base, **fields, "offers": [*quoted, *kept]}


def _canonical(offers: Sequence[Any], *, profiles: str | Path | None) -> list[Any]:
    """Aliases of accelerators as their profiles' names; unknown names stay, as they may be of another folder."""
    known, named = frozenset(list_profiles("hardware", profiles=profiles)), []
    for offer in offers:
        name = offer.get("hardware") if isinstance(offer, Mapping) else None
        unknown = isinstance(name, str) and name not in known
        path = find_profile("hardware", str(name), profiles=profiles) if unknown else None
        named.append({**offer, "hardware": path.stem} if path is not None else offer)
    return named


def load_prices(name_or_path: str | Path = "default", *, profiles: str | Path | None = None) -> PriceProfile:
    """A price list by name or path."""
    return load_spec(PriceProfile, name_or_path, kind="prices", profiles=profiles)
