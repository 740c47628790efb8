"""``simulator.operators.device_share`` and ``parallelism``: FLOPs, bytes and parameters of one product, and who holds
which part of a model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.operators.device_share import has_decode, has_prefill
from simulator.operators.parallelism import allowed_tp_sizes, stage_layers
from simulator.operators.work import (
    Collective,
    CollectiveShape,
    Family,
    GemmShape,
    behind_prefix,
    decode_step,
    mixed_step,
    prefill_step,
)
from simulator.specs.model.precision import Dtype, PrecisionSpec
from tests.operators.operator_models import LLAMA_31_70B, deepseek
from tests.operators.shares import ATTENTION, DECODE, HIDDEN, LAYERS, PREFILL, SMALL, share, with_mixer

SIZES = st.integers(1, 4096)


@given(m=SIZES, n=SIZES, k=SIZES)
def test_a_product_is_two_flops_a_weight_and_row(m: int, n: int, k: int) -> None:
    step = prefill_step(sequences=1.0, tokens=float(m))
    row = share(step).linear("x", role="mlp", m=np.array([float(m)]), n=n, k=k, count=1.0)
    assert row.flops[0] == 2 * m * n * k
    assert row.weight_bytes[0] == 2 * n * k
    assert row.activation_bytes[0] == 2 * m * (k + n)
    assert row.parameters == n * k


@given(m=SIZES, n=SIZES, k=SIZES)
def test_no_product_beats_the_intensity_of_its_smallest_side(m: int, n: int, k: int) -> None:
    """2 m n k over 2 (m k + n k + m n): the harmonic sum of the sides bounds it."""
    step = prefill_step(sequences=1.0, tokens=float(m))
    row = share(step).linear("x", role="mlp", m=np.array([float(m)]), n=n, k=k, count=1.0)
    assert row.arithmetic_intensity[0] == pytest.approx(1 / (1 / m + 1 / n + 1 / k))
    assert row.arithmetic_intensity[0] < min(m, n, k)


def test_a_bias_is_held_and_read_beside_the_weights() -> None:
    tokens = np.array([4.0])
    plain, biased = (
        share(PREFILL).linear("x", role="mlp", m=tokens, n=30, k=20, bias=bias, count=1.0) for bias in (0, 30)
    )
    assert biased.parameters - plain.parameters == 30
    assert biased.stored_bytes - plain.stored_bytes == 60
    assert biased.weight_bytes[0] - plain.weight_bytes[0] == 60
    assert biased.flops[0] == plain.flops[0]


def test_nothing_to_multiply_reads_nothing_and_is_still_held() -> None:
    row = share(PREFILL).linear("x", role="mlp", m=np.array([0.0]), n=30, k=20, count=1.0)
    assert row.flops[0] == row.weight_bytes[0] == row.activation_bytes[0] == 0
    assert row.stored_bytes == 2 * 30 * 20


def test_weights_that_another_row_holds_are_read_and_not_held() -> None:
    row = share(PREFILL).linear("x", role="mlp", m=np.array([3.0]), n=30, k=20, count=1.0, held=False)
    assert row.weight_bytes[0] == 2 * 30 * 20
    assert (row.parameters, row.active_parameters, row.stored_bytes) == (0, 0, 0)


@pytest.mark.parametrize("batch", [1.0, 4.0, 32.0])
def test_independent_products_add_up(batch: float) -> None:
    tokens = np.array([5.0])
    one, many = (
        share(PREFILL).linear("x", role="mlp", m=tokens, n=30, k=20, count=1.0, batch=size) for size in (1.0, batch)
    )
    for figure in ("flops", "weight_bytes", "activation_bytes"):
        assert getattr(many, figure)[0] == batch * getattr(one, figure)[0]
    assert many.parameters == batch * one.parameters
    assert isinstance(many.shape, GemmShape)
    assert many.shape.batch == batch


@pytest.mark.parametrize(("weights", "each"), [(Dtype.FP8, 1.0), (Dtype.BF16, 2.0), (Dtype.FP32, 4.0)])
def test_the_format_of_the_role_sets_the_bytes_of_a_weight(weights: Dtype, each: float) -> None:
    precision = PrecisionSpec(weights=weights, activations=weights)
    row = share(PREFILL, precision=precision).linear("x", role="mlp", m=np.array([1.0]), n=128, k=128, count=1.0)
    assert row.stored_bytes == pytest.approx(128 * 128 * each, rel=0.03)


@given(st.integers(1, 200), st.integers(1, 40))
def test_stages_partition_the_layers_in_order(depth: int, pp_size: int) -> None:
    model = SMALL.model_copy(update={"layer_order": (0,) * depth})
    pp_size = min(pp_size, depth)
    stages = [list(stage_layers(model, pp_size=pp_size, stage=stage)) for stage in range(pp_size)]
    assert [layer for stage in stages for layer in stage] == list(range(depth))
    sizes = [len(stage) for stage in stages]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_allowed_sizes_divide_heads_and_the_width_between_the_products() -> None:
    """8 query heads and 512 wide blocks; two KV heads may be copied."""
    assert allowed_tp_sizes(SMALL) == (1, 2, 4, 8)
    three = with_mixer(ATTENTION.model_copy(update={"num_attention_heads": 6, "num_key_value_heads": 3}))
    assert allowed_tp_sizes(three) == (1,)  # 6 does not divide 512 evenly, and 2 does not divide 3
    assert allowed_tp_sizes(LLAMA_31_70B) == (1, 2, 4, 8, 16, 32, 64)
    assert allowed_tp_sizes(deepseek())[-1] == 128


@pytest.mark.parametrize("tp_size", [2, 4, 8])
def test_an_all_reduce_carries_the_residual_stream(tp_size: int) -> None:
    (row,) = share(PREFILL, tp_size=tp_size).all_reduce_after("mlp", count=LAYERS)
    assert isinstance(row.shape, CollectiveShape)
    assert row.family is Family.COLLECTIVE
    assert row.shape.operation is Collective.ALL_REDUCE
    assert row.shape.participants == tp_size
    assert row.shape.message_bytes[0] == 3 * 50 * HIDDEN * 2
    assert row.flops[0] == row.bytes[0] == 0


def test_one_device_reduces_nothing() -> None:
    assert share(PREFILL).all_reduce_after("mlp", count=LAYERS) == ()


def test_collectives_hold_and_compute_nothing() -> None:
    row = share(DECODE, tp_size=2).collective(
        "x", operation=Collective.ALL_GATHER, message_bytes=np.array([1e6]), participants=2, count=3.0, role="lm_head"
    )
    assert (row.parameters, row.stored_bytes) == (0, 0)
    assert row.count == 3.0


@pytest.mark.parametrize(("heads", "tp_size", "expected"), [(8, 1, 8), (8, 4, 2), (2, 8, 1), (1, 8, 1), (3, 2, 1.5)])
def test_heads_are_shared_out_and_copied_where_too_few(heads: int, tp_size: int, expected: float) -> None:
    assert share(DECODE, tp_size=tp_size).split(heads) == expected


@pytest.mark.parametrize(
    ("norm", "bias", "expected"),
    [
        ("rms", None, 64),
        ("layer", None, 128),
        ("layer_no_bias", None, 64),
        ("none_affine", None, 0),
        ("rms", True, 128),
        ("layer", False, 64),
        ("none_affine", False, 64),
    ],
)
def test_norms_hold_a_scale_and_perhaps_a_shift(norm: str, bias: bool | None, expected: int) -> None:
    model = SMALL.model_copy(update={"norm": norm})
    assert share(DECODE, model=model).norm_parameters(64, bias=bias) == expected


def test_phases_of_a_step() -> None:
    mixed = mixed_step(prefill_sequences=1, prefill_tokens=10, decode_sequences=2, decode_context=20)
    assert has_prefill(PREFILL)
    assert not has_decode(PREFILL)
    assert has_decode(DECODE)
    assert not has_prefill(DECODE)
    assert has_prefill(mixed)
    assert has_decode(mixed)


@given(sequences=st.integers(1, 64), tokens=st.integers(1, 512), decodes=st.integers(0, 64))
def test_tokens_and_logits_of_a_step(sequences: int, tokens: int, decodes: int) -> None:
    step = mixed_step(prefill_sequences=sequences, prefill_tokens=tokens, decode_sequences=decodes, decode_context=100)
    assert step.new_tokens[0] == sequences * tokens + decodes
    assert step.logits_tokens[0] == sequences + decodes


def test_a_chunk_that_does_not_finish_its_prompt_needs_no_logits() -> None:
    step = mixed_step(prefill_sequences=4, prefill_tokens=128, prefill_logits=1, decode_sequences=3, decode_context=9)
    assert step.logits_tokens[0] == 4


def test_steps_are_broadcast_to_the_longest_argument() -> None:
    step = decode_step(sequences=[1, 2, 4], context=100)
    assert step.decode_sequences.tolist() == [1, 2, 4]
    assert step.decode_context.tolist() == [100, 100, 100]
    assert step.prefill_tokens.tolist() == [0, 0, 0]


def test_a_prefix_lengthens_what_is_there_and_nothing_else() -> None:
    step = mixed_step(prefill_sequences=[2, 0], prefill_tokens=[10, 0], decode_sequences=[0, 3], decode_context=[0, 50])
    longer = behind_prefix(step, tokens=7)
    assert longer.prefill_context.tolist() == [7, 0]
    assert longer.decode_context.tolist() == [0, 57]
    assert longer.new_tokens.tolist() == step.new_tokens.tolist()
    assert behind_prefix(step, tokens=0) is step
