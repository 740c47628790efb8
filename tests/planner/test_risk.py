"""Resilience, growth, rental and uncertainty: laws, limits, and numbers worked by hand."""

from __future__ import annotations

import itertools
from datetime import date, timedelta
from math import ceil, comb, inf, sqrt
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.lanes.steady_state import steady_state
from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.availability import enough_up, replica_unavailability, spares_for
from simulator.planner.fleet.fleet import Sized
from simulator.planner.fleet.records import pack
from simulator.planner.fleet.resizing import ResizedPart, Resizer, resizer
from simulator.planner.load_profile import day_profile, load_shape, peak_over_mean
from simulator.planner.money.tco import token_year
from simulator.planner.plan import plan_capacity
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import resolve
from simulator.planner.search.usual_search import usual_search
from simulator.planner.studies.growth import Growth, GrowthMonth, capacity_steps, month_later
from simulator.planner.studies.rental import RentalMix
from simulator.planner.studies.resilience import Resilience
from simulator.planner.studies.uncertainty import Uncertainty, uncertainty_of
from simulator.reports.sections.growth import rent_text
from simulator.reports.words.fields import error_line, note_text
from simulator.reports.words.plan_inputs import warning_texts
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import LatencyMetric

# One kind of replica in the model's own format, within bounds that hardly bind.
ASKED = {
    "rps": 300,
    "model": "llama-3.1-70b",
    "weights": "bf16",
    "serving": "aggregated",
    "ttft_p95": "2s",
    "tpot_p95": "200ms",
}


def planned(**fields: object) -> CapacityPlan:
    return plan_capacity(plan_spec({**ASKED, "hardware": "h100", "tp": 4, **fields}))


def ranked(**fields: object) -> list[Sized]:
    question = resolve(plan_spec({**ASKED, "hardware": ("h100", "h200"), **fields}))
    trials = [usual_search(question, (platform,)) for platform in platforms(question.spec)]
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

    @given(
        st.integers(1, 10**9),
        st.floats(1e-7, 1 - 1e-6),
        st.floats(-6, 6),
        st.sampled_from([0.5, 0.9, 0.999, 0.9999999]),
    )
    def test_fleets_of_every_size_and_share_of_failures(
        self, replicas: int, down: float, deviations: float, target: float
    ) -> None:
        """Against scipy, around the spares that stand for those that are down; beyond 2^53 replicas both round."""
        from scipy.stats import binom  # a second to load, in every process that runs or only collects tests

        usual, sigma = replicas * down / (1 - down), sqrt(replicas * down) / (1 - down)
        spares = max(0, round(usual + deviations * sigma))
        up = enough_up(replicas=replicas, spares=spares, unavailability=down)
        assert up == pytest.approx(binom.cdf(spares, replicas + spares, down), rel=1e-5, abs=1e-9)
        needed = spares_for(replicas=replicas, unavailability=down, target=target)
        assert enough_up(replicas=replicas, spares=needed, unavailability=down) >= target
        if needed:
            assert enough_up(replicas=replicas, spares=needed - 1, unavailability=down) < target

    def test_accelerators_that_hardly_ever_work_are_refused(self) -> None:
        with pytest.raises(RoofcastError, match=r"with repairs of 24 h .* fails every 1e-06 h"):
            planned(availability=99.9, mtbf_hours=1e-6)

    def test_spares_that_miss_the_target_are_a_warning(self) -> None:
        plan = planned(availability=99.9, spares=0)
        assert any(
            "0 spares give an availability of" in text and "--spares" in text for text in warning_texts(plan.warnings)
        )
        assert not any("availability" in text for text in warning_texts(planned(availability=99.9).warnings))

    def test_the_target_sets_the_spares(self) -> None:
        low, high = (planned(availability=target) for target in (90, 99.999))
        assert high.best.spares > low.best.spares
        found = high.study(Resilience).availability if high.study(Resilience) else None
        assert found is not None
        assert found.spares == found.present_spares == high.best.spares
        assert found.achieved >= found.target == pytest.approx(0.99999)
        assert found.devices == high.best.devices
        assert "Llama 3" in note_text(found.source)
        assert "assumed" in note_text(found.source)


