"""Causal counts, windows and cached keys of attention."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.operators.attention import attended_pairs, keys_read
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.transformer import operator_list
from simulator.operators.work import AttentionShape, StepShape, Work, decode_step, prefill_step
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.architecture import AttentionSpec, LayerSpec, MlpSpec, ModelSpec
from simulator.specs.model.precision import PrecisionSpec


def model_with(mixer: AttentionSpec) -> ModelSpec:
    layer = LayerSpec(mixer=mixer, feed_forward=(MlpSpec(intermediate_size=64),))
    return ModelSpec(
        name="tiny", model_type="llama", hidden_size=32, vocab_size=100, layers=(layer,), layer_order=(0, 0)
    )


def attention_rows_of(mixer: AttentionSpec, step: StepShape) -> list[Work]:
    model = model_with(mixer)
    rows = operator_list(model, parallelism=ParallelismSpec(), plan=precision_plan(model, PrecisionSpec()), step=step)
    return [row for row in rows if isinstance(row.shape, AttentionShape)]


@given(
    queries=st.integers(1, 40),
    context=st.integers(0, 60),
    window=st.one_of(st.none(), st.integers(1, 50)),
    causal=st.booleans(),
)
def test_pairs_are_those_of_a_mask(queries: int, context: int, window: int | None, causal: bool) -> None:
    """The closed form equals the number of ones in an explicit mask."""
    row = np.arange(queries)[:, None] + context
    column = np.arange(context + queries)[None, :]
    if causal:
        mask = column <= row
        if window is not None:
            mask &= column > row - window
        expected = int(mask.sum())
        seen = int(mask.any(axis=0).sum())
    else:
        expected = queries * min(context + queries, window or context + queries)
        seen = None
    counted = attended_pairs(
        queries=np.array([float(queries)]),
        context=np.array([float(context)]),
        window=None if window is None else float(window),
        causal=causal,
    )
    assert counted[0] == expected
    if seen is not None:
        read = keys_read(queries=np.array([float(queries)]), context=np.array([float(context)]), window=window)
        assert read[0] == seen


def test_hand_numbers_of_one_causal_attention() -> None:
    """4 new tokens after 3 cached: 4 + 5 + 6 + 7 = 22 pairs; 4 heads, width 8 for keys and for values."""
    spec = AttentionSpec(num_attention_heads=4, num_key_value_heads=2, head_dim=8)
    (row,) = attention_rows_of(spec, prefill_step(sequences=5, tokens=4, context=3))
    assert row.flops[0] == 2 * 5 * 22 * 4 * (8 + 8)
    assert row.kv_bytes[0] == 5 * 7 * 2 * (8 + 8) * 2
    assert row.activation_bytes[0] == 5 * 4 * 4 * (8 + 8) * 2
    assert row.count == 2


def test_window_bounds_work_and_traffic_of_decoding() -> None:
    spec = AttentionSpec(num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=100)
    (row,) = attention_rows_of(spec, decode_step(sequences=3, context=[50, 100, 5000]))
    assert row.flops.tolist() == [2 * 3 * keys * 4 * 16 for keys in (50, 100, 100)]
    assert row.kv_bytes.tolist() == [3 * keys * 2 * 16 * 2 for keys in (50, 100, 100)]


@pytest.mark.parametrize("window", [None, 64])
@pytest.mark.parametrize("context", [0, 1, 63, 64, 500])
def test_decoding_one_token_is_prefilling_one_token(window: int | None, context: int) -> None:
    """Same FLOPs, same KV bytes; only the kernel family differs."""
    spec = AttentionSpec(num_attention_heads=4, num_key_value_heads=4, head_dim=8, sliding_window=window)
    (prefill,) = attention_rows_of(spec, prefill_step(sequences=7, tokens=1, context=context))
    (decode,) = attention_rows_of(spec, decode_step(sequences=7, context=context + 1))
    assert prefill.flops[0] == decode.flops[0]
    assert prefill.kv_bytes[0] == decode.kv_bytes[0]
    assert prefill.family != decode.family


@given(tokens=st.integers(2, 400), cut=st.integers(1, 399))
def test_chunked_prefill_costs_the_same_flops(tokens: int, cut: int) -> None:
    """Pairs of a prompt are the sum over its chunks."""
    first = min(cut, tokens - 1)
    parts = [(tokens, 0), (first, 0), (tokens - first, first)]
    whole, left, right = (
        attended_pairs(queries=np.array([float(q)]), context=np.array([float(c)]), window=None, causal=True)[0]
        for q, c in parts
    )
    assert whole == left + right


def test_gqa_shares_keys_but_not_flops() -> None:
    """Fewer KV heads shrink cache traffic in proportion and leave the FLOPs alone."""
    step = decode_step(sequences=8, context=1000)
    rows = [
        attention_rows_of(AttentionSpec(num_attention_heads=8, num_key_value_heads=kv, head_dim=8), step)[0]
        for kv in (8, 2, 1)
    ]
    assert len({row.flops[0] for row in rows}) == 1
    assert rows[0].kv_bytes[0] == 4 * rows[1].kv_bytes[0] == 8 * rows[2].kv_bytes[0]


def test_mixed_step_has_both_kernels_and_an_idle_phase_has_none() -> None:
    spec = AttentionSpec(num_attention_heads=4, num_key_value_heads=4, head_dim=8)
    assert len(attention_rows_of(spec, decode_step(sequences=1, context=10))) == 1
    both = StepShape(
        prefill_sequences=np.array([1.0]),
        prefill_tokens=np.array([16.0]),
        prefill_context=np.array([0.0]),
        decode_sequences=np.array([2.0]),
        decode_context=np.array([10.0]),
        decode_tokens=np.array([1.0]),
        prefill_logits=np.array([1.0]),
    )
    assert {row.shape.is_decode for row in attention_rows_of(spec, both)} == {True, False}
