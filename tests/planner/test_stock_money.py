"""Money of a fleet whose accelerators exist in part: nothing is paid twice, and nothing for what is there."""

from __future__ import annotations

import pytest

from simulator.planner.money.tco import energy_and_carbon
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.planner.studies.stock_money import rent_of, stock_money
from simulator.specs.money.ownership import load_ownership
from simulator.specs.money.prices import load_prices
from simulator.specs.question.plan import plan_spec

OWNERSHIP = load_ownership("default", prices="default")
HOURS_PER_YEAR = 8760


def test_rent_is_paid_for_every_hour_and_is_worth_less_than_its_sum() -> None:
    rent = rent_of(2.0, ownership=OWNERSHIP)
    years = OWNERSHIP.depreciation_years.value
    assert rent.per_year == 2.0 * HOURS_PER_YEAR
    assert rent.present_value is not None
    assert 0.5 * years * rent.per_year < rent.present_value < years * rent.per_year


def test_what_has_no_price_has_no_rent() -> None:
    rent = rent_of(None, ownership=OWNERSHIP)
    assert (rent.per_hour, rent.per_year, rent.present_value) == (None, None, None)


@pytest.mark.usefixtures("few_accelerators")
def test_a_fleet_of_stock_alone_pays_for_power_only() -> None:
    asked = {"rps": 20, "model": "llama-3.1-8b", "hardware": "h100", "stock": "h100=64", "serving": "aggregated"}
    stock = plan_capacity(plan_spec(asked)).study(StockPlan)
    assert stock is not None
    assert stock.bought == 0
    prices = load_prices()
    money = stock_money(stock, mean_load=1.0, prices=prices, ownership=OWNERSHIP)
    assert money.capital == 0
    kwh = stock.typical_w / 1000 * HOURS_PER_YEAR * prices.pue
    assert money.facility_kwh == pytest.approx(kwh)
    assert money.existing_electricity_per_year == pytest.approx(kwh * prices.power_per_kwh)


@pytest.mark.usefixtures("few_accelerators")
def test_existing_accelerators_take_the_energy_of_new_ones_of_their_kind() -> None:
    asked = {"rps": 20, "peak_to_mean": 3, "model": "llama-3.1-8b", "hardware": "h100", "serving": "aggregated"}
    plan, prices = plan_capacity(plan_spec({**asked, "stock": "h100=64"})), load_prices()
    stock, mean_load = plan.study(StockPlan), plan.demand.mean_load
    assert stock is not None
    new = energy_and_carbon(plan, prices=prices, ownership=OWNERSHIP)
    ours = stock_money(stock, mean_load=mean_load, prices=prices, ownership=OWNERSHIP)
    assert ours.facility_kwh / stock.devices == pytest.approx(new.facility_kwh / plan.best.devices)
    assert ours.location_t / stock.devices == pytest.approx(new.location_t / plan.best.devices)