class TestResilience:
    def test_a_given_start_and_lag_make_the_delay_by_hand(self) -> None:
        plan = planned(resilience=True, startup="4min", autoscaler_lag="1min", ramp="10%/min")
        assert plan.study(Resilience) is not None
        start = plan.study(Resilience).startup
        assert start.delay_s == 300.0
        # 300 requests/s grow by 30 a minute; five minutes ask for 150 more.
        assert start.ramp_per_s2 * 300.0 == pytest.approx(150.0)
        assert start.headroom_replicas == ceil(150.0 / plan.best.replica.capacity_per_s)
        assert "start given, lag of the autoscaler given; ramp given" in note_text(start.source)

    def test_restarts_within_the_spares_hold_the_objectives(self) -> None:
        with_spares, without = planned(resilience=True), planned(resilience=True, spares=0, rps=1.0)
        assert with_spares.study(Resilience) is not None
        assert without.study(Resilience) is not None
        assert with_spares.study(Resilience).maintenance.holds
        assert not without.study(Resilience).maintenance.holds

    def test_one_and_two_servers_are_lost(self) -> None:
        found = planned(resilience=True, server_spares=2).study(Resilience)
        assert found is not None
        # Two replicas of TP4 in a server of eight: one server is two replicas, two are four, and both are held.
        assert [(case.name, case.replicas_lost) for case in found.cases] == [
            ("one replica", 1),
            ("one server", 2),
            ("two servers", 4),
            # A rack of 41 kW holds four servers of 10.2 kW.
            ("one rack", 8),
        ]
        assert (found.spares, found.spares_for_one_server) == (4, 2)
        assert [case.holds for case in found.cases] == [True, True, True, False]

    def test_a_rack_takes_the_replicas_that_its_servers_make(self) -> None:
        # Two servers a replica: the four of a rack are two replicas, not four.
        asked = {"model": "deepseek-r1", "weights": None, "tp": 8, "pp": 2, "rps": 20.0, "isl": 1000, "osl": 200}
        found = planned(resilience=True, serving="aggregated", **asked).study(Resilience)
        assert found is not None
        assert found.replicas_per_server == 1
        assert {case.name: case.replicas_lost for case in found.cases}["one rack"] == 2

    def test_racks_are_those_of_the_figures_that_were_asked_for(self, tmp_path: Path) -> None:
        limit = {"value": 21_000, "source": "a site's", "date": "2026-01-01"}
        own = tmp_path / "site.yaml"
        own.write_text(yaml.safe_dump({"name": "site", "extends": "default", "rack_power_limit_w": limit}), "utf-8")
        found = planned(resilience=True, server_spares=2, ownership=str(own)).study(Resilience)
        assert found is not None
        # Two servers of 10.2 kW: the rack is the two servers' case.
        assert [(case.name, case.replicas_lost) for case in found.cases][-1] == ("one rack", 4)
        with pytest.raises(RoofcastError, match="racks"):
            planned(max_racks=5, ownership=str(own))
        assert planned(max_racks=5).best.devices > 0

    def test_no_more_is_lost_than_there_is(self) -> None:
        found = planned(resilience=True, rps=0.1, spares=0).study(Resilience)
        assert found is not None
        assert [(case.name, case.replicas_lost, case.holds) for case in found.cases] == [("one server", 1, False)]

    def test_losing_the_spares_keeps_the_objectives(self) -> None:
        plan = planned(resilience=True)
        assert plan.study(Resilience) is not None
        one = plan.study(Resilience).cases[0]
        assert (one.name, one.replicas_lost, one.holds) == ("one replica", 1, True)
        assert one.ttft_p95_s == pytest.approx(plan.best.degraded.ttft_p95_s)

    def test_a_lost_server_takes_all_its_replicas(self) -> None:
        plan = planned(resilience=True, server_spares=1)
        assert plan.study(Resilience) is not None
        case = next(item for item in plan.study(Resilience).cases if item.name == "one server")
        assert case.replicas_lost == plan.study(Resilience).replicas_per_server == plan.best.spares == 2
        assert case.holds

    def test_losing_everything_is_overload(self) -> None:
        plan = planned(rps=1, spares=0, resilience=True)
        assert plan.study(Resilience) is not None
        assert plan.best.replicas == 1
        assert plan.study(Resilience).cases[0].replicas_left == 0
        assert plan.study(Resilience).cases[0].ttft_p95_s == inf
        assert not plan.study(Resilience).cases[0].holds

    def test_load_follows_the_objectives(self) -> None:
        tight, loose = (
            planned(resilience=True, tpot_p95="40ms"),
            planned(resilience=True, tpot_p95="2s", ttft_p95="60s"),
        )
        assert tight.study(Resilience) is not None
        assert loose.study(Resilience) is not None
        assert tight.study(Resilience).load_target.binding == "TPOT p95"
        assert tight.study(Resilience).load_target.by_objectives < loose.study(Resilience).load_target.by_objectives
        # What the objectives allow, read off a curve, is what the search planned with where they bind.
        assert tight.study(Resilience).load_target.by_objectives == pytest.approx(
            tight.best.replica.utilization * tight.best.replica.step_margin, abs=0.05
        )
        assert loose.best.replica.utilization * loose.best.replica.step_margin == pytest.approx(0.9)

    def test_a_steeper_ramp_needs_more_ahead(self) -> None:
        slow, fast = planned(resilience=True, ramp="5%/min"), planned(resilience=True, ramp="50%/min")
        assert slow.study(Resilience) is not None
        assert fast.study(Resilience) is not None
        assert fast.study(Resilience).startup.headroom_replicas > slow.study(Resilience).startup.headroom_replicas >= 1
        assert slow.study(Resilience).startup.ramp_per_s2 == pytest.approx(300 * 0.05 / 60)

    def test_restarts_go_round_by_round(self) -> None:
        plan = planned(resilience=True, spares=3)
        assert plan.study(Resilience) is not None
        rest = plan.study(Resilience).maintenance
        assert rest.at_once == 3
        assert (rest.rounds - 1) * 3 < plan.best.replicas + plan.best.spares <= rest.rounds * 3
        assert rest.total_s == pytest.approx(rest.rounds * rest.round_s)


