"""Matrix products on a tiled processor: launch + the best tile and split-K of compute waves against memory.

Roofline [Williams2009] with the tile and wave quantisation of [NVIDIA2024] and split-K as in [StreamK2023];
on top stands a small correction fitted on the residual (kernels/timing).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from math import inf

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.errors import ProfileError, did_you_mean
from simulator.kernels.timing import (
    L2_SHARPNESS,
    Lattice,
    Terms,
    Timing,
    corrected_timing,
    l2_hit_share,
    log2_coordinates,
    smooth_maximum,
)
from simulator.operators.work import Array, GemmShape, MatmulFormat
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit
from simulator.units import BITS_PER_BYTE

K_STEP = 64.0
"""Elements of k that a tile advances by [NVIDIA2024]."""

WEIGHT_COPIES = 6.0
"""Copies of the weights that the benchmark rotates through: weights stay in L2 only while all copies fit."""

OUTPUT_BYTES = 2.0
"""The product is stored as 16-bit numbers."""

PARTIAL_BYTES = 8.0
"""A split-K partial sum is an FP32 number, written once and read once."""

TILE_WIDTHS = {16: (64, 128), 32: (64, 128), 64: (32, 64, 128, 256), 128: (32, 64, 128, 256), 256: (64, 128)}
"""Columns of the output tiles by their rows."""

TILES: NDArray[np.float64] = np.array(
    [(rows, columns) for rows, widths in TILE_WIDTHS.items() for columns in widths], dtype=np.float64
)
"""(rows, columns) of the output tiles that kernel libraries choose from."""

SPLITS: NDArray[np.float64] = np.array([1.0, 2.0, 4.0, 8.0])
"""Factors by which k may be split among compute units."""

CASES_AT_ONCE = 256
"""Products that are priced together: with all tiles and splits some 150 kB an array, which stay in a core's cache."""

