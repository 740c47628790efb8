"""Grouped products of routed experts: the tile model per expert, on the experts that a step is expected to reach.

One routed layer is two grouped GEMMs (up with gate, down), the activation between them, and the gather and weighted
sum around them. Weights of the distinct experts are read once; each expert's rows fill its own tiles, so that few
rows per expert waste most of a tile [MegaBlocks2022].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.gemm import GemmMachine, gemm_machine, tile_s_per_flop
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
from simulator.operators.work import Array, MoeShape
from simulator.records import dataclass
from simulator.specs.engine.releases import UntunedExperts
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit
from simulator.units import BITS_PER_BYTE

ELEMENT_BYTES = 2.0
"""Activations between the kernels are 16-bit."""

TILES: NDArray[np.float64] = np.array(
    [(16, 64), (16, 128), (32, 64), (32, 128), (64, 64), (64, 128), (128, 64), (128, 128), (128, 256)], dtype=np.float64
)
"""(rows, columns) of the tiles of grouped kernels; they do not split k."""

WAVE_QUANTISATION = 0.5
"""Share of a last wave's idle units that shows. Tables do not tell it from a tile's own time: fitted, it stood at an
end of its range in 75 of 160 fits, and half of it explains models left out as well (12.5 and 12.4 %)."""

L2_SHARE = 0.25
"""Of an L2 that a benchmark's single layer fits into, up to which its weights stay there."""

WAITING_SHARE = 0.25
"""Of the power of multiplying that a unit draws while it works on a tile and does not multiply. Times tell a kernel's
share of the peak and its half tile only together, so that neither says what units multiply. One number for Hopper,
Blackwell and CDNA4: watts of every second loop miss by 11.2, 7.8 and 10.1 % (share 0: 12.5, 8.9, 10.6; share 1: 15.3,
8.3, 9.7)."""

CORRECTION_AXES = ("tokens", "rows_per_expert", "distinct_experts", "intermediate_size")
"""Coordinates of the correction."""


