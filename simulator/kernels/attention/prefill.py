"""Prefill attention on a tiled processor: query tiles x key blocks, tensor and exponential rates, the longest tile.

FlashAttention's loop [Dao2023] [Shah2024] priced tile by tile; a small correction fitted on the
residual (kernels/timing) comes on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from simulator.kernels.attention.cases import (
    ACTIVATION_BYTES,
    KEY_BLOCK,
    AttentionCases,
    AttentionMachine,
    append_seconds,
    attention_cases,
    attention_machine,
    kernel_dtype,
)
from simulator.kernels.attention.decode import SplitRule, balanced_splits, efficient_splits
from simulator.kernels.timing import (
    Lattice,
    Provenance,
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

PREFILL_AXES = ("tiles", "span", "group")
SAMPLED_TILES = 16
"""Query tiles whose keys are counted one by one; more tiles are represented by as many evenly spaced ones."""

_CASES_AT_ONCE = 2048
"""Calls whose sampled tiles a processor's cache holds."""

APPEND_PASSES, L2_REACH, DROOP_S = 0.5, 0.45, 0.02
"""Reads and writes of new keys over those of the append's own bytes, the share of the L2 that a call may fill, and how
long a call is before its clock sags [s]: medians of fits that had them free, a third to two thirds of which stood at a
bound. Fixing them moves the error on left-out layouts by less than a tenth, mostly down (six tables of five
accelerators)."""

