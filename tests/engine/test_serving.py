"""A workload on a real deployment: limits from the engine, memory from the plan, latencies from the step tables."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.kv_tiers import cache_tiers
from simulator.engine.runs.serving import kv_blocks_of, scheduler_settings
from simulator.engine.settings import Batching, SchedulerPolicy
from simulator.errors import InfeasibleError, RoofcastError
from simulator.operators.work import decode_step
from simulator.phases.compiled import device_seconds
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import estimate_step, sampling_s
from simulator.phases.tabulate import compile_stages, compile_steps
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineName, EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from tests.engine.workload_runs import serve_workload


def deployment(model: str = "llama-3.1-8b", *, tp_size: int = 1, pp_size: int = 1, offload: bool = False) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware("h100-sxm-80gb"),
        parallelism=ParallelismSpec(tp_size=tp_size, pp_size=pp_size),
        engine=EngineSpec(
            max_num_batched_tokens=2048, max_num_seqs=128, max_model_len=4096, cpu_kv_offload=offload or None
        ),
    )


def workload(rate_per_s: float, *, duration_s: float = 60.0) -> WorkloadSpec:
    return WorkloadSpec(
        arrival="constant",
        stages=(StageSpec(rate_per_s=rate_per_s, duration_s=duration_s),),
        system_prompt_tokens=100,
        question_tokens=447,
        osl_tokens=248,
    )


def test_a_lone_request_sees_the_bare_steps() -> None:
    """At one request in a hundred seconds TPOT is the decode step at batch 1 and the mean context."""
    made = deployment()
    result = serve_workload(made, workload=workload(0.01, duration_s=300.0)).overall
    step_s = estimate_step(made, decode_step(sequences=1, context=547 + 124)).step_s[0]
    assert result.tpot.mean_s == pytest.approx(step_s, rel=0.02)
    assert result.mean_batch == pytest.approx(1.0)
    assert result.ttft.mean_s > made.engine.overheads.request_s
    assert not result.saturated


def test_what_a_prompt_takes_inside_its_step_delays_it_and_whoever_decodes() -> None:
    made, prompt_s = deployment(), 0.02
    overheads = made.engine.overheads.model_copy(update={"step_per_prompt_s": prompt_s})
    slow = replace(made, engine=replace(made.engine, overheads=overheads))
    alone = [serve_workload(one, workload=workload(0.01, duration_s=300.0)).overall for one in (made, slow)]
    assert alone[1].ttft.mean_s - alone[0].ttft.mean_s == pytest.approx(prompt_s, rel=1e-3)
    assert alone[1].tpot.mean_s == pytest.approx(alone[0].tpot.mean_s, rel=1e-3)
    beside = [serve_workload(one, workload=workload(5.0)).overall for one in (made, slow)]
    # Each of the 5 prompts/s holds the device for that long, and the others with it.
    assert beside[1].tpot.mean_s / beside[0].tpot.mean_s == pytest.approx(1 / (1 - 5.0 * prompt_s), rel=0.03)


def test_latency_grows_with_load_until_it_saturates() -> None:
    made = deployment()
    results = [
        serve_workload(
            made, workload=workload(rate), objectives=(ObjectiveSpec(metric="ttft", percentile=95, bound_s=0.5),)
        ).overall
        for rate in (2, 10, 30, 120)
    ]
    for name in ("ttft", "tpot", "e2e"):
        means = [getattr(result, name).mean_s for result in results]
        assert means == sorted(means)
    assert [result.saturated for result in results] == [False, False, False, True]
    assert results[0].meets_slo is True
    assert results[-1].meets_slo is False


def test_two_replicas_carry_twice_the_load() -> None:
    made = deployment()
    one = serve_workload(made, workload=workload(10.0)).overall
    two = serve_workload(made, workload=workload(20.0), replicas=2).overall
    assert two.tpot.mean_s == pytest.approx(one.tpot.mean_s, rel=0.02)
    assert two.e2e.p95_s == pytest.approx(one.e2e.p95_s, rel=0.05)


def test_less_cache_preempts_and_costs_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = deployment()
    roomy = serve_workload(made, workload=workload(20.0)).overall
    monkeypatch.setattr("simulator.engine.runs.serving.kv_blocks_of", lambda _: 900)
    tight = serve_workload(made, workload=workload(20.0)).overall
    assert roomy.preemptions == 0
    assert tight.preemptions > 0
    assert tight.e2e.mean_s > roomy.e2e.mean_s
    assert tight.kv_utilization > 5 * roomy.kv_utilization


def test_limits_come_from_the_engine_and_the_memory_plan() -> None:
    made = deployment()
    settings = scheduler_settings(made, kv_blocks=kv_blocks_of(made))
    assert (settings.max_num_seqs, settings.max_num_batched_tokens, settings.block_size_tokens) == (128, 2048, 16)
    assert settings.async_scheduling
    static = scheduler_settings(replace(made, engine=replace(made.engine, scheduler="static")), kv_blocks=10)
    assert static.batching is Batching.STATIC
    assert not static.async_scheduling


def test_what_is_not_modelled_is_refused() -> None:
    with pytest.raises(InfeasibleError, match="KV cache"):
        serve_workload(deployment("llama-3.1-70b"), workload=workload(1.0))


def test_a_pipeline_of_two_stages_lies_between_half_and_the_whole_of_its_devices() -> None:
    """At one request at a time a token passes both stages; under load the stages work side by side."""
    one, two = deployment(), deployment(pp_size=2)
    alone = serve_workload(two, workload=workload(0.01, duration_s=300.0)).overall
    step_s = estimate_step(two, decode_step(sequences=1, context=547 + 124)).step_s[0]
    assert alone.tpot.mean_s == pytest.approx(step_s, rel=0.02)
    loaded = [serve_workload(made, workload=workload(120.0)).overall for made in (one, two)]
    assert loaded[1].output_tokens_per_s > 1.1 * loaded[0].output_tokens_per_s
    assert loaded[1].output_tokens_per_s < 2 * loaded[0].output_tokens_per_s


def test_stage_tables_add_up_to_those_of_the_whole_step() -> None:
    made = deployment(pp_size=4)
    whole, stages = compile_steps(made), compile_stages(made)
    assert len(stages) == 4
    assert stages[1] is stages[2]
    for case in ((1, 500, 500 * 500, 1, 64, 1, 64_000), (0, 0, 0, 0, 100, 1, 150_000), (2, 900, 400_000, 2, 0, 1, 0)):
        parts = sum(float(device_seconds(part, *case)) for part in stages)
        assert parts == pytest.approx(float(device_seconds(whole, *case)), rel=1e-3)


def test_tables_for_verify_steps_are_those_of_the_full_model() -> None:
    made = deployment()
    tables = compile_steps(made, decode_tokens=5)
    step = decode_step(sequences=32, context=1000, tokens=5)
    expected_s = estimate_step(made, step).stage_s.sum() + sampling_s(made, step.logits_tokens).item()
    assert float(device_seconds(tables, 0, 0, 0, 0, 32, 5, 32_000)) == pytest.approx(expected_s, rel=0.01)


def test_host_memory_is_sized_and_timed_by_the_hardware() -> None:
    """Twice the device's blocks by default; a block of 16 x 131072 bytes comes over the host link."""
    made = deployment(offload=True)
    (offload,) = cache_tiers(made, kv_blocks=1000)
    assert offload.blocks == 2000
    link = made.hardware.host_link.bytes_per_s_per_direction
    assert offload.block_load_s == pytest.approx(16 * 131072 / link)
    sized = replace(made, engine=replace(made.engine, cpu_kv_offload_bytes=131072 * 16 * 50.0))
    (chosen,) = cache_tiers(sized, kv_blocks=1000)
    assert chosen.blocks == 50
    assert cache_tiers(deployment(), kv_blocks=1000) == ()
    with pytest.raises(RoofcastError) as refused:
        deploy(
            model=load_model("llama-3.1-8b"),
            hardware=load_hardware("h100"),
            engine=EngineSpec(cpu_kv_offload_bytes=1e9),
        )
    assert refused.value.field == "engine.cpu_kv_offload_bytes"


