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
    SplitRule,
    attention_cases,
    attention_machine,
    kernel_dtype,
)
from simulator.kernels.attention.decode import (
    DECODE_AXES,
    DecodeGrid,
    cache_stream,
    decode_grid,
    decode_points,
    merge_pass,
    query_rows,
)
from simulator.kernels.correction import Lattice, corrected_timing
from simulator.kernels.timing import Terms, Timing, smooth_maximum
from simulator.operators.work import Array, AttentionShape
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit

LATENT_MODEL = "latent_decode_attention"
"""Name of this model in the fits."""

OVERLAP = 4.0
"""Sharpness of the maximum of multiplying and streaming: left free, eight of eleven fits on Hopper and Blackwell take
1.8 to 4.9 and none gets better by more than half a percent."""

L2_FRACTION = 0.6
"""Share of the L2 that the latents of a call fill before they fall out; the fits could not tell 0.3 from 1.5."""


NARROW_ROWS = 16.0
"""Heads of a thread block of Triton's kernel, and of trtllm-gen's where heads are few."""


def tile_rows(cases: AttentionCases, parameters: Mapping[str, float]) -> Array:
    """Query rows of a tile: NARROW_ROWS up to ``narrow_heads`` heads, ``tile_rows`` beyond."""
    rows = cases.group * cases.query_tokens
    chosen: Array = np.where(rows <= parameters["narrow_heads"], NARROW_ROWS, parameters["tile_rows"])
    return chosen


def latent_grid_of(cases: AttentionCases, *, machine: AttentionMachine, parameters: Mapping[str, float]) -> DecodeGrid:
    """Tiles of heads over the latents of each sequence, which the kernel divides among compute units as it likes."""
    return decode_grid(
        cases, compute_units=machine.compute_units, tile_rows=tile_rows(cases, parameters), split_rule=SplitRule.OWN
    )


def latent_decode_seconds(
    cases: AttentionCases,
    *,
    grid: DecodeGrid,
    machine: AttentionMachine,
    parameters: Mapping[str, float],
    cold: bool = False,
) -> Terms:
    """Time of absorbed latent attention, vectorised over the cases [s].

    Equation
    --------
    t = launch_s + query_passes x (queries + outputs) / bandwidth
        + min over splits of [waves x part_cycles + smooth_max(multiply, stream) + merge]
    multiply = waves x FLOPs of a part's key blocks / tensor rate
    stream = bytes of the latents x (1 + reread x (tiles of a sequence - 1)) / memory rate
    waves = max(tiles x splits / compute units, 1)

    Parameters
    ----------
    cases : sequences, query and cached tokens, heads [-], widths of latent and value [-], element sizes [bytes]
    grid : tiles of query rows, key blocks and candidate splits, from `latent_grid_of` [-]
    machine : tensor peak of the format that multiplies [FLOP/s], bandwidth [bytes/s], L2 [bytes], clock [Hz], units [-]
    parameters : of the fit; tensor_fraction of the peak and memory_fraction of the bandwidth in (0, 1] [-]; part_cycles
        of a thread block before and after its keys; query_passes over queries and outputs; reread, the cost of another
        tile's read of the same latents in reads from memory; l2_speedup of latents that stay in the L2 [-]; launch_s
        and merge_s of split keys [s]
    cold : the cache comes from HBM, as in a serving step; the benchmark repeats one call and finds it in L2

    Range of validity
    -----------------
    Positive sizes, heads that share one latent. Leaves out the projections around it, rotary embedding and pages.

    References
    ----------
    [DeepSeek2024a], [FlashDecoding2023]
    """
    p = parameters
    once, _ = cache_stream(
        cases, grid=grid, machine=machine, parameters=p, l2_bytes=L2_FRACTION * machine.l2_bytes, cold=cold
    )
    reads = 1.0 + p["reread"] * (grid.tiles / (cases.sequences * cases.num_kv_heads) - 1.0)
    streamed = reads * once
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
        seconds=p["launch_s"] + queries_s + candidates[best, index],
        compute_s=multiply[best, index],
        memory_s=streamed + queries_s,
    )


def latent_decode_timing(
    shape: AttentionShape, *, hardware: AcceleratorSpec, fit: KernelFit, lattice: Lattice | None, cold: bool = True
) -> Timing:
    """Price decode of latent attention: physics x correction, interval, provenance; cold : `latent_decode_seconds`."""
    cases = attention_cases(shape)
    machine = attention_machine(hardware, kernel_dtype(fit, hardware))
    grid = latent_grid_of(cases, machine=machine, parameters=fit.parameters)
    terms = latent_decode_seconds(cases, grid=grid, machine=machine, parameters=fit.parameters, cold=cold)
    points = decode_points(cases, grid)
    return corrected_timing(terms, points, fit=fit, lattice=lattice, axes=DECODE_AXES)
