"""Decode attention: waves of thread blocks over splits of the cached keys, bounded by HBM or L2, and their merge.

Flash-decoding [FlashDecoding2023]: the heads of a group share one read of their keys, the keys of a sequence may
be split among compute units. A small correction fitted on the residual (kernels/timing) comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.attention.cases import (
    KEY_BLOCK,
    AttentionCases,
    AttentionMachine,
    append_seconds,
    attention_cases,
    attention_machine,
    kernel_dtype,
)
from simulator.kernels.timing import (
    Lattice,
    Terms,
    Timing,
    corrected_timing,
    l2_hit_share,
    log2_coordinates,
    smooth_maximum,
)
from simulator.operators.work import Array, AttentionShape
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit

DECODE_AXES = ("tiles", "keys", "group", "sequences")

SPLIT_CHOICES: NDArray[np.float64] = np.array([1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64], dtype=np.float64)[:, None]
"""Parts among which a kernel that balances its own grid divides the keys of a sequence."""

PARTIAL_BYTES = 8.0
"""A partial output is an FP32 number, written once and read once."""

COPY_BYTES = 4.0
"""A copied 16-bit query and output element: read and written."""

L2_SHARPNESS = 6.0
"""How abruptly L2 hits end when the cached keys of a call outgrow the L2."""

FEED_SHARPNESS = 4.0
"""Sharpness of the maximum of feeding a key block and multiplying it."""

FULL_SHARE = 0.8
"""A grid that fills this share of the slots does not split its keys [Dao2023]."""

EFFICIENT_SHARE = 0.85
"""The fewest splits within this share of the best wave efficiency are taken [Dao2023]."""

SHARE_MARGIN = 1.1
FEW_BLOCKS = 4.0
"""Tiles of at most this many key blocks are never divided by flash-attention 3."""

MOST_SPLITS = 128
_SPLITS: NDArray[np.float64] = np.arange(1.0, MOST_SPLITS + 1.0)[:, None]

UNIT_SHARES, RESIDENCY, OVERLAP, BLOCK_CYCLES, TOKEN_CYCLES, L2_REACH = 4.4, 1.5, 2.0, 10.0, 3000.0, 0.6
"""What feeds a unit in even shares of the bandwidth, thread blocks that share a unit, sharpness of the maximum of
multiplying and streaming, cycles of a key block and of a token's append, and the share of the L2 that a call's cache
may fill: medians of the fits that had them free, a third to two thirds of which stood at a bound. Fixing them moves the
error on left-out layouts by less than a tenth, mostly down (six tables of five accelerators)."""

BLOCKS_PER_UNIT = 2.0
"""Thread blocks per compute unit that flash-attention 2 reckons with when it splits keys [Dao2023]."""


class SplitRule(IntEnum):
    """How a kernel divides keys among compute units: never or freely, as flash-attention 2, as flash-attention 3."""

    OWN = 0
    EFFICIENT = 1
    BALANCED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeGrid:
    """The work list of each call.

    tiles : tiles of query rows x KV heads x sequences; keys : keys read for a sequence; a window that lies across
        block borders costs one block more
    blocks : key blocks of a tile; splits, blocks_per_part : candidates (rows) of dividing them
    copies_queries : a call whose grouped heads are copied into rows first (flash-attention 2)
    """

    tiles: Array
    keys: Array
    blocks: Array
    splits: Array
    blocks_per_part: Array
    grouped: NDArray[np.bool_]
    copies_queries: NDArray[np.bool_]


def efficient_splits(tiles: Array, blocks: Array, *, slots: float) -> Array:
    """Parts into which flash-attention divides the keys of each tile when tiles alone leave slots idle [-].

    The fewest of up to 128 parts whose last wave is within EFFICIENT_SHARE of the fullest [Dao2023]; 1 where
    the tiles already fill FULL_SHARE of the slots. tiles, blocks : arrays of tiles in the grid, key blocks a tile.
    """
    splits = np.ones(len(tiles))
    idle = np.flatnonzero((tiles < FULL_SHARE * slots) & (blocks > 1))
    if len(idle) == 0:
        return splits
    few, keys = tiles[idle], blocks[idle]
    per_part = np.ceil(keys / _SPLITS)
    fewer = np.ceil(keys / np.maximum(_SPLITS - 1.0, 1.0))
    useful = (_SPLITS == 1.0) | ((per_part != fewer) & (np.minimum(keys, slots) >= _SPLITS))
    waves = few * _SPLITS / slots
    efficiency = np.where(useful, waves / np.ceil(waves), 0.0)
    enough = efficiency >= EFFICIENT_SHARE * efficiency.max(axis=0)
    splits[idle] = 1.0 + np.argmax(enough, axis=0)
    return splits


def balanced_splits(tiles: Array, blocks: Array, *, tiles_of_one: Array, slots: float) -> Array:
    """Parts into which flash-attention 3 divides the keys of calls with sequences of any length [-].

    Equation
    --------
    splits = ceil(blocks / ceil(1.1 tiles blocks / slots)), at most MOST_SPLITS

    Parameters
    ----------
    tiles, blocks : tiles of the grid and key blocks of a tile [-]
    tiles_of_one : tiles of one sequence [-]
    slots : thread blocks that run at once [-]

    Range of validity
    -----------------
    1 where the tiles of one sequence nearly fill the device, or where keys are few. Leaves out other kernels' rules.

    References
    ----------
    [Shah2024]

    Examples
    --------
    Parts of ceil(1.1 x 8 x 64 / 132) = 5 blocks.

    >>> eight = np.array([8.0])
    >>> float(balanced_splits(eight, np.array([64.0]), tiles_of_one=eight, slots=132.0)[0])
    13.0
    """
    share = np.ceil(SHARE_MARGIN * tiles * blocks / slots)
    splits = np.clip(np.ceil(blocks / share), 1.0, MOST_SPLITS)
    return np.where((tiles_of_one < FULL_SHARE * slots) & (blocks > FEW_BLOCKS), splits, 1.0)


def decode_grid(
    cases: AttentionCases, *, compute_units: float, tile_rows: Array | float, split_rule: SplitRule
) -> DecodeGrid:
    """Tiles and key splits.

    split_rule : EFFICIENT is flash-attention 2, which divides keys only where heads share them and packs the heads
    of a group into rows by copying, both only for a single query token and without a window; BALANCED is
    flash-attention 3; OWN takes the best of SPLIT_CHOICES.
    """
    inside = cases.window + cases.query_tokens - 1.0
    keys = np.where(cases.key_tokens > inside, inside + KEY_BLOCK, cases.key_tokens)
    blocks = np.ceil(keys / KEY_BLOCK)
    copying = split_rule == SplitRule.EFFICIENT
    apart = copying & ((cases.query_tokens > 1) | np.isfinite(cases.window))
    grouped = copying & ~apart & (cases.group > 1)
    heads = cases.num_kv_heads * np.where(apart, cases.group, 1.0)
    rows = cases.query_tokens * np.where(apart, 1.0, cases.group)
    tiles = cases.sequences * heads * np.ceil(rows / tile_rows)
    choices = SPLIT_CHOICES
    if copying:
        ruled = efficient_splits(tiles, blocks, slots=BLOCKS_PER_UNIT * compute_units)
        choices = np.where(grouped, ruled, 1.0)[None, :]
    if split_rule == SplitRule.BALANCED:
        one = tiles / cases.sequences
        choices = balanced_splits(tiles, blocks, tiles_of_one=one, slots=compute_units)[None, :]
    per_part = np.ceil(blocks / choices)
    return DecodeGrid(
        tiles=tiles,
        keys=keys,
        blocks=blocks,
        splits=np.ceil(blocks / per_part),
        blocks_per_part=per_part,
        grouped=grouped,
        copies_queries=grouped & (cases.sequences > 1) & (cases.num_kv_heads > 1),
    )


def query_rows(cases: AttentionCases) -> Array:
    """Rows of queries in each call [-]."""
    return cases.sequences * cases.num_kv_heads * cases.group * cases.query_tokens


def cache_bytes(cases: AttentionCases, grid: DecodeGrid) -> Array:
    """One read of the keys and values of each call [bytes]."""
    return cases.sequences * cases.num_kv_heads * grid.keys * cases.kv_width * cases.kv_element_bytes


def merge_pass(cases: AttentionCases, *, grid: DecodeGrid, machine: AttentionMachine, merge_s: float) -> Array:
    """The pass that adds up what the parts of split keys found, for each candidate split [s]."""
    partial_bytes = query_rows(cases) * grid.splits * cases.v_head_dim * PARTIAL_BYTES
    return np.where(grid.splits > 1, merge_s + partial_bytes / machine.memory_bytes_per_s, 0.0)


def decode_seconds(
    cases: AttentionCases,
    *,
    grid: DecodeGrid,
    machine: AttentionMachine,
    parameters: Mapping[str, float],
    cold: bool = False,
) -> Terms:
    """Time of decode attention, vectorised over the cases [s].

    Equation
    --------
    t = launch_s + min over splits of [smooth_max(waves x part, KV bytes / bandwidth) + merge] + append [+ row copy]
    part = part_cycles + blocks x (smooth_max(block bytes / unit rate, tile FLOPs / tensor rate) + block_cycles)
    waves = ceil(tiles x splits / compute units), beyond the first RESIDENCY times cheaper, as several thread blocks
    share a unit

    Parameters
    ----------
    cases : sequences, query and cached tokens, heads [-], head widths [-], element sizes [bytes]
    grid : tiles, key blocks and candidate splits, from `decode_grid` [-]
    machine : tensor peak [FLOP/s], bandwidth [bytes/s], L2 [bytes], clock [Hz], compute units [-]
    parameters : of the fit; a unit is fed by UNIT_SHARES even shares of the bandwidth, l2_speedup times that while the
        cache of one call stays in L2_REACH of the L2
    cold : the cache comes from HBM, as in a serving step; the benchmark repeats one call and finds it in L2

    Range of validity
    -----------------
    Positive sizes. Leaves out rotary embedding and the lookup of pages.

    References
    ----------
    [FlashDecoding2023], [Dao2023], [Shah2024]

    Examples
    --------
    Keys and values of 64 sequences with 10,000 tokens of 8 heads, 512 bytes each, cross 1 TB/s in 2.62 ms.

    >>> from types import SimpleNamespace as Record
    >>> from collections import defaultdict
    >>> from simulator.specs.model.precision import Dtype
    >>> call = Record(sequences=np.array([64.0]), query_tokens=1.0, context_tokens=9999.0, num_kv_heads=8, num_heads=32,
    ...     head_dim=128, v_head_dim=128, window=None, kv_dtype=Dtype.BF16, causal=True, shared_kv=False)
    >>> cases = attention_cases(call)
    >>> machine = AttentionMachine(peak_flops_per_s=1e15, exponentials_per_s=1e15, memory_bytes_per_s=1e12,
    ...     l2_bytes=1.0, compute_units=100.0, clock_hz=1e9)
    >>> fit = defaultdict(float, tile_rows=16.0, tensor_fraction=1.0, memory_fraction=1.0, l2_speedup=1.0)
    >>> grid = decode_grid_of(cases, machine=machine, parameters=fit)
    >>> round(float(decode_seconds(cases, grid=grid, machine=machine, parameters=fit).memory_s[0]), 5)
    0.00262
    """
    p = parameters
    kv_bytes, l2_bytes = cache_bytes(cases, grid), L2_REACH * machine.l2_bytes
    hot = np.zeros(len(kv_bytes)) if cold else l2_hit_share(kv_bytes, l2_bytes=l2_bytes, sharpness=L2_SHARPNESS)
    lift = 1.0 + (p["l2_speedup"] - 1.0) * hot
    streamed = kv_bytes / (p["memory_fraction"] * machine.memory_bytes_per_s * lift)
    unit_bytes_per_s = UNIT_SHARES * machine.memory_bytes_per_s / machine.compute_units * lift
    feed = KEY_BLOCK * cases.kv_width * cases.kv_element_bytes / unit_bytes_per_s
    unit_flops_per_s = machine.unit_flops_per_s(p["tensor_fraction"])
    multiply = 2.0 * p["tile_rows"] * KEY_BLOCK * (cases.head_dim + cases.v_head_dim) / unit_flops_per_s
    block = smooth_maximum(feed, multiply, sharpness=FEED_SHARPNESS) + BLOCK_CYCLES / machine.clock_hz
    part = p["part_cycles"] / machine.clock_hz + grid.blocks_per_part * block
    waves = np.maximum(np.ceil(grid.tiles * grid.splits / machine.compute_units), 1.0)
    busy = (1.0 + (waves - 1.0) / RESIDENCY) * part
    rows = query_rows(cases)
    candidates = smooth_maximum(busy, streamed, sharpness=OVERLAP)
    candidates += merge_pass(cases, grid=grid, machine=machine, merge_s=p["merge_s"])
    best, index = np.argmin(candidates, axis=0), np.arange(len(rows))
    append = append_seconds(cases, machine=machine, token_cycles=TOKEN_CYCLES, bytes_per_s=machine.memory_bytes_per_s)
    copied = p["swap_s"] * grid.grouped + grid.copies_queries * (
        p["copy_s"] + rows * cases.v_head_dim * COPY_BYTES / machine.memory_bytes_per_s
    )
    return Terms(
        seconds=p["launch_s"] + candidates[best, index] + append + copied,
        compute_s=busy[best, index],
        memory_s=streamed + append,
    )


def decode_points(cases: AttentionCases, grid: DecodeGrid) -> Array:
    """Coordinates of the correction, DECODE_AXES in octaves, shape (cases, 4)."""
    return log2_coordinates(grid.tiles, grid.keys, cases.group, cases.sequences)


def decode_grid_of(cases: AttentionCases, *, machine: AttentionMachine, parameters: Mapping[str, float]) -> DecodeGrid:
    """``decode_grid`` with the traits that the fit found for its kernel."""
    return decode_grid(
        cases,
        compute_units=machine.compute_units,
        tile_rows=parameters["tile_rows"],
        split_rule=SplitRule(int(parameters["split_rule"])),
    )


def decode_attention_timing(
    shape: AttentionShape, *, hardware: AcceleratorSpec, fit: KernelFit, lattice: Lattice | None, cold: bool = True
) -> Timing:
    """Price decode attention, vectorised over sequences and tokens: physics x correction, interval, provenance.

    cold : the KV of this layer was evicted by the other layers' since the last step, as when serving; the correction
    still applies, because it compares measurement and physics under the same conditions.
    """
    cases = attention_cases(shape)
    machine = attention_machine(hardware, kernel_dtype(fit, hardware))
    grid = decode_grid_of(cases, machine=machine, parameters=fit.parameters)
    terms = decode_seconds(cases, grid=grid, machine=machine, parameters=fit.parameters, cold=cold)
    if shape.splits_keys:
        terms = _split_terms(terms, cases, machine=machine, parameters=fit.parameters, cold=cold)
    points = decode_points(cases, grid)
    return corrected_timing(terms, points, fit=fit, lattice=lattice, axes=DECODE_AXES)


def _split_terms(
    own: Terms, cases: AttentionCases, *, machine: AttentionMachine, parameters: Mapping[str, float], cold: bool
) -> Terms:
    """``own``, or where it is faster the same kernel with its keys divided as suits the call [FlashDecoding2023]."""
    grid = decode_grid(
        cases, compute_units=machine.compute_units, tile_rows=parameters["tile_rows"], split_rule=SplitRule.OWN
    )
    free = decode_seconds(cases, grid=grid, machine=machine, parameters=parameters, cold=cold)
    faster = free.seconds < own.seconds
    return Terms(
        seconds=np.where(faster, free.seconds, own.seconds),
        compute_s=np.where(faster, free.compute_s, own.compute_s),
        memory_s=np.where(faster, free.memory_s, own.memory_s),
    )
