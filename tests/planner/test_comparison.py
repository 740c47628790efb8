"""A waterfall adds up: its steps lead from the base to the result, and each stands for what it says."""

from __future__ import annotations

import pytest

from simulator.engine.runs.answers import answer
from simulator.engine.runs.scenario_setup import ServeOptions
from simulator.errors import ExitCode, RoofcastError
from simulator.planner.comparison import Comparison, compare
from simulator.planner.what_if import what_if
from simulator.reports.words.fields import note_text
from simulator.specs.base import validate
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.scenario_file import changed_scenario, parse_change
from simulator.techniques.quality import UNCHANGED

BASE = validate(
    ScenarioSpec,
    {
        "id": "base",
        "kind": "batch",
        "model": "llama-3.1-8b",
        "hardware": "h100",
        "batch_size": 16,
        "isl_tokens": 512,
        "osl_tokens": 64,
        "engine": {"name": "vllm"},
    },
    where="",
)
WORDS = ("weights=fp8", "kv_cache=fp8", "tp=2")


def compared(*words: str, base: ScenarioSpec = BASE) -> Comparison:
    return compare(base, [parse_change(word) for word in words])


@pytest.fixture(scope="module")
def waterfall() -> Comparison:
    return compared(*WORDS)


def test_base_and_result_are_what_the_scenarios_answer(waterfall: Comparison) -> None:
    assert waterfall.base.numbers.tpot_s == answer(BASE).run.tpot_s
    whole = changed_scenario(BASE, parse_change(" ".join(WORDS)))
    assert waterfall.final.numbers.tpot_s == answer(whole).run.tpot_s
    assert [step.change.text for step in waterfall.steps] == list(WORDS)


def test_the_first_step_is_the_same_in_order_and_alone(waterfall: Comparison) -> None:
    first = waterfall.steps[0]
    assert first.alone is first.together


def test_alone_means_on_the_base(waterfall: Comparison) -> None:
    for step in waterfall.steps:
        # Other weights keep the base's cache, so that each change is worth what it alone does.
        kept = " kv_cache=bf16" if step.change.text == "weights=fp8" else ""
        assert step.alone is not None
        expected = answer(changed_scenario(BASE, parse_change(step.change.text + kept))).run.tpot_s
        assert step.alone.numbers.tpot_s == expected


def test_each_change_moves_what_it_is_known_for(waterfall: Comparison) -> None:
    base, (weights, cache, parallel) = waterfall.base.numbers, (step.together.numbers for step in waterfall.steps)
    assert weights.weights_bytes < 0.6 * base.weights_bytes
    assert weights.tpot_s < base.tpot_s
    assert cache.weights_bytes == weights.weights_bytes
    assert cache.kv_capacity_tokens == pytest.approx(2 * weights.kv_capacity_tokens, rel=0.01)
    assert base.cost_per_hour is not None
    assert parallel.cost_per_hour == 2 * base.cost_per_hour
    assert parallel.tpot_s < cache.tpot_s


def test_price_follows_throughput_where_devices_stay(waterfall: Comparison) -> None:
    base, first = waterfall.base.numbers, waterfall.steps[0].together.numbers
    assert base.cost_per_million_output_tokens is not None
    assert first.cost_per_million_output_tokens == pytest.approx(
        base.cost_per_million_output_tokens * base.output_tokens_per_s / first.output_tokens_per_s
    )


def test_quality_is_as_published_until_it_is_unknown(waterfall: Comparison) -> None:
    assert waterfall.base.quality == UNCHANGED
    assert "73.79 -> 73.44" in note_text(waterfall.steps[0].together.quality)
    assert waterfall.steps[0].together.quality == compared("scheme=fp8").final.quality
    assert "unknown" in note_text(waterfall.steps[1].together.quality)
    for lossy in ("kv_policy=h2o:256", "structure=num_key_value_heads=1", "mixed=mlp=fp8"):
        assert "unknown" in note_text(compared(lossy).final.quality)
    assert compared("speculation=eagle:k=4,acceptance=0.7").final.quality.key.startswith("as_published")


def test_a_change_that_needs_another_cannot_stand_alone() -> None:
    found = compared("tp=2", "weights=int4 scheme=gptq-g128", "kernel=tinygemm")
    assert found.steps[1].alone is not None
    assert found.steps[2].alone is None
    assert "kernel" in found.steps[2].alone_refusal


