"""Caches cut to a budget of tokens: what choosing and re-placing the kept ones costs beside attention itself.

H2O [Zhang2023] adds every query's probabilities to a score per cached key and drops the least scored one a step.
Kernels that tile the softmax keep no probabilities, so that the keys are read once more for them. StreamingLLM
[Xiao2023b] caches keys before the rotary embedding and turns the kept ones to their place in the cache each step.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.operators.elementwise import ROTARY
from simulator.operators.share import DeviceShare
from simulator.operators.step_shape import Array
from simulator.operators.work import AttentionShape, ElementwiseShape, Family, Work
from simulator.specs.model import AttentionSpec, KeptTokensSpec
from simulator.specs.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

SCORE_BYTES = BITS[Dtype.FP32] / BITS_PER_BYTE
"""An accumulated score is one FP32 number per kept key and KV head."""


def score_bytes(spec: AttentionSpec, *, kv_heads: float) -> float:
    """Bytes of the accumulated scores per kept token and layer; 0 where none are kept [bytes]."""
    return kv_heads * SCORE_BYTES if spec.kept is not None and spec.kept.method == "h2o" else 0.0


def bounded(shape: AttentionShape, kept: KeptTokensSpec | None) -> AttentionShape:
    """``shape`` over what the cache keeps: fewer cached tokens while decoding, a window in a streamed prompt.

    The kept tokens lie together in the cache, so that decoding needs no mask; H2O drops tokens after the prompt.
    """
    if kept is None:
        return shape
    budget = float(kept.budget_tokens)
    if shape.is_decode:
        context = np.minimum(shape.context_tokens, np.maximum(budget - shape.query_tokens, 0.0))
        return replace(shape, context_tokens=context)
    return shape if kept.method == "h2o" else replace(shape, window=budget)


def kept_rows(
    spec: AttentionSpec, *, share: DeviceShare, shapes: tuple[AttentionShape, ...], count: float
) -> tuple[Work, ...]:
    """Rows that a bounded cache adds to ``count`` layers with these attention shapes; none without one."""
    if spec.kept is None:
        return ()
    if spec.kept.method == "streaming":
        turned = [shape for shape in shapes if shape.is_decode and spec.rotary and not share.fused]
        return tuple(_turned_keys(shape, share=share, count=count) for shape in turned)
    budget = float(spec.kept.budget_tokens)
    return tuple(
        row
        for shape in shapes
        for row in (
            _probabilities(shape, share=share, count=count),
            _choice(shape, share=share, budget=budget, count=count),
        )
    )


def _pass(name: str, moved: Array, *, share: DeviceShare, count: float, launches: float) -> Work:
    return Work(
        name=name,
        family=Family.ELEMENTWISE,
        role="attention",
        shape=ElementwiseShape(bytes=moved, launches=launches),
        count=count,
        flops=share.zeros,
        weight_bytes=share.zeros,
        kv_bytes=moved,
        activation_bytes=share.zeros,
    )


def _turned_keys(shape: AttentionShape, *, share: DeviceShare, count: float) -> Work:
    """Cached keys turned to their place one operator at a time; fused kernels turn them as they read them."""
    kept = shape.sequences * (shape.context_tokens + shape.query_tokens)
    moved = ROTARY.unfused_passes * kept * shape.num_kv_heads * shape.head_dim * share.element_bytes
    return _pass("sink_rotary", moved, share=share, count=count, launches=ROTARY.unfused_launches)


def _probabilities(shape: AttentionShape, *, share: DeviceShare, count: float) -> Work:
    """Products of queries and keys once more, for the probabilities that the attention kernel does not keep."""
    q, c = shape.query_tokens, shape.context_tokens
    pairs = shape.sequences * (q * c + q * (q + 1.0) / 2.0)
    keys = shape.sequences * (c + q) * shape.num_kv_heads
    return Work(
        name="h2o_probabilities",
        family=Family.DECODE_ATTENTION if shape.is_decode else Family.PREFILL_ATTENTION,
        role="attention",
        shape=AttentionShape(
            sequences=shape.sequences,
            query_tokens=q,
            context_tokens=c,
            num_heads=shape.num_heads,
            num_kv_heads=shape.num_kv_heads,
            head_dim=shape.head_dim,
            v_head_dim=0.0,
            window=None,
            causal=True,
            shared_kv=True,
            is_decode=shape.is_decode,
            compute_dtype=shape.compute_dtype,
            kv_dtype=shape.kv_dtype,
        ),
        count=count,
        flops=2.0 * pairs * shape.num_heads * shape.head_dim,
        weight_bytes=share.zeros,
        kv_bytes=keys * shape.head_dim * share.plan.kv_bytes,
        activation_bytes=shape.sequences * q * shape.num_heads * shape.head_dim * share.element_bytes,
    )


def _choice(shape: AttentionShape, *, share: DeviceShare, budget: float, count: float) -> Work:
    """Scores read, added to, written and searched; after a prompt the kept keys and values are moved together."""
    keys = shape.sequences * (shape.context_tokens + shape.query_tokens) * shape.num_kv_heads
    moved = 3.0 * keys * SCORE_BYTES
    launches = 2.0
    if not shape.is_decode:
        kept = np.minimum(shape.context_tokens + shape.query_tokens, budget) * shape.sequences * shape.num_kv_heads
        moved = moved + 2.0 * kept * (shape.head_dim + shape.v_head_dim) * share.plan.kv_bytes
        launches += 1.0
    return _pass("h2o_choice", moved, share=share, count=count, launches=launches)
