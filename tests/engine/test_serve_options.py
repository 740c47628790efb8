"""Routing and objectives of a scenario reach the simulation; pools have intervals; runs of a search are long enough."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.engine.runs.answers import answer
from simulator.engine.runs.capacity_search import (
    COMPANY_TIMES,
    FEWEST_REQUESTS,
    FEWEST_TIMES,
    LEAST_REQUESTS,
    MOST_REQUESTS,
    affordable_requests,
    requests_for,
)
from simulator.engine.runs.intervals import METRICS
from simulator.engine.runs.scenario_setup import ServeOptions, scenario_options
from simulator.engine.runs.served_run import ServedRun
from simulator.engine.settings import Routing
from simulator.errors import RoofcastError
from simulator.specs.question.plan_values import parse_objectives
from simulator.specs.question.scenario import ScenarioSpec

WORKLOAD = {
    "stages": [{"rate_per_s": 12.0, "duration_s": 20.0}],
    "system_prompt_tokens": 960,
    "question_tokens": 64,
    "osl_tokens": 40,
    "osl_cv": 1.0,
    "prompt_groups": 7,
}


def scenario(**fields: Any) -> ScenarioSpec:
    base = {"id": 1, "kind": "serve", "model": "llama-3.1-8b", "hardware": "h100", "workload": WORKLOAD}
    return ScenarioSpec.model_validate(base | fields)


def served(**fields: Any) -> ServedRun:
    run = answer(scenario(**fields), options=ServeOptions(intervals=False)).run
    assert isinstance(run, ServedRun)
    return run


def test_round_robin_is_what_is_not_said() -> None:
    said, unsaid = (served(replicas=2, **fields).result.run.records for fields in ({"routing": "round_robin"}, {}))
    np.testing.assert_array_equal(said.replica, unsaid.replica)
    np.testing.assert_array_equal(said.finish_s, unsaid.finish_s)


def test_prefix_aware_routing_finds_more_of_the_prompts() -> None:
    turn, aware = (served(replicas=4, routing=name).result.overall for name in ("round_robin", "prefix_aware"))
    assert aware.prefix_hit_fraction > turn.prefix_hit_fraction
    assert aware.finished == turn.finished == aware.requests


def test_least_outstanding_evens_out_who_has_long_answers() -> None:
    runs = [served(replicas=4, routing=name).result.run for name in ("round_robin", "least_outstanding")]
    turn, least = (np.bincount(run.records.replica, minlength=4) for run in runs)
    assert np.ptp(turn) <= 1 < np.ptp(least)


def test_routing_without_a_choice_is_refused() -> None:
    with pytest.raises(RoofcastError, match="one replica") as refused:
        answer(scenario(routing="least_outstanding"))
    assert (refused.value.field, refused.value.code) == ("routing", "ignored_option")


def test_prefix_aware_routing_needs_prefix_caches() -> None:
    with pytest.raises(RoofcastError, match="prefix caching is off"):
        answer(scenario(replicas=2, routing="prefix_aware", engine={"prefix_caching": False}))


def test_a_single_objective_needs_no_list() -> None:
    assert scenario(slo="ttft-p95=2s").slo == ("ttft-p95=2s",)


@pytest.mark.parametrize("field", [{"routing": "prefix_aware"}, {"slo": ["ttft-p95=2s"]}])
def test_other_kinds_know_neither_routing_nor_objectives(field: dict[str, Any]) -> None:
    batch = {"kind": "batch", "workload": None, "batch_size": 2, "isl_tokens": 9, "osl_tokens": 9}
    with pytest.raises(RoofcastError, match="no effect under kind batch"):
        answer(scenario(**batch, **field))


def test_objectives_of_the_scenario_give_goodput() -> None:
    overall = served(slo=["ttft-p95=1s", "tpot-p95=50ms"]).result.overall
    assert overall.meets_slo
    assert overall.goodput_per_s == pytest.approx(overall.requests_per_s)
    assert served(slo=["ttft-p95=1ms"]).result.overall.goodput_per_s == 0
    assert served().result.overall.goodput_per_s is None


def test_objectives_of_the_caller_go_first() -> None:
    own = parse_objectives(["e2e-p99=9s"], flag="--slo")
    options = scenario_options(scenario(slo=["ttft-p95=1s"]), ServeOptions(objectives=own))
    assert options.objectives == own
    assert options.routing is Routing.ROUND_ROBIN


@pytest.mark.parametrize("routing", [None, "prefix_aware"])
def test_pools_have_intervals_around_their_numbers(routing: str | None) -> None:
    pools = {"prefill_replicas": 2, "decode_replicas": 1}
    run = answer(scenario(disaggregation=pools, routing=routing)).run
    assert isinstance(run, ServedRun)
    assert run.interval is not None
    overall = run.interval.overall
    for name, value in (("ttft_mean_s", run.ttft_s), ("tpot_mean_s", run.tpot_s), ("e2e_mean_s", run.e2e_s)):
        place = METRICS.index(name)
        assert overall.low[place] < value < overall.high[place] < 1.6 * overall.low[place]
    assert run.interval.source.further_seeds > 0


def test_runs_of_a_search_fill_the_batch_many_times() -> None:
    assert requests_for(1.0) == LEAST_REQUESTS
    assert requests_for(1.0, percentile=50.0) == LEAST_REQUESTS
    assert requests_for(1.0, percentile=99.0) == 5 * LEAST_REQUESTS, "as many beyond p99 as beyond p95"
    assert requests_for(1.0, percentile=99.9) == MOST_REQUESTS
    assert requests_for(400.0) == COMPANY_TIMES * 400
    assert requests_for(2_000.0) == MOST_REQUESTS
    assert requests_for(10.0**6) == FEWEST_TIMES * 10**6, "few times a batch that so many do not fill well"


@pytest.mark.parametrize("seeds", [2, 50])
def test_long_answers_are_fewer(seeds: int) -> None:
    """Fifty runs of 2,000 answers of 40,000 tokens took minutes a rate; a batch is filled nevertheless."""
    affordable = affordable_requests(seeds=seeds, osl_tokens=40_000)
    assert requests_for(10.0, affordable=affordable) == max(int(affordable), FEWEST_REQUESTS) < LEAST_REQUESTS
    assert requests_for(400.0, affordable=affordable) == FEWEST_TIMES * 400
    assert requests_for(10.0, affordable=affordable_requests(seeds=seeds, osl_tokens=200)) == LEAST_REQUESTS
