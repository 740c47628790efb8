"""Latency over load: each point is an answer, latency grows, overload is seen."""

from __future__ import annotations

import pytest

from simulator.engine.runs.answers import answer
from simulator.engine.runs.load_sweep import LoadSweep, at_share, demand_of, load_sweep, request_mix, summary_of
from simulator.engine.runs.scenario_setup import ServeOptions, deployment_of
from simulator.engine.runs.served_run import ServedRun, served_of
from simulator.errors import RoofcastError
from simulator.specs.base import validate
from simulator.specs.question.scenario import ScenarioSpec

WORKLOAD = demand_of(isl_tokens=600, osl_tokens=80, isl_cv=0.5, osl_cv=0.5, prefix_hit_fraction=0.25)
SCENARIO = ScenarioSpec(id=1, kind="serve", model="llama-3.1-8b", hardware="h100", workload=WORKLOAD)
OPTIONS = ServeOptions()


@pytest.fixture(scope="module")
def sweep() -> LoadSweep:
    return load_sweep(served_of(SCENARIO, OPTIONS), workload=WORKLOAD, requests=600)


def test_each_point_is_the_answer_to_its_workload(sweep: LoadSweep) -> None:
    point = sweep.points[3]
    run = answer(SCENARIO.model_copy(update={"workload": point.workload})).run
    assert isinstance(run, ServedRun)
    assert run.result.overall.ttft == point.stage.ttft
    assert run.result.overall.mean_batch == point.stage.mean_batch


def test_rates_and_batches_rise(sweep: LoadSweep) -> None:
    rates = [point.rate_per_s for point in sweep.points]
    batches = [point.stage.mean_batch for point in sweep.points]
    assert rates == sorted(rates)
    assert batches == sorted(batches)
    assert rates[0] < sweep.saturation_per_s < rates[-1]


def test_the_knee_lies_between_idle_and_saturation(sweep: LoadSweep) -> None:
    assert sweep.knee_per_s is not None
    assert sweep.points[0].rate_per_s < sweep.knee_per_s <= sweep.points[-1].rate_per_s
    at_knee = max(point.stage.ttft.p95_s for point in sweep.points if point.rate_per_s <= sweep.knee_per_s)
    assert at_knee <= 2 * sweep.points[0].stage.ttft.p95_s


def test_two_replicas_carry_twice_the_load(sweep: LoadSweep) -> None:
    two = SCENARIO.model_copy(update={"replicas": 2})
    twice = load_sweep(served_of(two, OPTIONS), workload=WORKLOAD, shares=(0.1,), requests=50)
    assert twice.saturation_per_s == pytest.approx(2 * sweep.saturation_per_s)


def test_demand_keeps_its_lengths() -> None:
    mix = request_mix(WORKLOAD, deployment_of(SCENARIO))
    assert mix.isl.mean_tokens == 600
    assert mix.prefix_hit_fraction == pytest.approx(0.25)
    loaded = at_share(WORKLOAD, share=0.5, saturation_per_s=10.0, requests=100)
    assert loaded.stages[0].rate_per_s * loaded.stages[0].duration_s == pytest.approx(100)


def test_questions_are_bounded(sweep: LoadSweep) -> None:
    with pytest.raises(RoofcastError, match="allowed"):
        load_sweep(served_of(SCENARIO, OPTIONS), workload=WORKLOAD, requests=1_000_000)
    with pytest.raises(RoofcastError, match="not a latency"):
        summary_of(sweep.points[0].stage, "speed")


def _saturation_per_s(**changes: object) -> float:
    scenario = validate(ScenarioSpec, {**SCENARIO.model_dump(exclude_unset=True), **changes}, where="")
    assert scenario.workload is not None
    found = load_sweep(served_of(scenario, OPTIONS), workload=scenario.workload, shares=(0.7, 1.4))
    assert [point.stage.saturated for point in found.points] == [False, True]
    return found.saturation_per_s


def test_prompts_that_come_again_and_tiers_that_keep_them_carry_more() -> None:
    fields = {"isl_tokens": 3000, "osl_tokens": 20, "isl_cv": 0.0, "osl_cv": 0.0}
    new = _saturation_per_s(workload=demand_of(**fields))
    few, many = (demand_of(**fields, different_prompts=count) for count in (20, 600))
    # 600 prompts are four times what the device holds: taken in turn, each is gone when it comes again.
    assert _saturation_per_s(workload=few) > 1.5 * new
    assert _saturation_per_s(workload=many) == pytest.approx(new, rel=0.1)
    tiers = {"kv_tiers": [{"medium": "host", "capacity_bytes": 1e12}]}
    assert _saturation_per_s(workload=many, engine=tiers) > 1.5 * new


def test_encoders_and_devices_for_experts_limit_what_is_swept() -> None:
    pictures = {"model": "qwen2.5-vl-7b", "images_per_request": 4.0}
    workload = demand_of(isl_tokens=6500, osl_tokens=20, isl_cv=0.0, osl_cv=0.0)
    one, two = (
        _saturation_per_s(**pictures, workload=workload, encoder_pool={"replicas": count, "hardware": "l40s"})
        for count in (1, 2)
    )
    assert two > 1.5 * one, "the pool is what was full"
    pools = {"prefill_replicas": 8, "prefill_tp_size": 2, "decode_replicas": 1, "decode_dp_size": 4}
    experts = {"model": "mixtral-8x7b", "workload": demand_of(isl_tokens=200, osl_tokens=200, isl_cv=0, osl_cv=0)}
    small, large = (
        _saturation_per_s(**experts, disaggregation={**pools, "decode_ffn": {"devices": count}}) for count in (2, 8)
    )
    assert large > 1.2 * small