_ROWS, _COLUMNS = TILES[:, 0][:, None], TILES[:, 1][:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmMachine:
    """What the physics needs to know of an accelerator under one number format.

    cap_flops_per_s : rate at which matrix units multiply at most where a product line cuts it below that of the chip's
        units, whose peak then says what else holds them [FLOP/s]
    """

    peak_flops_per_s: float
    memory_bytes_per_s: float
    l2_bytes: float
    compute_units: float
    cap_flops_per_s: float = inf


def gemm_machine(hardware: AcceleratorSpec, format: MatmulFormat) -> GemmMachine:
    """Facts of ``hardware`` for the rate at which ``format`` multiplies; refuses a rate that it lacks."""
    peak = hardware.peak_flops_per_s.get(format.math)
    if peak is None:
        known = [dtype.value for dtype in hardware.peak_flops_per_s]
        raise ProfileError(
            f"{hardware.name} has no {format.math.value} matrix rate for the format {format.name}",
            field="precision",
            code="unsupported_dtype",
            hint=did_you_mean(format.math.value, known),
        )
    return GemmMachine(
        peak_flops_per_s=hardware.uncapped_flops_per_s.get(format.math, peak),
        cap_flops_per_s=peak if format.math in hardware.uncapped_flops_per_s else inf,
        memory_bytes_per_s=hardware.memory_bytes_per_s,
        l2_bytes=hardware.l2_bytes,
        compute_units=float(hardware.parallel_units),
    )


def quantise_seconds(
    m: Array, k: Array, *, machine: GemmMachine, parameters: Mapping[str, float], activation_bytes: float
) -> Array:
    """Time of the pass that quantises the activations before a product [s].

    Equation
    --------
    t = t_q + max(b / rate, m / u x t_row) + k x t_element, with b = m k (2 + a)

    Parameters
    ----------
    m, k : rows and columns of the activations [-]
    machine : compute units u [-], memory bandwidth [bytes/s] and L2 capacity [bytes]
    parameters : fixed time t_q [s], t_row per row of a compute unit [s], t_element per column [s], and the reached
        share of the bandwidth that makes the rate [bytes/s], higher while b stays in L2
    activation_bytes : bytes a of a quantised element [bytes]

    Range of validity
    -----------------
    16-bit activations of positive size. Leaves out kernels that quantise inside the norm before the product.

    References
    ----------
    [Williams2009]

    Examples
    --------
    1,000 x 1,000 x (2 + 1) bytes at half of 1 TB/s, after 1 us.

    >>> from collections import defaultdict
    >>> machine = GemmMachine(peak_flops_per_s=1e15, memory_bytes_per_s=1e12, l2_bytes=1.0, compute_units=128.0)
    >>> fit = defaultdict(float, l2_share=1.0, l2_speedup=1.0, quantise_fraction=0.5, quantise_s=1e-6)
    >>> thousand = np.array([1000.0])
    >>> found = quantise_seconds(thousand, thousand, machine=machine, parameters=fit, activation_bytes=1)
    >>> round(float(found[0]), 9)
    7e-06
    """
    moved = m * k * (OUTPUT_BYTES + activation_bytes)
    hot = l2_hit_share(moved, l2_bytes=parameters["l2_share"] * machine.l2_bytes)
    rate = parameters["quantise_fraction"] * machine.memory_bytes_per_s * (1.0 + (parameters["l2_speedup"] - 1.0) * hot)
    rows = m / machine.compute_units * parameters["quantise_row_s"]
    return parameters["quantise_s"] + np.maximum(moved / rate, rows) + k * parameters["quantise_element_s"]


def gemm_seconds(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    *,
    machine: GemmMachine,
    parameters: Mapping[str, float],
    weight_bytes: float,
    activation_bytes: float,
    quantises: bool = False,
    batch: float = 1.0,
    cold: bool = False,
    dequantise_s: float = 0.0,
) -> Terms:
    """Time of the matrix product (m, k) x (k, n), vectorised over all three [s].

    Equation
    --------
    t = launch_s + min over tiles (bm, bn), splits S of smooth_max(compute, memory) x (1 + droop) [+ quantisation pass]
    compute = waves x 2 bm bn (ceil(k / S / 64) 64 + prologue) / unit rate x (1 + half_tile / harmonic tile)
    memory = max(bytes / (memory_fraction x bandwidth x L2 factor), waves x tile bytes / unit bandwidth)
    waves between x and ceil(x) of x = ceil(m / bm) ceil(n / bn) S batch / compute units, at least 1

    Parameters
    ----------
    m, n, k : rows, columns and depth of the product [-]
    machine : peak [FLOP/s], bandwidth [bytes/s], L2 [bytes] and compute units [-] under the product's format
    parameters : of the fit; shares of datasheet rates [-], times [s]; ``droop`` is the loss of clock of kernels longer
        than ``droop_s``
    weight_bytes, activation_bytes : per element [bytes]
    quantises : whether a pass quantises the activations first
    batch : independent products that share the launch [-]
    cold : weights come from HBM whatever their size, as in a step that streams a whole model; otherwise they may stay
        in L2 as in the benchmark, which rotates WEIGHT_COPIES of them
    dequantise_s : what one compute unit spends on one weight each time that a tile reads it [s]

    Range of validity
    -----------------
    Positive sizes and dense formats with a fit. Leaves out epilogues (bias, activation) and tiles that no library has.

    References
    ----------
    [Williams2009], [NVIDIA2024], [StreamK2023]

    Examples
    --------
    Whole waves without overheads: 2 x 8,192^3 FLOPs at 1 PFLOP/s.

    >>> from collections import defaultdict
    >>> machine = GemmMachine(peak_flops_per_s=1e15, memory_bytes_per_s=1e12, l2_bytes=1.0, compute_units=128.0)
    >>> ones = dict.fromkeys(("compute_fraction", "memory_fraction", "l2_speedup", "l2_share", "droop_s"), 1.0)
    >>> fit = defaultdict(float, ones, unit_bandwidth=100.0, overlap=32.0)
    >>> found = gemm_seconds(8192, 8192, 8192, machine=machine, parameters=fit, weight_bytes=2, activation_bytes=2)
    >>> round(float(found.seconds[0]), 6)
    0.0011
    """
    m, n, k = (np.asarray(size, dtype=np.float64) for size in np.broadcast_arrays(np.atleast_1d(m), n, k))
    price = partial(
        _terms,
        machine=machine,
        parameters=parameters,
        weight_bytes=weight_bytes,
        activation_bytes=activation_bytes,
        quantises=quantises,
        batch=batch,
        cold=cold,
        dequantise_s=dequantise_s,
    )
    return _in_parts(price, m, n, k)


def _in_parts(price: Callable[[Array, Array, Array], Terms], m: Array, n: Array, k: Array) -> Terms:
    if len(m) <= CASES_AT_ONCE:
        return price(m, n, k)
    cuts = [slice(start, start + CASES_AT_ONCE) for start in range(0, len(m), CASES_AT_ONCE)]
    parts = [price(m[cut], n[cut], k[cut]) for cut in cuts]
    return Terms(
        **{field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Terms)}
    )


