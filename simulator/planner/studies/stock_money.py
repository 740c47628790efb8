"""The money of a fleet whose accelerators exist in part: what is obtained is owned or rented, all of it is powered."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from math import ceil

from simulator.errors import ProfileError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Housing
from simulator.planner.money.market import purchase_offer
from simulator.planner.money.tco import above_idle_w, annuity_factor, spare_accelerators, total_cost
from simulator.planner.money.tco_records import TotalCost
from simulator.planner.studies.stock_fleets import FleetShare, StockPlan
from simulator.records import dataclass
from simulator.specs.money.ownership import OwnershipProfile
from simulator.specs.money.prices import PriceProfile
from simulator.units import HOURS_PER_YEAR, KILO


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """Rent for all hours, and its present value over the years of depreciation; None where no price is known."""

    per_hour: float | None
    per_year: float | None
    present_value: float | None


def rent_of(per_hour: float | None, *, ownership: OwnershipProfile) -> Rent:
    """A year of paying ``per_hour``, and what all years of it are worth today."""
    if per_hour is None:
        return Rent(per_hour=None, per_year=None, present_value=None)
    yearly = per_hour * HOURS_PER_YEAR
    years = annuity_factor(ownership.discount_rate.value, int(ownership.depreciation_years.value))
    return Rent(per_hour=per_hour, per_year=yearly, present_value=yearly * years)


@dataclass(frozen=True, slots=True, kw_only=True)
class StockMoney:
    """A year of fleets side by side; None where a price is missing. Money in the price list's currency.

    rent : of what has to be obtained
    capital : of what has to be obtained, bought with network, storage, spare parts and integration instead
    existing_electricity_per_year : of the existing accelerators at the meter; rent includes that of rented ones
    typical_w : of all at the planned peak [W]
    facility_kwh, location_t : of all at the mean demand [kWh a year at the meter, t CO2e a year]
    """

    rent: Rent
    capital: float | None
    existing_electricity_per_year: float
    typical_w: float
    facility_kwh: float
    location_t: float


def _capital(shares: tuple[FleetShare, ...], *, prices: PriceProfile, ownership: OwnershipProfile) -> float | None:
    """The lines of `tco.owning_cost` for the bought accelerators alone."""
    servers = shelf = 0.0
    for hardware, bought in chain(*(share.by_kind for share in shares)):
        try:
            price = purchase_offer(prices, hardware=hardware).per_device or 0.0
        except ProfileError:
            return None
        servers += bought * price
        shelf += spare_accelerators(bought, ownership=ownership) * price
    beside = ownership.network_fraction.value + ownership.storage_fraction.value
    return (servers * (1 + beside) + shelf) * (1 + ownership.integration_fraction.value)


def _mean_w(share: FleetShare, *, mean_load: float) -> float:
    """Power over all hours of the demand, as `tco.mean_power_w` has it of a new fleet [W]."""
    used = [
        part.replica.devices * sum(both)
        for part, *both in zip(share.serving.parts, share.counts, share.spare, strict=True)
    ]
    platforms = [part.candidate.platform for part in share.serving.parts]
    above_w = [count * above_idle_w(item.hardware, item.server) for count, item in zip(used, platforms, strict=True)]
    return share.typical_w - sum(above_w) * share.devices / sum(used) * (1 - mean_load)


def stock_money(stock: StockPlan, *, mean_load: float, prices: PriceProfile, ownership: OwnershipProfile) -> StockMoney:
    """What a year of the fleet costs beside what exists already, which counts as paid for.

    mean_load : mean demand over the planned one
    """
    kwh_per_w = HOURS_PER_YEAR / KILO * prices.pue
    mean_w = [_mean_w(share, mean_load=mean_load) for share in stock.shares]
    existing_w = sum(w * share.from_stock / share.devices for w, share in zip(mean_w, stock.shares, strict=True))
    facility_kwh = sum(mean_w) * kwh_per_w
    return StockMoney(
        rent=rent_of(stock.cost_per_hour, ownership=ownership),
        capital=_capital(stock.shares, prices=prices, ownership=ownership),
        existing_electricity_per_year=existing_w * kwh_per_w * prices.power_per_kwh,
        typical_w=stock.typical_w,
        facility_kwh=facility_kwh,
        location_t=facility_kwh * ownership.grid_location_kg_per_kwh.value / KILO,
    )


def obtained_costs(plan: CapacityPlan, *, prices: PriceProfile, ownership: OwnershipProfile) -> tuple[TotalCost, ...]:
    """What has to be obtained, of each fleet that needs it, to rent and to own."""
    stock = plan.study(StockPlan)
    found = []
    for share, part in zip(stock.shares if stock else (), plan.parts, strict=True):
        more = dict(share.by_kind)
        housing = tuple(_part_of(item, more.get(item.hardware, 0)) for item in part.best.housing)
        if share.bought:
            part = replace(part, best=replace(part.best, housing=housing))
            found.append(total_cost(part, prices=prices, ownership=ownership))
    return tuple(found)


def _part_of(item: Housing, devices: int) -> Housing:
    """So many of its devices, with their share of the servers and of the power."""
    share = devices / item.devices
    return replace(
        item,
        devices=devices,
        idle_devices=0,
        servers=None if item.servers is None else ceil(item.servers * share),
        typical_w=item.typical_w * share,
        maximum_w=item.maximum_w * share,
    )