WARPGROUP_ROWS = 64.0
"""Query rows that one warpgroup multiplies: the grain in which a tile is filled [Shah2024]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillGrid:
    """The work list of each call: how many tiles, and the key blocks they pass.

    tiles : query tiles of the grid; mean_blocks, longest_blocks : key blocks of the mean and of the longest tile
    splits : parts into which each tile's keys are divided
    rows : query rows that a tile multiplies
    """

    tiles: Array
    mean_blocks: Array
    longest_blocks: Array
    splits: Array
    rows: Array


def _key_blocks(
    query: Array,
    context: Array,
    window: Array,
    per_head: Array,
    rows_per_token: Array,
    *,
    tile_rows: float,
    causal: bool,
) -> Array:
    """Key blocks of the mean and of the longest tile of each call, shape (2, calls), by SAMPLED_TILES of them."""
    index = np.arange(SAMPLED_TILES, dtype=np.float64)[:, None]
    few = per_head <= SAMPLED_TILES
    tile = np.where(few, np.minimum(index, per_head - 1), np.floor((index + 0.5) / SAMPLED_TILES * per_head))
    weight = np.where(few, (index < per_head) / per_head, 1.0 / SAMPLED_TILES)
    last = context + (np.minimum(query, np.ceil((tile + 1) * tile_rows / rows_per_token)) if causal else query)
    first = np.maximum(context + np.floor(tile * tile_rows / rows_per_token) - window + 1, 0.0)
    blocks = np.maximum(np.ceil(last / KEY_BLOCK) - np.floor(first / KEY_BLOCK), 1.0)
    return np.stack([(blocks * weight).sum(axis=0), blocks.max(axis=0)])


def prefill_grid(
    cases: AttentionCases, *, compute_units: float, tile_rows: float, packs_group: bool, split_rule: SplitRule
) -> PrefillGrid:
    """Tiles of ``tile_rows`` query rows, and the blocks of keys that the mask leaves to each [Dao2023].

    packs_group : the query heads that share a KV head fill a tile's rows together [Shah2024]; a single query
    token is always packed. split_rule : whether and how few tiles divide their keys.
    """
    packed = np.full(len(cases.sequences), packs_group) | (cases.query_tokens <= 1)
    heads = np.where(packed, cases.num_kv_heads, cases.num_kv_heads * cases.group)
    rows_per_token = np.where(packed, cases.group, 1.0)
    per_head = np.maximum(np.ceil(cases.query_tokens * rows_per_token / tile_rows), 1.0)
    arrays = (cases.query_tokens, cases.context_tokens, cases.window, per_head, rows_per_token)
    found = [
        _key_blocks(
            *(array[first : first + _CASES_AT_ONCE] for array in arrays), tile_rows=tile_rows, causal=cases.causal
        )
        for first in range(0, max(len(per_head), 1), _CASES_AT_ONCE)
    ]
    mean, longest = np.concatenate(found, axis=1)
    tiles = cases.sequences * heads * per_head
    splits = np.ones(len(tiles))
    if split_rule == SplitRule.EFFICIENT:
        splits = efficient_splits(tiles, longest, slots=compute_units)
    if split_rule == SplitRule.BALANCED:
        splits = balanced_splits(tiles, longest, tiles_of_one=heads * per_head, slots=compute_units)
    # A few queries against many cached keys fill part of a tile. Without cached keys such a tile has one block, whose
    # cost the fit holds in tile_cycles: it stays whole.
    filled = np.ceil(cases.query_tokens * rows_per_token / WARPGROUP_ROWS) * WARPGROUP_ROWS
    return PrefillGrid(
        tiles=tiles,
        mean_blocks=mean,
        longest_blocks=longest,
        splits=splits,
        rows=np.where(cases.context_tokens > 0, np.minimum(filled, tile_rows), tile_rows),
    )


def prefill_seconds(
    cases: AttentionCases,
    *,
    grid: PrefillGrid,
    machine: AttentionMachine,
    parameters: Mapping[str, float],
    cold: bool = False,
) -> Terms:
    """Time of prefill attention, vectorised over the cases [s].

    Equation
    --------
    t = launch_s + (makespan + operand traffic + cache append) x (1 + droop)
    block = smooth_max(2 x tile rows x KEY_BLOCK x (dk + dv) / tensor rate, tile rows x KEY_BLOCK / exponential rate)
    makespan = max(waves x (tile_cycles + mean blocks x block), lone_factor x the longest tile)
    waves between x and ceil(x) of x = tiles / compute units

    Parameters
    ----------
    cases : sequences, query and cached tokens, heads [-], head widths dk and dv [-], element sizes [bytes]
    grid : tiles, their key blocks and splits, from `prefill_grid` [-]
    machine : tensor peak [FLOP/s], exponentials [1/s], bandwidth [bytes/s], L2 [bytes], clock [Hz]
    parameters : of the fit; names with _fraction are shares of datasheet rates [-]; exponential_rate is over that of
        the special function units, above 1 with polynomials beside them; ``droop`` is the loss of clock of calls longer
        than DROOP_S
    cold : the cached context is read from HBM whatever its size

    Range of validity
    -----------------
    Positive sizes and the head widths that the fit saw. Leaves out rotary embedding and the projections.

    References
    ----------
    [Dao2023], [Shah2024]

    Examples
    --------
    One wave of tiles with ten blocks, 2 x 128 x 128 x 256 FLOPs each at 10 TFLOP/s of a unit: 8.39 us.

    >>> from types import SimpleNamespace as Record
    >>> from collections import defaultdict
    >>> from simulator.specs.model.precision import Dtype
    >>> call = Record(sequences=np.array([64.0]), query_tokens=1.0, context_tokens=9999.0, num_kv_heads=8, num_heads=32,
    ...     head_dim=128, v_head_dim=128, window=None, kv_dtype=Dtype.BF16, causal=True, shared_kv=False)
    >>> cases = attention_cases(call)
    >>> machine = AttentionMachine(peak_flops_per_s=1e15, exponentials_per_s=1e15, memory_bytes_per_s=1e12,
    ...     l2_bytes=1.0, compute_units=100.0, clock_hz=1e9)
    >>> ones = dict.fromkeys(("tensor_fraction", "exponential_rate", "memory_fraction", "l2_speedup"), 1.0)
    >>> fit = defaultdict(float, ones, overlap=32.0)
    >>> ten = np.array([10.0])
    >>> grid = PrefillGrid(tiles=10 * ten, mean_blocks=ten, longest_blocks=ten, splits=ten / 10, rows=np.array([128.0]))
    >>> float(prefill_seconds(cases, grid=grid, machine=machine, parameters=fit).compute_s[0])
    8.388608e-06
    """
    p = parameters
    rows = grid.rows
    unit_flops_per_s = machine.unit_flops_per_s(p["tensor_fraction"])
    unit_exponentials_per_s = p["exponential_rate"] * machine.exponentials_per_s / machine.compute_units
    tensor = 2.0 * rows * KEY_BLOCK * (cases.head_dim + cases.v_head_dim) / unit_flops_per_s
    block = smooth_maximum(tensor, rows * KEY_BLOCK / unit_exponentials_per_s, sharpness=p["overlap"])
    start = p["tile_cycles"] / machine.clock_hz
    mean = grid.splits * start + grid.mean_blocks * block
    filled = grid.tiles / machine.compute_units
    waves = filled + p["wave_quantisation"] * (np.ceil(filled) - filled) / grid.splits
    longest = p["lone_factor"] * (start + np.ceil(grid.longest_blocks / grid.splits) * block)
    merge = np.where(grid.splits > 1, p["merge_s"], 0.0)
    makespan = np.maximum(waves * mean, longest) + merge
    traffic, bandwidth = _traffic_seconds(cases, machine=machine, parameters=p, cold=cold)
    append = append_seconds(
        cases, machine=machine, token_cycles=p["token_cycles"], bytes_per_s=bandwidth / APPEND_PASSES
    )
    busy = makespan + traffic + append
    droop = 1.0 + p["droop"] * busy / (busy + DROOP_S)
    return Terms(seconds=p["launch_s"] + busy * droop, compute_s=makespan, memory_s=traffic + append)


def _traffic_seconds(
    cases: AttentionCases, *, machine: AttentionMachine, parameters: Mapping[str, float], cold: bool
) -> tuple[Array, Array]:
    """Seconds to read queries, keys and values and write the output once, and the rate of the new tokens [bytes/s]."""
    p = parameters
    tokens = cases.sequences * cases.query_tokens
    heads = cases.num_kv_heads * cases.group
    queries = tokens * heads * (cases.head_dim + cases.v_head_dim) * ACTIVATION_BYTES
    per_token = cases.num_kv_heads * cases.kv_width
    new = tokens * per_token * cases.kv_element_bytes
    cached = cases.sequences * cases.context_tokens * per_token * cases.kv_element_bytes
    slow = p["memory_fraction"] * machine.memory_bytes_per_s
    working_set = queries + new + tokens * per_token * ACTIVATION_BYTES + cached
    hot = l2_hit_share(working_set, l2_bytes=L2_REACH * machine.l2_bytes)
    fast = slow * (1.0 + (p["l2_speedup"] - 1.0) * hot)
    seconds = (queries + new) / fast + cached / (slow if cold else fast)
    return seconds, fast


def prefill_points(cases: AttentionCases, grid: PrefillGrid) -> Array:
    """Coordinates of the correction, PREFILL_AXES in octaves, shape (cases, 3). ``span`` is twice the mean number of
    keys that a query sees, less one: the query length where nothing is cached and no window ends it."""
    return log2_coordinates(grid.tiles, 2.0 * visible_keys(cases) - 1.0, cases.group)


def visible_keys(cases: AttentionCases) -> Array:
    """Keys up to its own that a query sees under the causal mask and the window, mean over the queries [-].

    Equation
    --------
    whole = queries whose keys all lie in the window = clip(window - context, 0, queries)
    mean = (whole x (context + (whole + 1) / 2) + (queries - whole) x window) / queries

    Parameters
    ----------
    cases : query and cached tokens, window [-]

    Range of validity
    -----------------
    At least one query, a window of at least one key or inf. Leaves out other masks.

    References
    ----------
    [Dao2023]

    Examples
    --------
    Of four queries one key more each, (1 + 2 + 3 + 4) / 4; through a window of two (1 + 2 + 2 + 2) / 4.

    >>> from types import SimpleNamespace as Record
    >>> four = np.array([4.0, 4.0])
    >>> visible_keys(Record(query_tokens=four, context_tokens=0 * four, window=np.array([np.inf, 2.0]))).tolist()
    [2.5, 1.75]
    """
    query, context = cases.query_tokens, cases.context_tokens
    whole = np.clip(cases.window - context, 0.0, query)
    cut = np.where(whole < query, cases.window, 0.0)
    return (whole * (context + (whole + 1.0) / 2.0) + (query - whole) * cut) / query


def grid_of(cases: AttentionCases, *, machine: AttentionMachine, parameters: Mapping[str, float]) -> PrefillGrid:
    """``prefill_grid`` with the traits that the fit found for its kernel."""
    return prefill_grid(
        cases,
        compute_units=machine.compute_units,
        tile_rows=parameters["tile_rows"],
        packs_group=parameters["packs_group"] > 0,
        split_rule=SplitRule(int(parameters["split_rule"])),
    )


def attention_timing(
    shape: AttentionShape, *, hardware: AcceleratorSpec, fit: KernelFit, lattice: Lattice | None, cold: bool = True
) -> Timing:
    """Price prefill attention, vectorised over sequences and tokens: physics x correction, interval, provenance.

    The measured calls had no cached context: where cached keys outnumber the new ones the result is extrapolated,
    and its spread grows to that of the physics alone. cold : see ``prefill_seconds``.
    """
    cases = attention_cases(shape)
    machine = attention_machine(hardware, kernel_dtype(fit, hardware))
    grid = grid_of(cases, machine=machine, parameters=fit.parameters)
    terms = prefill_seconds(cases, grid=grid, machine=machine, parameters=fit.parameters, cold=cold)
    points = prefill_points(cases, grid)
    timing = corrected_timing(terms, points, fit=fit, lattice=lattice, axes=PREFILL_AXES)
    cached = cases.context_tokens / cases.key_tokens
    physics_sigma = fit.physics_log_sigma or fit.error.log_sigma
    extrapolated = np.where(cached > 0.5, float(Provenance.EXTRAPOLATED), float(Provenance.CALIBRATED))
    return replace(
        timing,
        log_sigma=np.sqrt(timing.log_sigma**2 + cached * physics_sigma**2),
        provenance=np.maximum(timing.provenance, extrapolated),
    )
