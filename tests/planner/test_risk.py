"""Resilience, growth, rental and uncertainty: laws, limits, and numbers worked by hand."""

from __future__ import annotations

import itertools
from datetime import date
from math import comb, inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.planner.availability import enough_up, replica_unavailability, spares_for
from simulator.planner.candidates import platforms
from simulator.planner.fleet import Sized, pack
from simulator.planner.growth import month_later
from simulator.planner.plan import plan_capacity
from simulator.planner.records import CapacityPlan
from simulator.planner.rental import default_profile
from simulator.planner.resizing import Resizer, resizer
from simulator.planner.search import resolve, try_platform
from simulator.planner.uncertainty import uncertainty_of
from simulator.specs.plan import plan_spec


def planned(**fields: object) -> CapacityPlan:
    return plan_capacity(plan_spec({"rps": 300, "model": "llama-3.1-70b", "hardware": "h100", "tp": 4, **fields}))


def ranked(**fields: object) -> list[Sized]:
    question = resolve(plan_spec({"rps": 300, "model": "llama-3.1-70b", "hardware": ("h100", "h200"), **fields}))
    trials = [try_platform(question, platform) for platform in platforms(question.spec)]
    return sorted((item for trial in trials for item in trial.sized), key=lambda item: item.rank)


class TestAvailability:
    @given(st.integers(1, 30), st.integers(0, 5), st.floats(0.001, 0.5))
    def test_binomial_by_hand(self, replicas: int, spares: int, down: float) -> None:
        total = replicas + spares
        exact = sum(comb(total, d) * down**d * (1 - down) ** (total - d) for d in range(spares + 1))
        assert enough_up(replicas=replicas, spares=spares, unavailability=down) == pytest.approx(exact, rel=1e-9)

    def test_a_replica_of_more_devices_is_down_more_often(self) -> None:
        one = replica_unavailability(devices=1, mtbf_hours=1000, mttr_hours=10)
        assert one == pytest.approx(10 / 1010)
        assert replica_unavailability(devices=8, mtbf_hours=1000, mttr_hours=10) == pytest.approx(10 / 135)

    @given(st.integers(1, 200), st.sampled_from([0.9, 0.99, 0.999, 0.9999]))
    def test_spares_are_enough_and_not_more(self, replicas: int, target: float) -> None:
        spares = spares_for(replicas=replicas, unavailability=0.01, target=target)
        assert enough_up(replicas=replicas, spares=spares, unavailability=0.01) >= target
        if spares:
            assert enough_up(replicas=replicas, spares=spares - 1, unavailability=0.01) < target

    def test_thousands_of_replicas_do_not_overflow(self) -> None:
        assert 0.4 < enough_up(replicas=5000, spares=50, unavailability=0.01) < 0.6

    def test_the_target_sets_the_spares(self) -> None:
        low, high = (planned(availability=target) for target in (90, 99.999))
        assert high.best.spares > low.best.spares
        found = high.resilience.availability if high.resilience else None
        assert found is not None
        assert found.spares == found.present_spares == high.best.spares
        assert found.achieved >= found.target == pytest.approx(0.99999)
        assert found.devices == high.best.devices
        assert "Llama 3" in found.source
        assert "assumed" in found.source


class TestResilience:
    def test_losing_the_spares_keeps_the_objectives(self) -> None:
        plan = planned(resilience=True)
        assert plan.resilience is not None
        one = plan.resilience.cases[0]
        assert (one.name, one.replicas_lost, one.holds) == ("one replica", 1, True)
        assert one.ttft_p95_s == pytest.approx(plan.best.degraded.ttft_p95_s)

    def test_a_lost_server_takes_all_its_replicas(self) -> None:
        plan = planned(resilience=True, server_spares=1)
        assert plan.resilience is not None
        case = next(item for item in plan.resilience.cases if item.name == "one server")
        assert case.replicas_lost == plan.resilience.replicas_per_server == plan.best.spares == 2
        assert case.holds

    def test_losing_everything_is_overload(self) -> None:
        plan = planned(rps=1, spares=0, resilience=True)
        assert plan.resilience is not None
        assert plan.best.replicas == 1
        assert plan.resilience.cases[0].replicas_left == 0
        assert plan.resilience.cases[0].ttft_p95_s == inf
        assert not plan.resilience.cases[0].holds

    def test_load_follows_the_objectives(self) -> None:
        tight, loose = (
            planned(resilience=True, tpot_p95="40ms"),
            planned(resilience=True, tpot_p95="2s", ttft_p95="60s"),
        )
        assert tight.resilience is not None
        assert loose.resilience is not None
        assert tight.resilience.load_target.binding == "TPOT p95"
        assert tight.resilience.load_target.by_objectives < loose.resilience.load_target.by_objectives
        # What the objectives allow, read off a curve, is what the search planned with where they bind.
        assert tight.resilience.load_target.by_objectives == pytest.approx(tight.best.replica.utilization, abs=0.03)
        assert loose.best.replica.utilization == pytest.approx(0.9)

    def test_a_steeper_ramp_needs_more_ahead(self) -> None:
        slow, fast = planned(resilience=True, ramp="5%/min"), planned(resilience=True, ramp="50%/min")
        assert slow.resilience is not None
        assert fast.resilience is not None
        assert fast.resilience.startup.headroom_replicas > slow.resilience.startup.headroom_replicas >= 1
        assert slow.resilience.startup.ramp_per_s2 == pytest.approx(300 * 0.05 / 60)

    def test_restarts_go_round_by_round(self) -> None:
        plan = planned(resilience=True, spares=3)
        assert plan.resilience is not None
        rest = plan.resilience.maintenance
        assert rest.at_once == 3
        assert (rest.rounds - 1) * 3 < plan.best.replicas + plan.best.spares <= rest.rounds * 3
        assert rest.total_s == pytest.approx(rest.rounds * rest.round_s)


