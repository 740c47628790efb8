"""Dated, sourced, user-overridable prices."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, PositiveFloat

from simulator.specs.base import Spec
from simulator.specs.currency import known_currency

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
    date: str
    source: str
    default: bool = False
    server_included: bool = True
    note: str = ""


class PriceProfile(Spec):
    """A price list. ``power_per_kwh`` and ``pue`` price the electricity of owned hardware."""

    name: str
    currency: Annotated[str, AfterValidator(known_currency)]
    date: str
    power_per_kwh: PositiveFloat
    power_source: str
    pue: PositiveFloat
    pue_source: str
    offers: tuple[OfferSpec, ...]
