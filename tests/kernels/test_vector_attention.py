"""Decode attention of engines without a matrix kernel for every head layout: each query head pays for itself."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import StepEstimate, estimate_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec, load_engine
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype

BATCHES = np.array([1.0, 8.0, 64.0, 256.0])
CONTEXT = 2048.0


def replica(model: str, *, version: str, tp_size: int = 1) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware("h100"),
        parallelism=ParallelismSpec(tp_size=tp_size),
        engine=EngineSpec(name="tensorrt-llm", version=version),
    )


def attention_s(deployment: Deployment, *, context: float = CONTEXT) -> np.ndarray:
    return estimate_step(deployment, decode_step(sequences=BATCHES, context=context)).breakdown_s["decode_attention"]


def test_every_head_of_a_group_pays_for_its_numbers_once_the_batch_is_large() -> None:
    """32 layers x 32 heads x (128 + 128) numbers x 2,048 keys a sequence, so many a clock of 132 units. One sequence
    has fewer heads than there are units: each lasts as long as a full round of them."""
    model = load_model("mistral-7b-v0.3")
    hardware = load_hardware("h100")
    rate = load_engine("tensorrt-llm").at("0.9.0").overheads
    per_s = rate.vector_elements_per_clock * hardware.compute_units * hardware.boost_clock_hz
    by_hand_s = 256 * 2048 * 32 * 256 * model.num_hidden_layers / per_s
    found_s = attention_s(replica("mistral-7b-v0.3", version="0.9.0"))
    assert found_s[-1] == pytest.approx(by_hand_s, rel=1e-6)
    assert found_s[0] == pytest.approx(by_hand_s * 132 / (32 * 256), rel=1e-6)


def test_heads_without_groups_go_at_the_memorys_pace() -> None:
    """Each number of the cache is multiplied once: 64 sequences read theirs at 0.94 of what the memory carries."""
    hardware = load_hardware("h100")
    cache_bytes = 64 * CONTEXT * 2 * 32 * 128 * 2 * 32
    read_s = cache_bytes / (0.94 * hardware.memory_data_share * hardware.memory_bytes_per_s)
    assert attention_s(replica("llama-7b", version="0.9.0"))[2] == pytest.approx(read_s, rel=1e-3)


def test_later_versions_and_head_layouts_with_a_kernel_are_as_they_were() -> None:
    np.testing.assert_array_equal(
        attention_s(replica("llama-2-70b", version="0.9.0", tp_size=4)),
        attention_s(replica("llama-2-70b", version="1.0", tp_size=4)),
    )
    old, new = (attention_s(replica("mistral-7b-v0.3", version=version)) for version in ("0.9.0", "0.14.0"))
    assert (old[-2:] > 1.2 * new[-2:]).all()


def test_prefill_has_matrix_kernels_for_all() -> None:
    def prefill(version: str) -> StepEstimate:
        return estimate_step(replica("mistral-7b-v0.3", version=version), prefill_step(sequences=4.0, tokens=2048.0))

    names = ("prefill_attention", "gemm")
    old, new = prefill("0.9.0").breakdown_s, prefill("0.14.0").breakdown_s
    assert [old[name].tolist() for name in names] == [new[name].tolist() for name in names]


def test_a_sequence_that_one_block_takes_lasts_as_long_alone_as_among_others() -> None:
    """61 layers x 2 x 128 rows x keys x (576 + 512) at 0.7 of a unit's 16-bit rate; ranks of 16 heads divide keys."""
    hardware = load_hardware("mi355x")

    def placed(**degrees: int) -> Deployment:
        return deploy(
            model=load_model("deepseek-r1"),
            hardware=hardware,
            parallelism=ParallelismSpec(**degrees),
            engine=EngineSpec(name="sglang"),
        )

    def ranks(**degrees: int) -> np.ndarray:
        deployment = placed(**degrees)
        batches = np.array([1.0, 64.0])
        estimate = estimate_step(deployment, decode_step(sequences=batches, context=7999.0))
        return np.asarray(estimate.breakdown_s["decode_attention"])

    rate = 0.7 * hardware.peak_flops_per_s[Dtype.BF16] / hardware.compute_units
    whole = ranks(dp_size=8, ep_size=8)
    launches_s = whole[0] - 61 * 2 * 128 * 8000 * (576 + 512) / rate
    gap_s = placed(dp_size=8, ep_size=8).engine.overheads.launch_gap_s
    assert launches_s == pytest.approx(61 * gap_s, rel=0.01)
    assert whole[1] == pytest.approx(whole[0])
    assert ranks(tp_size=8)[0] < 0.2 * whole[0]