class TestResizing:
    @given(st.integers(1, 40), st.integers(1, 16), st.sampled_from([1, 4, 8, 72]))
    def test_packs_as_the_fleet_does(self, replicas: int, each: int, server: int) -> None:
        one = pack(replicas=1, devices_per_replica=each, devices_per_server=server)
        fleet = Resizer(
            capacity_per_s=1.0,
            devices_per_replica=each,
            spares=0,
            per_server=max(1, server // each),
            server_devices=(one.servers or 1) * server,
            price_per_hour=None,
            log_sigma=0.0,
        )
        packing = pack(replicas=replicas, devices_per_replica=each, devices_per_server=server)
        assert fleet.devices(replicas) == replicas * each + packing.idle_devices

    def test_gives_back_the_plan(self) -> None:
        for item in ranked():
            fleet = resizer(item)
            assert fleet.replicas(300.0) == item.replicas
            assert fleet.devices(item.replicas) == item.devices


class TestGrowth:
    def test_compounds_and_never_shrinks(self) -> None:
        plan = planned(growth="5%/month", horizon="12 months", start="2026-12-15")
        assert plan.growth is not None
        months = plan.growth.months
        assert len(months) == 13
        assert months[0].devices == (plan.best.devices,) * 3
        assert months[-1].rates_per_s == pytest.approx((300 * 1.025**12, 300 * 1.05**12, 300 * 1.075**12))
        for band in range(3):
            counts = [month.devices[band] for month in months]
            assert counts == sorted(counts)

    def test_orders_lead_up_to_the_last_month(self) -> None:
        plan = planned(growth="5%/month", start="2026-12-15", lead_time=60)
        assert plan.growth is not None
        steps = plan.growth.steps
        assert steps[0].devices_before == plan.best.devices
        assert steps[-1].devices_after == plan.growth.months[-1].devices[1]
        for before, after in itertools.pairwise(steps):
            assert after.devices_before == before.devices_after
        for step in steps:
            days = (date.fromisoformat(step.date) - date.fromisoformat(step.order_by)).days
            assert days == 60
            assert step.late == (step.order_by < "2026-12-15")

    def test_every_quarter_is_covered_before_it_begins(self) -> None:
        plan = planned(growth="8%/month", start="2027-01-01")
        assert plan.growth is not None
        for month in plan.growth.months:
            in_place = [step.devices_after for step in plan.growth.steps if step.date <= month.date]
            assert max(in_place, default=plan.best.devices) >= month.devices[1]

    def test_a_years_growth_compounds_over_its_months(self) -> None:
        assert plan_spec({"rps": 1, "growth": "100%/year"}).growth == pytest.approx(2 ** (1 / 12) - 1)

    def test_calendar(self) -> None:
        assert month_later(date(2026, 12, 15), 0) == date(2026, 12, 15)
        assert month_later(date(2026, 12, 15), 1) == date(2027, 1, 1)
        assert month_later(date(2026, 1, 31), 13) == date(2027, 2, 1)


class TestRental:
    def test_the_mix_costs_no_more_than_the_peak_all_day(self) -> None:
        plan = planned(rental=True)
        assert plan.rental is not None
        assert plan.rental.per_month < plan.rental.flat_per_month
        assert sum(share.devices for share in plan.rental.shares) == max(plan.rental.devices) == plan.best.devices
        spot = [share.devices for share in plan.rental.shares if share.kind == "spot"]
        assert spot in ([], [plan.best.spares * 4])

    def test_a_flat_day_is_reserved(self) -> None:
        plan = planned(rental=True, load_profile=",".join(["1"] * 24))
        assert plan.rental is not None
        (share,) = plan.rental.shares
        assert share.kind == "reserved_3y"
        assert share.mean_devices == plan.best.devices

    def test_one_busy_hour_is_rented_by_the_hour(self) -> None:
        plan = planned(rental=True, load_profile=",".join(["0"] * 23 + ["1"]))
        assert plan.rental is not None
        by_kind = {share.kind: share for share in plan.rental.shares}
        # Nothing asked for is served by one replica and its spare, in a whole server; they run all day.
        assert by_kind["reserved_3y"].devices == 8
        assert by_kind["on_demand"].mean_devices == pytest.approx(by_kind["on_demand"].devices / 24)

    def test_default_day(self) -> None:
        day = default_profile()
        assert len(day) == 24
        assert max(day) == 1.0
        assert min(day) == pytest.approx(0.4)


class TestUncertainty:
    def test_the_same_seed_gives_the_same_numbers(self) -> None:
        first, again, other = (planned(uncertainty=True, seed=seed).uncertainty for seed in (3, 3, 4))
        assert first == again
        assert first is not None
        assert other is not None
        assert first.devices != other.devices or first.enough_share != other.enough_share

    def test_certainty_gives_back_the_plan(self) -> None:
        question = resolve(plan_spec({"rps": 300, "model": "llama-3.1-70b", "uncertainty": True, "demand_sigma": 0}))
        item = ranked()[0]
        fleet = resizer(item)
        assert (fleet.devices(fleet.replicas(np.full(3, 300.0))) == item.devices).all()
        found = uncertainty_of(question, [item])
        assert found.devices.p10 <= item.devices <= found.devices.p90

    def test_more_doubt_spreads_wider(self) -> None:
        narrow, wide = (planned(uncertainty=True, demand_sigma=sigma).uncertainty for sigma in (0.0, 0.5))
        assert narrow is not None
        assert wide is not None
        assert wide.devices.p90 - wide.devices.p10 > narrow.devices.p90 - narrow.devices.p10
        assert narrow.devices.p10 <= narrow.devices.p50 <= narrow.devices.p90

    def test_quantiles_match_the_law_of_the_draws(self) -> None:
        plan = planned(uncertainty=True, demand_sigma=0.3, draws=20000, rps=3000, round_to="device", spares=0)
        assert plan.uncertainty is not None
        sigma = float(np.hypot(0.3, resizer_sigma(plan)))
        expected = plan.best.replicas * 4 * np.exp(np.array([-1.2816, 0.0, 1.2816]) * sigma)
        found = plan.uncertainty.devices
        assert (found.p10, found.p50, found.p90) == pytest.approx(tuple(expected), rel=0.03)

    def test_bars_are_ordered_and_monotone(self) -> None:
        plan = planned(uncertainty=True)
        assert plan.uncertainty is not None
        bars = plan.uncertainty.tornado
        swings = [bar.swing for bar in bars]
        assert swings == sorted(swings, reverse=True)
        for bar in bars:
            assert bar.devices_low <= plan.best.devices <= bar.devices_high, bar.name
        assert {"request rate", "prompt length", "answer length"} <= {bar.name for bar in bars}

    def test_what_breaks_first_is_the_slack(self) -> None:
        plan = planned(uncertainty=True)
        assert plan.uncertainty is not None
        margins = {item.name: item.margin for item in plan.uncertainty.breaks_first}
        slack = plan.best.replicas * plan.best.replica.capacity_per_s / 300 - 1
        assert margins["request rate"] == pytest.approx(slack)
        assert list(margins.values()) == sorted(margins.values())

    def test_regret_is_least_for_the_recommended_where_nothing_is_unsure(self) -> None:
        plan = plan_capacity(
            plan_spec({"rps": 300, "model": "llama-3.1-70b", "hardware": ("h100", "h200"), "uncertainty": True})
        )
        assert plan.uncertainty is not None
        assert plan.uncertainty.regrets[0].hardware == plan.best.hardware
        assert sum(item.best_share for item in plan.uncertainty.regrets) >= 1 - 1e-9
        assert all(item.mean_regret_per_hour >= 0 for item in plan.uncertainty.regrets)


def resizer_sigma(plan: CapacityPlan) -> float:
    item = next(item for item in ranked(hardware="h100", tp=4, rps=3000, round_to="device", spares=0))
    assert item.replicas == plan.best.replicas
    return resizer(item).log_sigma


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"horizon": 12}, "--horizon: changes nothing without --growth"),
        ({"growth": "fast"}, "5%/month"),
        ({"growth": "5%/week"}, "allowed: month, year"),
        ({"growth": "5%/month", "horizon": 121}, "120"),
        ({"draws": 10}, "without --uncertainty"),
        ({"mttr_hours": 10}, "without --availability"),
        ({"availability": 100}, "less than 100"),
        ({"availability": 40}, "50"),
        ({"ramp": "10%/min"}, "without --resilience"),
        ({"load_profile": "1,2", "rental": True}, "24 numbers"),
        ({"load_profile": ",".join(["1"] * 24)}, "without --rental"),
        ({"server_spares": 1, "spares": 1}, "contradicts --spares"),
        ({"any_precision": True, "weights": "fp8"}, "contradicts --weights"),
        ({"stock": ("h100",)}, "HARDWARE=COUNT"),
        ({"growth": "5%/month", "start": "tomorrow"}, "start"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, object], words: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        plan_spec({"rps": 1, **fields})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
