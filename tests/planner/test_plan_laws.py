"""Laws between plans, over questions drawn at random: asking for more never costs less."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.planner.fleet.records import KNOWN
from simulator.planner.plan import plan_capacity
from simulator.planner.studies.length_split import LengthSplit
from simulator.planner.studies.stock_fleets import StockPlan
from simulator.specs.question.plan import plan_spec

pytestmark = pytest.mark.slow
FEW = settings(max_examples=12, deadline=None, derandomize=True)
KINDS = ("l40s", "a100", "h100", "mi300x", "b200")
QUESTIONS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(["llama-3.1-8b", "qwen3-30b-a3b", "llama-3.1-70b"]),
        "hardware": st.sampled_from([*((kind,) for kind in KINDS), KINDS]),
        "rate_per_s": st.floats(0.5, 300).map(lambda rate: round(rate, 2)),
        "isl_tokens": st.sampled_from([200, 1155, 6000]),
        "osl_tokens": st.sampled_from([60, 211, 1200]),
        "arrival_cv": st.sampled_from([1.0, 1.7]),
        "prefix_hit": st.sampled_from([0.0, 0.6]),
        "ttft_p95": st.sampled_from(["1s", "4s"]),
        "tpot_p95": st.sampled_from(["40ms", "80ms"]),
    }
)
Fields = tuple[tuple[str, Any], ...]
NOTHING = float("inf")


@cache
def _cost(fields: Fields) -> tuple[float, float]:
    """Money an hour as it is compared and accelerators of what is recommended, infinite where nothing serves it; with
    stock of what has to be obtained, with pools of the two fleets."""
    try:
        plan = plan_capacity(plan_spec(dict(fields)))
    except RoofcastError:
        return NOTHING, NOTHING
    best, stock, split = plan.best, plan.study(StockPlan), plan.study(LengthSplit)
    if stock is not None:
        assert stock.cost_per_hour is not None
        return stock.cost_per_hour, stock.bought
    assert best.counted_per_hour is not None
    saved, devices = (0.0, 0) if split is None else (split.saved_per_hour, split.saved_devices)
    assert saved is not None
    return best.counted_per_hour - saved, best.devices - devices


def takes_no_less(asked: dict[str, Any], more: dict[str, Any]) -> bool:
    """Whether ``more`` costs at least as much; of one kind, also in devices: another may do with fewer, dearer ones."""
    (cost, devices), (more_cost, more_devices) = (_cost(tuple(fields.items())) for fields in (asked, {**asked, **more}))
    return more_cost >= cost * (1 - 1e-9) and (more_devices >= devices or len(asked["hardware"]) > 1)


@FEW
@given(asked=QUESTIONS, factor=st.floats(1.01, 4))
def test_more_requests_never_cost_less(asked: dict[str, Any], factor: float) -> None:
    assert takes_no_less(asked, {"rate_per_s": factor * asked["rate_per_s"]})


BESIDE: dict[str, Any] = {
    "stock": {"stock": ("h100=24",)},
    "pools": {"pools": True, "isl_tokens": 4000, "isl_cv": 1.5},
    "mtp": {"model": "deepseek-v3", "hardware": ("h200",), "speculation": "mtp"},
    "eagle": {"speculation": "eagle:k=3"},
}
MORE: dict[str, Any] = {"rate_per_s": 500.0, "ttft_p95": "700ms", "tpot_p95": "30ms", "price_of": "high"}


@pytest.mark.parametrize("beside", BESIDE)
@settings(FEW, max_examples=3)
@given(asked=QUESTIONS, more=st.sampled_from(sorted(MORE)))
def test_nor_beside_stock_pools_and_speculation(beside: str, asked: dict[str, Any], more: str) -> None:
    asked = {**asked, "hardware": ("h100",), "price_of": "low", **BESIDE[beside]}
    assert takes_no_less(asked, {more: MORE[more]})


SEARCHES: dict[str, Any] = {
    "usual": {},
    "wide": {"search": "wide"},
    "pools": {"search": "wide", "serving": ("disaggregated",)},
}


@pytest.mark.parametrize("search", SEARCHES)
@settings(FEW, max_examples=5)
@given(asked=QUESTIONS, step=st.floats(0.01, 0.1))
def test_what_holds_a_limit_is_found_at_every_lower_rate(search: str, asked: dict[str, Any], step: float) -> None:
    higher = {**asked, **SEARCHES[search], "rate_per_s": asked["rate_per_s"] * (1 + step)}
    _, most = _cost(tuple(higher.items()))
    if most < NOTHING:
        _, found = _cost(tuple({**higher, "rate_per_s": asked["rate_per_s"], "max_gpus": int(most)}.items()))
        assert found <= most


@FEW
@given(asked=QUESTIONS, tighter=st.sampled_from([{"ttft_p95": "700ms"}, {"tpot_p95": "30ms"}, {"e2e_p95": "20s"}]))
def test_tighter_objectives_never_cost_less(asked: dict[str, Any], tighter: dict[str, Any]) -> None:
    assert takes_no_less(asked, tighter)


@FEW
@given(asked=QUESTIONS)
def test_being_surer_never_costs_less(asked: dict[str, Any]) -> None:
    assert takes_no_less({**asked, "confidence": 50}, {"confidence": 90})


@FEW
@given(asked=QUESTIONS)
def test_fewer_kinds_to_choose_from_never_cost_less(asked: dict[str, Any]) -> None:
    assert takes_no_less({**asked, "hardware": KINDS}, {"hardware": asked["hardware"]})


@pytest.mark.parametrize("of", ["median", "high"])
@FEW
@given(asked=QUESTIONS)
def test_dearer_prices_never_make_a_cheaper_total(asked: dict[str, Any], of: str) -> None:
    (cost, _), (dearer, _) = (_cost(tuple({**asked, "price_of": which}.items())) for which in ("low", of))
    assert dearer >= cost


RATES = st.floats(1, 60).map(lambda rate: round(rate, 2))
UNMEASURED = {"model": "qwen3-30b-a3b", "hardware": ("rtx-pro-6000", "a100-sxm-80gb", "mi325x", "h100-sxm-80gb")}


@FEW
@given(rate=RATES)
def test_a_saving_below_its_own_doubt_is_passed_over_for_measurements(rate: float) -> None:
    plan = plan_capacity(plan_spec({**UNMEASURED, "rate_per_s": rate}))
    best = plan.best
    assert (best.doubt == 0) == (best.provenance in KNOWN)
    for other in plan.alternatives:
        saving = 1 - (other.cost.per_hour or NOTHING) / (best.cost.per_hour or NOTHING)
        assert other.provenance not in KNOWN or saving <= 0, "a known fleet is never passed over for a dearer one"
        if best.provenance in KNOWN:
            assert saving <= other.doubt / (1 + other.doubt) + 1e-9


def test_plans_for_the_times_as_predicted_doubt_nothing_and_choose_by_cost() -> None:
    plan = plan_capacity(plan_spec({**UNMEASURED, "rate_per_s": 10.0, "confidence": 50}))
    assert {fleet.doubt for fleet in plan.fleets} == {0.0}
    assert plan.best.cost.per_hour == min(fleet.cost.per_hour or NOTHING for fleet in plan.fleets)


def test_the_sentence_names_what_was_passed_over_and_what_would_change_the_choice() -> None:
    plan = plan_capacity(plan_spec({**UNMEASURED, "rate_per_s": 10.0, "price_of": "low"}))
    rival = plan.rival
    assert rival is not None
    assert rival.price_above is not None
    assert rival.cost_change < 0 < rival.doubt
    assert rival.hardware == "rtx-pro-6000"
    dearer = {**UNMEASURED, "rate_per_s": 10.0, "price_of": "low", "hardware": ("rtx-pro-6000", "a100-sxm-80gb")}
    counted = (plan.best.counted_per_hour or 0.0) * (1 + rival.break_even_change)
    assert counted == pytest.approx(rival.cost_per_hour * (1 + rival.doubt))
    assert plan_capacity(plan_spec(dearer)).best.hardware == plan.best.hardware


def test_a_planned_fleet_lies_within_its_own_range() -> None:
    # Slower steps take more of a replica's rate than of its speed where its objectives are near: 1,000 of 800 to 984.
    asked = {"rps": 100, "model": "deepseek-r1", "workload": "reasoning", "hardware": "mi355x"}
    plan = plan_capacity(plan_spec(asked))
    for fleet in (plan.best, *plan.alternatives):
        assert fleet.devices_low <= fleet.devices <= fleet.devices_high
