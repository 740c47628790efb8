"""Each figure of the bill alone: ends on either side of the plan, and the size that arithmetic says."""

from __future__ import annotations

from functools import lru_cache

import pytest

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.money.tco import total_cost
from simulator.planner.money.tco_records import OwningBar
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.length_curves import RELATIVE_END
from simulator.planner.studies.sensitivity import owning_bars
from simulator.specs.money.ownership import load_ownership
from simulator.specs.money.prices import load_prices
from simulator.specs.question.plan import plan_spec

PRICES, OWNERSHIP = load_prices(), load_ownership()


@lru_cache(maxsize=2)
def plan(hardware: str) -> CapacityPlan:
    return plan_capacity(plan_spec({"rps": 40.0, "model": "llama-3.1-8b", "hardware": (hardware,)}))


def bars(hardware: str = "h100-sxm-80gb") -> dict[str, OwningBar]:
    cost = total_cost(plan(hardware), prices=PRICES, ownership=OWNERSHIP)
    found = owning_bars(plan(hardware), cost=cost, prices=PRICES, ownership=OWNERSHIP)
    assert [bar.swing for bar in found] == sorted((bar.swing for bar in found), reverse=True)
    return {bar.name: bar for bar in found}


def test_the_plan_lies_between_the_ends_of_every_bar() -> None:
    annual = total_cost(plan("h100-sxm-80gb"), prices=PRICES, ownership=OWNERSHIP).owning
    assert annual is not None
    for bar in bars().values():
        assert min(bar.annual_low, bar.annual_high) < annual.annual < max(bar.annual_low, bar.annual_high)


def test_power_moves_the_bill_by_its_own_line_alone() -> None:
    owning = total_cost(plan("h100-sxm-80gb"), prices=PRICES, ownership=OWNERSHIP).owning
    assert owning is not None
    electricity = next(line.amount for line in owning.opex if line.name == "electricity")
    assert bars()["price of a kWh"].swing == pytest.approx(2 * RELATIVE_END * electricity)


def test_a_higher_residual_is_cheaper_and_dearer_money_is_not() -> None:
    found = bars()
    assert found["residual, of servers"].annual_high < found["residual, of servers"].annual_low
    assert found["cost of capital"].annual_high > found["cost of capital"].annual_low


def test_without_a_price_there_is_nothing_to_move() -> None:
    unpublished = OWNERSHIP.model_copy(update={"owning_reference_per_device_hour": {}})
    cost = total_cost(plan("mi300x"), prices=PRICES, ownership=unpublished)
    assert owning_bars(plan("mi300x"), cost=cost, prices=PRICES, ownership=unpublished) == []
