"""Which attention algorithm runs: tiled (flash), materialised scores (standard), keys divided (flash-decoding)."""

from __future__ import annotations

from dataclasses import replace

from simulator.errors import no_effect
from simulator.operators.work import Array, AttentionShape, ElementwiseShape, GroupedGemmShape, Work
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.architecture import AttentionSpec, MlaSpec, ModelSpec
from simulator.specs.model.precision import BITS
from simulator.techniques.applied import AppliedTechniques, RowContext, with_rule
from simulator.units import BITS_PER_BYTE

SCORE_PASSES, SCORE_LAUNCHES = 2.0, 1.0
"""Reads and writes of a score between the two products: one masked softmax kernel."""

UNFUSED_SCORE_PASSES, UNFUSED_SCORE_LAUNCHES = 10.0, 4.0
"""The same in eager modules: scale 2, mask 2, softmax to FP32 1 + 2, back to 16 bits 2 + 1 (in 16-bit numbers)."""


def attention_kernel(applied: AppliedTechniques, hardware: AcceleratorSpec) -> AppliedTechniques:
    """The scenario's ``attention``: "flash" is what engines run and changes nothing."""
    chosen = applied.spec.attention
    if chosen in (None, "flash"):
        return applied
    if not attends(applied.model):
        raise no_effect(
            f"{chosen} attention changes nothing in {applied.model.name}, with no attention layers it applies to",
            field="techniques.attention",
        )
    if chosen == "standard":
        return replace(with_rule(applied, standard_rows), notes=(*applied.notes, Note("standard_attention")))
    return replace(with_rule(applied, split_rows), notes=(*applied.notes, Note("flash_decoding")))


def attends(model: ModelSpec) -> bool:
    """Whether any layer of a model has attention scores."""
    layers = model.layers + (model.encoder.layers if model.encoder else ())
    return any(isinstance(layer.mixer, AttentionSpec | MlaSpec) for layer in layers)


def standard_rows(rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
    """Each attention kernel as a product, passes over the scores, and a product [Dao2022, algorithm 0]. Every query
    multiplies every key, masked or not; keys and values are read once per query head."""
    changed: list[Work] = []
    for row in rows:
        if isinstance(row.shape, AttentionShape) and row.shape.v_head_dim > 0:
            changed += materialised(row, shape=row.shape, context=context)
        else:
            changed.append(row)
    return tuple(changed)


def split_rows(rows: tuple[Work, ...], context: RowContext) -> tuple[Work, ...]:
    """Decode attention with its keys divided among compute units [FlashDecoding2023]."""
    return tuple(
        replace(row, shape=replace(row.shape, splits_keys=True))
        if isinstance(row.shape, AttentionShape) and row.shape.is_decode
        else row
        for row in rows
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heads:
    """Sizes of one materialised attention: scores of all heads [elements], and bytes of one element, key, value."""

    scores: Array
    element_bytes: float
    keys: Array
    queries: Array
    kv_element_bytes: float


def materialised(row: Work, *, shape: AttentionShape, context: RowContext) -> tuple[Work, Work, Work]:
    """Scores, softmax and weighted sum of one attention row as three kernels through memory."""
    keys = (shape.context_tokens + shape.query_tokens) * shape.sequences * shape.num_heads
    heads = _Heads(
        scores=keys * shape.query_tokens,
        element_bytes=context.plan.activation_bytes,
        keys=keys,
        queries=shape.sequences * shape.query_tokens * shape.num_heads,
        kv_element_bytes=BITS[shape.kv_dtype] / BITS_PER_BYTE,
    )
    return (
        _product(row, "scores", width=shape.head_dim, heads=heads, context=context),
        _softmax(row, heads=heads, fused=context.fused),
        _product(row, "values", width=shape.v_head_dim, heads=heads, context=context),
    )


def _product(row: Work, name: str, *, width: float, heads: _Heads, context: RowContext) -> Work:
    vectors = heads.queries * width * heads.element_bytes
    return replace(
        row,
        name=f"{row.name}_{name}",
        shape=GroupedGemmShape(format=context.plan.plain),
        flops=2.0 * heads.scores * width,
        kv_bytes=heads.keys * width * heads.kv_element_bytes,
        activation_bytes=vectors + heads.scores * heads.element_bytes,
    )


def _softmax(row: Work, *, heads: _Heads, fused: bool) -> Work:
    passes = SCORE_PASSES if fused else UNFUSED_SCORE_PASSES
    moved = heads.scores * passes * heads.element_bytes
    return replace(
        row,
        name=f"{row.name}_softmax",
        shape=ElementwiseShape(bytes=moved, launches=SCORE_LAUNCHES if fused else UNFUSED_SCORE_LAUNCHES),
        flops=0.0 * row.flops,
        kv_bytes=0.0 * row.kv_bytes,
        activation_bytes=moved,
    )


def score_bytes(
    model: ModelSpec, *, tokens: Array | float, keys: Array | float, tp_size: int, element_bytes: float
) -> Array | float:
    """Memory of the scores and probabilities of one layer while ``tokens`` queries see ``keys`` keys [bytes]."""
    heads = [
        layer.mixer.num_attention_heads for layer in model.layers if isinstance(layer.mixer, AttentionSpec | MlaSpec)
    ]
    return 2.0 * max(heads, default=0) / tp_size * tokens * keys * element_bytes
