"""What owning and operating a fleet costs beside accelerators: dated, sourced figures, each open to replacement."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, model_validator

from simulator.specs.base import IsoDate, Spec, is_recalled
from simulator.specs.money.prices import base_of, known_currency, own_fields
from simulator.specs.profiles import find_profile, load_spec

KIND: Literal["ownership"] = "ownership"
DEFAULT = "default"
MONEY = ("licence_per_device_year", "colocation_per_kw_month", "staff_per_fte_year")
"""Figures in the profile's currency, which one in another currency has to state itself."""
ROOM_FIGURES = (
    "rack_power_limit_w",
    "rack_units_usable",
    "circuit_volts",
    "circuit_amperes",
    "circuit_load_fraction",
    "feeds_per_rack",
)
"""Figures of rooms, which nobody needs who rents."""
_REFERENCE = "owning_reference_per_device_hour"


class SourcedFigure(Spec):
    """A number with its origin. ``assumed`` marks one that no source states: the note says what it rests on."""

    value: float = Field(ge=0)
    source: str
    date: IsoDate
    assumed: bool = False
    note: str = ""

    @property
    def unsourced(self) -> bool:
        """Assumed, or written from memory."""
        return self.assumed or is_recalled(self.source) or is_recalled(self.note)


class Share(SourcedFigure):
    """A figure between 0 and 1."""

    value: float = Field(ge=0, le=1)


class Years(SourcedFigure):
    """A whole number of years."""

    value: float = Field(ge=1, le=15, multiple_of=1)


class Positive(SourcedFigure):
    """A figure above zero."""

    value: float = Field(gt=0)


class OwnershipProfile(Spec):
    """Figures of total cost, facilities and carbon, in ``currency``, SI units and fractions, described for a report.

    depreciation_years : life in the books and horizon of the comparison; residual_fraction : of the server price, then
    failures_per_device_year, replacement_days, spare_stock_factor : of spare accelerators, `tco.spare_accelerators`
    staff_per_fte_year : cost of one full-time person; staff_minimum_fte : people of the smallest fleet
    cloud_extra_fraction : storage, traffic and support on top of a rental rate
    embodied_kg_per_device : emissions of making one accelerator with its share of the board [kg CO2e]
    circuit_* : of one three-phase feed; circuit_load_fraction : of the breaker's rating that may be drawn continuously
    feeds_per_rack : 2 for A and B; owning_reference_per_device_hour : published costs of owning, to compare with
    A file with ``extends: default`` takes from there what it does not state, money only in the same currency.
    """

    name: str
    currency: Annotated[str, AfterValidator(known_currency)]
    date: IsoDate
    depreciation_years: Years = Field(description="depreciation, years")
    residual_fraction: Share = Field(description="residual, of servers")
    discount_rate: Share = Field(description="cost of capital, a year")
    network_fraction: SourcedFigure = Field(description="network, of servers")
    storage_fraction: SourcedFigure = Field(description="storage, of servers")
    failures_per_device_year: SourcedFigure = Field(description="failures of an accelerator a year")
    replacement_days: Positive = Field(description="days to replace one")
    spare_stock_factor: SourcedFigure = Field(description="safety stock, standard deviations")
    integration_fraction: SourcedFigure = Field(description="integration, of everything bought")
    support_fraction_per_year: SourcedFigure = Field(description="support a year, of servers")
    licence_per_device_year: SourcedFigure = Field(description="licences of an accelerator a year")
    colocation_per_kw_month: SourcedFigure = Field(description="colocation of a kW a month")
    staff_per_fte_year: SourcedFigure = Field(description="one person a year")
    servers_per_fte: Positive = Field(description="servers one person looks after")
    staff_minimum_fte: SourcedFigure = Field(description="people, at least")
    cloud_extra_fraction: SourcedFigure = Field(description="cloud extras, of the rate")
    grid_location_kg_per_kwh: SourcedFigure = Field(description="grid, kg CO2e/kWh")
    grid_market_kg_per_kwh: SourcedFigure = Field(description="contracts, kg CO2e/kWh")
    embodied_kg_per_device: dict[str, SourcedFigure] = Field(default_factory=dict)
    rack_power_limit_w: Positive = Field(description="power of a rack, W")
    rack_units_usable: Positive = Field(description="height of a rack, U")
    circuit_volts: Positive = Field(description="circuit, V")
    circuit_amperes: Positive = Field(description="circuit, A")
    circuit_load_fraction: Share = Field(description="continuous load of a circuit")
    feeds_per_rack: Positive = Field(description="feeds per rack")
    owning_reference_per_device_hour: dict[str, SourcedFigure] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _extended(cls, data: Any, info: ValidationInfo) -> Any:
        base = base_of(data, kind=KIND, profiles=info.context) if isinstance(data, Mapping) else None
        if base is None:
            return data
        fields = own_fields(data)
        currency = fields.get("currency", base["currency"])
        if currency != base["currency"]:
            missing = [name for name in MONEY if name not in fields]
            if missing:
                raise ValueError(f"extends a profile in {base['currency']}: state {', '.join(missing)} in {currency}")
            base = {name: value for name, value in base.items() if name != _REFERENCE}
        return {**base, **fields}


def load_ownership(
    name_or_path: str | Path | None = None, *, prices: str = DEFAULT, profiles: str | None = None
) -> OwnershipProfile:
    """An ownership profile by name or path, else the price list's, else the default. Raises ProfileError, FileError."""
    if name_or_path is None:
        own = find_profile(KIND, prices, profiles=profiles) is not None
        name_or_path = prices if own else DEFAULT
    return load_spec(OwnershipProfile, name_or_path, kind=KIND, profiles=profiles)