class TestResizing:
    @given(st.integers(1, 40), st.integers(1, 16), st.sampled_from([1, 4, 8, 72]))
    def test_packs_as_the_fleet_does(self, replicas: int, each: int, server: int) -> None:
        part = ResizedPart(capacity_per_s=1.0, devices=each, spares=0, server_devices=server)
        fleet = Resizer(parts=(part,), price_per_hour=None, log_sigma=0.0)
        servers = pack((replicas,), devices=(each,), devices_per_server=server)
        assert fleet.devices(replicas) == servers * server

    def test_gives_back_the_plan(self) -> None:
        for item in ranked():
            fleet = resizer(item)
            assert fleet.replicas(300.0) == item.replicas
            assert fleet.devices(item.replicas) == item.devices


class TestGrowth:
    def test_compounds_and_never_shrinks(self) -> None:
        plan = planned(growth="5%/month", horizon="12 months", start="2026-12-15")
        assert plan.study(Growth) is not None
        months = plan.study(Growth).months
        assert len(months) == 13
        assert months[0].devices == (plan.best.devices,) * 3
        assert months[-1].rates_per_s == pytest.approx((300 * 1.025**12, 300 * 1.05**12, 300 * 1.075**12))
        for band in range(3):
            counts = [month.devices[band] for month in months]
            assert counts == sorted(counts)

    def test_orders_lead_up_to_the_last_month(self) -> None:
        plan = planned(growth="5%/month", start="2026-12-15", lead_time=60)
        assert plan.study(Growth) is not None
        steps = plan.study(Growth).steps
        assert steps[0].devices_before == plan.best.devices
        assert steps[-1].devices_after == plan.study(Growth).months[-1].devices[1]
        for before, after in itertools.pairwise(steps):
            assert after.devices_before == before.devices_after
        for step in steps:
            days = (date.fromisoformat(step.date) - date.fromisoformat(step.order_by)).days
            assert days == 60
            assert step.late == (step.order_by < "2026-12-15")

    def test_every_quarter_is_covered_before_it_begins(self) -> None:
        plan = planned(growth="8%/month", start="2027-01-01")
        assert plan.study(Growth) is not None
        for month in plan.study(Growth).months:
            in_place = [step.devices_after for step in plan.study(Growth).steps if step.date <= month.date]
            assert max(in_place, default=plan.best.devices) >= month.devices[1]

    def test_a_years_growth_compounds_over_its_months(self) -> None:
        assert plan_spec({"rps": 1, "growth": "100%/year"}).growth == pytest.approx(2 ** (1 / 12) - 1)

    def test_calendar(self) -> None:
        assert month_later(date(2026, 12, 15), 0) == date(2026, 12, 15)
        assert month_later(date(2026, 12, 15), 1) == date(2027, 1, 15)
        assert month_later(date(2026, 1, 31), 13) == date(2027, 2, 28)

    def test_no_month_of_growth_is_shorter_than_a_month(self) -> None:
        """Four days after a start on the 27th no month's growth has come: the first of the next month was counted."""
        days = [month_later(date(2026, 11, 27), months) for months in range(25)]
        assert all(28 <= (then - now).days <= 31 for now, then in itertools.pairwise(days))

    def test_an_order_is_in_place_when_it_is_first_needed_and_not_before(self) -> None:
        plan = planned(growth="5%/month", start="2024-02-29", horizon=24)
        growth = plan.study(Growth)
        assert growth is not None
        base = [month.devices[1] for month in growth.months]
        for step in growth.steps:
            needs = [month for month in growth.months if month.devices[1] > step.devices_before]
            assert step.date == needs[0].date
            assert date.fromisoformat(step.order_by) + timedelta(days=180) == date.fromisoformat(step.date)
        have = base[0]
        for month in growth.months:
            have = max([have, *(step.devices_after for step in growth.steps if step.date <= month.date)])
            assert have >= month.devices[1]

    def test_order_dates_across_a_leap_day_by_hand(self) -> None:
        months = tuple(
            GrowthMonth(
                month=place, date=month_later(date(2024, 1, 1), place).isoformat(), rates_per_s=(), devices=(need,)
            )
            for place, need in enumerate((8, 8, 16, 16))
        )
        (step,) = capacity_steps(months, start=date(2024, 1, 1), band=0, lead_time_days=30)
        assert (step.date, step.order_by, step.late) == ("2024-03-01", "2024-01-31", False)
        (late,) = capacity_steps(months, start=date(2024, 1, 1), band=0, lead_time_days=61)
        assert (late.order_by, late.late) == ("2023-12-31", True)

    def test_what_no_order_can_bring_in_time_is_rented(self) -> None:
        plan = planned(growth="10%/month", start="2026-01-01", horizon=6, lead_time=95)
        growth = plan.study(Growth)
        assert growth is not None
        assert growth.bridge_until == "2026-04-06"
        assert growth.bridge_devices == growth.months[3].devices[1] - growth.months[0].devices[1] > 0
        assert planned(growth="1%/year", lead_time=1).study(Growth).bridge_devices == 0  # type: ignore[union-attr]

    def test_growth_that_leaves_the_world_is_refused(self) -> None:
        with pytest.raises(RoofcastError, match=r"`growth`: reaches .* requests/s in its high band after 120 months"):
            planned(growth="900%/month", horizon=120)

    def test_a_horizon_of_one_month_has_one_quarter(self) -> None:
        growth = planned(growth="50%/month", horizon=1, start="2026-12-31").study(Growth)
        assert growth is not None
        assert [month.date for month in growth.months] == ["2026-12-31", "2027-01-31"]
        assert [step.date for step in growth.steps] == ["2027-01-31"]

    def test_a_seller_says_how_long_a_purchase_takes(self, tmp_path: Path) -> None:
        path = tmp_path / "list.yaml"
        offer = {"hardware": "h100", "kind": "purchase", "provider": "a vendor", "per_device": 30000.0}
        quote = {**offer, "date": "2026-11-01", "source": "quote", "lead_time_days": 45}
        path.write_text(yaml.safe_dump({"extends": "default", "name": "own", "offers": [quote]}))
        found = planned(growth="5%/month", start="2026-12-15", prices=str(path)).study(Growth)
        assert found is not None
        assert (found.lead_time_days, found.lead_time_source) == (45, "a vendor, 2026-11-01")
        assert found.arrival == "2027-01-29"