BOX_AXES = (*CORRECTION_AXES, "hidden_size")
"""Coordinates of the fitted box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLoad:
    """Cases of one or many layers, arrays of equal length; the fields of MoeShape, broadcast. ``even``: cases in which
    every expert gets as many rows, as benchmarks route and no router does (None: none)."""

    tokens: Array
    hidden_size: Array
    intermediate_size: Array
    num_experts_per_tok: Array
    local_experts: Array
    distinct_experts: Array
    local_assignments: Array
    even: Array | None = None

    @property
    def reached(self) -> Array:
        """Distinct local experts, at least one so that no term divides by zero."""
        return np.maximum(self.distinct_experts, 1.0)

    @property
    def rows_per_expert(self) -> Array:
        """Mean rows of a reached expert, at least one."""
        return np.maximum(self.local_assignments / self.reached, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertTerms(Terms):
    """``tensor_s``: what tiles multiply at the peak of the tensor units, their padding and, by ``WAITING_SHARE``, their
    waiting too [s]."""

    tensor_s: Array


def ragged_tiles(rows: Array, tile_rows: Array) -> Array:
    """Mean tiles of an expert whose rows scatter around ``rows`` [-]. 1 / (1 - exp(-tile / rows)): the mean of ceil(r /
    tile) for exponentially distributed r. It is 1 for few rows and rows / tile + 1/2 for many."""
    return 1.0 / -np.expm1(-tile_rows / rows)


def _grouped_gemm(
    load: ExpertLoad,
    *,
    columns: Array,
    depth: Array,
    machine: GemmMachine,
    parameters: Mapping[str, float],
    weight_bytes: float,
    activation_bytes: float,
    dequantise_s: float,
    cold: bool,
) -> tuple[Array, Array, Array, Array]:
    """(body, compute, memory, tensor units at their peak) of one grouped product [columns x depth] per reached expert
    [s]."""
    p = parameters
    hbm = p["memory_fraction"] * machine.memory_bytes_per_s
    rows, wide = TILES[:, 0], TILES[:, 1]
    mean = load.rows_per_expert[:, None]
    each = ragged_tiles(mean, rows)
    if load.even is not None:
        each = np.where(load.even[:, None], np.ceil(mean / rows), each)
    filled = load.reached[:, None] * each * np.ceil(columns[:, None] / wide) / machine.compute_units
    waves = np.maximum(filled + WAVE_QUANTISATION * (np.ceil(filled) - filled), 1.0)
    steps = waves * (depth[:, None] + p["prologue"])
    unit_rate = p["compute_fraction"] * machine.peak_flops_per_s / machine.compute_units
    half = p["half_tile"] * (rows + wide) / (rows * wide)
    compute = steps * (2.0 * rows * wide * tile_s_per_flop(unit_rate, half, machine=machine))
    if dequantise_s:
        compute = compute + steps * (wide * dequantise_s)
    feed = steps * (rows * activation_bytes + wide * weight_bytes) * machine.compute_units / (p["unit_bandwidth"] * hbm)
    weights = load.reached * columns * depth * weight_bytes
    moved = weights + load.local_assignments * (depth * activation_bytes + columns * ELEMENT_BYTES)
    near = L2_SHARE * machine.l2_bytes
    hot = np.zeros_like(weights) if cold else l2_hit_share(weights, l2_bytes=near)
    streamed = moved / (hbm * (1.0 + (p.get("l2_speedup", 1.0) - 1.0) * hot))
    memory = np.maximum(feed, streamed[:, None])
    body = smooth_maximum(compute, memory, sharpness=p["overlap"])
    multiplied = filled * depth[:, None] * (2.0 * rows * wide * machine.compute_units / machine.peak_flops_per_s)
    tensor = multiplied + WAITING_SHARE * np.maximum(compute - multiplied, 0.0)
    best, cases = np.argmin(body, axis=1), np.arange(len(columns))
    return body[cases, best], compute[cases, best], memory[cases, best], tensor[cases, best]


def _passes_seconds(
    load: ExpertLoad, *, columns: Array, machine: GemmMachine, parameters: Mapping[str, float]
) -> Array:
    """Gather, activation and weighted sum over every (token, expert) pair of the step, local or not [s]."""
    pairs = load.tokens * load.num_experts_per_tok
    moved = ELEMENT_BYTES * pairs * (columns + load.intermediate_size + load.hidden_size)
    hot = l2_hit_share(moved, l2_bytes=machine.l2_bytes)
    faster = 1.0 + (parameters.get("l2_speedup", 1.0) - 1.0) * hot
    rate = parameters["pass_speedup"] * machine.memory_bytes_per_s * faster
    return moved / rate + pairs * parameters["pair_s"]


def moe_seconds(
    load: ExpertLoad,
    *,
    machine: GemmMachine,
    parameters: Mapping[str, float],
    weight_bytes: float,
    activation_bytes: float,
    gated: bool,
    dequantise_s: float = 0.0,
    cold: bool = False,
) -> ExpertTerms:
    """Time of one routed layer on one device, vectorised over the cases [s].

    ``l2_speedup`` is given where the L2 holds a layer beside a slow memory; elsewhere no table shows one.
    ``pass_speedup`` may exceed 1 where the passes are fused into the products. ``dequantise_s`` is what one compute
    unit spends on one weight each time that a tile reads it. ``cold``: experts come from memory, as in a step that
    streams a whole model; the benchmark repeats one layer, and finds few of them in the L2.

    t = launch_s + expert_s x local experts + up GEMM + down GEMM + passes over all (token, expert) pairs.
    Each GEMM is the least, over tiles, of a smooth maximum of compute waves and memory, as in ``gemm_seconds``
    without split-K. Left out: the router, shared experts and communication, which are rows of their own.
    """
    columns = load.intermediate_size * (2.0 if gated else 1.0)
    up, down = (
        _grouped_gemm(
            load,
            columns=wide,
            depth=deep,
            machine=machine,
            parameters=parameters,
            weight_bytes=weight_bytes,
            activation_bytes=activation_bytes,
            dequantise_s=dequantise_s,
            cold=cold,
        )
        for wide, deep in ((columns, load.hidden_size), (load.hidden_size, load.intermediate_size))
    )
    passes = _passes_seconds(load, columns=columns, machine=machine, parameters=parameters)
    launch = parameters["launch_s"] + parameters["expert_s"] * load.local_experts
    return ExpertTerms(
        seconds=launch + up[0] + down[0] + passes,
        compute_s=up[1] + down[1],
        memory_s=up[2] + down[2] + passes,
        tensor_s=up[3] + down[3],
    )


def expert_load(shape: MoeShape) -> ExpertLoad:
    """Broadcast the fields of ``shape`` to one length."""
    tokens, distinct, assignments, *scalars = np.broadcast_arrays(
        np.atleast_1d(np.asarray(shape.tokens, dtype=np.float64)),
        shape.distinct_experts,
        shape.local_assignments,
        shape.hidden_size,
        shape.intermediate_size,
        shape.num_experts_per_tok,
        shape.local_experts,
    )
    hidden, intermediate, topk, local = (np.asarray(value, dtype=np.float64) for value in scalars)
    return ExpertLoad(
        tokens=np.asarray(tokens, dtype=np.float64),
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_experts_per_tok=topk,
        local_experts=local,
        distinct_experts=np.asarray(distinct, dtype=np.float64),
        local_assignments=np.asarray(assignments, dtype=np.float64),
    )


def correction_points(load: ExpertLoad) -> Array:
    """Coordinates named by BOX_AXES, shape (cases, 5) [octaves]; the first four are those of the correction."""
    tokens = np.maximum(load.tokens, 1.0)
    return log2_coordinates(tokens, load.rows_per_expert, load.reached, load.intermediate_size, load.hidden_size)


def tokens_on_rank(shape: MoeShape, *, most_measured: float) -> Array:
    """Tokens of a step that an expert-parallel rank has in its memory [-].

    Equation
    --------
    t' = min(t, max(t_m, r)), r = a R / k (1 - (1 - 1 / R)^k)

    Parameters
    ----------
    shape : tokens t of all R ranks, k experts a token, a (token, expert) pairs of this rank [-]
    most_measured : t_m, the most that the table of a rank held [-]

    Range of validity
    -----------------
    All-to-all brings r tokens. Tables of spread experts hold the whole step's, among which kernels look for the rank's
    own; TensorRT-LLM's of GB200, which hold what all-to-all brings (wideep_moe), take as long up to t_m. Beyond it such
    passes would go on growing with tokens that no rank receives. Leaves out skew between ranks.

    References
    ----------
    [DeepEP2025]

    Examples
    --------
    Two ranks, two experts a token: 100 pairs are of 100 x 2 / 2 x (1 - 1 / 4) tokens.

    >>> from types import SimpleNamespace as Record
    >>> pairs = Record(exchanged=True, num_experts=64, local_experts=32, num_experts_per_tok=2, local_assignments=100.0,
    ...     tokens=100.0)
    >>> float(tokens_on_rank(pairs, most_measured=0.0))
    75.0
    """
    if not shape.exchanged:
        return shape.tokens
    ranks, chosen = shape.num_experts / shape.local_experts, shape.num_experts_per_tok
    received = shape.local_assignments * ranks / chosen * (1.0 - (1.0 - 1.0 / ranks) ** chosen)
    present: Array = np.minimum(shape.tokens, np.maximum(most_measured, received))
    return present


def moe_timing(
    shape: MoeShape,
    *,
    hardware: AcceleratorSpec,
    fit: KernelFit,
    lattice: Lattice | None,
    machine: GemmMachine | None = None,
    dequantise_s: float = 0.0,
    cold: bool = True,
) -> Timing:
    """Price the routed experts of one layer, vectorised over the cases: physics x fitted correction.

    machine : where another rate than the format's dense one applies; dequantise_s, cold : see ``moe_seconds``. The
    correction applies to both, as it compares measurement and physics under the same conditions.
    """
    present = tokens_on_rank(shape, most_measured=fit.box["tokens"][1])
    load, machine = expert_load(replace(shape, tokens=present)), machine or gemm_machine(hardware, shape.format)
    terms = moe_seconds(
        load,
        machine=machine,
        parameters=fit.parameters,
        weight_bytes=shape.format.weight_bits / BITS_PER_BYTE,
        activation_bytes=shape.format.activation_bits / BITS_PER_BYTE,
        gated=shape.gated,
        dequantise_s=dequantise_s,
        cold=cold,
    )
    timing = corrected_timing(terms, correction_points(load), fit=fit, lattice=lattice, axes=BOX_AXES)
    timing = replace(timing, tensor_s=terms.tensor_s)
    if machine.cap_flops_per_s == inf:
        return timing
    weights = load.hidden_size * load.intermediate_size * (3.0 if shape.gated else 2.0)
    least_s = 2.0 * load.local_assignments * weights / machine.cap_flops_per_s
    return replace(timing, seconds=np.maximum(timing.seconds, least_s), compute_s=np.maximum(timing.compute_s, least_s))


def on_one_tile(timing: Timing, shape: MoeShape, *, untuned: UntunedExperts, compute_units: int) -> Timing:
    """``timing`` of experts whose products run on one small tile where tokens outnumber experts [s].

    Equation
    --------
    t' = sqrt(t^2 + w^2), w = sum over both products of load_s x ceil(k / depth) x max(tiles / (units x resident), 1)

    Parameters
    ----------
    timing : t on tiles as tables measured them [s]
    shape : products k deep; its experts' rows and columns fill the tiles
    untuned : the tile, how many of them a unit works on at a time, load_s between their loads
    compute_units : of the accelerator [-]

    Range of validity
    -----------------
    16-bit weights. A tile waits for each of its loads; few tiles, or long products, cannot hide that behind others'.
    Leaves out that the last wave is not full. Up to as many tokens as local experts another tile runs, as tables say.

    References
    ----------
    [VllmExperts2026]

    Examples
    --------
    A load of 2 s for each product, beside 3 s: sqrt(3^2 + 4^2).

    >>> from types import SimpleNamespace as Record
    >>> shape = Record(tokens=8.0, distinct_experts=1.0, local_assignments=8.0, hidden_size=64, intermediate_size=64,
    ...     num_experts_per_tok=1, local_experts=1, gated=False)
    >>> tile = Record(tile=(16, 64, 64), resident_tiles=1, load_s=2.0)
    >>> three = Timing(**dict.fromkeys(Timing.__dataclass_fields__, np.array([3.0])))
    >>> float(on_one_tile(three, shape, untuned=tile, compute_units=10).seconds[0])
    5.0
    """
    load = expert_load(shape)
    rows, columns, depth = untuned.tile
    each = load.reached * ragged_tiles(load.rows_per_expert, np.asarray(rows, dtype=np.float64))
    width = load.intermediate_size * (2.0 if shape.gated else 1.0)
    waiting_s = np.zeros_like(load.tokens)
    for wide, deep in ((width, load.hidden_size), (load.hidden_size, load.intermediate_size)):
        waves = np.maximum(each * np.ceil(wide / columns) / (compute_units * untuned.resident_tiles), 1.0)
        waiting_s += untuned.load_s * np.ceil(deep / depth) * waves
    waiting_s = np.where(load.tokens > load.local_experts, waiting_s, 0.0)
    inferred = np.where(waiting_s > 0, int(Provenance.EXTRAPOLATED), 0)  # from whole runs; no kernel of it was timed
    return replace(
        timing,
        seconds=np.hypot(timing.seconds, waiting_s),
        compute_s=np.maximum(timing.compute_s, waiting_s),
        provenance=np.maximum(timing.provenance, inferred),
    )
