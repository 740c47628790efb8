"""``simulator.operators.attention``: query-key pairs counted one by one, and what an attention row does with them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.operators.attention import attended_pairs, attention_shapes, attention_work, keys_read
from simulator.operators.work import Family
from tests.operators.shares import DECODE, HEAD_DIM, HEADS, KV_HEADS, PREFILL, share

QUERIES, CONTEXT = st.integers(1, 40), st.integers(0, 60)
WINDOWS = st.one_of(st.none(), st.integers(1, 50))


def array(value: float) -> np.ndarray:
    return np.array([float(value)])


def seen_by(query: int, context: int, window: int | None) -> range:
    """Keys that the query-th new token sees, itself the last of them."""
    last = context + query
    return range(max(0, last - window) if window else 0, last)


@given(queries=QUERIES, context=CONTEXT, window=WINDOWS)
def test_causal_pairs_are_those_counted_one_by_one(queries: int, context: int, window: int | None) -> None:
    counted = sum(len(seen_by(query, context, window)) for query in range(1, queries + 1))
    found = attended_pairs(queries=array(queries), context=array(context), window=window, causal=True)
    assert float(found[0]) == counted


@given(queries=QUERIES, context=CONTEXT, window=WINDOWS)
def test_keys_read_are_the_union_of_what_queries_see(queries: int, context: int, window: int | None) -> None:
    union = {key for query in range(1, queries + 1) for key in seen_by(query, context, window)}
    assert float(keys_read(queries=array(queries), context=array(context), window=window)[0]) == len(union)


@given(queries=QUERIES, context=CONTEXT)
def test_both_directions_see_every_key(queries: int, context: int) -> None:
    found = attended_pairs(queries=array(queries), context=array(context), window=None, causal=False)
    assert float(found[0]) == queries * (context + queries)


@given(queries=QUERIES, context=CONTEXT, window=st.integers(1, 50))
def test_a_window_only_takes_pairs_away(queries: int, context: int, window: int) -> None:
    narrow, wide, whole = (
        float(attended_pairs(queries=array(queries), context=array(context), window=limit, causal=True)[0])
        for limit in (window, window + 1, None)
    )
    assert 0 < narrow <= wide <= whole


@given(first=QUERIES, second=QUERIES, context=CONTEXT, window=WINDOWS)
def test_a_prompt_in_two_chunks_has_the_same_pairs(first: int, second: int, context: int, window: int | None) -> None:
    def pairs(queries: int, before: int) -> float:
        return float(attended_pairs(queries=array(queries), context=array(before), window=window, causal=True)[0])

    assert pairs(first + second, context) == pytest.approx(pairs(first, context) + pairs(second, context + first))


@pytest.mark.parametrize(("step", "family"), [(PREFILL, Family.PREFILL_ATTENTION), (DECODE, Family.DECODE_ATTENTION)])
def test_a_phase_that_no_case_has_gives_no_shape(step: object, family: Family) -> None:
    device = share(step)  # type: ignore[arg-type]
    (shape,) = attention_shapes(device, num_heads=HEADS, num_kv_heads=KV_HEADS, head_dim=HEAD_DIM, v_head_dim=HEAD_DIM)
    row = attention_work("attention", share=device, shape=shape, count=2.0)
    assert row.family is family
    pairs = attended_pairs(queries=shape.query_tokens, context=shape.context_tokens, window=None, causal=True)
    assert row.flops == pytest.approx(4.0 * shape.sequences * pairs * HEADS * HEAD_DIM)
    read = keys_read(queries=shape.query_tokens, context=shape.context_tokens, window=None)
    assert row.kv_bytes == pytest.approx(shape.sequences * read * KV_HEADS * 2 * HEAD_DIM * 2.0)
    assert row.count == 2.0


def test_one_vector_for_keys_and_values_is_read_once() -> None:
    device = share(DECODE)
    own, shared = (
        attention_work("attention", share=device, shape=shape, count=1.0)
        for shared_kv in (False, True)
        for shape in attention_shapes(
            device, num_heads=HEADS, num_kv_heads=1, head_dim=HEAD_DIM, v_head_dim=HEAD_DIM, shared_kv=shared_kv
        )
    )
    assert own.kv_bytes == pytest.approx(2 * shared.kv_bytes)
    assert own.flops == pytest.approx(shared.flops)
