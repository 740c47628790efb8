"""Decode of multi-head latent attention: all heads over one cached vector per token, absorbed [DeepSeek2024a].

A tile of 576 and 512 numbers a row fills a compute unit, so that one thread block runs on it at a time: reading its
queries and writing its output hide behind nothing, and with 128 heads they weigh as much as 242 cached tokens.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.kernels.attention.cases import (
    ACTIVATION_BYTES,
    KEY_BLOCK,
    AttentionCases,
    AttentionMachine,
    attention_cases,
    attention_machine,
    kernel_dtype,
)
from simulator.kernels.attention.decode import (
    DECODE_AXES,
    DecodeGrid,
    SplitRule,
    cache_bytes,
    decode_grid,
    decode_points,
    merge_pass,
    query_rows,
)
from simulator.kernels.timing import Lattice, Terms, Timing, corrected_timing, smooth_maximum
from simulator.operators.work import Array, AttentionShape
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit

LATENT_MODEL = "latent_decode_attention"
"""Name of this model in the fits."""

OVERLAP = 4.0
"""Sharpness of the maximum of multiplying and streaming: left free, eight of eleven fits on Hopper and Blackwell take
1.8 to 4.9 and none gets better by more than half a percent."""

LAUNCH_S, REREAD = 6e-6, 0.25
"""A launch, and what another tile's read of the same latents costs in reads from memory. Free, with a speedup of
latents in the L2 that 17 of 43 fits had at none, seven rereads and four launches stood at a bound. 27 kernels with one
prior, eight numbers free and five: unseen head counts 9.7 and 9.2 %, an accelerator left out 10.5 and 9.4, its
generation left out 24.3 and 24.4."""


NARROW_ROWS = 16.0
"""Heads of a thread block of Triton's kernel, and of trtllm-gen's where heads are few."""


def tile_rows(cases: AttentionCases, parameters: Mapping[str, float]) -> Array:
    """Query rows of a tile: NARROW_ROWS up to ``narrow_heads`` heads, ``tile_rows`` beyond."""
    rows = cases.group * cases.query_tokens
    return np.where(rows <= parameters["narrow_heads"], NARROW_ROWS, parameters["tile_rows"])


def latent_grid_of(cases: AttentionCases, *, machine: AttentionMachine, parameters: Mapping[str, float]) -> DecodeGrid:
    """Tiles of heads over the latents of each sequence, which the kernel divides among compute units as it likes."""
    return decode_grid(
        cases, compute_units=machine.compute_units, tile_rows=tile_rows(cases, parameters), split_rule=SplitRule.OWN
    )


def latent_decode_seconds(
    cases: AttentionCases, *, grid: DecodeGrid, machine: AttentionMachine, parameters: Mapping[str, float]
) -> Terms:
    """Time of absorbed latent attention, vectorised over the cases [s].

    Equation
    --------
    t = LAUNCH_S + query_passes x (queries + outputs) / bandwidth
        + min over splits of [waves x part_cycles + smooth_max(multiply, stream) + merge]
    multiply = waves x FLOPs of a part's key blocks / tensor rate
    stream = bytes of the latents x (1 + REREAD x (tiles of a sequence - 1)) / memory rate
    waves = max(tiles x splits / compute units, 1)

    Parameters
    ----------
    cases : sequences, query and cached tokens, heads [-], widths of latent and value [-], element sizes [bytes]
    grid : tiles of query rows, key blocks and candidate splits, from `latent_grid_of` [-]
    machine : tensor peak of the format that multiplies [FLOP/s], bandwidth [bytes/s], L2 [bytes], clock [Hz], units [-]
    parameters : of the fit; tensor_fraction of the peak and memory_fraction of the bandwidth in (0, 1] [-]; part_cycles
        of a thread block before and after its keys; query_passes over queries and outputs [-]; merge_s of split keys

    Range of validity
    -----------------
    Positive sizes, heads that share one latent. Leaves out the projections around it, rotary embedding and pages.

    References
    ----------
    [DeepSeek2024a], [FlashDecoding2023]

    Examples
    --------
    Latents of 64 sequences with 10,000 tokens, 512 bytes each, cross 1 TB/s in 0.33 ms.

    >>> from types import SimpleNamespace as Record
    >>> from collections import defaultdict
    >>> from simulator.specs.model.precision import Dtype
    >>> call = Record(sequences=np.array([64.0]), query_tokens=1.0, context_tokens=9999.0, num_kv_heads=1, num_heads=16,
    ...     head_dim=256, v_head_dim=256, window=None, kv_dtype=Dtype.BF16, causal=True, shared_kv=True)
    >>> cases = attention_cases(call)
    >>> machine = AttentionMachine(peak_flops_per_s=1e15, exponentials_per_s=1e15, memory_bytes_per_s=1e12,
    ...     l2_bytes=1.0, compute_units=100.0, clock_hz=1e9)
    >>> fit = defaultdict(float, tile_rows=16.0, tensor_fraction=1.0, memory_fraction=1.0)
    >>> grid = latent_grid_of(cases, machine=machine, parameters=fit)
    >>> round(float(latent_decode_seconds(cases, grid=grid, machine=machine, parameters=fit).memory_s[0]), 5)
    0.00033
    """
    p = parameters
    reads = 1.0 + REREAD * (grid.tiles / (cases.sequences * cases.num_kv_heads) - 1.0)
    streamed = reads * cache_bytes(cases, grid) / (p["memory_fraction"] * machine.memory_bytes_per_s)
    queries = p["query_passes"] * query_rows(cases) * (cases.head_dim + cases.v_head_dim) * ACTIVATION_BYTES
    queries_s = queries / machine.memory_bytes_per_s
    unit_flops_per_s = machine.unit_flops_per_s(p["tensor_fraction"])
    block = 2.0 * tile_rows(cases, p) * KEY_BLOCK * (cases.head_dim + cases.v_head_dim) / unit_flops_per_s
    waves = np.maximum(grid.tiles * grid.splits / machine.compute_units, 1.0)
    multiply = waves * grid.blocks_per_part * block
    merge = merge_pass(cases, grid=grid, machine=machine, merge_s=p["merge_s"])
    parts = waves * p["part_cycles"] / machine.clock_hz
    candidates = parts + smooth_maximum(multiply, streamed, sharpness=OVERLAP) + merge
    best, index = np.argmin(candidates, axis=0), np.arange(len(streamed))
    return Terms(
        seconds=LAUNCH_S + queries_s + candidates[best, index],
        compute_s=multiply[best, index],
        memory_s=streamed + queries_s,
    )


def latent_decode_timing(
    shape: AttentionShape, *, hardware: AcceleratorSpec, fit: KernelFit, lattice: Lattice | None
) -> Timing:
    """Price decode of latent attention: physics x correction, interval, provenance."""
    cases = attention_cases(shape)
    machine = attention_machine(hardware, kernel_dtype(fit, hardware))
    grid = latent_grid_of(cases, machine=machine, parameters=fit.parameters)
    terms = latent_decode_seconds(cases, grid=grid, machine=machine, parameters=fit.parameters)
    points = decode_points(cases, grid)
    return corrected_timing(terms, points, fit=fit, lattice=lattice, axes=DECODE_AXES)
