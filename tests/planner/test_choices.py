"""Limits of the fleet, stock, pools and the gap: laws, sums, and what contradictions say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import ExitCode, InfeasibleError, RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.replica_load import latency_range, meeting_chances
from simulator.planner.gap.records import Gap, GapError
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.length_split import LengthSplit, truncated_lengths
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.reports.sections.answer import sentence
from simulator.reports.words.derivation import nearest_rejections
from simulator.reports.words.fields import note_texts, rejection_text
from simulator.specs.question.plan import plan_spec
from simulator.traffic.lengths import LengthDistribution

GPUS = ("h100", "mi300x")


def planned(**fields: object) -> CapacityPlan:
    asked = {"rps": 300, "model": "llama-3.1-70b", "hardware": GPUS, "ttft_p95": "2s", "tpot_p95": "200ms"}
    return plan_capacity(plan_spec({**asked, "serving": "aggregated", **fields}))


def refused(**fields: object) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        planned(**fields)
    assert caught.value.exit_code is ExitCode.INFEASIBLE
    assert "\n" not in str(caught.value)
    return caught.value


@pytest.mark.usefixtures("few_accelerators")
class TestLimits:
    def test_a_limit_that_holds_changes_nothing(self) -> None:
        free = planned()
        cost = free.best.cost.per_hour or 0.0
        bound = planned(max_cost_per_hour=cost, max_power_kw=free.best.maximum_w / 1000, max_racks=999, max_gpus=9999)
        assert bound.best == free.best

    def test_power_may_choose_another_fleet(self) -> None:
        free = planned()
        others = [fleet for fleet in free.alternatives if fleet.maximum_w < free.best.maximum_w]
        least = min(free.best.maximum_w, *(fleet.maximum_w for fleet in others), free.best.maximum_w) / 1000
        tight = planned(max_power_kw=least)
        assert tight.best.maximum_w <= least * 1000

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("limit", "name"),
        [
            ({"max_cost_per_hour": 1}, "max_cost_per_hour"),
            ({"max_power_kw": 5}, "max_power_kw"),
            ({"max_racks": 1}, "max_racks"),
        ],
    )
    def test_the_nearest_that_is_feasible_is_named_and_is(self, limit: dict[str, object], name: str) -> None:
        error = refused(**limit)
        assert error.field == name
        assert "more than" in error.message
        nearest = float(error.hint.split(f"`{name}`")[1].split()[0])
        value: float = np.ceil(nearest * 1.001)
        assert planned(**{name: int(value) if name == "max_racks" else value}).best.devices > 0

    def test_limits_that_contradict_each_other_are_both_named(self) -> None:
        plan = planned(hardware=("mi355x", "b200"))
        fleets = (plan.best, *plan.alternatives)
        cheapest = min(fleet.cost.per_hour or 0.0 for fleet in fleets)
        fewest = min(fleet.devices for fleet in fleets)
        assert not any(fleet.devices == fewest and fleet.cost.per_hour == cheapest for fleet in fleets)
        error = refused(hardware=("mi355x", "b200"), max_cost_per_hour=cheapest, max_gpus=fewest)
        assert "`max_gpus`" in error.message
        assert "`max_cost_per_hour`" in error.message

    @pytest.mark.slow
    def test_the_gap_of_a_part_that_is_not_on_offer_is_searched_too(self) -> None:
        assert "more than" in refused(hardware="vr200", max_gpus=8).message

    def test_racks_need_whole_servers(self) -> None:
        with pytest.raises(RoofcastError) as caught:
            planned(max_racks=10, round_to="device")
        assert caught.value.exit_code is ExitCode.USAGE
        assert "`round_to` device" in caught.value.message


class TestStock:
    def test_stock_serves_first_and_shares_add_up(self) -> None:
        plan = planned(stock=("h100=32", "a100=48"))
        assert plan.study(StockPlan) is not None
        rates = [share.rate_per_s for share in plan.study(StockPlan).shares]
        assert sum(rates) == pytest.approx(300)
        for share in plan.study(StockPlan).shares:
            assert share.rate_per_s <= share.capacity_per_s * (1 + 1e-9)
            assert share.devices == share.from_stock + share.bought
        by_name = {share.hardware: share for share in plan.study(StockPlan).shares}
        assert by_name["h100-sxm-80gb"].from_stock == 32
        assert by_name["a100-sxm-80gb"].from_stock == 48
        assert sum(share.bought for share in plan.study(StockPlan).shares) == plan.study(StockPlan).bought
        assert 0 < plan.study(StockPlan).bought < plan.best.devices

    def test_fleets_side_by_side_are_equally_loaded(self) -> None:
        plan = planned(stock=("h100=32", "a100=16"))
        assert plan.study(StockPlan) is not None
        loads = [share.rate_per_s / share.capacity_per_s for share in plan.study(StockPlan).shares]
        assert max(loads) == pytest.approx(min(loads))
        assert max(loads) <= 1 + 1e-9

    def test_stock_that_spares_no_purchase_stays_off(self) -> None:
        without, beside = planned(stock=("h100=32",)), planned(stock=("h100=32", "a100=8"))
        assert without.study(StockPlan) is not None
        assert beside.study(StockPlan) is not None
        used = {share.hardware for share in beside.study(StockPlan).shares}
        if "a100-sxm-80gb" not in used:
            assert beside.study(StockPlan).bought == without.study(StockPlan).bought
            assert any("a100" in text and "obtained" in text for text in note_texts(beside.study(StockPlan).unused))
        else:
            assert beside.study(StockPlan).bought < without.study(StockPlan).bought

    def test_enough_stock_buys_nothing(self) -> None:
        plan = planned(stock=("h100=800",))
        assert plan.study(StockPlan) is not None
        assert plan.study(StockPlan).bought == 0
        assert any("not needed" in text for text in note_texts(plan.study(StockPlan).unused))

    def test_more_stock_never_buys_more(self) -> None:
        bought = [planned(stock=(f"h100={count}",)).study(StockPlan) for count in (8, 32, 64, 128)]
        counts = [item.bought for item in bought if item is not None]
        assert counts == sorted(counts, reverse=True)

    def test_stock_that_cannot_serve_is_said(self) -> None:
        plan = planned(stock=("t4=2", "h100=8"))
        assert plan.study(StockPlan) is not None
        assert any("t4" in text and "can serve" in text for text in note_texts(plan.study(StockPlan).unused))

    def test_more_of_the_same_shares_the_spares_of_the_stock(self) -> None:
        plan = planned(hardware="h100", tp=4, stock=("h100=64",), spares=2)
        assert plan.study(StockPlan) is not None
        (share,) = plan.study(StockPlan).shares
        assert (share.replicas, share.spares) == (plan.best.replicas, 2)
        assert share.devices == plan.best.devices == share.from_stock + share.bought
        assert share.from_stock == 64
        # The same fleet, partly paid for: requests see the same, as surely.
        assert share.seen is not None
        assert share.seen.ttft_p95_s == pytest.approx(plan.best.degraded.ttft_p95_s)
        assert share.seen.tpot_p95_s == pytest.approx(plan.best.degraded.tpot_p95_s)
        assert share.seen.ranges == latency_range(plan.best, objectives=plan.objectives)
        assert plan.study(StockPlan).chances == meeting_chances(plan.best, objectives=plan.objectives)
        assert plan.study(StockPlan).provenance == plan.best.provenance
        per_device = plan.best.cost.per_device_hour
        assert per_device is not None
        assert share.cost_per_hour == pytest.approx(share.bought * per_device)
        assert f"({share.label}, 64 of them stock)" in sentence(plan)

    def test_stock_that_lacks_part_of_a_server_is_filled_up_with_whole_ones(self) -> None:
        plan = planned(hardware="h100", tp=4, stock=("h100=60",))
        assert plan.study(StockPlan) is not None
        assert plan.study(StockPlan).bought % 8 == 0
        assert plan.study(StockPlan).bought >= plan.best.devices - sum(h.idle_devices for h in plan.best.housing) - 60

    def test_twice_the_same_is_refused(self) -> None:
        with pytest.raises(RoofcastError, match="given twice"):
            planned(stock=("h100=8", "h100-sxm-80gb=8"))

    def test_limits_count_stock_and_price_only_what_is_new(self) -> None:
        with pytest.raises(InfeasibleError, match="needed with the stock"):
            planned(stock=("h100=32",), max_gpus=40)
        assert planned(stock=("h100=800",), max_cost_per_hour=1).study(StockPlan) is not None

    def test_power_and_racks_are_of_what_exists_and_of_what_is_obtained(self) -> None:
        asked = {"model": "llama-3.1-70b", "hardware": "h100", "tp": 2, "rps": 200.0, "stock": ("h100=20",)}
        plan = planned(**asked, max_power_kw=200, max_racks=40)
        stock = plan.study(StockPlan)
        assert stock is not None
        assert stock.bought % 8 == 0
        (share,) = stock.shares
        assert share.busy_devices == 2 * (share.replicas + share.spares) == stock.devices - stock.idle_devices
        said = (
            f"on {share.busy_devices} h100-sxm-80gb ({share.label}, 20 of them stock) + {stock.idle_devices} idle GPUs"
        )
        assert said in sentence(plan)
        per_device_w = plan.best.maximum_w / plan.best.devices
        assert stock.maximum_w == pytest.approx(stock.devices * per_device_w)
        limits = {"max_power_kw": stock.maximum_w / 1000 - 1, "max_racks": 1}
        for field, least in limits.items():
            with pytest.raises(InfeasibleError, match="needed with the stock") as refusal:
                planned(**asked, **{field: least})
            ((name, offered),) = refusal.value.offers.items()
            assert name == field
            assert planned(**asked, **{field: float(offered)}).study(StockPlan) is not None


@pytest.mark.usefixtures("few_accelerators")
class TestGap:
    def test_a_budget_that_is_too_small_comes_with_what_helps(self) -> None:
        error = refused(hardware="h100", max_gpus=40)
        assert isinstance(error, GapError)
        gap = error.gap
        assert gap.budget_devices == 40
        assert gap.start_devices is not None
        assert gap.start_devices > 40
        before = gap.start_devices
        for step in gap.steps:
            assert step.saved_devices == before - step.devices > 0
            before = step.devices
        assert gap.end_devices == before
        assert gap.closed == (before <= 40)

    @pytest.mark.slow
    def test_what_a_change_promises_is_what_its_flags_give(self) -> None:
        gap = planned(hardware="a100", kv_cache="bf16", explain_gap=True).study(Gap)
        assert gap is not None
        first = next(step for step in gap.steps if step.given[0].field in ("scheme", "weights"))
        if first is gap.steps[0]:
            (given,) = first.given
            again = planned(hardware="a100", kv_cache="bf16", **{given.field: given.value})
            assert min(fleet.devices for fleet in (again.best, *again.alternatives)) <= first.devices

    def test_formats_say_what_is_known_of_their_quality(self) -> None:
        gap = planned(hardware="h100", explain_gap=True).study(Gap)
        assert gap is not None
        for step in gap.steps:
            changes_numbers = "weights" in step.name or "KV cache" in step.name
            assert (not step.quality.key.startswith("as_published")) is changes_numbers

    def test_what_remains_is_said_with_the_prefix_hits_it_would_take(self) -> None:
        error = refused(hardware="h100", max_gpus=8)
        assert isinstance(error, GapError)
        assert not error.gap.closed
        assert error.gap.remaining_devices == (error.gap.end_devices or 0) - 8
        hit = error.gap.needed_prefix_hit
        assert hit is None or 0 < hit < 1

    def test_nothing_serves_as_asked_but_something_would(self) -> None:
        error = refused(rps=10, latency_p95="2s", hardware="h100", max_gpus=800)
        assert isinstance(error, GapError)
        assert error.gap.start_devices is None
        assert [step.saved_devices for step in error.gap.steps] == [None]


class TestPools:
    @given(cv=st.floats(0.2, 3.0), threshold=st.floats(0.3, 4.0))
    def test_parts_of_a_log_normal_make_the_whole(self, cv: float, threshold: float) -> None:
        lengths = LengthDistribution(mean_tokens=1000.0, cv=cv)
        parts = [
            truncated_lengths(lengths, low=low, high=high)
            for low, high in ((0.0, threshold * 1000), (threshold * 1000, float("inf")))
        ]
        assert sum(share for share, _ in parts) == pytest.approx(1.0)
        assert sum(share * part.mean_tokens for share, part in parts) == pytest.approx(1000.0, rel=1e-6)
        squares = sum(share * part.mean_tokens**2 * (1 + part.cv**2) for share, part in parts)
        assert squares == pytest.approx(lengths.moment(2), rel=1e-6)

    def test_shares_of_the_rate_add_up(self) -> None:
        plan = planned(pools=True)
        assert plan.study(LengthSplit) is not None
        assert sum(pool.rate_per_s for pool in plan.study(LengthSplit).fleets) == pytest.approx(300)
        short, long = plan.study(LengthSplit).fleets
        assert short.isl_mean_tokens < plan.study(LengthSplit).threshold_tokens <= long.isl_mean_tokens
        total = sum(pool.devices for pool in plan.study(LengthSplit).fleets)
        assert plan.study(LengthSplit).saved_devices == plan.best.devices - total

    def test_the_best_of_the_splits_is_taken_and_said_against_one_pool(self) -> None:
        plan = planned(pools=True)
        assert plan.study(LengthSplit) is not None
        found = plan.study(LengthSplit)
        lengths = [split.threshold_tokens for split in found.splits]
        assert lengths == sorted(lengths)
        costs = [split.cost_per_hour for split in found.splits if split.cost_per_hour is not None]
        of_pools = sum(pool.cost_per_hour or 0.0 for pool in found.fleets)
        assert of_pools == min(costs)
        assert found.saved_per_hour == pytest.approx((plan.best.cost.per_hour or 0.0) - of_pools)
        # What is advised never costs more than the best single fleet.
        advised = of_pools if found.better else plan.best.cost.per_hour or 0.0
        assert advised <= (plan.best.cost.per_hour or 0.0)

    def test_prompts_are_split_at_no_length_that_none_of_them_reaches(self) -> None:
        plan = plan_capacity(
            plan_spec({"model": "llama-3.1-8b", "hardware": "h100", "tp": 1, "rps": 5, "isl": 40_000, "pools": True})
        )
        longest = plan.demand.mix.isl.longest_tokens
        splits = plan.study(LengthSplit).splits
        assert 0 < len(splits) < 4
        assert longest is not None
        assert all(split.threshold_tokens < longest for split in splits)

    def test_a_pool_is_the_plan_of_its_own_requests(self) -> None:
        """The short pool, asked for alone with its rate and lengths, is the same fleet."""
        plan = planned(pools=True, hardware="h100")
        assert plan.study(LengthSplit) is not None
        short = plan.study(LengthSplit).fleets[0]
        share, lengths = truncated_lengths(plan.demand.mix.isl, low=0.0, high=plan.study(LengthSplit).threshold_tokens)
        alone = planned(hardware="h100", rps=300 * share, isl=lengths.mean_tokens, isl_cv=lengths.cv)
        assert (alone.best.label, alone.best.replicas, alone.best.devices) == (
            short.label,
            short.replicas,
            short.devices,
        )

    def test_equal_prompts_cannot_be_split(self) -> None:
        with pytest.raises(RoofcastError, match="the same length"):
            planned(pools=True, isl=1000, isl_cv=0)


def test_every_accelerator_that_was_not_chosen_is_listed_dearer_or_with_a_reason() -> None:
    plan = planned(hardware=("h100", "mi300x", "t4"), tp=(4,))
    refused = nearest_rejections(plan)
    served = {fleet.hardware for fleet in (plan.best, *plan.alternatives)}
    assert served | {item.hardware for item in refused} == {"h100-sxm-80gb", "mi300x", "t4"}
    least = plan.best.counted_per_hour or 0.0
    assert all((fleet.counted_per_hour or 0.0) >= least for fleet in plan.alternatives)
    assert all(rejection_text(item) for item in refused)