@pytest.mark.parametrize(
    ("words", "parts", "code"),
    [
        (("weights=fp8", "scheme=gptq-g128"), ("'scheme=gptq-g128' after 'weights=fp8'", "contradicts"), 2),
        (("weights=fp8", "hardware=a100"), ("'hardware=a100' after", "no fp8 matrix units"), 2),
        (("sparsity=2:4", "tp=2", "hardware=v100-sxm-32gb"), ("after 'sparsity=2:4', 'tp=2'",), 2),
        (("hardware=h1000",), ("unknown accelerator",), ExitCode.PROFILE),
        (("weights=fp32 hardware=l4",), ("exceed the memory",), ExitCode.INFEASIBLE),
        (("weights=bf16",), ("changes no number",), 2),
        (("weights=fp8", "weights=fp8"), ("changes no number",), 2),
    ],
)
def test_what_is_illegal_or_idle_is_refused_with_its_reason(
    words: tuple[str, ...], parts: tuple[str, ...], code: int
) -> None:
    with pytest.raises(RoofcastError) as refusal:
        compared(*words)
    assert refusal.value.field == "with"
    assert refusal.value.exit_code == code
    for part in parts:
        assert part in refusal.value.message


def test_nothing_to_compare_is_refused() -> None:
    with pytest.raises(RoofcastError, match="nothing to compare"):
        compare(BASE, [])


def test_answers_of_one_token_have_no_tpot_and_are_compared_all_the_same() -> None:
    one = BASE.model_copy(update={"osl_tokens": 1})
    found = compared("weights=fp8", base=one)
    assert found.final.numbers.ttft_s < found.base.numbers.ttft_s
    with pytest.raises(RoofcastError, match="changes no number"):
        compared("weights=bf16", base=one)


def test_methods_of_equal_speed_stand_beside_each_other_by_their_quality() -> None:
    dense = BASE.model_copy(update={"model": "llama-65b", "tp_size": 4, "hardware": "a100-sxm-80gb"})
    found = compared("sparsity=2:4,method=wanda", "sparsity=2:4,method=sparsegpt", base=dense)
    wanda, sparsegpt = (step.together for step in found.steps)
    assert wanda.numbers == sparsegpt.numbers
    assert "6.25" in note_text(wanda.quality)
    assert "6.28" in note_text(sparsegpt.quality)


def test_pools_cost_all_of_their_accelerators() -> None:
    """Prompts, answers, experts and encoders; a price per kind."""
    load = {"stages": [{"rate_per_s": 2, "duration_s": 4}], "isl_tokens": 4000, "osl_tokens": 8}
    pools = {"prefill_replicas": 3, "prefill_tp_size": 2, "decode_replicas": 1, "decode_dp_size": 4, "link": "nic"}
    served = {"id": "x", "kind": "serve", "hardware": "h100", "workload": load}
    loop = {"id": "x", "kind": "closed_loop", "hardware": "h100", "concurrency": 4, "isl_tokens": 100, "osl_tokens": 4}
    pictures = {"model": "qwen2.5-vl-7b", "images_per_request": 1}
    cases = (
        ({**served, "model": "mixtral-8x7b", "disaggregation": {**pools, "decode_ffn": {"devices": 2}}}, 6 + 4 + 2),
        ({**served, **pictures, "encoder_pool": {"replicas": 3, "hardware": "l40s"}}, 1 + 3),
        ({**loop, "model": "llama-3.1-8b", "disaggregation": {"prefill_replicas": 2, "decode_replicas": 3}}, 5),
    )
    options = ServeOptions(intervals=False)
    found = [(what_if(validate(ScenarioSpec, case, where=""), options=options), devices) for case, devices in cases]
    assert [item.devices for item, _ in found] == [devices for _, devices in found]
    h100 = found[0][0].cost.per_hour / 12
    assert found[2][0].cost.per_hour == pytest.approx(5 * h100)
    assert h100 < found[1][0].cost.per_hour < 4 * h100


@pytest.mark.parametrize(("engine", "hardware"), [("sglang", "mi325x"), ("sglang", "h200"), ("atom", "mi355x")])
def test_guesses_that_nobody_accepts_make_no_answer_faster(engine: str, hardware: str) -> None:
    # SGLang guesses on AMD from a release on whose steps take half the time: that is no gain of guesses.
    fields = {"model": "deepseek-v3", "hardware": hardware, "engine": {"name": engine}, "tp_size": 8}
    base = BASE.model_copy(update=dict(validate(ScenarioSpec, {**BASE.model_dump(), **fields}, where="")))
    found = compared("speculation=mtp:k=1,acceptance=0", base=base)
    assert found.final.numbers.tpot_s > found.base.numbers.tpot_s
    versions = {item.answered.result.deployment.engine.version for item in (found.base, found.final)}
    assert len(versions) == 1