@pytest.mark.parametrize(
    ("engine", "policy"),
    [
        ("vllm", SchedulerPolicy.CHUNKED_MIXED),
        ("sglang", SchedulerPolicy.PREFILL_FIRST),
        ("tensorrt-llm", SchedulerPolicy.GUARANTEED_NO_EVICT),
        ("tgi", SchedulerPolicy.GUARANTEED_NO_EVICT),
    ],
)
def test_each_engine_has_its_own_policy(engine: EngineName, policy: SchedulerPolicy) -> None:
    made = deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"), engine=EngineSpec(name=engine))
    settings = scheduler_settings(made, kv_blocks=1000)
    assert settings.policy is policy
    assert settings.async_scheduling == (engine != "tgi")
    assert made.engine.reserves_full_length == (policy is SchedulerPolicy.GUARANTEED_NO_EVICT)


def test_importing_the_engine_does_not_load_the_compiler() -> None:
    """Planning a fleet must not pay for it."""
    code = "import sys, json, simulator.engine.runs.serving; print(json.dumps('numba' in sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert json.loads(found.stdout) is False


def test_the_first_token_needs_a_prefill() -> None:
    """TTFT rises with the length of the prompt that is not cached."""
    made = deployment()

    def ttft_s(question_tokens: int) -> float:
        asked = workload(0.5).model_copy(update={"question_tokens": question_tokens})
        return serve_workload(made, workload=asked).overall.ttft.mean_s

    values = [ttft_s(tokens) for tokens in (100, 1000, 3000)]
    assert np.all(np.diff(values) > 0)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("stages", [2, 4])
