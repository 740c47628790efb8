"""Fleets side by side, each as a plan of its own: shares add up, and what is simulated is what serves."""

from __future__ import annotations

import pytest

from simulator.planner.capacity_plan import CapacityPlan, only_asked
from simulator.planner.plan import completed, is_complete, plan_capacity
from simulator.planner.studies.growth import Growth
from simulator.planner.studies.resilience import Resilience
from simulator.planner.studies.stock import parts
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.planner.studies.uncertainty import Uncertainty
from simulator.specs.question.plan import plan_spec


def planned(**fields: object) -> CapacityPlan:
    asked = {"rps": 200, "model": "llama-3.1-8b", "hardware": ("l40s",), "stock": ("h100=4",), **fields}
    return plan_capacity(plan_spec(asked))


def stock_of(plan: CapacityPlan) -> StockPlan:
    found = plan.study(StockPlan)
    assert found is not None
    return found


def test_a_plan_without_stock_has_nothing_side_by_side() -> None:
    plan = planned(stock=(), resilience=True)
    assert plan.serving == (plan,)
    assert plan.study(Resilience)
    assert parts(plan, plan.spec) == ()


def test_parts_carry_the_demand_and_show_what_their_requests_see() -> None:
    plan = planned(resilience=True, uncertainty=True)
    shares, parts = stock_of(plan).shares, plan.serving
    assert {type(study) for study in plan.studies} == {StockPlan}
    assert len(shares) > 1
    assert sum(part.demand.planned_rate_per_s for part in parts) == pytest.approx(plan.demand.planned_rate_per_s)
    for share, part in zip(shares, parts, strict=True):
        assert (part.best.hardware, part.best.label) == (share.hardware, share.label)
        assert (part.best.replicas, part.best.spares) == (share.replicas, share.spares)
        assert share.seen is not None
        assert part.best.degraded.ttft_p95_s == pytest.approx(share.seen.ttft_p95_s)
        assert part.best.degraded.tpot_p95_s == pytest.approx(share.seen.tpot_p95_s)
        loss, risk = part.study(Resilience), part.study(Uncertainty)
        assert loss is not None
        assert risk is not None
        assert all(case.replicas_left + case.replicas_lost == share.replicas + share.spares for case in loss.cases)
        # What is there already costs no rent, however much of it is needed.
        assert (risk.cost_per_hour is None) == bool(share.from_stock)
        assert any("price" in bar.name for bar in risk.tornado) != bool(share.from_stock)


def test_growth_goes_to_what_is_obtained_beyond_what_the_others_carry() -> None:
    plan = planned(growth="5%/month")
    existing, obtained = stock_of(plan).shares
    assert existing.from_stock == existing.devices == 4
    assert obtained.bought == obtained.devices
    first, second = plan.serving
    assert first.study(Growth) is None, "nobody buys more of what only exists"
    growth = second.study(Growth)
    assert growth is not None
    assert growth.months[0].devices[0] == obtained.devices
    assert growth.beside_per_s == pytest.approx(existing.capacity_per_s)
    for month in growth.months:
        whole_per_s = plan.demand.planned_rate_per_s * 1.05**month.month
        assert month.rates_per_s[1] + existing.capacity_per_s == pytest.approx(whole_per_s)


def test_what_lies_in_stock_is_not_ordered() -> None:
    plan = planned(hardware=("h100",), stock=("h100=64",), tp=1, growth="5%/month", start="2026-12-15")
    (part,) = plan.serving
    found = part.study(Growth)
    assert found is not None
    assert part.best.devices < found.in_stock == 64
    assert all(step.devices_before >= 64 for step in found.steps)
    assert found.bridge_devices == max(0, max(month.devices[1] for month in found.months[:6]) - 64)
    assert found.in_place(found.start, now=part.best.devices) == 64


def test_a_report_adds_what_was_not_asked_of_each_fleet_and_an_answer_leaves_it_out() -> None:
    plan = planned(resilience=True)
    whole = completed(plan)
    assert not is_complete(plan)
    assert is_complete(whole)
    for part, full, less in zip(plan.serving, whole.serving, only_asked(whole).serving, strict=True):
        assert full.study(Uncertainty)
        assert [type(study) for study in less.studies] == [type(study) for study in part.studies] == [Resilience]


def test_stock_with_all_of_a_fleet_is_that_fleet() -> None:
    plan = planned(hardware=("h100",), stock=("h100=64",), tp=1)
    (part,) = plan.serving
    assert part.best.degraded == plan.best.degraded
    assert part.best.counts == plan.best.counts


def test_what_serves_is_simulated_and_obtains_more_where_it_misses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.planner.verification.simulation.LEAST_REQUESTS", 400)
    monkeypatch.setattr("simulator.planner.verification.simulation.MOST_REQUESTS", 400)
    steady, checked = (stock_of(planned(verify=verify)) for verify in (False, True))
    assert all(share.simulated is None for share in steady.shares)
    assert checked.bought >= steady.bought
    for share in checked.shares:
        assert share.simulated is not None
        # A replica is loaded as it is simulated.
        assert share.simulated.degraded.rate_per_s == pytest.approx(share.replica_rate_per_s)
    assert bool(checked.warnings) != all(share.simulated.holds for share in checked.shares if share.simulated)
