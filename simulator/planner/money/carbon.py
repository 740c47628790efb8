"""Energy of a fleet and the emissions that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.money.tco import mean_power_w, token_year
from simulator.specs.money.ownership import OwnershipProfile
from simulator.specs.money.prices import PriceProfile
from simulator.units import HOURS_PER_YEAR, KILO, MEGA, SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyCarbon:
    """A year of the fleet at the mean power of its demand (`mean_power_w`).

    it_kwh, facility_kwh : of the machines, and at the meter (times PUE)
    j_per_output_token, j_per_token : at the meter, per generated token and per token in or out
    location_t, market_t : by the grid's mean, and by the contracts in place [t CO2e a year]
    embodied_t : of making all accelerators, once; None where no figure is known
    """

    it_kwh: float
    facility_kwh: float
    j_per_output_token: float
    j_per_token: float
    location_t: float
    market_t: float
    embodied_t: float | None
    g_per_million_output_tokens: float


def energy_and_carbon(plan: CapacityPlan, *, prices: PriceProfile, ownership: OwnershipProfile) -> EnergyCarbon:
    """Energy of a year and its emissions, location-based and market-based.

    References
    ----------
    [GHG2015] GHG Protocol Scope 2 Guidance, chapter 6 (both methods are reported).
    """
    fleet = plan.best
    tokens = token_year(plan.demand, prompt_share=fleet.prompt_share)
    it_kwh = mean_power_w(fleet, mean_load=plan.demand.mean_load) * HOURS_PER_YEAR / KILO
    facility_kwh = it_kwh * prices.pue
    joules = facility_kwh * KILO * SECONDS_PER_HOUR
    location_kg = facility_kwh * ownership.grid_location_kg_per_kwh.value
    embodied = ownership.embodied_kg_per_device.get(fleet.hardware)
    return EnergyCarbon(
        it_kwh=it_kwh,
        facility_kwh=facility_kwh,
        j_per_output_token=joules / (tokens.output_millions * MEGA),
        j_per_token=joules / ((tokens.input_millions + tokens.output_millions) * MEGA),
        location_t=location_kg / KILO,
        market_t=facility_kwh * ownership.grid_market_kg_per_kwh.value / KILO,
        embodied_t=fleet.devices * embodied.value / KILO if embodied is not None else None,
        g_per_million_output_tokens=location_kg * KILO / tokens.output_millions,
    )
