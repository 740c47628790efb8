"""Laws of context parallelism: nothing is lost, nothing changes on one rank, prompts get faster and caches smaller."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.model_counts import total_flops
from simulator.operators.transformer import operator_list
from simulator.operators.work import CollectiveShape, Family, StepShape, Work, decode_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan
from simulator.phases.step import estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec

MODEL = load_model("llama-3.1-8b")
PROMPT = prefill_step(sequences=1, tokens=131072)


def rows(step: StepShape, *, cp_size: int, model: str = "llama-3.1-8b", tp_size: int = 1) -> tuple[Work, ...]:
    spec = load_model(model)
    return operator_list(
        spec,
        parallelism=ParallelismSpec(cp_size=cp_size, tp_size=tp_size),
        plan=precision_plan(spec, PrecisionSpec()),
        step=step,
    )


def replica(cp_size: int, *, tp_size: int = 1) -> Deployment:
    return deploy(
        model=MODEL,
        hardware=load_hardware("h100-sxm-80gb"),
        parallelism=ParallelismSpec(cp_size=cp_size, tp_size=tp_size),
    )


@pytest.mark.parametrize("cp_size", [2, 3, 8])
@pytest.mark.parametrize("step", [PROMPT, prefill_step(sequences=2, tokens=4096, context=8192)])
def test_ranks_do_the_work_of_one_device_between_them(cp_size: int, step: StepShape) -> None:
    alone, shared = rows(step, cp_size=1), rows(step, cp_size=cp_size)
    head = sum(float((row.count * row.flops).item()) for row in alone if row.family is Family.LM_HEAD)
    one, each = float(total_flops(alone).item()), float(total_flops(shared).item())
    assert cp_size * (each - head) + head == pytest.approx(one, rel=1e-12)


def test_decode_attention_is_divided_and_every_rank_reads_all_weights() -> None:
    step = decode_step(sequences=16, context=65536)
    alone, shared = rows(step, cp_size=1), rows(step, cp_size=4)

    def total(found: tuple[Work, ...], field: str, name: str) -> float:
        return sum(float((row.count * getattr(row, field)).item()) for row in found if row.name == name)

    assert 4 * total(shared, "flops", "decode_attention") == pytest.approx(total(alone, "flops", "decode_attention"))
    assert total(shared, "weight_bytes", "down_proj") == total(alone, "weight_bytes", "down_proj")


def test_the_ring_passes_keys_and_values_of_all_other_ranks() -> None:
    ring = next(row for row in rows(PROMPT, cp_size=8) if row.name == "kv_ring")
    assert isinstance(ring.shape, CollectiveShape)
    moved = ring.count * ring.shape.message_bytes
    # 32 layers x 2 x 8 heads x 128 x 2 bytes a token, 7/8 of 131,072 tokens.
    np.testing.assert_allclose(moved, 131072.0 * 131072 * 7 / 8)


def test_latents_go_around_the_ring_as_latents() -> None:
    ring = [row for row in rows(PROMPT, cp_size=4, model="deepseek-v3") if row.name == "kv_ring"]
    moved = sum(row.count * row.shape.message_bytes for row in ring if isinstance(row.shape, CollectiveShape))
    np.testing.assert_allclose(moved, 61 * 576 * 2 * 131072.0 * 3 / 4)


def test_ranks_between_which_a_tensor_parallel_group_lies_meet_on_the_network() -> None:
    ring = next(row for row in rows(PROMPT, cp_size=2, tp_size=8) if row.name == "kv_ring")
    assert isinstance(ring.shape, CollectiveShape)
    assert ring.shape.span == 16


def test_prompts_get_faster_and_caches_smaller() -> None:
    times = [float(estimate_step(replica(size), PROMPT).step_s.item()) for size in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)
    assert times[0] / times[-1] == pytest.approx(8, rel=0.1)
    memories = [memory_plan(replica(size)) for size in (1, 2)]
    assert memories[1].weights_bytes == memories[0].weights_bytes
    assert memories[1].kv_bytes_per_token == memories[0].kv_bytes_per_token / 2
    assert memories[1].kv_capacity_tokens > 1.9 * memories[0].kv_capacity_tokens


def test_a_recurrent_model_and_an_engine_without_it_are_refused_by_field() -> None:
    with pytest.raises(RoofcastError, match="allowed: 1") as state:
        rows(PROMPT, cp_size=2, model="jamba-v0.1")
    with pytest.raises(RoofcastError, match="allowed: 1") as engine:
        deploy(
            model=MODEL,
            hardware=load_hardware("h100-sxm-80gb"),
            parallelism=ParallelismSpec(cp_size=2),
            engine=EngineSpec(name="sglang"),
        )
    assert state.value.field == engine.value.field == "cp_size"
