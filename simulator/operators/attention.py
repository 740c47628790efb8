"""Scaled dot-product attention with exact causal counts, and the projections around it (MHA, GQA, MQA, cross)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from simulator.operators.device_share import GATHER, NORM, ROTARY, SPLIT_NORM, DeviceShare, has_decode, has_prefill
from simulator.operators.work import Array, AttentionShape, Collective, Family, Work
from simulator.specs.model.architecture import AttentionSpec, OutputGate

SUM_BYTES = 4.0
"""Sums of squares are 32-bit."""


def attended_pairs(*, queries: Array, context: Array, window: float | None, causal: bool) -> Array:
    """Query-key pairs of one sequence: sum over its queries i = 1..q of min(window, context + i) when causal. Not
    causal: every query sees context + q keys, at most ``window``. Real-valued arguments interpolate the sum."""
    keys = context + queries
    if not causal:
        return queries * (keys if window is None else np.minimum(keys, window))
    if window is None:
        return queries * context + queries * (queries + 1.0) / 2.0
    growing = np.clip(window - context, 0.0, queries)
    return growing * context + growing * (growing + 1.0) / 2.0 + (queries - growing) * window


def keys_read(*, queries: Array, context: Array, window: float | None) -> Array:
    """Distinct cached and new tokens that the queries of one sequence look at."""
    keys = context + queries
    return keys if window is None else np.minimum(keys, window + queries - 1.0)


def attention_work(name: str, *, share: DeviceShare, shape: AttentionShape, count: float) -> Work:
    """Price a shape: 2 FLOPs x pairs x heads x (key width + value width), the softmax left out.

    KV bytes are one read of every key and value that some query sees; activation bytes are queries in, outputs out, as
    tiled kernels do [Dao2022].
    """
    q, c = shape.query_tokens, shape.context_tokens
    pairs = attended_pairs(queries=q, context=c, window=shape.window, causal=shape.causal)
    width = shape.head_dim if shape.shared_kv else shape.head_dim + shape.v_head_dim
    seen = keys_read(queries=q, context=c, window=shape.window)
    heads = shape.num_heads * (shape.head_dim + shape.v_head_dim)
    return Work(
        name=name,
        family=Family.DECODE_ATTENTION if shape.is_decode else Family.PREFILL_ATTENTION,
        role="attention",
        shape=shape,
        count=count,
        flops=2.0 * shape.sequences * pairs * heads,
        weight_bytes=share.zeros,
        kv_bytes=shape.sequences * seen * shape.num_kv_heads * width * share.plan.kv_bytes,
        activation_bytes=shape.sequences * q * heads * share.element_bytes,
    )


def attention_shapes(
    share: DeviceShare,
    *,
    num_heads: float,
    num_kv_heads: float,
    head_dim: float,
    v_head_dim: float,
    window: float | None = None,
    causal: bool = True,
    shared_kv: bool = False,
    expanded_widths: tuple[float, float] | None = None,
) -> tuple[AttentionShape, ...]:
    """The prefill part and the decode part of the step, each left out where no case has it."""
    step, ranks = share.attended, share.cp_size
    parts = []
    if has_prefill(step):
        # Early and late pieces of a prompt on every rank: alike in work, the mean query sees as many keys as before.
        others = step.prefill_tokens * (1.0 - 1.0 / ranks)
        seen = step.prefill_context + (others / 2.0 if causal else others)
        parts.append((step.prefill_sequences, step.prefill_tokens / ranks, seen, window, False))
    if has_decode(step):
        context = np.maximum(step.decode_context / ranks - step.decode_tokens, 0.0)
        near = None if window is None else max(1.0, window / ranks)
        parts.append((step.decode_sequences, step.decode_tokens, context, near, True))
    return tuple(
        AttentionShape(
            sequences=sequences,
            query_tokens=queries,
            context_tokens=context,
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_dim=head_dim,
            v_head_dim=v_head_dim,
            window=near,
            causal=causal,
            shared_kv=shared_kv,
            is_decode=is_decode,
            compute_dtype=share.plan.plain.math,
            kv_dtype=share.plan.kv_dtype,
            expanded_widths=expanded_widths,
        )
        for sequences, queries, context, near, is_decode in parts
    )


def context_rows(
    shapes: Sequence[AttentionShape], *, share: DeviceShare, scores: Sequence[Work], kv_bytes: float, count: float
) -> tuple[Work, ...]:
    """What ``cp_size`` ranks send each other in a layer, ``kv_bytes`` for the keys and values of a token.

    Prompts: keys and values go around a ring in cp_size - 1 hops of (context + prompt) / cp_size tokens, each beside
    the scores of the piece that is there. Decoding: every rank gets all queries, scores them with its share of the
    cache, and sends the partial outputs to the ranks of their sequences. Leaves out sums of exponentials, and
    that windows need no more than the ranks nearby.

    Reference: [Liu2023b], [Yang2024b]
    """
    ranks, step = share.cp_size, share.attended
    if ranks == 1:
        return ()
    rows: list[Work] = []
    for shape, work in zip(shapes, scores, strict=True):
        if not shape.is_decode:
            tokens = step.prefill_sequences * (step.prefill_context + step.prefill_tokens) / ranks
            busy = step.prefill_tokens > 0
            rows.append(
                share.collective("kv_ring", operation=Collective.P2P, role="attention",
                                 message_bytes=np.where(busy, tokens * kv_bytes, 0.0), count=count * (ranks - 1),
                                 beside=(replace(work, count=1 / ranks),), participants=ranks, spacing=share.tp_size)
            )  # fmt: skip
            continue
        heads = shape.sequences * shape.query_tokens * shape.num_heads * share.element_bytes
        for name, operation, width in (
            ("query_all_gather", Collective.ALL_GATHER, shape.head_dim),
            ("partial_output_all_to_all", Collective.ALL_TO_ALL, shape.v_head_dim),
        ):
            rows.append(
                share.collective(name, operation=operation, role="attention", message_bytes=heads * width, count=count,
                                 participants=ranks, spacing=share.tp_size)
            )  # fmt: skip
    return tuple(rows)


def attention_rows(spec: AttentionSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Self attention of ``count`` equal layers: fused QKV, rotary and cache write, scores, output projection."""
    heads, kv_heads = spec.num_attention_heads / share.tp_size, share.split(spec.num_key_value_heads)
    window = _window(spec)
    shapes = attention_shapes(
        share,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=spec.head_dim,
        v_head_dim=spec.value_dim,
        window=window,
        causal=spec.causal,
        expanded_widths=(spec.head_dim, spec.value_dim) if spec.indexer else None,
    )
    if spec.kept is not None:
        from simulator.operators.kept_tokens import bounded

        shapes = tuple(bounded(shape, spec.kept) for shape in shapes)
    scores = tuple(attention_work(_name(shape), share=share, shape=shape, count=count) for shape in shapes)
    return (
        _qkv(spec, share=share, heads=heads, kv_heads=kv_heads, count=count),
        *_before_scores(spec, share=share, heads=heads, kv_heads=kv_heads, count=count),
        *_index_rows(spec, share=share, count=count),
        *scores,
        *context_rows(
            shapes,
            share=share,
            scores=scores,
            kv_bytes=kv_heads * (spec.head_dim + spec.value_dim) * share.plan.kv_bytes,
            count=count,
        ),
        *_kept_rows(spec, share=share, shapes=shapes, count=count),
        output_projection(share, width=heads * spec.value_dim, bias=spec.o_bias, count=count),
        *share.all_reduce_after("attention", count=count),
    )


