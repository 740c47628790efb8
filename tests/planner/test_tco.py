"""Money, energy and rooms: hand numbers, textbook identities, limits, and every refusal."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yaml import safe_dump

from simulator.errors import ProfileError
from simulator.planner.capacity_plan import BoughtFleet, CapacityPlan
from simulator.planner.fleet.fleet import fleet_cost
from simulator.planner.money.facilities import circuit_w, facilities
from simulator.planner.money.market import PriceRule, market_price, purchase_offer
from simulator.planner.money.tco import (
    annuity_factor,
    energy_and_carbon,
    mean_power_w,
    spare_accelerators,
    token_year,
    total_cost,
)
from simulator.planner.money.tco_records import Owning
from simulator.planner.plan import plan_capacity
from simulator.reports.content.quantities import demand_text, served_unit
from simulator.reports.words.fields import note_text
from simulator.specs.money.ownership import OwnershipProfile, load_ownership
from simulator.specs.money.prices import PriceProfile, load_prices
from simulator.specs.question.plan import plan_spec

PRICES, OWNERSHIP = load_prices(), load_ownership()


@lru_cache(maxsize=2)
def plan(hardware: str = "h100-sxm-80gb") -> CapacityPlan:
    return plan_capacity(plan_spec({"rps": 40.0, "model": "llama-3.1-8b", "hardware": (hardware,)}))


def changed(**values: float) -> OwnershipProfile:
    figures = {name: getattr(OWNERSHIP, name).model_copy(update={"value": value}) for name, value in values.items()}
    return OWNERSHIP.model_copy(update=figures)


def owned(ownership: OwnershipProfile = OWNERSHIP, prices: PriceProfile = PRICES) -> Owning:
    found = total_cost(plan(), prices=prices, ownership=ownership).owning
    assert found is not None
    return found


def repriced(**update: Any) -> PriceProfile:
    return PRICES.model_copy(update=update)


def test_annuity_of_three_years_at_eight_percent_is_the_textbook_figure() -> None:
    assert annuity_factor(0.08, 3) == pytest.approx(2.5771, abs=5e-5)
    assert annuity_factor(0.0, 7) == 7


@given(st.floats(1e-4, 1.0), st.integers(1, 15))
def test_annuity_is_the_sum_of_discounted_payments(rate: float, years: int) -> None:
    assert annuity_factor(rate, years) == pytest.approx(sum((1 + rate) ** -year for year in range(1, years + 1)))


def test_capital_is_each_share_of_the_servers_by_hand() -> None:
    own = owned(
        changed(network_fraction=0.1, storage_fraction=0.05, failures_per_device_year=0.0, integration_fraction=0.2)
    )
    servers = plan().best.devices * 40625.0
    assert [line.amount for line in own.capex] == pytest.approx(
        [servers, servers * 0.1, servers * 0.05, 0.0, servers * 1.15 * 0.2]
    )
    assert own.capex_total == pytest.approx(servers * 1.15 * 1.2)


def test_electricity_is_power_at_the_meter_for_a_year() -> None:
    fleet = plan().best
    electricity = next(line for line in owned().opex if line.name == "electricity")
    assert electricity.amount == pytest.approx(fleet.typical_w / 1000 * 8760 * PRICES.pue * PRICES.power_per_kwh)


def test_equivalent_annual_cost_has_the_same_present_value() -> None:
    own = owned()
    assert own.annual * annuity_factor(own.discount_rate, own.years) == pytest.approx(own.present_value)


def test_present_value_is_the_sum_of_the_discounted_flows() -> None:
    cost = total_cost(plan(), prices=PRICES, ownership=OWNERSHIP)
    assert cost.owning is not None
    assert sum(flow.discounted for flow in cost.flows) == pytest.approx(cost.owning.present_value)
    assert cost.flows[-1].cumulative == pytest.approx(cost.owning.total)
    assert len(cost.flows) == cost.owning.years + 1


def test_without_interest_the_annual_cost_is_depreciation_plus_operation() -> None:
    own = owned(changed(discount_rate=0.0))
    assert own.annual == pytest.approx(own.depreciation_per_year + own.opex_total)
    assert own.present_value == pytest.approx(own.total)


@pytest.mark.parametrize(
    ("name", "cheaper", "dearer"),
    [
        ("discount_rate", 0.02, 0.2),
        ("residual_fraction", 0.5, 0.1),
        ("network_fraction", 0.0, 0.3),
        ("colocation_per_kw_month", 50.0, 400.0),
        ("staff_per_fte_year", 0.0, 400000.0),
        ("servers_per_fte", 500.0, 0.5),
        ("staff_minimum_fte", 0.0, 3.0),
        ("failures_per_device_year", 0.0, 0.5),
        ("licence_per_device_year", 0.0, 4500.0),
    ],
)
def test_each_figure_moves_the_annual_cost_the_right_way(name: str, cheaper: float, dearer: float) -> None:
    assert owned(changed(**{name: cheaper})).annual < owned(changed(**{name: dearer})).annual


def test_tokens_split_the_bill_without_rest() -> None:
    cost = total_cost(plan(), prices=PRICES, ownership=OWNERSHIP)
    for item in cost.renting:
        bill = item.per_million_input_tokens * cost.tokens.input_millions
        bill += item.per_million_output_tokens * cost.tokens.output_millions
        assert bill == pytest.approx(item.annual)


def test_renting_at_the_plans_price_agrees_with_the_plan() -> None:
    cost = total_cost(plan(), prices=PRICES, ownership=OWNERSHIP)
    rented = cost.rent
    assert rented is not None
    assert rented.kind == "planned"
    fleet = plan().best
    assert rented.annual == pytest.approx((fleet.cost.per_month or 0) * 12)
    assert rented.per_million_output_tokens == pytest.approx(fleet.cost.per_million_output_tokens)


def test_break_even_is_where_hours_paid_equal_owning() -> None:
    cost = total_cost(plan(), prices=PRICES, ownership=OWNERSHIP)
    assert cost.owning is not None
    for item in cost.renting:
        assert item.break_even is not None
        assert item.break_even * item.annual == pytest.approx(cost.owning.annual)


def test_the_price_of_a_server_goes_before_that_of_a_card() -> None:
    assert purchase_offer(PRICES, hardware="h100-sxm-80gb").server_included
    with pytest.raises(ProfileError, match="no purchase price of rtx-4090 with its server"):
        purchase_offer(PRICES, hardware="rtx-4090")


def test_a_quote_goes_before_every_published_price() -> None:
    listed = next(item for item in PRICES.offers if item.kind == "purchase" and item.hardware == "h100-sxm-80gb")
    quote = listed.model_copy(update={"per_device": 30_000.0, "quote": True, "provider": "a vendor"})
    own = owned(prices=repriced(offers=(quote, *PRICES.offers)))
    assert (own.offer.provider, own.quoted) == ("a vendor", True)
    assert not owned().quoted


def test_at_the_break_even_price_owning_is_worth_the_cheapest_rent_that_lasts() -> None:
    cost = total_cost(plan(), prices=PRICES, ownership=OWNERSHIP)
    assert cost.lasting is not None
    assert cost.break_even_price is not None
    listed = next(item for item in PRICES.offers if item.kind == "purchase" and item.hardware == "h100-sxm-80gb")
    quote = listed.model_copy(update={"per_device": cost.break_even_price, "quote": True})
    even = total_cost(plan(), prices=repriced(offers=(quote, *PRICES.offers)), ownership=OWNERSHIP)
    assert even.owning is not None
    assert even.owning.present_value == pytest.approx(cost.lasting.present_value)
    assert even.owning_saves == pytest.approx(0.0, abs=1.0)


def quoted(folder: Path, price: float | None, *hardware: str) -> CapacityPlan:
    """A plan with a rent of B200 at 3 an hour, and a purchase of H100 for ``price`` where there is one."""
    offers = [{"hardware": "b200", "kind": "reserved_1y", "per_hour": 3.0}]
    offers += [] if price is None else [{"hardware": "h100", "kind": "purchase", "per_device": price}]
    told = [{**offer, "provider": "Vendor", "date": "2026-11-02", "source": "quote 1"} for offer in offers]
    listed = folder / "quotes.yaml"
    listed.write_text(safe_dump({"name": "quotes", "extends": "default", "offers": told}))
    asked = {"rps": 400.0, "model": "llama-3.1-8b", "hardware": hardware or ("h100", "b200"), "prices": str(listed)}
    return plan_capacity(plan_spec(asked))


def bought(plan: CapacityPlan) -> BoughtFleet:
    assert plan.price_ranking is not None
    assert plan.price_ranking.bought is not None
    return plan.price_ranking.bought


def test_a_quote_of_one_accelerator_is_compared_with_the_rent_of_another(tmp_path: Path) -> None:
    rented = quoted(tmp_path, None)
    assert rented.price_ranking is not None
    assert rented.price_ranking.bought is None
    cheap, dear = quoted(tmp_path, 500.0), quoted(tmp_path, 60_000.0)
    assert cheap.best.hardware == dear.best.hardware == "b200-sxm"
    assert bought(cheap).rent_hardware == "b200-sxm"
    assert bought(cheap).rent_per_hour == cheap.best.cost.per_hour
    assert (bought(cheap).chosen, bought(dear).chosen) == (True, False)
    assert bought(cheap).per_hour < bought(cheap).rent_per_hour < bought(dear).per_hour


def test_what_is_bought_costs_what_the_report_of_it_says(tmp_path: Path) -> None:
    plan = quoted(tmp_path, 500.0, "h100")
    cost = total_cost(plan, prices=load_prices(tmp_path / "quotes.yaml"), ownership=OWNERSHIP)
    assert cost.owning is not None
    assert bought(plan).per_hour == pytest.approx(cost.owning.annual / 8760)
    assert bought(plan).capital == pytest.approx(cost.owning.capex_total)
    assert bought(plan).chosen == cost.buys


def test_the_shelf_holds_the_failures_of_a_replacement_time_and_a_safety_stock() -> None:
    """1,000 accelerators, 9.1 % of them a year, 30 days: 7.48 on the way, + 1.645 x 2.73 = 11.98, so 12."""
    assert spare_accelerators(1000, ownership=OWNERSHIP) == 12
    counts = [spare_accelerators(count, ownership=OWNERSHIP) / count for count in (8, 64, 512, 4096)]
    assert counts == sorted(counts, reverse=True), "larger fleets keep a smaller share"


def test_a_small_fleet_has_its_least_people_and_a_large_one_its_servers() -> None:
    staff = {line.name: line.amount for line in owned().opex}["staff"]
    assert staff == OWNERSHIP.staff_minimum_fte.value * OWNERSHIP.staff_per_fte_year.value
    more = {line.name: line.amount for line in owned(changed(servers_per_fte=0.1)).opex}["staff"]
    assert more == pytest.approx((plan().best.servers or 0) / 0.1 * OWNERSHIP.staff_per_fte_year.value)


def test_without_a_purchase_price_renting_remains_and_the_reason_is_named() -> None:
    unpublished = OWNERSHIP.model_copy(update={"owning_reference_per_device_hour": {}})
    cost = total_cost(plan("mi300x"), prices=PRICES, ownership=unpublished)
    assert cost.owning is None
    assert "no purchase price of mi300x" in cost.owning_unpriced
    assert all(item.break_even is None for item in cost.renting)
    assert all(flow.owning == 0 for flow in cost.flows)


def test_a_prompt_is_paid_once_whatever_the_number_of_its_answers() -> None:
    one = plan().demand
    four = replace(one, answers_per_request=4)
    bill = [(market_price(PRICES, hardware="h100-sxm-80gb", rule=PriceRule()), 8)]
    for demand in (one, four):
        found = fleet_cost(prices=PRICES, bill=bill, demand=demand, prompt_share=0.25)
        hours, per_hour = demand.requests_per_s * 3600, found.per_hour or 0.0
        assert found.per_million_requests == pytest.approx(per_hour / hours * 1e6)
        prompts, answers = (
            hours * demand.mix.isl.mean_tokens,
            demand.mean_rate_per_s * 3600 * demand.mix.osl.mean_tokens,
        )
        paid = (found.per_million_input_tokens or 0) * prompts + (found.per_million_output_tokens or 0) * answers
        assert paid / 1e6 == pytest.approx(per_hour)
        assert token_year(demand, prompt_share=0.25).input_millions == pytest.approx(prompts * 8760 / 1e6)
    assert (demand_text(four), served_unit(four)) == ("10.0 requests/s of 4 answers", "answers/s")


def test_two_currencies_are_never_added() -> None:
    with pytest.raises(ProfileError, match="EUR.*USD") as error:
        total_cost(plan(), prices=repriced(currency="EUR"), ownership=OWNERSHIP)
    assert error.value.code == "mixed_currencies"


# Energy and carbon


def test_energy_of_a_year_by_hand() -> None:
    fleet, energy = plan().best, energy_and_carbon(plan(), prices=PRICES, ownership=OWNERSHIP)
    assert energy.it_kwh == pytest.approx(fleet.typical_w * 8.76)
    assert energy.facility_kwh == pytest.approx(energy.it_kwh * 1.54)
    output_per_s = 40.0 * plan().demand.mix.osl.mean_tokens
    assert energy.j_per_output_token == pytest.approx(fleet.typical_w * 1.54 / output_per_s)


def test_quiet_hours_draw_less_and_hosts_draw_the_same() -> None:
    fleet = plan().best
    assert mean_power_w(fleet, mean_load=1.0) == fleet.typical_w
    saved = fleet.typical_w - mean_power_w(fleet, mean_load=0.25)
    assert saved == pytest.approx(0.75 * fleet.devices * (700 - 70) * fleet.typical_w / fleet.maximum_w)
    busy = plan_spec({"rps": 40.0, "model": "llama-3.1-8b", "hardware": ("h100",), "peak_to_mean": 4.0})
    quiet = plan_capacity(busy)
    found = energy_and_carbon(quiet, prices=PRICES, ownership=OWNERSHIP)
    assert found.it_kwh == pytest.approx(mean_power_w(quiet.best, mean_load=0.25) * 8.76)


def test_certificates_change_market_emissions_alone() -> None:
    green = energy_and_carbon(plan(), prices=PRICES, ownership=changed(grid_market_kg_per_kwh=0.0))
    grey = energy_and_carbon(plan(), prices=PRICES, ownership=OWNERSHIP)
    assert green.market_t == 0
    assert green.location_t == grey.location_t == pytest.approx(grey.facility_kwh * 0.373 / 1000)


def test_embodied_carbon_only_where_a_figure_exists() -> None:
    known = energy_and_carbon(plan(), prices=PRICES, ownership=OWNERSHIP)
    assert known.embodied_t == pytest.approx(plan().best.devices * 0.164)
    assert energy_and_carbon(plan("mi300x"), prices=PRICES, ownership=OWNERSHIP).embodied_t is None


# Rooms


def test_a_three_phase_circuit_by_hand() -> None:
    assert circuit_w(volts=415, amperes=60, load_fraction=0.8) == pytest.approx(sqrt(3) * 415 * 60 * 0.8)


def test_four_dgx_h100_fill_a_rack_of_41_kw_and_watts_become_btu() -> None:
    rooms = facilities(plan().best, ownership=OWNERSHIP)
    assert rooms.servers_per_rack == 4
    assert rooms.racks == -(-(plan().best.servers or 0) // 4)
    assert rooms.btu_per_hour_nameplate == pytest.approx(3.412142 * rooms.nameplate_w, rel=1e-6)
    assert rooms.circuits == (rooms.racks or 0) * 2 * 2


def test_less_power_to_a_rack_takes_more_racks_until_one_server_a_rack() -> None:
    racks = [
        facilities(plan().best, ownership=changed(rack_power_limit_w=limit)).racks or 0
        for limit in (90_000.0, 41_000.0, 21_000.0, 11_000.0, 5_000.0)
    ]
    assert racks == sorted(racks)
    overdrawn = facilities(plan().best, ownership=changed(rack_power_limit_w=5_000.0))
    assert overdrawn.rack_overdrawn
    assert overdrawn.racks == plan().best.servers


def test_single_devices_have_no_racks() -> None:
    loose = plan_capacity(
        plan_spec({"rps": 40.0, "model": "llama-3.1-8b", "hardware": ("h100",), "round_to": "device"})
    )
    rooms = facilities(loose.best, ownership=OWNERSHIP)
    assert (rooms.racks, rooms.circuits, rooms.servers_per_rack) == (None, None, None)
    assert rooms.nameplate_w > 0


def test_single_devices_are_looked_after_too() -> None:
    alone = plan_capacity(
        plan_spec({"rps": 40.0, "model": "llama-3.1-8b", "hardware": ("h100-sxm-80gb",), "round_to": "device"})
    )
    own = total_cost(alone, prices=PRICES, ownership=OWNERSHIP).owning
    assert own is not None
    staff = next(line for line in own.opex if line.name == "staff")
    hosts = alone.best.replicas + alone.best.spares
    assert staff.amount == pytest.approx(max(0.5, hosts / 50) * 200_000)
    assert "a host each" in note_text(staff.basis)


def test_without_any_price_the_cost_says_so_and_names_a_misspelt_accelerator() -> None:
    misspelt = PRICES.model_copy(update={"offers": (PRICES.offers[0].model_copy(update={"hardware": "h1000"}),)})
    cost = total_cost(
        plan(), prices=misspelt, ownership=OWNERSHIP.model_copy(update={"owning_reference_per_device_hour": {}})
    )
    assert not cost.priced
    assert (cost.renting, cost.owning, cost.rent, cost.break_even_price) == ((), None, None, None)
    assert "no accelerator is called h1000" in cost.owning_unpriced
