"""Solved backwards: what is found holds the limits, a little more does not, and nothing is found without a limit."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.errors import InfeasibleError, RoofcastError
from simulator.planner.largest_demand import DemandField, largest_demand
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.specs.question.plan import plan_spec

SMALL: dict[str, Any] = {"rate_per_s": 5.0, "model": "llama-3.1-8b", "hardware": ("l40s",), "workload": "chat"}
MOST = 100_000.0
pytestmark = pytest.mark.usefixtures("few_accelerators")


@pytest.mark.parametrize("field", ["rate_per_s", pytest.param("isl_tokens", marks=pytest.mark.slow)])
def test_what_is_found_holds_and_a_little_more_does_not(field: DemandField) -> None:
    spec = plan_spec({**SMALL, "max_gpus": 8})
    found = largest_demand(spec, field=field, most=MOST)
    assert found.hardware == ("l40s",)
    assert plan_capacity(spec.model_copy(update={field: found.value})).best.devices <= 8
    with pytest.raises(InfeasibleError):
        plan_capacity(spec.model_copy(update={field: found.value * 1.05}))


def test_a_larger_limit_allows_no_less() -> None:
    few, more = (
        largest_demand(plan_spec({**SMALL, "max_gpus": n}), field="rate_per_s", most=MOST).value for n in (8, 16)
    )
    assert few < more


def test_of_stock_nothing_has_to_be_obtained() -> None:
    spec = plan_spec({**SMALL, "stock": ("l40s=8",)})
    found = largest_demand(spec, field="rate_per_s", most=MOST)
    held, beyond = (plan_capacity(spec.model_copy(update={"rate_per_s": found.value * share})) for share in (1, 1.05))
    stocks = [plan.study(StockPlan) for plan in (held, beyond)]
    assert [bool(stock and stock.bought) for stock in stocks] == [False, True]


def test_what_the_page_takes_is_the_most() -> None:
    assert largest_demand(plan_spec({**SMALL, "max_gpus": 8}), field="rate_per_s", most=6.0).value == 6.0


def test_without_a_limit_there_is_no_highest() -> None:
    with pytest.raises(RoofcastError, match="nothing limits the fleet"):
        largest_demand(plan_spec(SMALL), field="rate_per_s", most=MOST)


def test_a_limit_that_nothing_holds_is_said() -> None:
    with pytest.raises(InfeasibleError, match="not even"):
        largest_demand(plan_spec({**SMALL, "max_cost_per_hour": 0.001}), field="rate_per_s", most=MOST)