def test_a_full_pipeline_answers_as_fast_in_closed_form_as_request_by_request(engine: str, stages: int) -> None:
    """Each stage works on requests of its own, alone they pass all of them: nothing is gained, nothing drawn twice."""
    given: dict[str, Any] = {"id": "x", "model": "llama-3.1-8b", "hardware": "l40s", "engine": {"name": engine}}
    lengths = {"isl_tokens": 600, "osl_tokens": 200}
    burst = {"arrival": "constant", "stages": [{"rate_per_s": 6000, "duration_s": 0.1}]} | lengths

    def run(**fields: Any) -> ScenarioResult:
        return answer(ScenarioSpec.model_validate(given | fields))

    queued = run(kind="offline", pp_size=stages, num_requests=600, **lengths)
    served = run(kind="serve", pp_size=stages, workload=burst)
    assert queued.output_tokens_per_s == pytest.approx(served.output_tokens_per_s, rel=0.03)
    whole, alone = (
        run(kind="closed_loop", concurrency=1, range_ratio=1.0, num_requests=2, pp_size=size, **lengths)
        for size in (1, stages)
    )
    assert alone.tpot_s == pytest.approx(whole.tpot_s, rel=0.02)
    idle_w = load_hardware("l40s").idle_w
    assert alone.power_w - stages * idle_w == pytest.approx(whole.power_w - idle_w, rel=0.02)


def test_stages_that_wait_draw_what_idle_ones_do() -> None:
    """One request after the other: only one of four stages works at a time, as in a closed loop of one client."""
    given: dict[str, Any] = {"id": "x", "kind": "serve", "model": "llama-3.1-8b", "hardware": "l40s"}
    one_by_one = {"arrival": "constant", "spacing": "even", "stages": [{"rate_per_s": 0.1, "duration_s": 100}]}
    lengths = {"isl_tokens": 600, "osl_tokens": 200}
    whole, staged = (
        answer(ScenarioSpec.model_validate(given | {"pp_size": size, "workload": one_by_one | lengths}))
        for size in (1, 4)
    )
    idle_w = load_hardware("l40s").idle_w
    assert staged.power_w - 4 * idle_w == pytest.approx(whole.power_w - idle_w, rel=0.03)
