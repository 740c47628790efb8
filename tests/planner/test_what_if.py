"""What techniques are worth, and what a deployment costs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from simulator.api.questions import requests_of_kind
from simulator.engine.runs.answers import answer
from simulator.errors import InfeasibleError, RoofcastError
from simulator.planner.demand import read_demand
from simulator.planner.fleet.replica_load import latency_range
from simulator.planner.plan import plan_capacity
from simulator.planner.what_if import (
    BASE_NAME,
    fitting_changes,
    native_scenario,
    scenario_quality,
    technique_steps,
    what_if,
)
from simulator.specs.base import validate
from simulator.specs.question.plan import plan_spec
from simulator.specs.question.plan_values import WORKLOADS
from simulator.specs.question.scenario import ScenarioSpec
from simulator.traffic.lengths import LengthDistribution
from simulator.traffic.workload_presets import PRESET_NAMES, PRESETS, workload_preset

SCENARIO = validate(
    ScenarioSpec,
    {
        "id": 1,
        "kind": "batch",
        "model": "llama-3.1-8b",
        "hardware": "h100",
        "batch_size": 16,
        "isl_tokens": 1000,
        "osl_tokens": 100,
        "engine": {"name": "vllm"},
        "precision": {"weights": "fp8"},
        "techniques": {"sparsity": "2:4"},
    },
    where="",
)


def test_steps_lead_from_the_published_model_to_the_scenario() -> None:
    steps = technique_steps(SCENARIO)
    assert [step.name for step in steps] == [BASE_NAME, "Number formats", "Sparsity"]
    assert steps[0].result.run.tpot_s == answer(native_scenario(SCENARIO)).run.tpot_s
    assert steps[-1].result.run.tpot_s == answer(SCENARIO).run.tpot_s
    assert steps[1].result.run.tpot_s < steps[0].result.run.tpot_s


def test_a_scenario_without_techniques_has_one_step() -> None:
    assert len(technique_steps(native_scenario(SCENARIO))) == 1


def test_price_per_token_times_tokens_is_the_bill() -> None:
    found = what_if(native_scenario(SCENARIO))
    assert found.cost.per_hour is not None
    assert found.cost.per_million_output_tokens is not None
    tokens_per_hour = found.output_tokens_per_s * 3600
    assert found.cost.per_million_output_tokens * tokens_per_hour / 1e6 == pytest.approx(found.cost.per_hour)


def test_replicas_multiply_bill_and_tokens_alike() -> None:
    one = what_if(native_scenario(SCENARIO))
    three = what_if(native_scenario(SCENARIO).model_copy(update={"replicas": 3}))
    assert three.devices == 3 * one.devices
    assert three.cost.per_hour == pytest.approx(3 * (one.cost.per_hour or 0))
    assert three.cost.per_million_output_tokens == pytest.approx(one.cost.per_million_output_tokens)


def test_an_unknown_price_is_said_not_guessed() -> None:
    found = what_if(native_scenario(SCENARIO).model_copy(update={"hardware": "mi250x"}))
    assert found.cost.per_hour is None
    assert "no on_demand or reserved_1y price" in found.cost.offer


def test_presets_have_a_source_and_a_name() -> None:
    assert len(set(PRESET_NAMES)) == len(PRESETS)
    assert {preset.word for preset in PRESETS} == set(WORKLOADS)
    assert all(preset.source and preset.objective_source for preset in PRESETS)
    with pytest.raises(RoofcastError, match="'chats' is no kind of demand .did you mean chat"):
        workload_preset("chats")


def test_a_mix_of_kinds_has_the_means_and_the_variation_of_all_its_requests() -> None:
    mixed, parts = workload_preset("code=0.6,RAG=0.4"), (workload_preset("code"), workload_preset("rag"))
    for name in ("isl", "osl"):
        drawn = [
            LengthDistribution(mean_tokens=getattr(kind, f"{name}_tokens"), cv=getattr(kind, f"{name}_cv"))
            for kind in parts
        ]
        mean, square = (
            sum(share * item.moment(order) for share, item in zip((0.6, 0.4), drawn, strict=True)) for order in (1, 2)
        )
        assert getattr(mixed, f"{name}_tokens") == round(mean)
        assert getattr(mixed, f"{name}_cv") == pytest.approx((square / mean**2 - 1) ** 0.5)
    cached = 0.4 * parts[1].prefix_hit * parts[1].isl_tokens / (0.6 * parts[0].isl_tokens + 0.4 * parts[1].isl_tokens)
    assert mixed.prefix_hit == pytest.approx(cached)
    assert (mixed.ttft_p95_s, mixed.tpot_p95_s) == (0.5, 0.05)


def test_a_plan_and_a_served_load_take_the_same_mix() -> None:
    mix = read_demand(plan_spec({"rps": 5}, workload="code=0.6,rag=0.4")).mix
    served = requests_of_kind("code=0.6,rag=0.4", {})
    assert served["osl_tokens"] == mix.osl.mean_tokens
    assert (served["isl_cv"], served["osl_cv"]) == pytest.approx((mix.isl.cv, mix.osl.cv))


@pytest.mark.parametrize(
    "text", ["chat=0.7", "chat=0.7,rag=0.4", "chat=0.5,chat=0.5", "chat=0.5,rags=0.5", "=1", "chat,rag"]
)
def test_shares_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(RoofcastError, match="workload.*(shares that sum to 1|is no kind of demand)"):
        plan_spec({"rps": 5, "workload": text})


def _changed(**changes: object) -> ScenarioSpec:
    fields = SCENARIO.model_dump(mode="json", exclude_unset=True, exclude_none=True)
    return validate(ScenarioSpec, {**fields, "techniques": {}, "precision": {}, **changes}, where="")


def test_quality_is_published_unknown_or_untouched() -> None:
    as_published = scenario_quality(answer(_changed()))
    assert as_published.loss == 0
    # The recovery of the checkpoint that a plan serves by default, whether the format or its scheme is named.
    eight, named = (scenario_quality(answer(_changed(precision=given))) for given in ({"weights": "fp8"}, "fp8"))
    assert eight.loss == named.loss == pytest.approx(1 - 73.44 / 73.79)
    assert scenario_quality(answer(_changed(precision={"kv_cache": "fp8"}))).loss is None
    leaving = {"early_exit": {"mean_fraction": 0.5, "compacts": True}}
    assert scenario_quality(answer(_changed(techniques=leaving))).loss is None
    sparse = {"sparsity": {"pattern": "2:4", "method": "wanda"}}
    known = scenario_quality(answer(_changed(model="llama-7b", isl_tokens=500, techniques=sparse)))
    # Sun et al., table of WikiText perplexity: 5.68 dense, 11.53 with 2:4 by Wanda.
    assert known.loss == pytest.approx(11.53 / 5.68 - 1)


def test_latencies_of_a_plan_lie_between_their_ends() -> None:
    plan = plan_capacity(plan_spec({"model": "llama-3.1-8b", "hardware": ("h100",), "rps": 50.0}))
    found = latency_range(plan.best)
    assert found.ttft_p95_s[0] < plan.best.degraded.ttft_p95_s < found.ttft_p95_s[1]
    assert found.tpot_p95_s[0] < plan.best.degraded.tpot_p95_s < found.tpot_p95_s[1]
    certain = latency_range(replace(plan.best, log_sigma=0.0))
    assert certain.ttft_p95_s == pytest.approx((plan.best.degraded.ttft_p95_s,) * 2, rel=1e-3)
    doubtful = latency_range(replace(plan.best, log_sigma=1.0))
    assert math.isinf(doubtful.ttft_p95_s[1])


def _served(**fields: object) -> ScenarioSpec:
    return validate(ScenarioSpec, {"id": "x", **fields}, where="")


def test_the_pool_that_lacks_memory_is_named_with_the_nearest_degree_that_gives_it_some() -> None:
    asked = _served(
        kind="serve",
        model="deepseek-v3",
        hardware="mi355x",
        tp_size=8,
        precision={"weights": "fp4"},
        disaggregation={"prefill_replicas": 2, "prefill_tp_size": 1, "decode_replicas": 4},
        workload={"isl_tokens": 1155, "osl_tokens": 211, "stages": [{"rate_per_s": 2, "duration_s": 5}]},
    )
    with pytest.raises(InfeasibleError, match="on 1 mi355x of the prefill pool") as caught:
        answer(asked)
    assert caught.value.field == "disaggregation.prefill_tp_size"
    assert asked.disaggregation is not None
    size = fitting_changes(asked)[caught.value.field]
    pools = asked.disaggregation.model_copy(update={"prefill_tp_size": size})
    fits = asked.model_copy(update={"disaggregation": pools})
    assert answer(fits).run.ttft_s > 0
    assert fitting_changes(fits) == {}


def test_requests_that_no_engine_takes_are_refused_with_what_it_takes() -> None:
    asked = _served(
        kind="serve",
        model="llama-3.1-8b",
        hardware="h100",
        workload={"isl_tokens": 200_000, "osl_tokens": 10, "stages": [{"rate_per_s": 1, "duration_s": 5}]},
    )
    with pytest.raises(RoofcastError, match="longer than the engine takes: 131,072 tokens") as caught:
        answer(asked)
    assert caught.value.field == "workload.isl_tokens"


def test_clients_who_leave_before_the_first_token_are_named_and_not_the_load() -> None:
    stages = [{"rate_per_s": 0.5, "duration_s": 20}]
    workload = {"isl_tokens": 4000, "osl_tokens": 10, "stages": stages, "timeout_s": 0.05}
    asked = _served(kind="serve", model="llama-3.1-8b", hardware="h100", workload=workload)
    with pytest.raises(RoofcastError, match="of 9, clients give up 9,") as caught:
        answer(asked)
    assert caught.value.field == "workload.timeout_s"
