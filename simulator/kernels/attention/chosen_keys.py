"""Sparse attention: an indexer chooses few keys for each query, and a kernel gathers them one by one.

The kernels for it (FlashMLA's, trtllm-gen's) give each query token tiles of its own, since no two queries choose alike:
heads fill a tile's rows and are padded where tensor parallelism leaves fewer, and every slot of the chosen keys is
multiplied, filled or not. The choice is one thread block's walk along the scores of a query. Blocks of neighbouring
keys (MiniMax-M3) are read as they lie, but most kernels give each query token and KV head a tile of its own too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np

from simulator.kernels.engine_traits import EngineTraits
from simulator.kernels.timing import Provenance, Timing, chosen
from simulator.operators.work import Array, AttentionShape
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.precision import BITS

TILE_HEADS, WIDE_TILE_HEADS = 64.0, {"blackwell": 128.0, "blackwell-ultra": 128.0}
"""Rows of a tile, by architecture [AIC2026]: whole modules of DeepSeek-V3.2 and GLM-5 with 8, 16, 32 and 64 heads take
equally long in attention on Hopper and half as long as with 128 (0.49 us a query token of 2,048 keys), up to 128 heads
alike on Blackwell (0.5 us in 16 bits, 0.2 to 0.4 in FP8). Nobody timed other architectures'."""

PADDED_DECODE = ("hopper",)
"""Where decoding over an 8-bit cache pads heads too (FlashMLA); 16-bit ones and Blackwell's have kernels for few."""

WIDENING = {"hopper": 1.5}
"""How much longer gathering takes from an 8-bit cache than from a 16-bit one where kernels widen it first: SGLang's
modules on H200, 0.78 against 0.50 us a query token and 64 heads (vLLM's of 8 and 16 heads twice as long) [AIC2026]."""

SEARCH_START_CYCLES, SEARCH_CYCLES = 12_700.0, 0.6
"""Of a compute unit for a row of scores and for each number in it: SGLang's fused kernel on six accelerators (7 us for
2,048 numbers of one row, 47 for 131,072; 2.84 ms for 8,192 such rows on H200, 2.37 on B200) [AIC2026]."""

SEARCH_LOG_SIGMA = 0.25
"""Other engines run other kernels for it, up to twice as slow."""


def search_seconds(rows: Array, numbers: Array, *, hardware: AcceleratorSpec) -> Array:
    """Time to find the largest numbers of each row [s].

    Equation
    --------
    t = max(s + c n, r (s / 2 + c n) / u) / f for r > 0, else 0

    Parameters
    ----------
    rows, numbers : rows r, and numbers n of one (arrays) [-]
    hardware : compute units u [-], clock f [Hz]; s and c are SEARCH_START_CYCLES and SEARCH_CYCLES [-]

    Range of validity
    -----------------
    Rows of 2,048 to a million numbers, fitted on Hopper and Blackwell. Two blocks share a unit and hide each other's
    start. Leaves out that the last wave is not full.

    References
    ----------
    [AIC2026]

    Examples
    --------
    12,700 and 0.6 x 1,000,000 cycles at 1 GHz.

    >>> from types import SimpleNamespace as Record
    >>> chip = Record(parallel_units=100, boost_clock_hz=1e9)
    >>> round(float(search_seconds(np.array([1.0]), np.array([1e6]), hardware=chip)[0]), 7)
    0.0006127
    """
    walk = SEARCH_CYCLES * numbers
    alone = SEARCH_START_CYCLES + walk
    together = rows * (SEARCH_START_CYCLES / 2.0 + walk) / hardware.parallel_units
    return np.where(rows > 0, np.maximum(alone, together), 0.0) / hardware.boost_clock_hz


def searched(timing: Timing, *, rows: Array, numbers: Array, hardware: AcceleratorSpec) -> Timing:
    """A pass over scores with the search in it, which memory alone does not bound."""
    search_s = search_seconds(rows, numbers, hardware=hardware)
    longer = search_s > timing.seconds
    return replace(
        timing,
        seconds=np.maximum(timing.seconds, search_s),
        log_sigma=np.where(longer, np.maximum(timing.log_sigma, SEARCH_LOG_SIGMA), timing.log_sigma),
        provenance=np.where(longer, np.maximum(timing.provenance, Provenance.EXTRAPOLATED), timing.provenance),
    )


def tile_heads(hardware: AcceleratorSpec) -> float:
    """Rows of a tile [-]."""
    return WIDE_TILE_HEADS.get(hardware.architecture, TILE_HEADS)


def padding(heads: float, *, hardware: AcceleratorSpec) -> float:
    """Rows that tiles multiply over the heads that fill them [-]."""
    tile = tile_heads(hardware)
    return ceil(heads / tile) * tile / heads


def is_narrow(shape: AttentionShape) -> bool:
    """Whether the cache is narrower than what multiplies it."""
    return BITS[shape.kv_dtype] < BITS[shape.compute_dtype]


def gathered(shape: AttentionShape, *, hardware: AcceleratorSpec) -> AttentionShape:
    """The call as a kernel runs it that gathers the chosen keys: heads of whole tiles, every slot multiplied; of blocks
    those that the mask leaves."""
    assert shape.window is not None, "an indexer chooses a number of keys"
    pads = shape.shared_kv and is_narrow(shape) and hardware.architecture in PADDED_DECODE
    if shape.is_decode and not pads:
        return replace(shape, expanded_widths=None)
    tile = tile_heads(hardware)
    # Prices broadcast heads just as sizes, although a row of the operator list has one number of them.
    groups = np.asarray(shape.num_kv_heads)
    heads: Any = groups * np.ceil(shape.num_heads / (groups * tile)) * tile
    whole = shape.shared_kv and not shape.is_decode
    context = np.maximum(shape.context_tokens, shape.window) if whole else shape.context_tokens
    return replace(shape, expanded_widths=None, num_heads=heads, context_tokens=context)


def chosen_keys_timing(
    shape: AttentionShape,
    *,
    hardware: AcceleratorSpec,
    price: Callable[[AttentionShape], Timing | None],
    traits: EngineTraits,
) -> Timing | None:
    """Price of sparse attention.

    price : of a call whose queries see the nearest keys; None where nobody measured its kernel
    traits : whether prompts in which no query sees more keys than are chosen run the expanded form, whose ``kv_b``
        product does the FLOPs of the absorbed projections, which stand for it; and what else the engine does
    """
    if traits.packs_block_queries and not shape.shared_kv:
        return price(replace(shape, expanded_widths=None))
    sparse = price(gathered(shape, hardware=hardware))
    if sparse is None or not shape.shared_kv or shape.expanded_widths is None or shape.window is None:
        return sparse
    sees_all = shape.context_tokens + shape.query_tokens <= shape.window
    if shape.is_decode:
        layer_s, sequence_s = traits.sparse_decode_s
        choosing_s = np.where(sees_all & traits.dense_short_prompts, 0.0, layer_s + sequence_s * shape.sequences)
        return replace(sparse, seconds=sparse.seconds + choosing_s)
    if is_narrow(shape):
        longer = WIDENING.get(hardware.architecture, 1.0)
        sparse = replace(sparse, seconds=longer * sparse.seconds, compute_s=longer * sparse.compute_s)
    if not traits.dense_short_prompts:
        return sparse
    keys, values = shape.expanded_widths
    expanded = replace(
        shape,
        num_kv_heads=shape.num_heads,
        head_dim=keys,
        v_head_dim=values,
        window=None,
        shared_kv=False,
        expanded_widths=None,
    )
    whole = price(expanded)
    return sparse if whole is None else chosen(sees_all, whole, sparse)
