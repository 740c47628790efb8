"""The indexer of sparse attention: scores every cached key in few narrow heads, keeps the best [DeepSeek2025].

Weights are replicated over tensor-parallel ranks; index keys are cached as FP8 with one 32-bit scale a token, as the
released kernels store them.
"""

from __future__ import annotations

import numpy as np

from simulator.operators.elementwise import NORM, elementwise
from simulator.operators.linear import linear
from simulator.operators.share import DeviceShare, has_decode, has_prefill
from simulator.operators.step_shape import Array
from simulator.operators.work import AttentionShape, ElementwiseShape, Family, Work
from simulator.specs.model import IndexerSpec
from simulator.specs.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

SCALE_BYTES = BITS[Dtype.FP32] / BITS_PER_BYTE


def index_key_bytes(spec: IndexerSpec) -> float:
    """Cached bytes per token and layer; a layer that reuses the previous choice keeps none."""
    if spec.reuses_previous:
        return 0.0
    return spec.index_head_dim * BITS[Dtype.FP8] / BITS_PER_BYTE + SCALE_BYTES


def index_rows(spec: IndexerSpec, *, share: DeviceShare, query_width: float | None, count: float) -> tuple[Work, ...]:
    """Projections, key norm, scores and top-k of ``count`` layers; none where a layer reuses the choice before it.

    query_width : of the latent that queries come from, None for hidden_size
    """
    if spec.reuses_previous:
        return ()
    plan = share.plan
    query = linear(
        "index_q_proj",
        share=share,
        role="attention",
        m=share.tokens,
        n=spec.index_n_heads * spec.index_head_dim,
        k=share.hidden_size if query_width is None else query_width,
        count=count,
    )
    key = linear(
        "index_k_proj",
        share=share,
        role="attention",
        m=share.tokens,
        n=spec.index_head_dim + spec.index_n_heads,
        k=share.hidden_size,
        count=count,
        product=plan.plain,
    )
    norm = elementwise(
        "index_k_norm",
        share=share,
        cost=NORM,
        rows=share.tokens,
        width=spec.index_head_dim,
        count=count,
        role="attention",
        parameters=share.norm_parameters(spec.index_head_dim, bias=True),
        kv_bytes=share.tokens * index_key_bytes(spec),
    )
    return (query, key, norm, *index_score_rows(spec, share=share, count=count))


def index_score_rows(
    spec: IndexerSpec, *, share: DeviceShare, count: float, compress_ratio: int = 1
) -> tuple[Work, ...]:
    """Scores and top-k of both phases over one key per ``compress_ratio`` tokens."""
    step = share.step
    rows: list[Work] = []
    if has_prefill(step):
        rows += _scores(
            spec, share=share, count=count, sequences=step.prefill_sequences, queries=step.prefill_tokens,
            context=step.prefill_context, is_decode=False, compress_ratio=compress_ratio,
        )  # fmt: skip
    if has_decode(step):
        rows += _scores(
            spec, share=share, count=count, sequences=step.decode_sequences, queries=step.decode_tokens,
            context=np.maximum(step.decode_context - step.decode_tokens, 0.0), is_decode=True,
            compress_ratio=compress_ratio,
        )  # fmt: skip
    return tuple(rows)


def _scores(
    spec: IndexerSpec,
    *,
    share: DeviceShare,
    count: float,
    sequences: Array,
    queries: Array,
    context: Array,
    is_decode: bool,
    compress_ratio: int,
) -> tuple[Work, Work]:
    """Dot products of every causal query-key pair, and the pass over the scores that keeps the top k."""
    pairs = sequences * (queries * context + queries * (queries + 1.0) / 2.0) / compress_ratio
    math = Dtype.FP8 if share.plan.linear.math is Dtype.FP8 else share.plan.activation_dtype
    shape = AttentionShape(
        sequences=sequences,
        query_tokens=queries,
        context_tokens=context / compress_ratio,
        num_heads=spec.index_n_heads,
        num_kv_heads=1.0,
        head_dim=spec.index_head_dim,
        v_head_dim=0.0,
        window=None,
        causal=True,
        shared_kv=True,
        is_decode=is_decode,
        compute_dtype=math,
        kv_dtype=Dtype.FP8,
    )
    score_bytes = BITS[Dtype.FP32] / BITS_PER_BYTE
    scores = Work(
        name="index_scores",
        family=Family.DECODE_ATTENTION if is_decode else Family.PREFILL_ATTENTION,
        role="attention",
        shape=shape,
        count=count,
        flops=2.0 * pairs * spec.index_n_heads * spec.index_head_dim,
        weight_bytes=share.zeros,
        kv_bytes=sequences * (context + queries) / compress_ratio * index_key_bytes(spec),
        activation_bytes=sequences * queries * spec.index_n_heads * spec.index_head_dim + pairs * score_bytes,
    )
    top_k = Work(
        name="index_top_k",
        family=Family.ELEMENTWISE,
        role="attention",
        shape=ElementwiseShape(bytes=pairs * score_bytes, launches=1.0),
        count=count,
        flops=share.zeros,
        weight_bytes=share.zeros,
        kv_bytes=share.zeros,
        activation_bytes=pairs * score_bytes,
    )
    return scores, top_k
