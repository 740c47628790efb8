"""The shape of an operator in words."""

from __future__ import annotations

from simulator.operators.step_shape import Array
from simulator.operators.work import AttentionShape, GemmShape, MoeShape, RecurrentShape, Work


def _first(values: Array) -> str:
    return f"{float(values[0]):,.0f}"


def shape_text(work: Work) -> str:
    """Shape of the first case on one device: ``m 32, n 8,192, k 28,672, bf16``; empty where only bytes matter."""
    match work.shape:
        case GemmShape(m=m, n=n, k=k, format=fmt, batch=batch):
            many = f"{batch:.0f} x " if batch > 1 else ""
            return f"{many}m {_first(m)}, n {n:,.0f}, k {k:,.0f}, {fmt.name}"
        case AttentionShape() as shape:
            queries = f"{_first(shape.sequences)} x {_first(shape.query_tokens)} queries"
            heads = f"{shape.num_heads:.3g} heads, {shape.num_kv_heads:.3g} KV heads of {shape.head_dim:.0f}"
            return f"{queries} on {_first(shape.context_tokens)} cached tokens, {heads}, {shape.kv_dtype.value} cache"
        case MoeShape() as shape:
            experts = f"{shape.num_experts_per_tok:.0f} of {shape.num_experts:.0f} experts"
            widths = f"{shape.hidden_size:,.0f} x {shape.intermediate_size:,.0f}"
            return f"{_first(shape.tokens)} tokens, {experts}, {widths}, {shape.format.name}"
        case RecurrentShape() as shape:
            sizes = f"{shape.num_heads:.0f} heads of {shape.head_dim:.0f}, state {shape.state_size:.0f}"
            return f"{shape.variant}, {_first(shape.sequences)} x {_first(shape.tokens)} tokens, {sizes}"
    return ""
