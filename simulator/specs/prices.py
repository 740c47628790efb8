"""Dated, sourced, user-overridable prices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveFloat, model_validator

from simulator.specs.base import Spec
from simulator.specs.currency import known_currency
from simulator.specs.extending import base_of, iso_date, own_fields

OfferKind = Literal["on_demand", "reserved_1y", "reserved_3y", "spot", "purchase"]


class OfferSpec(Spec):
    """What one accelerator costs: ``per_hour`` for rentals, ``per_device`` for purchases, in the profile's currency.

    server_included : a purchase price covers the accelerator's share of its server, not the card alone
    """

    hardware: str
    kind: OfferKind
    provider: str
    per_hour: PositiveFloat | None = None
    per_device: PositiveFloat | None = None
    date: Annotated[str, AfterValidator(iso_date)]
    source: str
    default: bool = False
    server_included: bool = True
    note: str = ""

    @model_validator(mode="after")
    def _is_priced(self) -> OfferSpec:
        bought = self.kind == "purchase"
        needed, other = ("per_device", "per_hour") if bought else ("per_hour", "per_device")
        if getattr(self, needed) is None or getattr(self, other) is not None:
            raise ValueError(f"an offer of kind {self.kind} has {needed} and no {other}")
        return self


class PriceProfile(Spec):
    """A price list. ``power_per_kwh`` and ``pue`` price the electricity of owned hardware.

    Accelerators are named as everywhere, by profile or alias. A file with ``extends: default`` takes from there what it
    does not state: its own offers replace those of the same accelerator and kind. Both are in one currency.
    """

    name: str
    currency: Annotated[str, AfterValidator(known_currency)]
    date: Annotated[str, AfterValidator(iso_date)]
    power_per_kwh: PositiveFloat
    power_source: str
    pue: float = Field(ge=1)
    pue_source: str
    offers: tuple[OfferSpec, ...]

    @model_validator(mode="before")
    @classmethod
    def _extended(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        fields = own_fields(data)
        offers = fields.get("offers", ())
        if not isinstance(offers, list | tuple):
            return fields
        own = _canonical(offers)
        base = base_of(data, kind="prices")
        if base is None:
            return {**fields, "offers": own} if "offers" in fields else fields
        currency = fields.get("currency", base["currency"])
        if currency != base["currency"]:
            raise ValueError(f"extends a list in {base['currency']}, itself in {currency}: nothing is converted")
        replaced = {(offer.get("hardware"), offer.get("kind")) for offer in own if isinstance(offer, Mapping)}
        kept = [offer for offer in base["offers"] if (offer["hardware"], offer["kind"]) not in replaced]
        return {**base, **fields, "offers": [*own, *kept]}


def _canonical(offers: Sequence[Any]) -> list[Any]:
    """Aliases of accelerators as their profiles' names; what nobody knows stays, it may be a user's own."""
    from simulator.specs.loading import find_profile, list_hardware

    known, named = frozenset(list_hardware()), []
    for offer in offers:
        name = offer.get("hardware") if isinstance(offer, Mapping) else None
        path = find_profile("hardware", name) if isinstance(name, str) and name not in known else None
        named.append({**offer, "hardware": path.stem} if path is not None else offer)
    return named
