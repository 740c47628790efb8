"""The rows before and behind the layers, tokens that a bounded cache keeps, and latent attention, by hand."""

from __future__ import annotations

import pytest

from simulator.operators.device_share import DeviceShare
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.kept_tokens import bounded, index_key_bytes, score_bytes
from simulator.operators.mla import mla_rows
from simulator.operators.model_counts import model_counts
from simulator.operators.transformer import embedding_rows, head_rows, stage_send
from simulator.operators.work import AttentionShape, CollectiveShape, StepShape, decode_step, prefill_step
from simulator.specs.model.architecture import AttentionSpec, IndexerSpec, KeptTokensSpec, MlaSpec, ModelSpec
from simulator.specs.model.precision import Dtype, PrecisionSpec
from tests.operators.operator_models import LLAMA_2_7B, deepseek


def share(model: ModelSpec, step: StepShape, *, tp_size: int = 1) -> DeviceShare:
    plan = precision_plan(model, PrecisionSpec())
    return DeviceShare(
        model=model, plan=plan, step=step, source=step, tp_size=tp_size, ep_size=1, dp_size=1, fused=True
    )


def test_a_vocabulary_is_read_by_row_and_multiplied_for_each_logit() -> None:
    """Llama 2 7B: 32,000 rows of 4,096 numbers of 2 bytes, before the layers and behind them."""
    step = decode_step(sequences=8.0, context=100.0)
    (table, *_) = embedding_rows(share(LLAMA_2_7B, step), tokens=step.new_tokens)
    assert float(table.stored_bytes) == 32000 * 4096 * 2
    head = next(row for row in head_rows(share(LLAMA_2_7B, step), holds_embedding=True) if row.name == "lm_head")
    assert float(head.flops[0]) == 2 * 8 * 4096 * 32000


def test_a_stage_sends_its_residual_stream_in_equal_shares() -> None:
    step = prefill_step(sequences=1.0, tokens=100.0)
    row = stage_send(share(LLAMA_2_7B, step, tp_size=2))
    assert isinstance(row.shape, CollectiveShape)
    assert float(row.shape.message_bytes[0]) == 100 * 4096 * 2 / 2


def attention_shape(*, is_decode: bool) -> AttentionShape:
    step = decode_step(sequences=1.0, context=4096.0)
    return AttentionShape(
        sequences=step.decode_sequences,
        query_tokens=step.decode_tokens,
        context_tokens=step.decode_context - 1.0,
        num_heads=4.0,
        num_kv_heads=2.0,
        head_dim=16.0,
        v_head_dim=16.0,
        window=None,
        causal=True,
        shared_kv=False,
        is_decode=is_decode,
        compute_dtype=Dtype.BF16,
        kv_dtype=Dtype.BF16,
    )


def test_a_bounded_cache_attends_to_its_budget() -> None:
    kept = KeptTokensSpec(method="h2o", budget_tokens=512)
    shape = attention_shape(is_decode=True)
    assert bounded(shape, None) is shape
    assert float(bounded(shape, kept).context_tokens[0]) <= 512
    spec = AttentionSpec(num_attention_heads=4, num_key_value_heads=2, head_dim=16)
    assert score_bytes(spec, kv_heads=2.0) == 0.0
    assert score_bytes(spec.model_copy(update={"kept": kept}), kv_heads=2.0) > 0.0


def test_an_indexer_keeps_a_narrow_key_unless_it_takes_the_choice_of_another_layer() -> None:
    own = IndexerSpec(index_n_heads=64, index_head_dim=128, index_topk=2048)
    assert index_key_bytes(own) == 128 + 4
    assert index_key_bytes(own.model_copy(update={"reuses_previous": True})) == 0.0


def test_latent_attention_decodes_over_one_key_that_all_heads_share() -> None:
    """DeepSeek-V3: 512 + 64 numbers a token, read once for 128 heads."""
    model = deepseek(depth=1)
    mixer = model.layers[0].mixer
    assert isinstance(mixer, MlaSpec)
    step = decode_step(sequences=1.0, context=1000.0)
    rows = mla_rows(mixer, share=share(model, step), count=1.0)
    (scores,) = [row for row in rows if isinstance(row.shape, AttentionShape)]
    assert isinstance(scores.shape, AttentionShape)
    assert (scores.shape.num_kv_heads, scores.shape.head_dim, scores.shape.v_head_dim) == (1.0, 576.0, 512.0)
    assert float(scores.kv_bytes[0]) == 1000 * 576 * 2


def test_counts_of_a_model_agree_with_its_sizes() -> None:
    """Llama 2 7B: 2 x 32 x 32 x 128 x 2 bytes of cache a token, and twice its products in FLOPs for one more."""
    counts = model_counts(LLAMA_2_7B, precision=PrecisionSpec(), context_tokens=1)
    assert counts.kv_bytes_per_token == counts.kv_bytes_at_context == 2 * 32 * 32 * 128 * 2
    assert counts.state_bytes_per_sequence == 0
    products = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 4096 * 32000
    assert counts.decode_flops_per_token == pytest.approx(2 * products, rel=1e-3)
