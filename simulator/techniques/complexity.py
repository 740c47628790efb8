"""How the work of one layer grows with length: attention, recurrence, convolution by FFT [Vaswani2017]."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from simulator.errors import RoofcastError
from simulator.operators.work import Array
from simulator.records import dataclass

LayerKind = Literal["attention", "recurrent", "convolution_fft", "linear_attention"]
LAYER_KINDS: tuple[LayerKind, ...] = get_args(LayerKind)

FFT_FLOPS = 5.0
"""FLOPs of a radix-2 FFT over N log2 N [Cooley1965]."""

GATES = 4.0
"""Gates of an LSTM, each with one product of the input and one of the state."""

PROJECTIONS = 4.0
"""Products of width x width around every other mixer: queries, keys (or gates), values, output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthCost:
    """One sequence in one layer that mixes tokens (arrays over its lengths).

    prefill_flops : of the whole sequence; decode_flops : of the token after it; sequential_steps : products that have
    to wait for each other in prefill; state_bytes : kept for the next token
    """

    prefill_flops: Array
    decode_flops: Array
    sequential_steps: Array
    state_bytes: Array


def length_cost(
    kind: LayerKind, *, tokens: Array, width: float, head_dim: float = 128.0, element_bytes: float = 2.0
) -> LengthCost:
    """FLOPs, dependence and state of a layer of ``width`` channels over ``tokens`` tokens, with its projections.

    All but the LSTM, whose gates are its products, have projections of 8 N d^2, 8 d^2 per new token.

    attention : 2 N^2 d (causal, scores and values), 4 N d per new token, state 2 N d
    recurrent : LSTM, 16 N d^2 in N steps that wait for each other, state 2 d
    convolution_fft : filter as long as the sequence by three transforms of 2N points, N log N; a new token needs the
        products with all tokens before it, 2 N d, whose inputs are the state [Poli2023]
    linear_attention : states of head_dim x head_dim per head, 4 N d head_dim, constant state

    Reference: [Vaswani2017], [Poli2023], [Cooley1965]
    """
    if kind not in LAYER_KINDS:
        raise RoofcastError(f"no layer kind {kind!r}; allowed: {', '.join(LAYER_KINDS)}", field="kind")
    n = np.asarray(tokens, dtype=np.float64)
    one = np.ones_like(n)
    around = 2.0 * PROJECTIONS * width**2
    match kind:
        case "attention":
            return LengthCost(prefill_flops=2.0 * n * (n + 1.0) * width + n * around,
                              decode_flops=4.0 * (n + 1.0) * width + around,
                              sequential_steps=one, state_bytes=2.0 * n * width * element_bytes)  # fmt: skip
        case "recurrent":
            step = 2.0 * 2.0 * GATES * width**2
            return LengthCost(prefill_flops=n * step, decode_flops=one * step, sequential_steps=n,
                              state_bytes=one * 2.0 * width * element_bytes)  # fmt: skip
        case "convolution_fft":
            padded = 2.0 * n
            transforms = 3.0 * FFT_FLOPS * padded * np.log2(np.maximum(padded, 2.0))
            return LengthCost(prefill_flops=(transforms + 6.0 * padded) * width + n * around,
                              decode_flops=2.0 * (n + 1.0) * width + around,
                              sequential_steps=np.log2(np.maximum(padded, 2.0)),
                              state_bytes=n * width * element_bytes)  # fmt: skip
        case "linear_attention":
            return LengthCost(prefill_flops=n * (4.0 * width * head_dim + around),
                              decode_flops=one * (4.0 * width * head_dim + around),
                              sequential_steps=one, state_bytes=one * width * head_dim * element_bytes)  # fmt: skip