class TestRental:
    def test_the_mix_costs_no_more_than_the_peak_all_day(self) -> None:
        plan = planned(rental=True, peak_to_mean=1.5)
        assert plan.study(RentalMix) is not None
        assert plan.study(RentalMix).per_month < plan.study(RentalMix).flat_per_month
        assert (
            sum(share.devices for share in plan.study(RentalMix).shares)
            == max(plan.study(RentalMix).devices)
            == plan.best.devices
        )
        spot = [share.devices for share in plan.study(RentalMix).shares if share.kind == "spot"]
        assert spot in ([], [plan.best.spares * 4])

    def test_a_flat_day_is_reserved(self) -> None:
        plan = planned(rental=True, load_profile=",".join(["1"] * 24))
        assert plan.study(RentalMix) is not None
        (share,) = plan.study(RentalMix).shares
        assert share.kind == "planned"
        assert share.mean_devices == plan.best.devices

    def test_one_busy_hour_is_rented_by_the_hour(self) -> None:
        plan = planned(rental=True, load_profile=",".join(["0"] * 23 + ["1"]))
        assert plan.study(RentalMix) is not None
        by_kind = {share.kind: share for share in plan.study(RentalMix).shares}
        # Nothing asked for is served by one replica and its spare, in a whole server; they run all day.
        assert by_kind["planned"].devices == 8
        assert by_kind["on_demand"].mean_devices == pytest.approx(by_kind["on_demand"].devices / 24)

    def test_the_bill_over_the_tokens_of_a_year_is_the_price_of_tokens(self) -> None:
        plan = planned(rental=True, peak_to_mean=1.8, rps=20.0)
        assert plan.study(RentalMix) is not None
        tokens = token_year(plan.demand, prompt_share=plan.best.replica.at_capacity.prompt_share)
        billed = (
            plan.study(RentalMix).per_million_input_tokens * tokens.input_millions
            + plan.study(RentalMix).per_million_output_tokens * tokens.output_millions
        )
        assert billed == pytest.approx(12 * plan.study(RentalMix).per_month)
        assert plan.study(RentalMix).per_month == pytest.approx(
            sum(share.mean_devices * share.per_device_hour * 730 for share in plan.study(RentalMix).shares)
        )

    @pytest.mark.parametrize("peak_to_mean", [1.0, 1.4, 2.0, 3.0, 6.0])
    def test_without_a_profile_the_day_has_the_given_peak_over_mean(self, peak_to_mean: float) -> None:
        shape, source = load_shape(plan_spec({"rps": 1.0, "rental": True, "peak_to_mean": peak_to_mean}))
        assert peak_over_mean(shape) == pytest.approx(peak_to_mean)
        assert (len(shape), shape.max()) == (24, 1.0)
        assert f"{peak_to_mean:g}" in note_text(source)

    def test_a_peak_that_no_day_shows_is_cut_and_said_so(self) -> None:
        shape, source = load_shape(plan_spec({"rps": 1.0, "rental": True, "peak_to_mean": 40.0}))
        assert peak_over_mean(shape) == pytest.approx(12.0)
        assert "12 at most" in note_text(source)

    def test_weekends_lower_the_mean_and_the_bill(self) -> None:
        week, day = planned(rental=True, weekend=0.4), planned(rental=True)
        assert week.study(RentalMix) is not None
        assert day.study(RentalMix) is not None
        assert (len(week.study(RentalMix).profile), week.study(RentalMix).period, day.study(RentalMix).period) == (
            168,
            "week",
            "day",
        )
        assert week.study(RentalMix).devices[:24] == day.study(RentalMix).devices
        assert week.study(RentalMix).profile[5 * 24] == pytest.approx(0.4 * day.study(RentalMix).profile[0])
        assert week.study(RentalMix).per_month <= day.study(RentalMix).per_month
        assert week.best.cost.per_hour == day.best.cost.per_hour
        assert week.demand.mean_load == pytest.approx((5 + 2 * 0.4) / 7)

    def test_a_weekend_keeps_the_given_peak_over_mean(self) -> None:
        shape, _ = load_shape(plan_spec({"rps": 1.0, "rental": True, "peak_to_mean": 2.0, "weekend": 0.5}))
        assert peak_over_mean(shape) == pytest.approx(2.0)
        with pytest.raises(RoofcastError, match="`weekend`: the week's peak is at least 1.4"):
            load_shape(plan_spec({"rps": 1.0, "rental": True, "peak_to_mean": 1.05, "weekend": 0.0}))

    def test_a_week_of_five_busy_days_by_hand(self) -> None:
        # Weekdays are used 5/7 of the time, below 4.50/6.155 of H100: all but the floor's devices are paid by the hour.
        hours = ",".join(["1"] * 120 + ["0"] * 48)
        plan = planned(rental=True, load_profile=hours)
        assert plan.study(RentalMix) is not None
        assert {share.kind for share in plan.study(RentalMix).shares} <= {"planned", "on_demand", "spot"}
        assert plan.demand.peak_to_mean == pytest.approx(7 / 5)
        # 2.5 of 7 days stay below it: on demand for 2.5/7 of the time, paid for just that.
        hours = ",".join(["1"] * 60 + ["0"] * 108)
        plan = planned(rental=True, load_profile=hours)
        assert plan.study(RentalMix) is not None
        hourly = {share.kind: share for share in plan.study(RentalMix).shares}["on_demand"]
        assert hourly.mean_devices == pytest.approx(hourly.devices * 2.5 / 7)

    def test_hours_say_the_mean_under_a_given_peak(self) -> None:
        flat, plan = planned(), planned(rental=True, load_profile=",".join(["1"] * 6 + ["0.5"] * 18))
        assert plan.demand.planned_rate_per_s == pytest.approx(flat.demand.planned_rate_per_s)
        assert plan.demand.mean_rate_per_s == pytest.approx(flat.demand.mean_rate_per_s * (6 + 9) / 24)
        assert plan.best.devices == flat.best.devices
        paid, before = plan.best.cost.per_million_output_tokens, flat.best.cost.per_million_output_tokens
        assert paid == pytest.approx((before or 0.0) * 24 / 15)

    def test_hours_busier_than_the_given_peak_contradict_it(self) -> None:
        with pytest.raises(RoofcastError, match="busiest hour is 24 times its mean, more than `peak_to_mean` 2 allows"):
            planned(rental=True, peak_to_mean=2.0, load_profile=",".join(["0"] * 23 + ["1"]))

    def test_without_a_peak_over_the_mean_every_hour_is_the_same(self) -> None:
        shape, source = load_shape(plan_spec({"rps": 1.0}))
        assert set(shape) == {1.0}
        assert note_text(source).startswith("flat")

    def test_a_day_of_a_mean_of_seven_tenths_has_nights_at_two_fifths(self) -> None:
        day = day_profile(0.7)
        assert len(day) == 24
        assert max(day) == 1.0
        assert min(day) == pytest.approx(0.4)


