"""Dated, sourced, user-overridable prices."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveFloat

from simulator.specs.base import Spec

OfferKind = Literal["on_demand", "reserved_1y", "reserved_3y", "spot", "purchase"]


class OfferSpec(Spec):
    """What one accelerator costs: ``per_hour`` for rentals, ``per_device`` for purchases, in the profile's currency."""

    hardware: str
    kind: OfferKind
    provider: str
    per_hour: PositiveFloat | None = None
    per_device: PositiveFloat | None = None
    date: str
    source: str
    default: bool = False
    note: str = ""


class PriceProfile(Spec):
    """A price list. ``power_per_kwh`` and ``pue`` price the electricity of owned hardware."""

    name: str
    currency: str
    date: str
    power_per_kwh: PositiveFloat
    power_source: str
    pue: PositiveFloat
    pue_source: str
    offers: tuple[OfferSpec, ...]
