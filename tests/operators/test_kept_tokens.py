"""``simulator.operators.kept_tokens``: caches cut to a budget, and the indexer that chooses keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.operators.attention import attention_rows, attention_shapes
from simulator.operators.kept_tokens import (
    SCORE_BYTES,
    bounded,
    index_key_bytes,
    index_rows,
    index_score_rows,
    kept_rows,
    score_bytes,
)
from simulator.operators.work import AttentionShape, decode_step, prefill_step
from simulator.specs.model.architecture import AttentionSpec, IndexerSpec, KeptTokensSpec
from tests.operators.shares import ATTENTION, DECODE, HEAD_DIM, HEADS, HIDDEN, KV_HEADS, PREFILL, named, names, share

H2O = KeptTokensSpec(method="h2o", budget_tokens=40)
STREAMING = KeptTokensSpec(method="streaming", budget_tokens=40)
INDEXER = IndexerSpec(index_n_heads=4, index_head_dim=64, index_topk=32)


def shapes(step: object) -> tuple[AttentionShape, ...]:
    return attention_shapes(
        share(step),  # type: ignore[arg-type]
        num_heads=HEADS,
        num_kv_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        v_head_dim=HEAD_DIM,
    )


def kept(spec: KeptTokensSpec) -> AttentionSpec:
    return ATTENTION.model_copy(update={"kept": spec})


@given(context=st.floats(1, 1e5), budget=st.integers(2, 10_000))
def test_decoding_sees_the_budget_at_most(context: float, budget: int) -> None:
    (shape,) = shapes(decode_step(sequences=2.0, context=context))
    for method in ("h2o", "streaming"):
        cut = bounded(shape, KeptTokensSpec(method=method, budget_tokens=budget))
        assert cut.context_tokens[0] + cut.query_tokens[0] <= max(budget, shape.query_tokens[0]) + 1e-9
        assert cut.context_tokens[0] <= shape.context_tokens[0]


def test_a_budget_above_the_context_changes_nothing() -> None:
    (shape,) = shapes(decode_step(sequences=2.0, context=30.0))
    assert np.array_equal(bounded(shape, H2O).context_tokens, shape.context_tokens)
    assert bounded(shape, None) is shape


def test_prompts_are_seen_in_full_by_h2o_and_through_a_window_by_streaming() -> None:
    (shape,) = shapes(PREFILL)
    assert bounded(shape, H2O) is shape
    assert bounded(shape, STREAMING).window == 40


def test_only_h2o_keeps_a_score_a_key() -> None:
    assert score_bytes(kept(H2O), kv_heads=KV_HEADS) == KV_HEADS * SCORE_BYTES == KV_HEADS * 4
    assert score_bytes(kept(STREAMING), kv_heads=KV_HEADS) == 0
    assert score_bytes(ATTENTION, kv_heads=KV_HEADS) == 0


def test_h2o_multiplies_queries_and_keys_once_more_and_passes_over_its_scores() -> None:
    (shape,) = shapes(decode_step(sequences=2.0, context=40.0))
    rows = kept_rows(kept(H2O), share=share(DECODE), shapes=(shape,), count=3)
    products, choice = rows
    assert names(rows) == ["h2o_probabilities", "h2o_choice"]
    assert products.flops[0] == 2 * 2 * 40 * HEADS * HEAD_DIM
    assert choice.kv_bytes[0] == 3 * 2 * 40 * KV_HEADS * SCORE_BYTES
    assert choice.flops[0] == 0


def test_after_a_prompt_the_kept_keys_and_values_are_moved_together() -> None:
    (shape,) = shapes(prefill_step(sequences=1.0, tokens=100.0))
    (_, choice) = kept_rows(kept(H2O), share=share(PREFILL), shapes=(shape,), count=1)
    scores = 3 * 100 * KV_HEADS * SCORE_BYTES
    moved = 2 * 40 * KV_HEADS * 2 * HEAD_DIM * 2
    assert choice.kv_bytes[0] == scores + moved


@pytest.mark.parametrize(("fused", "rows"), [(True, []), (False, ["sink_rotary"])])
def test_streaming_turns_its_keys_apart_only_in_eager_engines(fused: bool, rows: list[str]) -> None:
    found = kept_rows(kept(STREAMING), share=share(DECODE, fused=fused), shapes=shapes(DECODE), count=1)
    assert names(found) == rows


def test_streaming_turns_nothing_in_a_prompt() -> None:
    assert kept_rows(kept(STREAMING), share=share(PREFILL, fused=False), shapes=shapes(PREFILL), count=1) == ()


def test_a_plain_cache_adds_no_rows() -> None:
    assert kept_rows(ATTENTION, share=share(DECODE), shapes=shapes(DECODE), count=1) == ()


def test_an_index_key_is_one_byte_a_number_and_a_scale() -> None:
    assert index_key_bytes(INDEXER) == 64 + 4
    assert index_key_bytes(INDEXER.model_copy(update={"reuses_previous": True})) == 0


def test_an_indexer_projects_norms_scores_and_chooses() -> None:
    rows = index_rows(INDEXER, share=share(DECODE), query_width=None, count=2)
    assert names(rows) == ["index_q_proj", "index_k_proj", "index_k_norm", "index_scores", "index_top_k"]
    assert named(rows, "index_q_proj").parameters == HIDDEN * 4 * 64
    assert named(rows, "index_k_proj").parameters == HIDDEN * (64 + 4)  # its key and a weight a head
    assert named(rows, "index_k_norm").parameters == 2 * 64
    assert named(rows, "index_k_norm").kv_bytes[0] == 7 * (64 + 4)
    # Every one of 100 keys is scored, whatever is chosen.
    assert named(rows, "index_scores").flops[0] == 2 * 7 * 100 * 4 * 64
    assert named(rows, "index_scores").kv_bytes[0] == 7 * 100 * (64 + 4)
    assert named(rows, "index_top_k").activation_bytes[0] == 7 * 100 * 4


def test_queries_may_come_from_a_latent() -> None:
    rows = index_rows(INDEXER, share=share(DECODE), query_width=96, count=1)
    assert named(rows, "index_q_proj").parameters == 96 * 4 * 64


def test_a_layer_that_reuses_the_choice_scores_nothing() -> None:
    reusing = INDEXER.model_copy(update={"reuses_previous": True})
    assert index_rows(reusing, share=share(DECODE), query_width=None, count=1) == ()


@pytest.mark.parametrize("ratio", [1, 4, 16])
def test_compressed_keys_are_that_much_fewer(ratio: int) -> None:
    scores, top_k = index_score_rows(INDEXER, share=share(DECODE), count=1, compress_ratio=ratio)
    full_scores, full_top_k = index_score_rows(INDEXER, share=share(DECODE), count=1)
    assert scores.flops[0] == full_scores.flops[0] / ratio
    assert scores.kv_bytes[0] == full_scores.kv_bytes[0] / ratio
    assert top_k.bytes[0] == full_top_k.bytes[0] / ratio


@given(tokens=st.integers(1, 400))
def test_scoring_a_prompt_is_quadratic_and_attending_is_not(tokens: int) -> None:
    """With an indexer attention stops growing at its choice; the scores do not."""
    spec = ATTENTION.model_copy(update={"indexer": INDEXER})
    rows = attention_rows(spec, share=share(prefill_step(sequences=1.0, tokens=float(tokens))), count=1)
    pairs = tokens * (tokens + 1) / 2
    chosen = sum(min(seen, INDEXER.index_topk) for seen in range(1, tokens + 1))
    assert named(rows, "index_scores").flops[0] == pytest.approx(2 * pairs * 4 * 64)
    assert named(rows, "prefill_attention").flops[0] == pytest.approx(4 * chosen * HEADS * HEAD_DIM)
