"""Attention over compressed keys (DeepSeek-V4): window and pooled entries in one softmax, grouped output projection.

Queries come from a latent; keys and values are one vector that all heads share, so that both phases run as multi-query
attention in which each query token gathers keys of its own. Latents, pooling and indexer are replicated over
tensor-parallel ranks; heads and output groups are split. Which weights there are follows the modules in transformers
[DeepSeek2026].

What compressed attention looks at and keeps: a window of raw tokens, one entry per few tokens, open pools.

Real-valued counts: an entry that is still filling counts with the share of its tokens that have come.
"""

from __future__ import annotations

import numpy as np

from simulator.operators.attention import attended_pairs, keys_read
from simulator.operators.device_share import NORM, ROTARY, DeviceShare, PassCost, has_decode, has_prefill
from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.kept_tokens import index_key_bytes, index_score_rows
from simulator.operators.work import Array, Family, GroupedGemmShape, Work
from simulator.specs.model.architecture import CompressedAttentionSpec
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

SCALED_NUMBERS = 64
"""Numbers of an 8-bit entry that share one 8-bit scale, as the serving kernels lay it out (from memory)."""


def compressed_pairs(spec: CompressedAttentionSpec, *, queries: Array, context: Array) -> Array:
    """Query-key pairs of one sequence: sum over i = 1..q of min(window, c + i) + min(topk, (c + i) / ratio)."""
    pairs = attended_pairs(queries=queries, context=context, window=float(spec.sliding_window), causal=True)
    if spec.compress_ratio is None:
        return pairs
    chosen = None if spec.indexer is None else float(spec.indexer.index_topk * spec.compress_ratio)
    return pairs + attended_pairs(queries=queries, context=context, window=chosen, causal=True) / spec.compress_ratio


def compressed_entries_read(spec: CompressedAttentionSpec, *, queries: Array, context: Array) -> Array:
    """Distinct cached vectors that the queries of one sequence look at; queries share few choices of an indexer."""
    seen = keys_read(queries=queries, context=context, window=float(spec.sliding_window))
    if spec.compress_ratio is None:
        return seen
    entries = (context + queries) / spec.compress_ratio
    if spec.indexer is None:
        return seen + entries
    picked = queries * spec.indexer.index_topk
    return seen + (entries + picked - abs(entries - picked)) / 2.0


def entry_bytes(spec: CompressedAttentionSpec, *, plan: PrecisionPlan) -> float:
    """Bytes of one cached vector: in a narrow cache its rotary part stays in 16 bit and 64 numbers share a scale."""
    if plan.kv_bytes >= plan.activation_bytes:
        return spec.head_dim * plan.kv_bytes
    plain = spec.head_dim - spec.qk_rope_head_dim
    scales = plain / SCALED_NUMBERS * BITS[Dtype.FP8] / BITS_PER_BYTE
    return plain * plan.kv_bytes + spec.qk_rope_head_dim * plan.activation_bytes + scales


def compressed_token_bytes(spec: CompressedAttentionSpec, *, plan: PrecisionPlan) -> float:
    """Bytes that one token adds to one layer: its share of an entry and of the indexer's key; 0 with a window only."""
    if spec.compress_ratio is None:
        return 0.0
    index = 0.0 if spec.indexer is None else index_key_bytes(spec.indexer)
    return (entry_bytes(spec, plan=plan) + index) / spec.compress_ratio


def compressed_state_bytes(spec: CompressedAttentionSpec, *, plan: PrecisionPlan) -> float:
    """Bytes that one sequence keeps in one layer however long it is: the raw window, and entries still filling. The
    latter hold a key and its pooling weight per token in 32 bit."""
    window = spec.sliding_window * entry_bytes(spec, plan=plan)
    if spec.compress_ratio is None:
        return window
    copies = 2 if spec.overlaps else 1
    width = spec.head_dim + (0 if spec.indexer is None else spec.indexer.index_head_dim)
    return window + 2 * copies * spec.compress_ratio * copies * width * BITS[Dtype.FP32] / BITS_PER_BYTE


# Keys and weights of a pool in 32 bit: written, read once when the entry closes. Unfused: bias, softmax, product, sum.
POOL = PassCost(fused_passes=4, fused_launches=2, unfused_passes=20, unfused_launches=8)
# Queries in, outputs out, and the launch that joins split keys.
TILE_HEADS = 64.0
"""Heads that a tile of the sparse kernels multiplies; fewer are padded (FlashMLA, from memory). The measured modules
of 8 heads on H200 take as long in attention as those of 64. Wider tiles are the architecture's and priced as such."""
TILE_ENDS = PassCost(fused_passes=2, fused_launches=1, unfused_passes=2, unfused_launches=1)