def _terms(
    m: Array,
    n: Array,
    k: Array,
    *,
    machine: GemmMachine,
    parameters: Mapping[str, float],
    weight_bytes: float,
    activation_bytes: float,
    quantises: bool,
    batch: float,
    cold: bool,
    dequantise_s: float,
) -> Terms:
    """``gemm_seconds`` of few products."""
    p = parameters
    hbm = p["memory_fraction"] * machine.memory_bytes_per_s
    streamed = _stream_seconds(
        weights=n * k * weight_bytes * batch,
        others=(m * k * activation_bytes + m * n * OUTPUT_BYTES) * batch,
        hbm=hbm,
        l2_speedup=p["l2_speedup"],
        l2_bytes=p["l2_share"] * machine.l2_bytes,
        l2_sharpness=p.get("l2_sharpness", L2_SHARPNESS),
        cold=cold,
    )
    kernels = partial(
        _best_tile,
        batch=batch,
        machine=machine,
        parameters=p,
        feed_bytes=_ROWS * activation_bytes + _COLUMNS * weight_bytes,
        dequantise_s=dequantise_s,
    )
    best = kernels(m, n, k, streamed, splits=SPLITS[:1])
    ideal = 2.0 * m * n * k * batch / machine.peak_flops_per_s
    # Even the least that splitting k costs is too much for most products of many rows, whose tiles fill the device.
    least = np.maximum(streamed, ideal / p["compute_fraction"]) + _reduction_seconds(
        m * n, SPLITS[1], batch=batch, l2_rate=hbm * p["l2_speedup"], parameters=p
    )
    split = np.flatnonzero(least < best.seconds)
    if len(split):
        parts = kernels(m[split], n[split], k[split], streamed[split], splits=SPLITS[1:])
        better = parts.seconds < best.seconds[split]
        for name in ("seconds", "compute_s", "memory_s"):
            getattr(best, name)[split[better]] = getattr(parts, name)[better]
    ideal = 2.0 * m * n * k * batch / machine.peak_flops_per_s
    droop = 1.0 + p["droop"] * ideal / (ideal + p["droop_s"])
    quantise = np.zeros(len(m))
    if quantises:
        quantise = quantise_seconds(m, k, machine=machine, parameters=p, activation_bytes=activation_bytes)
    return Terms(
        seconds=p["launch_s"] + best.seconds * droop + quantise,
        compute_s=best.compute_s * droop,
        memory_s=best.memory_s + quantise,
    )


def _best_tile(
    m: Array,
    n: Array,
    k: Array,
    streamed: Array,
    *,
    splits: Array,
    batch: float,
    machine: GemmMachine,
    parameters: Mapping[str, float],
    feed_bytes: Array,
    dequantise_s: float,
) -> Terms:
    """The fastest of all tiles and ``splits`` of k, without launch and droop; ``streamed``: each operand once [s]."""
    p = parameters
    hbm = p["memory_fraction"] * machine.memory_bytes_per_s
    waves, depth = _waves(m, n, k, splits=splits, batch=batch, machine=machine, parameters=p)
    tile_depths = waves * depth
    compute = _compute_seconds(tile_depths, machine=machine, parameters=p, dequantise_s=dequantise_s)
    feed = tile_depths * (feed_bytes * machine.compute_units / (p["unit_bandwidth"] * hbm))
    memory = np.maximum(feed, streamed[:, None, None])
    seconds = smooth_maximum(compute, memory, sharpness=p["overlap"])
    if splits[-1] > 1:
        reduction = _reduction_seconds(
            (m * n)[:, None], splits, batch=batch, l2_rate=hbm * p["l2_speedup"], parameters=p
        )
        # Partial sums pass through memory as operands do: beside other kernels they take as much away.
        seconds, memory = seconds + reduction[:, None, :], memory + reduction[:, None, :]
    flat = seconds.reshape(len(m), -1)
    best, cases = np.argmin(flat, axis=1), np.arange(len(m))
    return Terms(
        seconds=flat[cases, best],
        compute_s=compute.reshape(len(m), -1)[cases, best],
        memory_s=memory.reshape(len(m), -1)[cases, best],
    )


