"""Multi-head latent attention: expanded keys and values at prefill, absorbed projections at decode [DeepSeek2024a].

Prefill multiplies the latents by ``kv_b`` and runs ordinary multi-head attention (key width nope + rope); decode folds
``kv_b`` into the query and the output, so that all heads share one cached vector of kv_lora_rank + rope numbers.
With an indexer both phases run absorbed over the selected keys, as engines do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simulator.operators.attention import attention_shapes, attention_work, context_rows, gate_width, output_projection
from simulator.operators.device_share import NORM, ROTARY, DeviceShare, has_decode, has_prefill
from simulator.operators.formats.schemes import NVFP4_FORMATS
from simulator.operators.formats.tensor_formats import PrecisionPlan
from simulator.operators.kept_tokens import index_rows
from simulator.operators.work import Array, AttentionShape, MatmulFormat, Work
from simulator.specs.model.architecture import MlaSpec
from simulator.units import BITS_PER_BYTE


def mla_rows(spec: MlaSpec, *, share: DeviceShare, count: float) -> tuple[Work, ...]:
    """Rows of ``count`` equal layers; down projections are replicated over tensor-parallel ranks."""
    heads = spec.num_attention_heads / share.tp_size
    index = (
        () if spec.indexer is None else index_rows(spec.indexer, share=share, query_width=spec.q_lora_rank, count=count)
    )
    return (
        *_query_and_latent(spec, share=share, heads=heads, count=count),
        *index,
        *_scores(spec, share=share, heads=heads, count=count),
        *_output(spec, share=share, heads=heads, count=count),
        *share.all_reduce_after("attention", count=count),
    )


def latent_format(plan: PrecisionPlan) -> MatmulFormat:
    """Format of the projections into and out of the latents. NVFP4 checkpoints (``LATENTS_READ``) keep them wide and
    narrow the last projection alone, whatever the device multiplies."""
    product = plan.format_for("attention")
    return plan.plain if product.name in NVFP4_FORMATS else product


def _query_and_latent(spec: MlaSpec, *, share: DeviceShare, heads: float, count: float) -> tuple[Work, ...]:
    latent = spec.kv_lora_rank + spec.qk_rope_head_dim
    query = heads * (spec.qk_nope_head_dim + spec.qk_rope_head_dim)
    q_rank = spec.q_lora_rank or 0
    down_bias = (q_rank + latent) if spec.bias else 0.0
    down_width = latent + (q_rank or query)
    product = latent_format(share.plan)
    rows = [
        share.linear(
            "q_a_kv_a_proj" if q_rank else "q_kv_a_proj",
            role="attention",
            product=product,
            n=down_width,
            k=share.hidden_size,
            bias=down_bias,
            count=count,
        )
    ]
    norm_width = spec.kv_lora_rank + q_rank
    rows.append(
        share.elementwise(
            "latent_norm",
            cost=NORM,
            width=norm_width,
            count=count,
            role="attention",
            parameters=share.norm_parameters(norm_width, bias=False),
        )
    )
    if q_rank:
        rows.append(
            share.linear("q_b_proj", role="attention", product=product, n=query, k=q_rank, count=count)
        )  # fmt: skip
    rows.append(
        share.elementwise(
            "rotary_kv_write",
            cost=ROTARY,
            width=(heads + 1) * spec.qk_rope_head_dim,
            count=count,
            role="attention",
            kv_bytes=share.tokens * latent * share.plan.kv_bytes,
            extra_launches=1.0,
        )
    )
    return tuple(rows)


def _scores(spec: MlaSpec, *, share: DeviceShare, heads: float, count: float) -> tuple[Work, ...]:
    step = share.step
    sparse = spec.indexer is not None
    expands = has_prefill(step) and not sparse
    decode_tokens = step.decode_sequences * step.decode_tokens
    rows: list[Work] = []
    if expands:
        # Context-parallel ranks pass latents on, and each expands all of them.
        whole = share.attended
        expanded = whole.prefill_sequences * (whole.prefill_tokens + whole.prefill_context)
        rows += _expanded(spec, share=share, heads=heads, count=count, latents=expanded)
    if sparse or has_decode(step) or not expands:
        absorbed = share.tokens if sparse else decode_tokens
        rows += _absorbed(spec, share=share, heads=heads, count=count, tokens=absorbed, held=not expands)
    return tuple(rows)


def _expanded(spec: MlaSpec, *, share: DeviceShare, heads: float, count: float, latents: Array) -> tuple[Work, ...]:
    """Cached latents of earlier chunks are expanded again with the new ones."""
    shapes = attention_shapes(
        share,
        num_heads=heads,
        num_kv_heads=heads,
        head_dim=spec.qk_nope_head_dim + spec.qk_rope_head_dim,
        v_head_dim=spec.v_head_dim,
    )
    expand = share.linear(
        "kv_b_proj",
        role="attention",
        product=latent_format(share.plan),
        m=latents,
        n=heads * (spec.qk_nope_head_dim + spec.v_head_dim),
        k=spec.kv_lora_rank,
        count=count,
    )
    prompts = [shape for shape in shapes if not shape.is_decode]
    scores = [attention_work("prefill_attention", share=share, shape=shape, count=count) for shape in prompts]
    return (expand, *scores, *_shared(spec, prompts, share=share, scores=scores, count=count))


def _shared(
    spec: MlaSpec, shapes: Sequence[AttentionShape], *, share: DeviceShare, scores: Sequence[Work], count: float
) -> tuple[Work, ...]:
    """What context-parallel ranks send each other: latents, queries and outputs over them."""
    latent_bytes = (spec.kv_lora_rank + spec.qk_rope_head_dim) * share.plan.kv_bytes
    return context_rows(shapes, share=share, scores=scores, kv_bytes=latent_bytes, count=count)


def _absorbed(
    spec: MlaSpec, *, share: DeviceShare, heads: float, count: float, tokens: Array, held: bool
) -> tuple[Work, ...]:
    """Per head (nope -> latent) and (latent -> v) products in 16 bit around multi-query attention over the latents."""
    shapes = attention_shapes(
        share,
        num_heads=heads,
        num_kv_heads=1.0,
        head_dim=spec.kv_lora_rank + spec.qk_rope_head_dim,
        v_head_dim=spec.kv_lora_rank,
        window=float(spec.indexer.index_topk) if spec.indexer else None,
        shared_kv=True,
        expanded_widths=(spec.qk_nope_head_dim + spec.qk_rope_head_dim, spec.v_head_dim) if spec.indexer else None,
    )
    run = [shape for shape in shapes if shape.is_decode or spec.indexer is not None]
    scores = [
        attention_work(
            "decode_attention" if shape.is_decode else "prefill_attention", share=share, shape=shape, count=count
        )
        for shape in run
    ]
    return (
        _absorb("q_absorb", share=share, m=tokens, n=spec.kv_lora_rank, k=spec.qk_nope_head_dim, heads=heads,
                count=count, held=held),
        *scores,
        *_shared(spec, run, share=share, scores=scores, count=count),
        _absorb("v_absorb", share=share, m=tokens, n=spec.v_head_dim, k=spec.kv_lora_rank, heads=heads,
                count=count, held=held),
    )  # fmt: skip


def _absorb(
    name: str, *, share: DeviceShare, m: Array, n: float, k: float, heads: float, count: float, held: bool
) -> Work:
    """One half of ``kv_b`` as a batched 16-bit product; in memory it is ``kv_b`` in the checkpoint's format."""
    row = share.linear(
        name, role="attention", m=m, n=n, k=k, batch=heads, count=count, held=held, product=share.plan.plain
    )
    bits = latent_format(share.plan).weight_bits
    return replace(row, stored_bytes=row.parameters * bits / BITS_PER_BYTE)


def _output(spec: MlaSpec, *, share: DeviceShare, heads: float, count: float) -> tuple[Work, ...]:
    width = heads * spec.v_head_dim
    gate = gate_width(spec.output_gate, heads=heads, value_dim=spec.v_head_dim)
    output = output_projection(share, width=width, bias=spec.bias, count=count)
    if not gate:
        return (output,)
    gating = share.linear("gate_proj", role="attention", n=gate, k=share.hidden_size, count=count)
    return gating, output