def _index_rows(spec: AttentionSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    if spec.indexer is None:
        return ()
    from simulator.operators.kept_tokens import index_rows

    return index_rows(spec.indexer, share=share, query_width=None, count=count)


def _kept_rows(
    spec: AttentionSpec, *, share: DeviceShare, shapes: tuple[AttentionShape, ...], count: float
) -> tuple[Work, ...]:
    if spec.kept is None:
        return ()
    from simulator.operators.kept_tokens import kept_rows

    return kept_rows(spec, share=share, shapes=shapes, count=count)


def output_projection(share: DeviceShare, *, width: float, bias: bool, count: float) -> Work:
    """Values of this rank's heads back to the residual stream; the bias is held by every tensor-parallel rank."""
    return share.linear(
        "o_proj", role="attention", n=share.hidden_size, k=width, bias=share.hidden_size if bias else 0.0, count=count
    )


def _window(spec: AttentionSpec) -> float | None:
    bounds = [bound for bound in (spec.sliding_window, spec.indexer and spec.indexer.index_topk) if bound]
    return float(min(bounds)) if bounds else None


def _name(shape: AttentionShape) -> str:
    return "decode_attention" if shape.is_decode else "prefill_attention"


def gate_width(kind: OutputGate, *, heads: float, value_dim: float) -> float:
    """Columns of the projection that gates ``heads`` heads of the output; 0 without one."""
    return {"none": 0.0, "elementwise": heads * value_dim, "headwise": heads}[kind]


def _qkv(spec: AttentionSpec, *, share: DeviceShare, heads: float, kv_heads: float, count: float) -> Work:
    query = heads * spec.head_dim
    stores_kv = not spec.shares_kv_with_previous
    key = kv_heads * spec.head_dim if stores_kv else 0.0
    value = kv_heads * spec.value_dim if stores_kv and not spec.value_is_key else 0.0
    gate = gate_width(spec.output_gate, heads=heads, value_dim=spec.value_dim)
    bias = (query + value + (key if spec.k_bias else 0.0)) if spec.qkv_bias else 0.0
    return share.linear(
        "qkv_proj", role="attention", n=query + key + value + gate, k=share.hidden_size, bias=bias, count=count
    )


def _before_scores(
    spec: AttentionSpec, *, share: DeviceShare, heads: float, kv_heads: float, count: float
) -> tuple[Work, ...]:
    """Head norms, rotary embedding and the write of new keys and values (small vectors are held here)."""
    stores_kv = not spec.shares_kv_with_previous
    cached = kv_heads * (spec.head_dim + spec.value_dim) if stores_kv and spec.causal else 0.0
    turned = (heads + (kv_heads if stores_kv else 0.0)) * spec.head_dim
    extra = (heads if spec.sinks else 0.0) + spec.position_bias_parameters
    rows: list[Work] = []
    if spec.qk_norm != "none":
        parts = [heads, kv_heads] if stores_kv else [heads]
        rows += _qk_norm(spec, share=share, parts=parts, count=count)
    rows.append(
        share.elementwise(
            "rotary_kv_write",
            cost=ROTARY,
            width=turned if spec.rotary else cached,
            count=count,
            role="attention",
            parameters=extra,
            kv_bytes=share.tokens * cached * share.plan.kv_bytes,
            extra_launches=1.0 if cached else 0.0,
        )
    )
    return tuple(rows)


def _qk_norm(spec: AttentionSpec, *, share: DeviceShare, parts: Sequence[float], count: float) -> tuple[Work, ...]:
    """Norm of ``parts`` = query and key heads of this rank. Over all heads together, ranks first add up their sums of
    squares: a message of a few bytes a token that no other kernel takes along. The row of the norm stands before it
    with both of its passes."""
    own_weights = spec.qk_norm in ("each_head", "full")
    widths = [spec.head_dim * (part if own_weights else 1.0) for part in parts]
    added_up = spec.qk_norm == "full" and share.tp_size > 1
    norm = share.elementwise(
        "qk_norm",
        cost=SPLIT_NORM if added_up else NORM,
        width=spec.head_dim * sum(parts),
        count=count,
        role="attention",
        parameters=sum(share.norm_parameters(width, bias=spec.qk_norm_bias) for width in widths),
    )
    if not added_up:
        return (norm,)
    squares = share.collective(
        "qk_norm_all_reduce",
        operation=Collective.ALL_REDUCE,
        message_bytes=share.tokens * len(parts) * SUM_BYTES,
        participants=share.tp_size,
        count=count,
        role="attention",
    )
    return (norm, squares)


def cross_attention_rows(spec: AttentionSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Keys and values of the source are projected and cached once, at prefill; queries come with every token."""
    heads, kv_heads = spec.num_attention_heads / share.tp_size, share.split(spec.num_key_value_heads)
    query = heads * spec.head_dim
    q_row = share.linear(
        "cross_q_proj",
        role="attention",
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
        *share.all_reduce_after("attention", count=count),
    )


def _source_rows(spec: AttentionSpec, *, share: DeviceShare, kv_heads: float, count: float) -> tuple[Work, ...]:
    key, value = kv_heads * spec.head_dim, kv_heads * spec.value_dim
    source = share.source.prefill_sequences * share.source.prefill_tokens
    bias = (value + (key if spec.k_bias else 0.0)) if spec.qkv_bias else 0.0
    projection = share.linear(
        "cross_kv_proj", role="attention", m=source, n=key + value, k=share.hidden_size, bias=bias, count=count
    )
    write = share.elementwise(
        "cross_kv_write",
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
            causal=False,
            shared_kv=False,
            is_decode=name == "cross_decode_attention",
            compute_dtype=share.plan.plain.math,
            kv_dtype=share.plan.kv_dtype,
        )
        rows.append(attention_work(name, share=share, shape=shape, count=count))
    return tuple(rows)
