"""A plan's fleet in the event simulation: agreement below saturation, refusal of what the closed form overlooks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet
from simulator.planner.plan import plan_capacity
from simulator.planner.verification.records import FleetVerification
from simulator.planner.verification.simulation import SEEDS, steady_check
from simulator.reports.content.document import Table
from simulator.reports.formats.text import sections_text
from simulator.reports.report import study_sections
from simulator.reports.tables.plan_document import verification_object
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import ObjectiveSpec


@pytest.fixture(scope="module")
def plan() -> CapacityPlan:
    return plan_capacity(PlanSpec(rps=40, model="llama-3.1-8b", hardware=("h100",), tp=(1,), spares=1))


def simulated(
    plan: CapacityPlan, fleet: Fleet, *, objectives: tuple[ObjectiveSpec, ...], seeds: int = SEEDS
) -> FleetVerification:
    """One replica of ``fleet`` with the spares up and with them gone."""
    check = steady_check(
        fleet.replica.deployment,
        mix=plan.demand.mix,
        objectives=objectives,
        busiest=max((fleet.at_peak, fleet.degraded), key=lambda state: state.mean_sequences),
        seeds=seeds,
    )
    return FleetVerification(at_peak=check.at(fleet.at_peak), degraded=check.at(fleet.degraded))


@pytest.fixture(scope="module")
def verified(plan: CapacityPlan) -> FleetVerification:
    return simulated(plan, plan.best, objectives=plan.objectives)


def test_simulated_percentiles_stand_beside_the_planned_ones(plan: CapacityPlan, verified: FleetVerification) -> None:
    for state in (verified.at_peak, verified.degraded):
        assert state.reason == ""
        assert [item.name for item in state.objectives] == [item.name for item in plan.objectives]
        assert state.tpot_mean_s == pytest.approx(state.steady.tpot_mean_s, rel=0.08)
        assert state.e2e_mean_s == pytest.approx(state.steady.e2e_mean_s, rel=0.08)
        assert state.ttft_mean_s == pytest.approx(state.steady.ttft_mean_s, rel=0.15)
        for item in state.objectives:
            assert item.low_s <= item.simulated_s <= item.high_s
    assert verified.degraded.rate_per_s > verified.at_peak.rate_per_s


def test_verdict_is_what_the_objectives_say(plan: CapacityPlan, verified: FleetVerification) -> None:
    assert verified.holds == all(
        item.holds for state in (verified.at_peak, verified.degraded) for item in state.objectives
    )
    strict = tuple(item.within(item.bound_s / 100) for item in plan.objectives)
    failed = simulated(plan, plan.best, objectives=strict)
    assert not failed.holds
    sections = study_sections(replace(plan, verification=failed), "verification")
    assert "DOES NOT HOLD" in sections_text(sections, currency="USD")


def test_an_overloaded_replica_does_not_hold(plan: CapacityPlan) -> None:
    replica = plan.best.replica
    beyond = replace(replica.at_capacity, rate_per_s=1.3 * replica.saturation_per_s)
    fleet = replace(plan.best, at_peak=beyond)
    found = simulated(plan, fleet, objectives=plan.objectives, seeds=2).at_peak
    assert found.saturated
    assert not found.holds


def test_text_and_json(plan: CapacityPlan, verified: FleetVerification) -> None:
    (section,) = study_sections(replace(plan, verification=verified), "verification")
    table = section.blocks[0]
    assert isinstance(table, Table)
    assert len(table.rows) == 2 * len(verified.at_peak.objectives)
    document = json.loads(json.dumps(verification_object(verified), allow_nan=False))
    assert document["holds"] == verified.holds
    assert document["at_peak"]["objectives"][0]["simulated_s"] > 0


def test_pools_that_no_few_replicas_stand_for_are_said_not_to_be_simulated() -> None:
    """Short prompts, long answers: 2 prefill replicas beside hundreds that decode, of which 63 took half the rate."""
    unequal = {"rps": 3000, "isl": 20, "osl": 3000, "serving": ("disaggregated",), "hardware": ("h100",), "tp": (1,)}
    found = plan_capacity(PlanSpec(model="llama-3.1-8b", verify=True, **unequal)).verification  # type: ignore[arg-type]
    assert found is not None
    assert found.at_peak.requests == 0
    assert "too unequal" in found.at_peak.reason
