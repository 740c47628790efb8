"""What compressed attention looks at and keeps: a window of raw tokens, one entry per few tokens, open pools.

Real-valued counts: an entry that is still filling counts with the share of its tokens that have come.
"""

from __future__ import annotations

from simulator.operators.attention import attended_pairs, keys_read
from simulator.operators.formats import PrecisionPlan
from simulator.operators.indexer import index_key_bytes
from simulator.operators.step_shape import Array
from simulator.specs.model import CompressedAttentionSpec
from simulator.specs.precision import BITS, Dtype
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
    """Bytes that one sequence keeps in one layer however long it is: the raw window, and entries still filling.

    The latter hold a key and its pooling weight per token in 32 bit.
    """
    window = spec.sliding_window * entry_bytes(spec, plan=plan)
    if spec.compress_ratio is None:
        return window
    copies = 2 if spec.overlaps else 1
    width = spec.head_dim + (0 if spec.indexer is None else spec.indexer.index_head_dim)
    return window + 2 * copies * spec.compress_ratio * copies * width * BITS[Dtype.FP32] / BITS_PER_BYTE
