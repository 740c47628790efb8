"""``simulator.kernels.attention.chosen_keys``: attention over keys that an indexer chooses, and the search for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.engine.runs.scenario_setup import deployment_of
from simulator.kernels.attention.chosen_keys import TILE_HEADS, WIDE_TILE_HEADS, gathered, search_seconds
from simulator.operators.work import AttentionShape, StepShape, decode_step, prefill_step
from simulator.phases.step import StepRow, estimate_step
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.precision import Dtype
from simulator.specs.question.scenario import ScenarioSpec

TOP_K = 2048.0
FIRST = {"model": "deepseek-v3.2", "engine": "sglang"}


def layer_rows(
    step: StepShape, *, hardware: str, engine: str, model: str, tp_size: int, weights: str = "fp8_block"
) -> dict[str, StepRow]:
    """Rows of the most frequent kind of layer, by name."""
    asked = {"id": "x", "kind": "batch", "batch_size": 1, "isl_tokens": 64, "osl_tokens": 64}
    served = {"model": model, "hardware": hardware, "tp_size": tp_size, "engine": {"name": engine}}
    precision = {"weights": weights, "kv_cache": "bf16"}
    scenario = validate(ScenarioSpec, {**asked, **served, "precision": precision}, where="x")
    rows = sorted(estimate_step(deployment_of(scenario), step).rows, key=lambda row: row.work.count)
    return {row.work.name: row for row in rows}


def seconds(name: str, step: StepShape, **served: object) -> np.ndarray:
    return layer_rows(step, **served)[name].timing.seconds  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hardware", "alike", "tile"), [("h200", (4, 8), TILE_HEADS), ("b200", (1, 8), WIDE_TILE_HEADS["blackwell"])]
)
def test_fewer_heads_than_a_tile_has_save_nothing(hardware: str, alike: tuple[int, int], tile: float) -> None:
    step = prefill_step(sequences=1, tokens=np.array([4096.0, 16384.0]))
    few, many = (
        seconds("prefill_attention", step, hardware=hardware, engine="vllm", model="deepseek-v3.2", tp_size=tp_size)
        for tp_size in reversed(alike)
    )
    assert 128 / alike[0] <= tile
    np.testing.assert_allclose(few, many)


def test_two_tiles_of_heads_take_twice_as_long_as_one() -> None:
    step = prefill_step(sequences=1, tokens=np.array([8192.0]))
    whole, half = (
        seconds("prefill_attention", step, hardware="h200", engine="vllm", model="deepseek-v3.2", tp_size=tp_size)
        for tp_size in (1, 2)
    )
    np.testing.assert_allclose(whole, 2 * half, rtol=0.15)


def test_every_slot_of_the_chosen_keys_is_multiplied_filled_or_not() -> None:
    tokens, sequences = np.array([512.0, 2048.0, 8192.0]), np.array([32.0, 8.0, 2.0])
    served = {"hardware": "h200", "engine": "vllm", "model": "deepseek-v3.2", "tp_size": 8}
    time_s = seconds("prefill_attention", prefill_step(sequences=sequences, tokens=tokens), **served)
    np.testing.assert_allclose(time_s, time_s[0], rtol=0.02)


@pytest.mark.parametrize("hardware", ["h200", "b200"])
def test_short_prompts_are_multiplied_whole_where_an_engine_does_so(hardware: str) -> None:
    step = prefill_step(sequences=8, tokens=np.array([TOP_K, TOP_K + 1]))
    whole = seconds("prefill_attention", step, hardware=hardware, engine="sglang", model="glm-5", tp_size=8)
    always = seconds("prefill_attention", step, hardware=hardware, engine="vllm", model="glm-5", tp_size=8)
    assert whole[0] < always[0] / 4
    assert whole[1] > 4 * whole[0]
    np.testing.assert_allclose(whole[1], always[1], rtol=0.3)


def test_decoding_in_sixteen_bits_gathers_for_the_heads_there_are() -> None:
    shape = AttentionShape(
        sequences=np.ones(1), query_tokens=np.ones(1), context_tokens=np.full(1, 4096.0), num_heads=8.0,
        num_kv_heads=1.0, head_dim=576, v_head_dim=512, window=TOP_K, causal=True, shared_kv=True, is_decode=True,
        compute_dtype=Dtype.BF16, kv_dtype=Dtype.BF16, expanded_widths=(192.0, 128.0),
    )  # fmt: skip
    hopper, blackwell = load_hardware("h200"), load_hardware("b200")
    narrow = replace(shape, kv_dtype=Dtype.FP8)
    assert gathered(shape, hardware=hopper).num_heads == gathered(narrow, hardware=blackwell).num_heads == 8.0
    assert gathered(narrow, hardware=hopper).num_heads == TILE_HEADS


def test_no_search_where_no_query_sees_more_keys_than_are_kept() -> None:
    step = decode_step(sequences=64, context=np.array([TOP_K, TOP_K + 2, 65536.0]))
    short, longer, longest = seconds("index_top_k", step, hardware="h200", tp_size=8, **FIRST)
    assert short < longer < longest
    assert longer - short > 2e-6


# Times of SGLang's fused kernel on one accelerator (aiconfigurator-core 0.12.0, glm5_topk_module) [s].
SEARCHES = [
    ("h200", 1.0, 4096.0, 7.7e-6),
    ("h200", 1.0, 131072.0, 46.6e-6),
    ("h200", 8192.0, 20480.0, 555.2e-6),
    ("h200", 8192.0, 135168.0, 2839.9e-6),
    ("b200", 8192.0, 20480.0, 490.0e-6),
    ("b200", 8192.0, 135168.0, 2367.0e-6),
]


@pytest.mark.parametrize(("hardware", "rows", "numbers", "measured_s"), SEARCHES)
def test_searches_take_what_was_measured(hardware: str, rows: float, numbers: float, measured_s: float) -> None:
    found = search_seconds(np.array([rows]), np.array([numbers]), hardware=load_hardware(hardware))
    np.testing.assert_allclose(found, measured_s, rtol=0.25)


# Whole attention modules over a 16-bit cache, in FP8 blocks but for MiniMax-M3 in 16 bits, of one prompt of that many
# tokens (aiconfigurator-core 0.12.0) [s].
MODULES = [
    ("h200", "sglang", "deepseek-v3.2", 1, 8192, 12.052e-3),
    ("h200", "sglang", "deepseek-v3.2", 8, 8192, 5.908e-3),
    ("h200", "sglang", "glm-5", 8, 8192, 5.163e-3),
    ("h200", "vllm", "glm-5", 8, 16384, 12.927e-3),
    ("b200", "sglang", "deepseek-v3.2", 8, 8192, 5.161e-3),
    ("b200", "vllm", "glm-5", 8, 16384, 9.812e-3),
    ("h200", "vllm", "minimax-m3", 1, 16384, 13.108e-3),
    ("h200", "vllm", "minimax-m3", 8, 8192, 1.347e-3),
    ("h200", "sglang", "minimax-m3", 1, 8192, 8.367e-3),
    ("b200", "vllm", "minimax-m3", 8, 8192, 0.412e-3),
]
OTHERS = ("embedding", "lm_head", "collective", "moe")


@pytest.mark.parametrize(("hardware", "engine", "model", "tp_size", "tokens", "measured_s"), MODULES)
def test_whole_modules_take_what_was_measured(
    hardware: str, engine: str, model: str, tp_size: int, tokens: int, measured_s: float
) -> None:
    step = prefill_step(sequences=1, tokens=np.array([float(tokens)]))
    weights = "bf16" if model == "minimax-m3" else "fp8_block"
    rows = layer_rows(step, hardware=hardware, engine=engine, model=model, tp_size=tp_size, weights=weights)
    attention = [row for row in rows.values() if row.work.role == "attention" and row.work.family.value not in OTHERS]
    total_s = sum(row.timing.seconds[0] for row in attention)
    assert total_s == pytest.approx(measured_s, rel=0.2 if model == "minimax-m3" else 0.15)


def test_queries_that_choose_the_same_blocks_share_a_tile_where_a_kernel_packs_them() -> None:
    step = prefill_step(sequences=1, tokens=np.array([8192.0]))
    packed, alone = (
        seconds("prefill_attention", step, hardware="b200", engine=engine, model="minimax-m3", tp_size=8)
        for engine in ("vllm", "sglang")
    )
    assert packed < alone / 4


def test_index_heads_that_belong_to_kv_heads_are_split_with_them() -> None:
    step = prefill_step(sequences=1, tokens=np.array([4096.0]))
    served = {"hardware": "h200", "engine": "vllm", "model": "minimax-m3"}
    found = [layer_rows(step, tp_size=tp_size, **served)["index_scores"].work.shape for tp_size in (1, 2, 4, 8)]
    assert [shape.num_heads for shape in found if isinstance(shape, AttentionShape)] == [4, 2, 1, 1]


@pytest.mark.parametrize(("hardware", "ratio"), [("b200", 1.0), ("h200", 2.0)])
def test_compressed_attention_fills_the_tiles_of_its_architecture(hardware: str, ratio: float) -> None:
    step = prefill_step(sequences=1, tokens=np.array([16384.0]))
    whole, half = (
        seconds("prefill_attention", step, hardware=hardware, engine="vllm", model="deepseek-v4-pro", tp_size=tp_size)
        for tp_size in (1, 2)
    )
    np.testing.assert_allclose(whole, ratio * half, rtol=0.05)


# Whole attention modules in FP8 blocks over a 16-bit cache, 8,192 cached tokens (aiconfigurator-core 0.12.0) [s].
DECODE_MODULES = [
    ("h200", "sglang", "deepseek-v3.2", 16, 0.109e-3),
    ("h200", "vllm", "deepseek-v3.2", 64, 0.273e-3),
    ("b200", "sglang", "deepseek-v3.2", 16, 0.108e-3),
    ("b200", "vllm", "glm-5", 16, 0.230e-3),
    ("b200", "vllm", "glm-5", 256, 0.424e-3),
    ("b200", "tensorrt-llm", "glm-5", 16, 0.140e-3),
    ("b200", "tensorrt-llm", "glm-5", 256, 0.343e-3),
]


@pytest.mark.parametrize(("hardware", "engine", "model", "sequences", "measured_s"), DECODE_MODULES)
def test_whole_modules_decode_as_measured(
    hardware: str, engine: str, model: str, sequences: int, measured_s: float
) -> None:
    step = decode_step(sequences=float(sequences), context=np.array([8193.0]))
    rows = layer_rows(step, hardware=hardware, engine=engine, model=model, tp_size=8)
    attention = [row for row in rows.values() if row.work.role == "attention" and row.work.family.value not in OTHERS]
    total_s = sum(row.timing.seconds[0] for row in attention)
    assert total_s == pytest.approx(measured_s, rel=0.2)
