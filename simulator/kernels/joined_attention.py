"""Attention of several tensor-parallel degrees as the cases of one call: they differ in heads and sizes only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simulator.operators.step_shape import Array
from simulator.operators.work import AttentionShape
from simulator.specs.precision import Dtype

# vLLM's decode tables stop at this many KV heads. SGLang runs the same kernel on some architectures and was measured on
# more, so that multi-head attention need not be extrapolated.
MEASURED_KV_HEADS = 8


class AttentionKernel(NamedTuple):
    """What calls that are priced together have in common.

    many_heads : more KV heads than vLLM's decode tables hold, where another library's may price them
    """

    is_decode: bool
    head_dim: float
    v_head_dim: float
    window: float | None
    causal: bool
    shared_kv: bool
    splits_keys: bool
    compute_dtype: Dtype
    kv_dtype: Dtype
    many_heads: bool


def attention_kernel(shape: AttentionShape) -> AttentionKernel:
    """What of a call its company has to share."""
    return AttentionKernel(
        is_decode=shape.is_decode,
        head_dim=shape.head_dim,
        v_head_dim=shape.v_head_dim,
        window=shape.window,
        causal=shape.causal,
        shared_kv=shape.shared_kv,
        splits_keys=shape.splits_keys,
        compute_dtype=shape.compute_dtype,
        kv_dtype=shape.kv_dtype,
        many_heads=shape.num_kv_heads > MEASURED_KV_HEADS,
    )


def join_attention(shapes: Sequence[AttentionShape]) -> AttentionShape:
    """The cases of calls of one kernel, end to end."""
    sizes = [np.size(shape.sequences) for shape in shapes]

    def over_cases(values: Sequence[ArrayLike]) -> Array:
        return np.concatenate([np.broadcast_to(value, (size,)) for value, size in zip(values, sizes, strict=True)])

    # Prices broadcast heads just as sizes, although a row of the operator list has one number of them.
    heads: Any = over_cases([shape.num_heads for shape in shapes])
    kv_heads: Any = over_cases([shape.num_kv_heads for shape in shapes])
    return replace(
        shapes[0],
        sequences=over_cases([shape.sequences for shape in shapes]),
        query_tokens=over_cases([shape.query_tokens for shape in shapes]),
        context_tokens=over_cases([shape.context_tokens for shape in shapes]),
        num_heads=heads,
        num_kv_heads=kv_heads,
    )