def _reduction_seconds(
    outputs: Array, splits: Array, *, batch: float, l2_rate: float, parameters: Mapping[str, float]
) -> Array:
    """Seconds to add the partial sums of a product whose k is split."""
    return parameters["split_s"] + PARTIAL_BYTES * batch / l2_rate * outputs * splits


def _waves(
    m: Array, n: Array, k: Array, *, splits: Array, batch: float, machine: GemmMachine, parameters: Mapping[str, float]
) -> tuple[Array, Array]:
    """Waves (cases, tiles, splits) and the k steps of a tile with its prologue (cases, 1, splits)."""
    tiles = np.ceil(m[:, None] / TILES[:, 0]) * np.ceil(n[:, None] / TILES[:, 1]) * batch
    filled = tiles[:, :, None] * (splits / machine.compute_units)
    waves = np.maximum(filled + parameters["wave_quantisation"] * (np.ceil(filled) - filled), 1.0)
    depth = np.ceil(k[:, None] / (splits * K_STEP)) * K_STEP + parameters["prologue"]
    return waves, depth[:, None, :]


def tile_s_per_flop(unit_rate: float, half: Array, *, machine: GemmMachine) -> Array:
    """Time of one FLOP of a tile on a unit: as fed, ``half`` more than at ``unit_rate``, and no less than at the cap of
    its matrix units [s]."""
    return np.maximum((1.0 + half) / unit_rate, machine.compute_units / machine.cap_flops_per_s)


def _compute_seconds(
    tile_depths: Array, *, machine: GemmMachine, parameters: Mapping[str, float], dequantise_s: float
) -> Array:
    """Seconds of the tensor cores for ``tile_depths`` = waves x k steps, by tile, and of widening their weights."""
    unit_rate = parameters["compute_fraction"] * machine.peak_flops_per_s / machine.compute_units
    harmonic = _ROWS * _COLUMNS / (_ROWS + _COLUMNS)
    per_depth = 2.0 * _ROWS * _COLUMNS * tile_s_per_flop(unit_rate, parameters["half_tile"] / harmonic, machine=machine)
    return tile_depths * (per_depth + _COLUMNS * dequantise_s)


def _stream_seconds(
    *, weights: Array, others: Array, hbm: float, l2_speedup: float, l2_bytes: float, l2_sharpness: float, cold: bool
) -> Array:
    """Seconds to move every operand once, from HBM or, where the benchmark's working set fits, from L2."""
    working_set = WEIGHT_COPIES * weights + others
    hot = np.zeros_like(weights) if cold else l2_hit_share(working_set, l2_bytes=l2_bytes, sharpness=l2_sharpness)
    return (weights + others) / (hbm * (1.0 + (l2_speedup - 1.0) * hot))


def gemm_timing(
    shape: GemmShape, *, hardware: AcceleratorSpec, fit: KernelFit, lattice: Lattice | None, cold: bool = False
) -> Timing:
    """Price one GEMM, vectorised over ``shape.m``: physics x fitted correction, with interval and provenance.

    cold : see ``gemm_seconds``; the correction still applies, as it compares measurement and physics under the
    same conditions. A batch of products takes the correction of one product with ``batch`` times the columns.
    """
    m = np.atleast_1d(np.asarray(shape.m, dtype=np.float64))
    machine = gemm_machine(hardware, shape.format)
    terms = gemm_seconds(
        m,
        shape.n,
        shape.k,
        machine=machine,
        parameters=fit.parameters,
        weight_bytes=shape.format.weight_bits / BITS_PER_BYTE,
        activation_bytes=shape.format.activation_bits / BITS_PER_BYTE,
        quantises=shape.format.quantises_activations and fit.includes_quantisation,
        batch=shape.batch,
        cold=cold,
    )
    points = log2_coordinates(m, shape.n * shape.batch, shape.k)
    timing = corrected_timing(terms, points, fit=fit, lattice=lattice, axes=("m", "n", "k"))
    if machine.cap_flops_per_s == inf:
        return timing
    least_s = 2.0 * m * shape.n * shape.k * shape.batch / machine.cap_flops_per_s
    return replace(timing, seconds=np.maximum(timing.seconds, least_s))
