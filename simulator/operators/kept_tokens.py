"""Caches cut to a budget of tokens: what choosing and re-placing the kept ones costs beside attention itself.

H2O [Zhang2023] adds every query's probabilities to a score per cached key and drops the least scored one a step.
Kernels that tile the softmax keep no probabilities, so that the keys are read once more for them. StreamingLLM
[Xiao2023b] caches keys before the rotary embedding and turns the kept ones to their place in the cache each step.

The indexer of sparse attention: scores every cached key in few narrow heads, keeps the best [DeepSeek2025].

Weights are replicated over tensor-parallel ranks, but for heads that belong to KV heads; index keys are cached as FP8
with one 32-bit scale a token, as the released kernels store them.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.operators.device_share import NORM, ROTARY, DeviceShare, has_decode, has_prefill
from simulator.operators.work import Array, AttentionShape, ElementwiseShape, Family, Work
from simulator.specs.model.architecture import AttentionSpec, IndexerSpec, KeptTokensSpec
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

SCORE_BYTES = BITS[Dtype.FP32] / BITS_PER_BYTE
"""An accumulated score is one FP32 number per kept key and KV head."""


def score_bytes(spec: AttentionSpec, *, kv_heads: float) -> float:
    """Bytes of the accumulated scores per kept token and layer; 0 where none are kept [bytes]."""
    return kv_heads * SCORE_BYTES if spec.kept is not None and spec.kept.method == "h2o" else 0.0


def kept_tokens(kept: KeptTokensSpec, tokens: Array) -> Array:
    """Tokens that the cache keeps of sequences with ``tokens`` tokens (array) [tokens]."""
    if kept.budget_fraction is not None:
        return tokens * kept.budget_fraction
    return np.minimum(tokens, float(kept.budget_tokens or 0))


def bounded(shape: AttentionShape, kept: KeptTokensSpec | None) -> AttentionShape:
    """``shape`` over what the cache keeps: fewer cached tokens while decoding, a window in a streamed prompt. The kept
    tokens lie together in the cache, so that decoding needs no mask; H2O drops tokens after the prompt."""
    if kept is None:
        return shape
    if shape.is_decode:
        whole = kept_tokens(kept, shape.context_tokens + shape.query_tokens)
        return replace(shape, context_tokens=np.maximum(whole - shape.query_tokens, 0.0))
    return (
        shape
        if kept.budget_tokens is None or kept.method == "h2o"
        else replace(shape, window=float(kept.budget_tokens))
    )


def kept_rows(
    spec: AttentionSpec, *, share: DeviceShare, shapes: tuple[AttentionShape, ...], count: float
) -> tuple[Work, ...]:
    """Rows that a bounded cache adds to ``count`` layers with these attention shapes; none without one."""
    if spec.kept is None:
        return ()
    if spec.kept.method == "streaming":
        turned = [shape for shape in shapes if shape.is_decode and spec.rotary and not share.fused]
        return tuple(_turned_keys(shape, share=share, count=count) for shape in turned)
    return tuple(
        row
        for shape in shapes
        for row in (
            _probabilities(shape, share=share, count=count),
            _choice(shape, share=share, policy=spec.kept, count=count),
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


def _choice(shape: AttentionShape, *, share: DeviceShare, policy: KeptTokensSpec, count: float) -> Work:
    """Scores read, added to, written and searched; after a prompt the kept keys and values are moved together."""
    tokens = shape.context_tokens + shape.query_tokens
    keys = shape.sequences * tokens * shape.num_kv_heads
    moved = 3.0 * keys * SCORE_BYTES
    launches = 2.0
    if not shape.is_decode:
        kept = kept_tokens(policy, tokens) * shape.sequences * shape.num_kv_heads
        moved = moved + 2.0 * kept * (shape.head_dim + shape.v_head_dim) * share.plan.kv_bytes
        launches += 1.0
    return _pass("h2o_choice", moved, share=share, count=count, launches=launches)


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
    plan, heads = share.plan, _heads(spec, share=share)
    query = share.linear(
        "index_q_proj",
        role="attention",
        n=heads * spec.index_head_dim,
        k=share.hidden_size if query_width is None else query_width,
        count=count,
    )
    key = share.linear(
        "index_k_proj",
        role="attention",
        n=spec.index_head_dim + heads,
        k=share.hidden_size,
        count=count,
        product=plan.plain,
    )
    norm = share.elementwise(
        "index_k_norm",
        cost=NORM,
        width=spec.index_head_dim,
        count=count,
        role="attention",
        parameters=share.norm_parameters(spec.index_head_dim, bias=True),
        kv_bytes=share.tokens * index_key_bytes(spec),
    )
    return (query, key, norm, *index_score_rows(spec, share=share, count=count))


def _heads(spec: IndexerSpec, *, share: DeviceShare) -> float:
    return share.split(spec.index_n_heads) if spec.splits_heads else float(spec.index_n_heads)


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
    """Dot products of every causal query-key pair, and the pass over the scores that keeps the top k. Blocks of keys
    are so few that choosing among them takes no longer than reading their scores."""
    pairs = sequences * (queries * context + queries * (queries + 1.0) / 2.0) / compress_ratio
    math = Dtype.FP8 if share.plan.linear.math is Dtype.FP8 else share.plan.activation_dtype
    heads = _heads(spec, share=share)
    shape = AttentionShape(
        sequences=sequences,
        query_tokens=queries,
        context_tokens=context / compress_ratio,
        num_heads=heads,
        num_kv_heads=1.0,
        head_dim=spec.index_head_dim,
        v_head_dim=0.0,
        shared_kv=True,
        is_decode=is_decode,
        compute_dtype=math,
        kv_dtype=Dtype.FP8,
    )
    # One score a block leaves the products, which many queries' choices are made from in one kernel.
    score_bytes = BITS[Dtype.FP32] / BITS_PER_BYTE / spec.index_block_size
    scores = Work(
        name="index_scores",
        family=Family.DECODE_ATTENTION if is_decode else Family.PREFILL_ATTENTION,
        role="attention",
        shape=shape,
        count=count,
        flops=2.0 * pairs * heads * spec.index_head_dim,
        weight_bytes=share.zeros,
        kv_bytes=sequences * (context + queries) / compress_ratio * index_key_bytes(spec),
        activation_bytes=sequences * queries * heads * spec.index_head_dim + pairs * score_bytes,
    )
    searching = _search_shape(
        spec, score_bytes=pairs * score_bytes, sequences=sequences, queries=queries, context=context,
        compress_ratio=compress_ratio,
    )  # fmt: skip
    top_k = Work(
        name="index_top_k",
        family=Family.ELEMENTWISE,
        role="attention",
        shape=searching,
        count=count,
        flops=share.zeros,
        weight_bytes=share.zeros,
        kv_bytes=share.zeros,
        activation_bytes=pairs * score_bytes,
    )
    return scores, top_k


def _search_shape(
    spec: IndexerSpec, *, score_bytes: Array, sequences: Array, queries: Array, context: Array, compress_ratio: int
) -> ElementwiseShape:
    """Queries that see more keys than are kept search the keys that each of them sees, the others' choice being none;
    of blocks of keys no search is told apart."""
    if spec.index_block_size > 1:
        return ElementwiseShape(bytes=score_bytes)
    kept = float(spec.index_topk * compress_ratio)
    searching = np.clip(context + queries - kept, 0.0, queries)
    seen = context + queries - np.maximum(searching - 1.0, 0.0) / 2.0
    return ElementwiseShape(
        bytes=score_bytes, searched_rows=sequences * searching, searched_numbers=seen / compress_ratio
    )
