"""Attention over compressed keys and hyper-connections: hand counts, limits, conservation over devices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kernels.library import kernel_library
from simulator.operators.compressed import compressed_entries_read, compressed_pairs, entry_bytes
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.hyper_connections import mixing_numbers
from simulator.operators.parallelism import (
    allowed_tp_sizes,
    kv_bytes_per_sequence,
    kv_bytes_per_token,
    state_bytes_per_sequence,
)
from simulator.operators.transformer import operator_list
from simulator.operators.work import CollectiveShape, StepShape, Work, decode_step, prefill_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.model.architecture import CompressedAttentionSpec, HyperConnectionSpec, ModelSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import Dtype, PrecisionSpec

FLASH = load_model("deepseek-v4-flash")
FLASH_FP8 = load_model("deepseek-v4-flash-fp8")
PLAN = precision_plan(FLASH, PrecisionSpec())


def _mixer(ratio: int | None) -> CompressedAttentionSpec:
    found = [layer.mixer for layer in FLASH.layers if isinstance(layer.mixer, CompressedAttentionSpec)]
    return next(mixer for mixer in found if mixer.compress_ratio == ratio)


WINDOW, INDEXED, DENSE = _mixer(None), _mixer(4), _mixer(128)


def _rows(model: ModelSpec, step: StepShape, *, tp: int = 1, pp: int = 1, stage: int = 0) -> list[Work]:
    parallelism = ParallelismSpec(tp_size=tp, pp_size=pp)
    plan = precision_plan(model, PrecisionSpec())
    return list(operator_list(model, parallelism=parallelism, plan=plan, step=step, stage=stage))


def _one(value: float) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    return np.array([value])


@given(queries=st.integers(1, 3000), context=st.integers(0, 9000))
def test_pairs_are_the_sum_over_queries(queries: int, context: int) -> None:
    seen = np.arange(context + 1, context + queries + 1, dtype=float)
    raw = np.minimum(seen, 128)
    sums = {WINDOW: raw.sum(), INDEXED: (raw + np.minimum(seen / 4, 512)).sum(), DENSE: (raw + seen / 128).sum()}
    for spec, pairs in sums.items():
        counted = compressed_pairs(spec, queries=_one(queries), context=_one(context))[0]
        assert counted == pytest.approx(pairs)


def test_decode_reads_what_a_query_sees() -> None:
    for spec, keys in ((WINDOW, 128), (INDEXED, 128 + 512), (DENSE, 128 + 64)):
        assert compressed_entries_read(spec, queries=_one(1), context=_one(8191))[0] == pytest.approx(keys)


@given(queries=st.integers(1, 3000), context=st.integers(0, 9000))
def test_no_more_entries_are_read_than_pairs_or_cached(queries: int, context: int) -> None:
    for spec in (WINDOW, INDEXED, DENSE):
        read = compressed_entries_read(spec, queries=_one(queries), context=_one(context))[0]
        cached = (context + queries) * (1 + 1 / (spec.compress_ratio or float("inf")))
        assert 0 < read <= cached * (1 + 1e-9)


def test_hand_numbers_of_the_cache() -> None:
    """448 numbers in 8 bit, 64 rotary ones in 16, 7 scales; index keys of 128 bytes and a 32-bit scale."""
    assert entry_bytes(INDEXED, plan=PLAN) == 448 + 2 * 64 + 7
    plain = precision_plan(FLASH, PrecisionSpec(kv_cache=Dtype.BF16))
    assert entry_bytes(INDEXED, plan=plain) == 1024
    per_token = 21 * (583 + 132) / 4 + 20 * 583 / 128
    assert kv_bytes_per_token(FLASH, plan=PLAN, tp_size=1) == pytest.approx(per_token)
    pools = 21 * 2 * 8 * 2 * (512 + 128) * 4 + 20 * 2 * 128 * 512 * 4
    state = 43 * 128 * 583 + pools
    assert state_bytes_per_sequence(FLASH, plan=PLAN, tp_size=1) == pytest.approx(state)
    held = kv_bytes_per_sequence(FLASH, plan=PLAN, tp_size=1, context_tokens=[0, 100_000])
    assert held == pytest.approx([state, state + per_token * 100_000])


def test_latents_are_on_every_rank() -> None:
    assert kv_bytes_per_token(FLASH, plan=PLAN, tp_size=8) == kv_bytes_per_token(FLASH, plan=PLAN, tp_size=1)


@pytest.mark.parametrize("tp", [2, 8])
def test_heads_groups_and_experts_are_spread_without_loss(tp: int) -> None:
    split = {"q_b_proj", "o_a_proj", "o_b_proj", "experts", "shared_gate_up_proj", "shared_down_proj"}
    step = decode_step(sequences=4, context=1000)
    one = sum(row.count * row.parameters for row in _rows(FLASH, step) if row.name in split)
    each = sum(row.count * row.parameters for row in _rows(FLASH, step, tp=tp) if row.name in split)
    assert tp * each == pytest.approx(one)


def test_groups_bound_tensor_parallelism() -> None:
    assert allowed_tp_sizes(FLASH) == (1, 2, 4, 8)


def test_fewer_heads_than_a_tile_save_no_attention() -> None:
    step = decode_step(sequences=4, context=1000)
    flops = [[row.flops[0] for row in _rows(FLASH, step, tp=tp) if row.name == "decode_attention"] for tp in (1, 8)]
    assert flops[0] == flops[1]


def test_prefill_and_decode_of_one_token_multiply_alike() -> None:
    prompt = _rows(FLASH, prefill_step(sequences=3, tokens=1, context=4999))
    answer = _rows(FLASH, decode_step(sequences=3, context=5000))
    for first, second in zip(prompt, answer, strict=True):
        assert first.name.replace("prefill", "decode") == second.name
        assert first.flops[0] == pytest.approx(second.flops[0])
        assert first.bytes[0] == pytest.approx(second.bytes[0])


def test_weights_do_not_depend_on_the_step() -> None:
    steps = (prefill_step(sequences=1, tokens=1), decode_step(sequences=64, context=9000))
    held = [sum(row.count * row.stored_bytes for row in _rows(FLASH, step)) for step in steps]
    assert held[0] == pytest.approx(held[1])


def test_experts_alone_are_four_bit() -> None:
    assert PLAN.format_for("experts").name == "mxfp4"
    assert PLAN.format_for("attention").name == PLAN.format_for("shared_expert").name == "fp8_block"
    assert precision_plan(FLASH_FP8, PrecisionSpec()).format_for("experts").name == "fp8_block"
    assert precision_plan(FLASH, PrecisionSpec(weights=Dtype.BF16)).format_for("experts").name == "bf16"


class TestHyperConnections:
    def test_each_site_holds_its_mixes(self) -> None:
        """24 numbers a token from 4 streams of 4096, with biases and three scales; two sites in each of 43 layers."""
        assert FLASH.hyper_connections is not None
        assert mixing_numbers(FLASH.hyper_connections) == 24
        rows = [row for row in _rows(FLASH, decode_step(sequences=1, context=10)) if row.name == "hyper_weights"]
        assert sum(row.count for row in rows) == 2 * 43
        assert {row.parameters for row in rows} == {24 * 4 * 4096 + 24 + 3}

    def test_more_streams_move_more(self) -> None:
        def moved(streams: int) -> float:
            hyper = HyperConnectionSpec(streams=streams, sinkhorn_iterations=20)
            model = FLASH.model_copy(update={"hyper_connections": hyper})
            rows = _rows(model, decode_step(sequences=64, context=10))
            return float(sum(row.count * row.bytes[0] for row in rows if row.name.startswith("hyper")))

        assert moved(2) < moved(4) < moved(8)

    def test_a_stage_sends_every_stream(self) -> None:
        sent = [row for row in _rows(FLASH, decode_step(sequences=5, context=10), pp=2) if row.name == "stage_send"]
        assert isinstance(sent[0].shape, CollectiveShape)
        assert sent[0].shape.message_bytes[0] == 5 * 4 * 4096 * 2


# Seconds of both sites of a layer at 64, 1024, 16384 and 131072 tokens, vLLM 0.24.0, H200 [AIC2026].
MIXES = (
    ("deepseek-v4-flash", (19.0e-6, 47.1e-6, 615.4e-6, 4758.8e-6), (6.6e-6, 43.4e-6, 579.3e-6, 4591.8e-6)),
    ("deepseek-v4-pro", (22.8e-6, 81.1e-6, 1031.4e-6, 8281.7e-6), (8.7e-6, 71.6e-6, 1020.5e-6, 8106.6e-6)),
)


@pytest.mark.parametrize(("name", "before_s", "after_s"), MIXES)
def test_measured_stream_mixes(
    h200: AcceleratorSpec, name: str, before_s: tuple[float, ...], after_s: tuple[float, ...]
) -> None:
    model = load_model(name)
    step = prefill_step(sequences=1, tokens=[64, 1024, 16384, 131072])
    rows = [row for row in _rows(model.model_copy(update={"layer_order": (0,)}), step) if row.name.startswith("hyper_")]
    priced = zip(rows, kernel_library(h200, library="vllm").price_all(rows), strict=True)
    seconds = {row.name: row.count * timing.seconds for row, timing in priced}
    assert seconds["hyper_weights"] + seconds["hyper_gather"] == pytest.approx(before_s, rel=0.25)
    assert seconds["hyper_spread"] == pytest.approx(after_s, rel=0.25)


# Seconds of one attention module, vLLM 0.24.0, H200, DeepSeek-V4-Flash-FP8 on one device [AIC2026].
MEASURED = (
    (4, decode_step(sequences=1, context=4097), 104.0e-6, 0.15),
    (4, decode_step(sequences=64, context=4097), 155.7e-6, 0.30),
    (128, decode_step(sequences=1, context=4097), 82.0e-6, 0.15),
    (128, decode_step(sequences=64, context=4097), 97.5e-6, 0.20),
    (128, prefill_step(sequences=1, tokens=4096), 1708.9e-6, 0.35),
    (4, prefill_step(sequences=1, tokens=16384), 12548.3e-6, 0.45),
)


@pytest.fixture(scope="module")
def h200() -> AcceleratorSpec:
    return load_hardware("h200")


@pytest.mark.parametrize(("ratio", "step", "measured_s", "tolerance"), MEASURED)
def test_measured_modules_without_any_fit(
    h200: AcceleratorSpec, ratio: int, step: StepShape, measured_s: float, tolerance: float
) -> None:
    layer = next(
        layer
        for layer in FLASH_FP8.layers
        if isinstance(layer.mixer, CompressedAttentionSpec) and layer.mixer.compress_ratio == ratio
    )
    model = FLASH_FP8.model_copy(update={"layers": (layer,), "layer_order": (0,)})
    own = [row for row in _rows(model, step) if row.role == "attention"]
    library = kernel_library(h200, library="vllm")
    seconds = sum(row.count * float(timing.seconds[0]) for row, timing in zip(own, library.price_all(own), strict=True))
    assert seconds == pytest.approx(measured_s, rel=tolerance)
