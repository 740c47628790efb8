"""Adapters: bytes held per adapter, work per batch, and what merging, ranks and targets cannot be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.operators.work import decode_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan
from simulator.phases.step import StepEstimate, estimate_step
from simulator.phases.tabulate import compile_steps
from simulator.reports.words.fields import note_texts
from simulator.specs.base import validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import AdaptersSpec, TechniquesSpec
from simulator.techniques.adapters import distinct_adapters
from tests.techniques.scenarios import run, with_technique

HIDDEN, WIDE, LAYERS = 4096, 11008, 32  # Llama-2-7B


def replica(
    adapters: dict[str, Any] | None, *, model: str = "llama-2-7b", tp_size: int = 1, **precision: Any
) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware("h100"),
        parallelism=ParallelismSpec(tp_size=tp_size),
        precision=PrecisionSpec(**precision),
        engine=EngineSpec(name="vllm"),
        techniques=TechniquesSpec(adapters=validate(AdaptersSpec, adapters, where="t") if adapters else None),
    )


def step(made: Deployment, sequences: float = 8) -> StepEstimate:
    return estimate_step(made, decode_step(sequences=[sequences], context=512))


def held(adapters: dict[str, Any], **changes: Any) -> float:
    """Weight bytes that the adapters add to a device."""
    return memory_plan(replica(adapters, **changes)).weights_bytes - memory_plan(replica(None, **changes)).weights_bytes


def test_a_lora_adapter_holds_rank_times_both_sides_of_every_linear_layer() -> None:
    sides = 4 * 2 * HIDDEN + 3 * (HIDDEN + WIDE)
    assert held({"rank": 16}) == 2 * 16 * sides * LAYERS
    assert held({"rank": 16, "count": 7}) == 7 * held({"rank": 16})
    assert held({"rank": 32}) == 2 * held({"rank": 16})
    parts = [held({"rank": 16, "targets": target}) for target in ("attention", "mlp")]
    assert sum(parts) == held({"rank": 16})


def test_tensor_parallel_ranks_share_the_outer_side() -> None:
    inner = 3 * HIDDEN + 2 * HIDDEN + HIDDEN + HIDDEN  # the side that meets the residual stream, whole on every rank
    outer = 3 * HIDDEN + 2 * WIDE + HIDDEN + WIDE
    assert held({"rank": 16}, tp_size=4) == 2 * 16 * (inner + outer / 4) * LAYERS


def test_adapted_steps_do_the_low_rank_flops_and_read_the_adapters_in_use() -> None:
    rows = {row.work.name: row.work for row in step(replica({"rank": 16, "count": 100})).rows}
    used = 100 * (1 - 0.99**8)
    shrink, expand = rows["qkv_proj_lora_shrink"], rows["qkv_proj_lora_expand"]
    assert shrink.flops[0] == 2 * 8 * HIDDEN * 16 * 3
    assert expand.flops[0] == 2 * 8 * 16 * HIDDEN * 3
    assert shrink.weight_bytes[0] == pytest.approx(used * 16 * 3 * HIDDEN * 2)
    assert not any("lm_head" in name or "embedding" in name for name in rows if "lora" in name)


def test_more_adapters_and_higher_ranks_never_make_a_step_faster() -> None:
    plain = step(replica(None)).step_s[0]
    by_count = [step(replica({"rank": 16, "count": count})).step_s[0] for count in (1, 4, 64)]
    by_rank = [step(replica({"rank": rank})).step_s[0] for rank in (8, 64, 512)]
    assert [plain, *by_count] == sorted([plain, *by_count])
    assert [plain, *by_rank] == sorted([plain, *by_rank])
    assert by_rank[0] < 1.2 * plain


def test_a_merged_adapter_costs_nothing_and_says_so() -> None:
    plain, merged = run(), with_technique("adapters", {"rank": 16, "merged": True})
    assert merged.run.e2e_s == plain.run.e2e_s
    assert merged.run.memory == plain.run.memory
    assert any("merged lora" in note for note in note_texts(merged.notes))


def test_bottlenecks_follow_both_sublayers() -> None:
    width = 64
    assert held({"method": "adapter", "rank": width}) == 2 * LAYERS * 2 * (2 * HIDDEN * width + width + HIDDEN)
    assert step(replica({"method": "adapter", "rank": width})).step_s > step(replica(None)).step_s


def test_biases_are_small_and_prompts_are_longer() -> None:
    outputs = 4 * HIDDEN + 2 * WIDE + HIDDEN
    assert held({"method": "bitfit"}) == 2 * LAYERS * outputs
    tuned = replica({"method": "prompt_tuning", "prompt_tokens": 100, "count": 3})
    assert held({"method": "prompt_tuning", "prompt_tokens": 100, "count": 3}) == 3 * 100 * 524288
    longer = estimate_step(replica(None), decode_step(sequences=[8.0], context=612))
    assert step(tuned).step_s[0] == pytest.approx(longer.step_s[0])


def test_qlora_serves_a_narrow_base_and_contradicts_other_formats() -> None:
    made = replica({"method": "qlora", "rank": 16})
    assert made.plan.linear.name == replica(None, scheme="nf4").plan.linear.name
    assert memory_plan(made).weights_bytes < 0.4 * memory_plan(replica(None)).weights_bytes
    with pytest.raises(RoofcastError, match=r"nf4.*fp8"):
        replica({"method": "qlora", "rank": 16}, weights="fp8")


def test_experts_get_no_adapters() -> None:
    names = {row.work.name for row in step(replica({"rank": 16}, model="mixtral-8x7b", tp_size=4)).rows}
    assert "qkv_proj_lora_shrink" in names
    assert not any(name.startswith("experts_lora") for name in names)


def test_tables_for_serving_hold_the_adapters() -> None:
    plain, adapted = (compile_steps(replica(adapters)) for adapters in (None, {"rank": 16, "count": 32}))
    assert np.all(adapted.decode_s[1:] > plain.decode_s[1:])


@given(sequences=st.floats(0, 1000), count=st.integers(1, 500))
def test_a_batch_uses_no_more_adapters_than_there_are_or_than_it_has_sequences(sequences: float, count: int) -> None:
    distinct = distinct_adapters(np.array([sequences]), count=count)[0]
    assert 0 <= distinct <= count
    if sequences >= 1:
        assert distinct <= sequences * (1 + 1e-9)


REFUSED = [
    ({"method": "lora"}, "rank", "needs it"),
    ({"method": "bitfit", "rank": 8}, "rank", "no effect"),
    ({"rank": 8, "prompt_tokens": 10}, "prompt_tokens", "no effect"),
    ({"method": "prompt_tuning"}, "prompt_tokens", "needs it"),
    ({"method": "adapter", "rank": 8, "merged": True}, "merged", "cannot be merged"),
    ({"method": "adapter", "rank": 8, "targets": "mlp"}, "targets", "no effect"),
    ({"rank": 8, "count": 2, "merged": True}, "count", "one set of weights"),
    ({"rank": 4096}, "rank", "hidden size"),
    ({"method": "ia3", "rank": 8}, "method", "allowed"),
]


@pytest.mark.parametrize(("adapters", "field", "words"), REFUSED)
def test_bad_adapters_are_refused_by_field(adapters: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        with_technique("adapters", adapters)
    assert caught.value.field == f"techniques.adapters.{field}"
    assert words in str(caught.value)
