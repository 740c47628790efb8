"""``simulator.phases.step`` and ``simulator.phases.memory``: laws of a step on any model and accelerator that fit."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from simulator.operators.work import decode_step, mixed_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan
from simulator.phases.step import SORTED_ONE_BY_ONE, estimate_step, sampling_s
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec

PAIRS = (
    ("llama-3.1-8b", "h100", 1),
    ("llama-3.1-8b", "l40s", 1),
    ("llama-3.1-8b", "mi300x", 1),
    ("llama-3.1-8b", "a10", 2),
    ("llama-3.1-70b", "h100", 4),
    ("llama-3.1-70b", "b200", 2),
    ("qwen3-8b", "a100", 1),
    ("mixtral-8x7b", "h200", 2),
    ("deepseek-v3", "h200", 16),
    ("gemma-3-27b", "h100", 2),
    ("llama-2-13b", "rtx-6000-ada", 1),
)


@cache
def replica(model: str, hardware: str, tp_size: int, weights: str | None = None) -> Deployment:
    chosen = PrecisionSpec() if weights is None else PrecisionSpec(weights=Dtype(weights), activations=Dtype(weights))
    return deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp_size),
        precision=chosen,
        engine=EngineSpec(max_model_len=8192),
    )


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: "-".join(map(str, pair)))
class TestEveryPair:
    def test_rows_and_host_make_the_step(self, pair: tuple[str, str, int]) -> None:
        estimate = estimate_step(replica(*pair), decode_step(sequences=[1.0, 32.0], context=1024.0))
        rows = sum(row.seconds for row in estimate.rows)
        assert np.all(estimate.step_s >= rows * (1 - 1e-9))
        assert sum(estimate.breakdown_s.values()) == pytest.approx(estimate.step_s)

    def test_utilisations_are_shares(self, pair: tuple[str, str, int]) -> None:
        for step in (decode_step(sequences=[1.0, 64.0], context=2048.0), prefill_step(sequences=1.0, tokens=4096.0)):
            estimate = estimate_step(replica(*pair), step)
            assert np.all((estimate.mfu > 0) & (estimate.mfu < 1))
            assert np.all((estimate.mbu > 0) & (estimate.mbu <= 1))

    def test_decoding_reads_and_prefilling_computes(self, pair: tuple[str, str, int]) -> None:
        one = estimate_step(replica(*pair), decode_step(sequences=1.0, context=512.0))
        long = estimate_step(replica(*pair), prefill_step(sequences=1.0, tokens=4096.0))
        assert one.mbu[0] > one.mfu[0]
        assert long.mfu[0] > one.mfu[0]
        assert long.mbu[0] < one.mbu[0] + 0.5

    def test_batching_raises_the_tokens_of_a_second(self, pair: tuple[str, str, int]) -> None:
        sequences = np.array([1.0, 4.0, 16.0, 64.0])
        seconds = estimate_step(replica(*pair), decode_step(sequences=sequences, context=512.0)).step_s
        rates = sequences / seconds
        assert all(later > earlier for earlier, later in pairwise(rates))

    def test_a_mixed_step_costs_no_more_than_its_parts_apart(self, pair: tuple[str, str, int]) -> None:
        """Weights are read once for both."""
        deployment = replica(*pair)
        both = estimate_step(
            deployment, mixed_step(prefill_sequences=1, prefill_tokens=512, decode_sequences=16, decode_context=1024)
        ).step_s[0]
        prompt = estimate_step(deployment, prefill_step(sequences=1.0, tokens=512.0)).step_s[0]
        decode = estimate_step(deployment, decode_step(sequences=16.0, context=1024.0)).step_s[0]
        assert both <= 1.02 * (prompt + decode)
        assert both >= 0.98 * max(prompt, decode)

    def test_a_prompt_in_chunks_saves_little_or_nothing(self, pair: tuple[str, str, int]) -> None:
        deployment = replica(*pair)
        whole = estimate_step(deployment, prefill_step(sequences=1.0, tokens=4096.0)).step_s[0]
        parts = estimate_step(
            deployment, prefill_step(sequences=1.0, tokens=1024.0, context=np.array([0.0, 1024.0, 2048.0, 3072.0]))
        ).step_s.sum()
        # Where one long kernel leaves the cache, as on GDDR cards, chunks may gain a tenth.
        assert 0.9 * whole < parts < 1.6 * whole

    def test_memory_parts_stay_within_the_budget(self, pair: tuple[str, str, int]) -> None:
        plan = memory_plan(replica(*pair))
        assert plan.fits
        parts = plan.weights_bytes + plan.activation_bytes + plan.reserve_bytes + plan.kv_capacity_bytes
        assert parts <= plan.budget_bytes * (1 + 1e-9)
        block = replica(*pair).engine.block_size_tokens
        assert plan.kv_capacity_tokens == plan.kv_blocks * block
        if not plan.state_bytes_per_sequence:
            assert plan.kv_capacity_tokens * plan.kv_bytes_per_token <= plan.kv_capacity_bytes * 1.001

    def test_an_interval_holds_the_step(self, pair: tuple[str, str, int]) -> None:
        estimate = estimate_step(replica(*pair), decode_step(sequences=[1.0, 64.0], context=1024.0))
        assert np.all(estimate.log_sigma > 0)
        assert np.all(estimate.log_sigma < 1.5)


@pytest.mark.parametrize("hardware", ["h100", "h200", "l40s"])
def test_eight_bits_decode_faster_and_leave_more_cache(hardware: str) -> None:
    wide, narrow = (replica("llama-3.1-8b", hardware, 1, weights) for weights in (None, "fp8"))
    steps = [estimate_step(item, decode_step(sequences=1.0, context=512.0)).step_s[0] for item in (wide, narrow)]
    assert steps[1] < steps[0]
    room = [memory_plan(item).kv_capacity_tokens for item in (wide, narrow)]
    assert room[1] > room[0]


@pytest.mark.parametrize("model", ["llama-3.1-8b", "qwen3-8b", "llama-2-13b"])
def test_ranks_leave_each_other_room(model: str) -> None:
    """Twice the devices hold half the weights each and more than twice the cache together."""
    plans = [memory_plan(replica(model, "h100", size)) for size in (1, 2, 4)]
    for one, two in pairwise(plans):
        assert two.weights_bytes == pytest.approx(one.weights_bytes / 2, rel=0.02)
        assert two.kv_capacity_tokens > 2 * one.kv_capacity_tokens


@pytest.mark.parametrize(("hardware", "bandwidth"), [("a100", 2.039e12), ("h100", 3.35e12), ("h200", 4.8e12)])
def test_one_sequence_takes_its_weights_over_the_bandwidth_and_a_little(hardware: str, bandwidth: float) -> None:
    """16 GB of weights; kernels reach most of the bandwidth and the host adds its part."""
    floor_s = 2 * (8_030_261_248 - 128256 * 4096) / bandwidth
    step_s = estimate_step(replica("llama-3.1-8b", hardware, 1), decode_step(sequences=1.0, context=128.0)).step_s[0]
    assert floor_s < step_s < 1.6 * floor_s


def test_gpus_rank_by_bandwidth_for_one_sequence_and_by_peak_for_a_prompt() -> None:
    names = ("l4", "a10", "l40s", "a100", "h100", "h200")
    specs = [load_hardware(name) for name in names]
    replicas = [replica("llama-3.2-3b", name, 1) for name in names]
    decode = [estimate_step(item, decode_step(sequences=1.0, context=128.0)).step_s[0] for item in replicas]
    prompt = [estimate_step(item, prefill_step(sequences=4.0, tokens=2048.0)).step_s[0] for item in replicas]
    by_bandwidth = sorted(range(len(names)), key=lambda place: -specs[place].memory_bytes_per_s)
    assert sorted(range(len(names)), key=lambda place: decode[place]) == by_bandwidth
    assert prompt[0] == max(prompt)
    assert min(prompt[4:]) == min(prompt)


def test_tokens_drawn_from_a_nucleus_take_a_sort_of_the_vocabulary() -> None:
    """Nothing without a nucleus; as much a logit on every device while rows are few, at the pace of memory beyond.

    The two fitted numbers are one on H100 but for four digits that a profile keeps.
    """
    rows = np.array([0.0, 1.0, SORTED_ONE_BY_ONE, 16.0 * SORTED_ONE_BY_ONE])
    llama, qwen = (sampling_s(replica(name, "h100", 1), rows) for name in ("llama-3.1-8b", "qwen3-8b"))
    assert qwen == pytest.approx(llama * load_model("qwen3-8b").vocab_size / load_model("llama-3.1-8b").vocab_size)
    assert llama[[0, 3]] == pytest.approx(llama[1] * rows[[0, 3]], rel=1e-3)
    newer = sampling_s(replica("llama-3.1-8b", "b200", 1), rows)
    assert newer[:3] == pytest.approx(llama[:3])
    ratio = load_hardware("h100").memory_bytes_per_s / load_hardware("b200").memory_bytes_per_s
    assert newer[3] == pytest.approx(llama[3] * ratio, rel=1e-3)
    assert (sampling_s(replica("mixtral-8x7b", "h200", 2), rows) == 0).all()


@pytest.mark.parametrize("hardware", ["h100", "l40s", "mi300x", "b200"])
def test_attention_in_32_bits_takes_no_less_than_its_own_rate_allows(hardware: str) -> None:
    """It was priced by the kernel in 16 bits, ten times as fast as the units that multiply 32."""
    made = replica("llama-3.1-8b", hardware, 1, "fp32")
    estimate = estimate_step(made, prefill_step(sequences=1.0, tokens=60_000.0))
    assert np.all(estimate.mfu < 1)
    attention = next(row for row in estimate.rows if row.work.name == "prefill_attention")
    assert np.all(
        attention.seconds >= attention.work.count * attention.work.flops / made.hardware.peak_flops_per_s[Dtype.FP32]
    )
