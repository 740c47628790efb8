"""``simulator.planner.gap.screen``: states that allow more never come out farther from the limits."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from simulator.planner.gap.changes import GapState, gap_changes
from simulator.planner.gap.limits import Overrun, fleet_limits, priced
from simulator.planner.gap.screen import (
    GapScreen,
    can_screen,
    gap_options,
    usual_options,
    with_cache_hits,
    with_prefix_hits,
)
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question, resolve
from simulator.planner.search.usual_search import usual_search
from simulator.specs.model.precision import Dtype, PrecisionSpec
from simulator.specs.question.plan import plan_spec

pytestmark = pytest.mark.usefixtures("few_accelerators")
ASKED: dict[str, object] = {
    "rps": 20,
    "model": "llama-3.1-8b",
    "weights": ("bf16",),
    "hardware": ("l4",),
    "tp": (2,),
    "pp": (1,),
    "tpot_p95": "200ms",
    "max_gpus": 6,
    "round_to": "device",
}
AS_ASKED = GapState()


def question(**fields: object) -> Question:
    return resolve(plan_spec({**ASKED, **fields}))


@pytest.fixture(scope="module")
def screen() -> GapScreen:
    return screened()


@cache
def screened() -> GapScreen:
    asked = question()
    return GapScreen(asked, Overrun(limits=fleet_limits(asked)))


class TestWhatCanBeScreened:
    def test_answers_that_are_decoded_from_a_paged_cache(self) -> None:
        assert can_screen(question())
        assert not can_screen(question(osl=1))
        assert not can_screen(question(kv_allocation=("max_length",)))


def test_no_way_out_leads_to_what_nobody_sells() -> None:
    """A power limit ended at a TPU without a price; where it is named it stays."""
    offered = platforms(plan_spec({"hardware": ("l4", "tpu-v7x")}))
    assert [item.hardware.name for item in priced(offered, question=question())] == ["l4"]
    assert priced(offered[1:], question=question()) == offered[1:]


class TestStates:
    @pytest.mark.parametrize(
        "more",
        [
            GapState(any_hardware=True),
            GapState(any_limits=True),
            GapState(any_degrees=True),
            GapState(any_hardware=True, any_degrees=True),
        ],
        ids=str,
    )
    def test_what_allows_more_comes_no_farther_from_the_limits(self, screen: GapScreen, more: GapState) -> None:
        assert screen.least(more) <= screen.least(AS_ASKED)

    def test_smaller_weights_bring_a_small_accelerator_nearer(self, screen: GapScreen) -> None:
        fp8 = GapState(weights=PrecisionSpec(weights=Dtype.FP8))
        assert screen.least(fp8) < screen.least(AS_ASKED)

    def test_the_exact_fleet_is_that_of_the_state(self, screen: GapScreen) -> None:
        found = screen.exact(AS_ASKED)
        assert found is not None
        candidate = found.evaluated.candidate
        assert candidate.platform.hardware.name == "l4"
        assert candidate.parallelism.tp_size == 2
        freed = screen.exact(GapState(any_hardware=True))
        assert freed is not None
        assert freed.devices < found.devices

    def test_the_exact_fleet_is_the_one_that_a_plan_finds(self, screen: GapScreen) -> None:
        found, asked = screen.exact(AS_ASKED), question()
        best = min(usual_search(asked, platforms(asked.spec)).sized, key=screen.overrun.order)
        assert found is not None
        assert found.devices == best.devices
        assert found.evaluated.candidate.label == best.evaluated.candidate.label

    def test_screened_and_exact_fleets_are_as_far_from_the_limits(self, screen: GapScreen) -> None:
        for state in (AS_ASKED, GapState(any_hardware=True), GapState(weights=PrecisionSpec(weights=Dtype.FP8))):
            exact = screen.exact(state)
            assert exact is not None
            assert max(screen.overrun.of(exact), 1.0) == pytest.approx(screen.least(state), rel=0.35)

    def test_where_nothing_fits_nothing_is_near(self) -> None:
        asked = question(model="llama-3.1-70b")
        large = GapScreen(asked, Overrun(limits=fleet_limits(asked)))
        assert large.least(AS_ASKED) == np.inf
        assert large.exact(AS_ASKED) is None
        assert large.least(GapState(any_hardware=True, any_degrees=True)) < np.inf

    def test_what_was_asked_for_stays_in_the_race(self) -> None:
        asked = question()
        fresh = GapScreen(asked, Overrun(limits=fleet_limits(asked)))
        every = fresh.least(GapState(any_hardware=True))
        fresh.narrow()
        assert fresh.least(AS_ASKED) == screened().least(AS_ASKED)
        assert fresh.least(GapState(any_hardware=True, any_limits=True)) <= every


class TestOptions:
    def test_every_change_alone_the_ways_out_first(self, screen: GapScreen) -> None:
        asked = question()
        start = screen.exact(AS_ASKED)
        changes = gap_changes(asked)
        found = gap_options(asked, screen, changes, start=start)
        assert {item.name for item in found} <= {change.name for change in changes}
        closes = [item.closes for item in found if item.devices is not None]
        assert closes == sorted(closes, reverse=True)
        assert any(closes)
        assert all(item.closes is (item.devices is not None and item.devices <= 6) for item in found)
        out = [item for item in found if item.devices is None]
        assert all(item.spec is None and item.reason for item in out)

    def test_the_usual_search_finds_ways_out_too(self) -> None:
        asked = question()
        overrun = Overrun(limits=fleet_limits(asked))
        start = min(usual_search(asked, platforms(asked.spec)).sized, key=overrun.order)
        found = usual_options(asked, overrun, start=start)
        assert [item.closes for item in found] == sorted((item.closes for item in found), reverse=True)
        by_name = {item.name: item for item in found}
        assert by_name["other hardware"].closes
        assert (by_name["fp8 weights"].devices or 0) < start.devices


class TestHits:
    def test_a_share_of_hits_changes_nothing_else(self) -> None:
        asked = question()
        cached = with_prefix_hits(asked, 0.5)
        assert cached.demand.mix.prefix_hit_fraction == 0.5
        assert cached.demand.mix.new_prompt_tokens == pytest.approx(0.5 * asked.demand.mix.isl.mean_tokens)
        assert replace(cached, demand=asked.demand) == asked
        answered = with_cache_hits(asked, 0.25)
        assert answered.demand.planned_rate_per_s == pytest.approx(0.75 * asked.demand.planned_rate_per_s)
        assert answered.demand.mix == asked.demand.mix
