"""Failures and money of a fleet whose prompts and answers are computed by two pools."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import isinf

import pytest

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.availability import DEVICE_MTBF_HOURS, enough_up, replica_unavailability
from simulator.planner.money.tco import energy_and_carbon, total_cost
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.rental import RentalMix
from simulator.planner.studies.resilience import Resilience
from simulator.reports.words.plan_inputs import warning_texts
from simulator.specs.money.ownership import load_ownership
from simulator.specs.money.prices import load_prices
from simulator.specs.question.plan import plan_spec


@lru_cache(maxsize=2)
def plan() -> CapacityPlan:
    question = {
        "rps": 60.0,
        "model": "llama-3.1-70b",
        "hardware": ("h100",),
        "serving": ("disaggregated",),
        "resilience": True,
        "availability": 99.9,
        "rental": True,
    }
    found = plan_capacity(plan_spec(question))
    assert found.best.prefill is not None
    return found


def test_losing_the_spare_of_either_pool_holds_and_a_server_of_the_small_pool_does_not() -> None:
    found, fleet = plan().study(Resilience), plan().best
    assert found is not None
    cases = {case.name: case for case in found.cases}
    for name in ("one prefill replica", "one decode replica"):
        assert cases[name].holds
        assert cases[name].replicas_lost == 1
    decode = cases["one server of decode"]
    assert decode.replicas_lost == min(8 // fleet.replica.devices, fleet.replicas + fleet.spares)
    assert [case.name for case in found.cases if case.of_server] == ["one server of prefill", "one server of decode"]
    # Whoever is overloaded says so, whichever pool it is.
    assert all(isinf(case.ttft_p95_s) == (case.load >= 1) for case in found.cases)
    assert found.spares == fleet.spares + (fleet.prefill.spares if fleet.prefill else 0)


def test_both_pools_have_to_be_up() -> None:
    found, fleet = plan().study(Resilience), plan().best
    assert found is not None
    assert found.availability is not None
    assert fleet.prefill is not None
    by_hand = 1.0
    for pool in (fleet, fleet.prefill):
        down = replica_unavailability(devices=pool.replica.devices, mtbf_hours=DEVICE_MTBF_HOURS, mttr_hours=24.0)
        by_hand *= enough_up(replicas=pool.replicas, spares=pool.spares, unavailability=down)
    assert found.availability.present_achieved == pytest.approx(by_hand)
    assert found.availability.present_achieved >= 0.999
    assert found.availability.devices == fleet.devices


def test_prompts_pay_for_the_devices_that_compute_them() -> None:
    fleet, demand = plan().best, plan().demand
    assert fleet.prefill is not None
    share = fleet.prefill.devices / (fleet.prefill.devices + (fleet.replicas + fleet.spares) * fleet.replica.devices)
    assert fleet.prompt_share == pytest.approx(share)
    prices, ownership = load_prices(), load_ownership()
    renting = total_cost(plan(), prices=prices, ownership=ownership).rent
    assert renting is not None
    assert renting.per_million_input_tokens == pytest.approx(fleet.cost.per_million_input_tokens)
    assert renting.per_million_output_tokens == pytest.approx(fleet.cost.per_million_output_tokens)
    assert plan().study(RentalMix) is not None
    assert plan().study(RentalMix).per_million_input_tokens > 0  # type: ignore[union-attr]
    energy = energy_and_carbon(plan(), prices=prices, ownership=ownership)
    tokens = demand.served_mean_rate_per_s * (demand.mix.isl.mean_tokens + demand.mix.osl.mean_tokens)
    assert energy.j_per_token == pytest.approx(fleet.typical_w * prices.pue / tokens)


def test_pools_are_restarted_one_after_the_other() -> None:
    found, fleet = plan().study(Resilience), plan().best
    assert found is not None
    assert fleet.prefill is not None
    replicas = fleet.replicas + fleet.spares + fleet.prefill.replicas + fleet.prefill.spares
    assert found.maintenance.rounds == replicas
    assert found.maintenance.holds


def test_the_warning_says_what_each_pool_takes_not_what_both_sum_to() -> None:
    found, fleet = plan().study(Resilience), plan().best
    assert found is not None
    assert found.availability is not None
    assert fleet.prefill is not None
    each = found.availability.spares_each
    assert each is not None
    assert each <= found.availability.spares <= 2 * each
    short = replace(found, availability=replace(found.availability, present_spares=0, present_achieved=0.9))
    (warning,) = warning_texts(short.warnings)
    assert warning.endswith(f"takes --spares {each} (of each pool)")
    assert found.warnings == ()