class TestUncertainty:
    @pytest.mark.usefixtures("draws_alone")
    def test_the_same_seed_gives_the_same_numbers(self) -> None:
        first, again, other = (planned(uncertainty=True, seed=seed).study(Uncertainty) for seed in (3, 3, 4))
        assert first == again
        assert first is not None
        assert other is not None
        assert first.devices != other.devices or first.enough_share != other.enough_share

    @pytest.mark.usefixtures("draws_alone")
    def test_certainty_gives_back_the_plan(self) -> None:
        question = resolve(plan_spec({"rps": 300, "model": "llama-3.1-70b", "uncertainty": True, "demand_sigma": 0}))
        item = ranked()[0]
        fleet = resizer(item)
        assert (fleet.devices(fleet.replicas(np.full(3, 300.0))) == item.devices).all()
        found = uncertainty_of(question, [item])
        assert found.devices.p10 <= item.devices <= found.devices.p90

    @pytest.mark.usefixtures("draws_alone")
    def test_more_doubt_spreads_wider(self) -> None:
        narrow, wide = (planned(uncertainty=True, demand_sigma=sigma).study(Uncertainty) for sigma in (0.0, 0.5))
        assert narrow is not None
        assert wide is not None
        assert wide.devices.p90 - wide.devices.p10 > narrow.devices.p90 - narrow.devices.p10
        assert narrow.devices.p10 <= narrow.devices.p50 <= narrow.devices.p90

    @pytest.mark.usefixtures("draws_alone")
    def test_quantiles_match_the_law_of_the_draws(self) -> None:
        plan = planned(uncertainty=True, demand_sigma=0.3, draws=20000, rps=3000, round_to="device", spares=0)
        assert plan.study(Uncertainty) is not None
        sigma = float(np.hypot(0.3, resizer_sigma(plan)))
        predicted = plan.best.replicas * 4 / plan.best.replica.step_margin
        expected = predicted * np.exp(np.array([-1.2816, 0.0, 1.2816]) * sigma)
        found = plan.study(Uncertainty).devices
        assert (found.p10, found.p50, found.p90) == pytest.approx(tuple(expected), rel=0.03)

    def test_bars_are_ordered_and_monotone(self) -> None:
        plan = planned(uncertainty=True)
        assert plan.study(Uncertainty) is not None
        bars = plan.study(Uncertainty).tornado
        swings = [bar.swing for bar in bars]
        assert swings == sorted(swings, reverse=True)
        for bar in bars:
            assert bar.devices_low <= plan.best.devices <= bar.devices_high, bar.name
        assert {"request rate", "prompt length", "answer length"} <= {bar.name for bar in bars}

    def test_what_breaks_first_is_the_slack(self) -> None:
        plan = planned(uncertainty=True)
        assert plan.study(Uncertainty) is not None
        margins = {item.name: item.margin for item in plan.study(Uncertainty).breaks_first}
        assert "replicas" not in margins, "1.6 % of three replicas cannot fail"
        slack = plan.best.replicas * plan.best.replica.capacity_per_s / 300 - 1
        assert margins["request rate"] == pytest.approx(slack)
        assert list(margins.values()) == sorted(margins.values())

    @pytest.mark.usefixtures("draws_alone")
    def test_regret_is_least_for_the_recommended_where_nothing_is_unsure(self) -> None:
        plan = plan_capacity(
            plan_spec({"rps": 300, "model": "llama-3.1-70b", "hardware": ("h100", "h200"), "uncertainty": True})
        )
        assert plan.study(Uncertainty) is not None
        assert plan.study(Uncertainty).regrets[0].hardware == plan.best.hardware
        assert sum(item.best_share for item in plan.study(Uncertainty).regrets) >= 1 - 1e-9
        assert all(item.mean_regret_per_hour >= 0 for item in plan.study(Uncertainty).regrets)