def compressed_attention_rows(spec: CompressedAttentionSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Rows of ``count`` equal layers."""
    heads = spec.num_attention_heads / share.tp_size
    return (
        *_query_and_key(spec, share=share, heads=heads, count=count),
        *_pools(spec, share=share, count=count),
        *_index(spec, share=share, count=count),
        *_scores(spec, share=share, heads=heads, count=count),
        *_output(spec, share=share, heads=heads, count=count),
        *share.all_reduce_after("attention", count=count),
    )


def _query_and_key(
    spec: CompressedAttentionSpec, *, share: DeviceShare, heads: float, count: float
) -> tuple[Work, ...]:
    """Down projections, norms of both latents, up projection, and the norm, rotary part and write behind them."""
    latent = spec.q_lora_rank + spec.head_dim
    query = heads * spec.head_dim
    return (
        share.linear("q_a_kv_proj", role="attention", n=latent, k=share.hidden_size, count=count),
        share.elementwise("latent_norm", cost=NORM, width=latent, count=count, role="attention",
                          parameters=share.norm_parameters(latent, bias=False)),
        share.linear("q_b_proj", role="attention", n=query, k=spec.q_lora_rank, count=count),
        share.elementwise("query_norm_rotary_kv_write", cost=NORM, width=query, count=count, role="attention",
                          parameters=heads, kv_bytes=share.tokens * entry_bytes(spec, plan=share.plan),
                          extra_launches=1.0),
    )  # fmt: skip


def _pools(spec: CompressedAttentionSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Pooling of keys into entries, and of the indexer's keys into its own. One 16-bit product makes keys and pooling
    weights of both, and the indexer's head weights; each place in a pool has a learned bias."""
    if spec.compress_ratio is None:
        return ()
    indexer, copies = spec.indexer, 2 if spec.overlaps else 1
    widths = (spec.head_dim,) if indexer is None else (spec.head_dim, indexer.index_head_dim)
    pooled = 2 * copies * sum(widths)
    written = entry_bytes(spec, plan=share.plan) + (0.0 if indexer is None else index_key_bytes(indexer))
    product = share.linear(
        "pool_proj",
        role="attention",
        n=pooled + (0 if indexer is None else indexer.index_n_heads),
        k=share.hidden_size,
        count=count,
        product=share.plan.plain,
    )
    pool = share.elementwise(
        "pool",
        cost=POOL,
        width=pooled,
        count=count,
        role="attention",
        parameters=sum(
            spec.compress_ratio * copies * width + share.norm_parameters(width, bias=False) for width in widths
        ),
        kv_bytes=share.tokens * written / spec.compress_ratio,
    )
    return product, pool


def _index(spec: CompressedAttentionSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    indexer = spec.indexer
    if indexer is None or spec.compress_ratio is None:
        return ()
    queries = share.linear(
        "index_q_proj",
        role="attention",
        n=indexer.index_n_heads * indexer.index_head_dim,
        k=spec.q_lora_rank,
        count=count,
    )
    return queries, *index_score_rows(indexer, share=share, count=count, compress_ratio=spec.compress_ratio)


def _scores(spec: CompressedAttentionSpec, *, share: DeviceShare, heads: float, count: float) -> tuple[Work, ...]:
    step = share.step
    rows: list[Work] = []
    if has_prefill(step):
        rows += _score_rows(
            spec, share=share, heads=heads, count=count, sequences=step.prefill_sequences,
            queries=step.prefill_tokens, context=step.prefill_context, is_decode=False,
        )  # fmt: skip
    if has_decode(step):
        rows += _score_rows(
            spec, share=share, heads=heads, count=count, sequences=step.decode_sequences, queries=step.decode_tokens,
            context=np.maximum(step.decode_context - step.decode_tokens, 0.0), is_decode=True,
        )  # fmt: skip
    return tuple(rows)


def _score_rows(
    spec: CompressedAttentionSpec,
    *,
    share: DeviceShare,
    heads: float,
    count: float,
    sequences: Array,
    queries: Array,
    context: Array,
    is_decode: bool,
) -> tuple[Work, Work]:
    """2 FLOPs x pairs x heads x (key width + value width); an entry is read once for all heads that choose it. A query
    token is a tile of its own, whose loads and stores stand before and behind its products: they are the second row.
    Heads are padded to TILE_HEADS, so that tensor parallelism below that saves nothing here."""
    heads = max(heads, TILE_HEADS)
    pairs = compressed_pairs(spec, queries=queries, context=context)
    read = compressed_entries_read(spec, queries=queries, context=context)
    phase = "decode" if is_decode else "prefill"
    family = Family.DECODE_ATTENTION if is_decode else Family.PREFILL_ATTENTION
    products = Work(
        name=f"{phase}_attention",
        family=family,
        role="attention",
        shape=GroupedGemmShape(format=share.plan.plain, rows=heads),
        count=count,
        flops=2.0 * sequences * pairs * heads * (spec.head_dim + spec.head_dim),
        weight_bytes=share.zeros,
        kv_bytes=sequences * read * entry_bytes(spec, plan=share.plan),
        activation_bytes=share.zeros,
    )
    ends = share.elementwise(
        f"{phase}_attention_ends",
        cost=TILE_ENDS,
        rows=sequences * queries,
        width=heads * spec.head_dim,
        count=count,
        role="attention",
        family=family,
    )
    return products, ends


def _output(spec: CompressedAttentionSpec, *, share: DeviceShare, heads: float, count: float) -> tuple[Work, ...]:
    """Rotary part turned back, one projection per group of heads, then their sum into the residual stream."""
    groups = spec.o_groups / share.tp_size
    return (
        share.elementwise("output_rotary", cost=ROTARY, width=heads * spec.qk_rope_head_dim, count=count,
                          role="attention"),
        share.linear("o_a_proj", role="attention", n=spec.o_lora_rank,
                     k=spec.num_attention_heads * spec.head_dim / spec.o_groups, batch=groups, count=count),
        share.linear("o_b_proj", role="attention", n=share.hidden_size, k=groups * spec.o_lora_rank, count=count),
    )  # fmt: skip
