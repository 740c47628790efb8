"""Attention of decoder tokens over an encoder's output."""

from __future__ import annotations

import numpy as np

from simulator.operators.attention import attention_work, output_projection
from simulator.operators.collectives import all_reduce_after
from simulator.operators.elementwise import GATHER, elementwise
from simulator.operators.linear import linear
from simulator.operators.share import DeviceShare, has_decode, has_prefill
from simulator.operators.step_shape import Array
from simulator.operators.work import AttentionShape, Work
from simulator.specs.model import AttentionSpec


def cross_attention_rows(spec: AttentionSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Keys and values of the source are projected and cached once, at prefill; queries come with every token."""
    heads, kv_heads = spec.num_attention_heads / share.tp_size, share.split(spec.num_key_value_heads)
    query = heads * spec.head_dim
    q_row = linear(
        "cross_q_proj",
        share=share,
        role="attention",
        m=share.tokens,
        n=query,
        k=share.hidden_size,
        bias=query if spec.qkv_bias else 0.0,
        count=count,
    )
    return (
        q_row,
        *_source_rows(spec, share=share, kv_heads=kv_heads, count=count),
        *_score_rows(spec, share=share, heads=heads, kv_heads=kv_heads, count=count),
        output_projection(share, width=heads * spec.value_dim, bias=spec.o_bias, count=count),
        *all_reduce_after("attention", share=share, count=count),
    )


def _source_rows(spec: AttentionSpec, *, share: DeviceShare, kv_heads: float, count: float) -> tuple[Work, ...]:
    key, value = kv_heads * spec.head_dim, kv_heads * spec.value_dim
    source = share.source.prefill_sequences * share.source.prefill_tokens
    bias = (value + (key if spec.k_bias else 0.0)) if spec.qkv_bias else 0.0
    projection = linear(
        "cross_kv_proj",
        share=share,
        role="attention",
        m=source,
        n=key + value,
        k=share.hidden_size,
        bias=bias,
        count=count,
    )
    write = elementwise(
        "cross_kv_write",
        share=share,
        cost=GATHER,
        rows=source,
        width=(key + value) / 2.0,
        count=count,
        role="attention",
        parameters=float(spec.position_bias_parameters),
        kv_bytes=source * (key + value) * share.plan.kv_bytes,
    )
    return (projection, write)


def _score_rows(
    spec: AttentionSpec, *, share: DeviceShare, heads: float, kv_heads: float, count: float
) -> tuple[Work, ...]:
    """Queries are the decoder's, keys the encoder's: context = source - queries, so that keys = source."""
    step, source = share.step, share.source
    parts: list[tuple[str, Array, Array, Array]] = []
    if has_prefill(step):
        parts.append(("cross_prefill_attention", step.prefill_sequences, step.prefill_tokens, source.prefill_tokens))
    if has_decode(step) and bool(np.any(source.decode_source_tokens > 0)):
        parts.append(("cross_decode_attention", step.decode_sequences, step.decode_tokens, source.decode_source_tokens))
    rows = []
    for name, sequences, queries, keys in parts:
        shape = AttentionShape(
            sequences=sequences,
            query_tokens=queries,
            context_tokens=keys - queries,
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=spec.head_dim,
            v_head_dim=spec.value_dim,
            window=None,
            causal=False,
            shared_kv=False,
            is_decode=name == "cross_decode_attention",
            compute_dtype=share.plan.activation_dtype,
            kv_dtype=share.plan.kv_dtype,
        )
        rows.append(attention_work(name, share=share, shape=shape, count=count))
    return tuple(rows)
