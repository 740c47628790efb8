"""``simulator.planner.gap.relaxed_objectives``: what an idle replica takes, and bounds that fleets at work hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from simulator.planner.fleet.fleet import Sized, Trial
from simulator.planner.gap.limits import Overrun, fleet_limits
from simulator.planner.gap.records import GapError
from simulator.planner.gap.relaxed_objectives import (
    closest_refusal,
    later_options,
    missed_bounds,
    relaxed_options,
    smaller_fleets,
)
from simulator.planner.plan import plan_capacity
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question, resolve
from simulator.planner.search.search import search
from simulator.planner.search.usual_search import usual_search
from simulator.reports.words.fields import note_text
from simulator.specs.question.plan import plan_spec

ASKED: dict[str, object] = {"rps": 20, "model": "llama-3.1-8b", "hardware": ("l4",), "isl": 2000, "osl": 100}
TOO_EARLY = {"ttft_p95": "20ms"}


def question(**fields: object) -> Question:
    return resolve(plan_spec({**ASKED, **fields}))


def trial(asked: Question) -> Trial:
    return usual_search(asked, platforms(asked.spec))


def ranked(asked: Question) -> tuple[list[Sized], Overrun]:
    overrun = Overrun(limits=fleet_limits(asked))
    return sorted(trial(asked).sized, key=overrun.order), overrun


class TestMissed:
    def test_what_an_idle_replica_takes_is_beyond_a_bound_that_is_refused(self) -> None:
        asked = question(**TOO_EARLY)
        (missed,) = missed_bounds(asked, trial(asked))
        assert missed.bound_s == 0.02
        assert missed.idle_s > missed.bound_s
        # Two FLOPs a weight and token, and at best every tensor core of the largest replica that is tried.
        assert missed.idle_s > 2 * 8.03e9 * 2000 / (8 * 121e12)
        assert "2,000 prompt tokens" in note_text(missed.made_of)
        assert missed.hardware == "l4"

    def test_the_nearest_refusal_is_the_one_that_is_quoted(self) -> None:
        asked = question(**TOO_EARLY)
        tried = trial(asked)
        nearest = closest_refusal(tried)
        assert nearest.excess == min(item.excess for item in tried.rejections if item.code == nearest.code)
        assert missed_bounds(asked, tried)[0].label == nearest.label
        assert missed_bounds(asked, replace(tried, rejections=(nearest,))) == missed_bounds(asked, tried)

    def test_where_memory_is_what_misses_no_bound_is(self) -> None:
        asked = question(model="llama-3.1-70b", tp=(1,), pp=(1,))
        assert closest_refusal(trial(asked)).code != "objective"
        assert missed_bounds(asked, trial(asked)) == ()


def every(asked: Question) -> Sequence[Sized]:
    return search(asked).trial.sized


class TestLaterAnswers:
    def test_the_nearest_bound_is_one_that_a_fleet_at_work_holds(self) -> None:
        asked = question(**TOO_EARLY)
        missed = missed_bounds(asked, trial(asked))
        (option,) = relaxed_options(asked, missed, search=every)
        (given,) = option.given
        assert given.field == "ttft_p95"
        assert option.spec is not None
        bound_s = option.spec.objectives[0].bound_s
        assert missed[0].idle_s < bound_s <= 10 * 1.1 * missed[0].idle_s
        # Asked again with what is written down, the fleet is no larger.
        again = plan_capacity(plan_spec({**ASKED, "ttft_p95": given.value}))
        assert option.devices is not None
        assert again.best.devices <= option.devices
        free = min(item.devices for item in trial(question()).sized)
        assert option.devices <= 2 * free

    @pytest.mark.slow
    def test_where_replicas_would_stand_idle_the_latest_bound_is_offered(self) -> None:
        asked = plan_spec({"rps": 0.1, "model": "llama-4-maverick", "isl": 1e6, "osl": 500, "hardware": ("b300-sxm",)})
        with pytest.raises(GapError) as refused:
            plan_capacity(asked)
        (option,) = [item for item in refused.value.gap.options if item.devices is not None]
        assert option.spec is not None
        assert plan_capacity(option.spec).best.devices <= option.devices

    def test_nothing_missed_nothing_relaxed(self) -> None:
        assert relaxed_options(question(), (), search=every) == ()

    def test_later_answers_bring_a_fleet_within_its_limits(self) -> None:
        bound = {"tpot_p95": "65ms"}
        fleets, _ = ranked(question(**bound))
        asked = question(**bound, max_gpus=fleets[0].devices - 1)
        fleets, overrun = ranked(asked)
        (option,) = later_options(asked, overrun, fleets[0])
        assert option.closes
        assert option.devices is not None
        assert option.devices < fleets[0].devices
        assert option.spec is not None
        assert option.spec.objectives[0].bound_s > 0.065

    def test_what_holds_its_limits_need_not_answer_later(self) -> None:
        asked = question(max_gpus=1000)
        fleets, overrun = ranked(asked)
        assert later_options(asked, overrun, fleets[0]) == ()


class TestSmallerFleets:
    def test_a_spare_is_given_up_where_that_is_enough(self) -> None:
        fleets, _ = ranked(question(round_to="device", spares=1, tpot_p95="200ms"))
        asked = question(round_to="device", spares=1, tpot_p95="200ms", max_gpus=fleets[0].devices - 1)
        fleets, overrun = ranked(asked)
        (option,) = smaller_fleets(asked, fleets, overrun, fleets[0], search=every)
        assert [(item.field, item.value) for item in option.given] == [("spares", 0)]
        assert option.devices == fleets[0].devices - 1

    def test_both_only_where_neither_is_enough(self) -> None:
        # Other limits of the engine, or two pools, might do with one of them.
        fixed = {"max_num_seqs": (256,), "max_num_batched_tokens": 8192, "serving": ("aggregated",)}
        base = {"round_to": "server", "spares": 1, "tpot_p95": "200ms", **fixed}
        bare, _ = ranked(question(**{**base, "round_to": "device", "spares": 0}))
        whole, _ = ranked(question(**base))
        least = bare[0].devices
        assert least < whole[0].devices
        asked = question(**base, max_gpus=least)
        fleets, overrun = ranked(asked)
        found = smaller_fleets(asked, fleets, overrun, fleets[0], search=every)
        assert [item.field for item in found[0].given] == ["round_to", "spares"]
        assert found[0].devices == least

    @pytest.mark.slow
    def test_what_fits_one_accelerator_is_found_though_it_saves_nothing_in_whole_servers(self) -> None:
        asked = {"rps": 5, "model": "gpt-oss-120b", "hardware": ("h100",), "max_gpus": 1, "spares": 0}
        with pytest.raises(GapError) as refused:
            plan_capacity(plan_spec(asked))
        (option,) = [item for item in refused.value.gap.options if item.closes]
        assert [item.field for item in option.given] == ["round_to"]
        assert plan_capacity(plan_spec({**asked, "round_to": "device"})).best.devices == option.devices == 1

    def test_below_the_smallest_fleet_there_is_nothing_to_give_up(self) -> None:
        asked = question(max_gpus=1)
        fleets, overrun = ranked(asked)
        assert smaller_fleets(asked, fleets, overrun, fleets[0], search=every) == ()

    @pytest.mark.parametrize("fields", [{"round_to": "device", "spares": 0}])
    def test_what_was_given_up_already_is_not_offered(self, fields: dict[str, object]) -> None:
        asked = question(**fields, max_gpus=3)
        fleets, overrun = ranked(asked)
        assert smaller_fleets(asked, fleets, overrun, fleets[0], search=every) == ()