def resizer_sigma(plan: CapacityPlan) -> float:
    item = next(item for item in ranked(hardware="h100", tp=4, rps=3000, round_to="device", spares=0))
    assert item.replicas == plan.best.replicas
    return resizer(item).log_sigma


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"horizon": 12, "price_kind": "spot"}, "--horizon: changes nothing without --growth"),
        ({"growth": "fast"}, "5%/month"),
        ({"growth": "5%/week"}, "allowed: month, year"),
        ({"growth": "5%/month", "horizon": 121}, "120"),
        ({"draws": 10}, "without --uncertainty"),
        ({"mttr_hours": 10}, "without --availability"),
        ({"availability": 100}, "less than 100"),
        ({"availability": 40}, "50"),
        ({"ramp": "10%/min"}, "without --resilience"),
        (
            {"load_profile": "1,2", "rental": True},
            "24 numbers (a day) or 168 (a week from Monday) are needed, one for each hour; there are 2",
        ),
        ({"load_profile": ",".join(["1"] * 23 + ["nan"]), "rental": True}, "hour 23 must be a number of at least 0"),
        ({"load_profile": ",".join(["1"] * 23 + ["x"]), "rental": True}, "hour 23 is no number"),
        ({"load_profile": ",".join(["0"] * 168), "rental": True}, "some hour has to be above 0"),
        ({"startup": "4min"}, "without --resilience"),
        ({"autoscaler_lag": "0s", "resilience": True}, "a duration above zero"),
        ({"weekend": 0.5, "rental": True, "load_profile": ",".join(["1"] * 168)}, "contradicts --load-profile"),
        ({"server_spares": 1, "spares": 1}, "contradicts --spares"),
        ({"any_precision": True, "weights": "fp8"}, "contradicts --weights"),
        ({"stock": ("h100",)}, "HARDWARE=COUNT"),
        ({"growth": "5%/month", "start": "tomorrow"}, "start"),
    ],
)
def test_refusals_name_the_field(fields: dict[str, object], words: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        plan_spec({"rps": 1, **fields})
    assert words in error_line(caught.value)
    assert "\n" not in error_line(caught.value)


class TestConfidence:
    def test_more_confidence_never_takes_less_and_half_of_the_draws_is_the_prediction(self) -> None:
        half, most, nearly_all = (planned(confidence=percent, round_to="device").best for percent in (50, 80, 90))
        assert half.devices <= most.devices <= nearly_all.devices
        assert half.replica.step_margin == 1.0 < most.replica.step_margin < nearly_all.replica.step_margin

    def test_objectives_hold_where_steps_take_as_long_as_the_margin_says(self) -> None:
        limits = {"max_num_seqs": 1024, "max_num_batched_tokens": 8192}
        fleet = planned(tpot_p95="50ms", ttft_p95="60s", **limits).best
        margin, rate = fleet.replica.step_margin, fleet.replica.capacity_per_s
        part = fleet.serving.parts[-1]
        slow = steady_state(part.curve.slowed(margin), rates_per_s=[rate, rate * 1.02])
        at, beyond = slow.percentile_s(LatencyMetric.TPOT, 95.0)
        assert at <= 0.05 * (1 + 1e-9) < beyond
        assert fleet.replica.at_capacity.tpot_p95_s < 0.05

    @pytest.mark.usefixtures("draws_alone")
    def test_the_planned_fleet_carries_about_that_share_of_draws(self) -> None:
        for percent in (50, 80, 90):
            plan = planned(uncertainty=True, demand_sigma=0, confidence=percent, rps=3000, round_to="device")
            found = plan.study(Uncertainty)
            assert found is not None
            assert found.enough_share == pytest.approx(percent / 100, abs=0.05)


class TestRentOfGrowth:
    def test_each_month_is_paid_for_what_it_needs(self) -> None:
        plan = planned(growth="5%/month", start="2026-12-01", horizon=6)
        growth = plan.study(Growth)
        assert growth is not None
        assert growth.rent is not None
        hourly = plan.best.cost.per_device_hour
        assert hourly is not None
        needed = sum(month.devices[1] for month in growth.months[:6])
        assert growth.rent[1] == pytest.approx(needed * hourly * 730)
        assert growth.rent_now == pytest.approx(6 * plan.best.devices * hourly * 730)
        assert growth.rent_now <= growth.rent[0] <= growth.rent[1] <= growth.rent[2]
        assert "Renting what each of 6 months needs comes to" in rent_text(growth, "USD")

    def test_without_a_price_no_money_is_said(self) -> None:
        growth = plan_capacity(
            plan_spec({"rps": 5, "model": "llama-3.1-8b", "hardware": "tpu-v7x", "growth": "5%/month"})
        ).study(Growth)
        assert growth is not None
        assert growth.rent is None
        assert rent_text(growth, "USD") == ""
