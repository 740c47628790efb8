"""What a kernel takes, what bound it, how we know; how two limits meet; several products as cases of one; corrections.

A correction is small and stands on top of the physics: log(measured / physics) on a lattice in log2 of the shape.
Inside the lattice it is multilinear; outside the box it keeps the value of the nearest face and decays to zero
(a factor of 1) within ``reach`` octaves, so that the physics stands alone where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.operators.work import Array, CollectiveShape, GemmShape, Work
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.precision import Dtype
from simulator.units import BITS_PER_BYTE, MICRO

if TYPE_CHECKING:
    from simulator.specs.hardware.calibration import KernelFit

FLOPS_PER_INSTRUCTION = 2.0
"""The datasheet counts a multiply-add, one instruction of a lane, as 2 FLOPs."""


class Provenance(IntEnum):
    """How a number is known, best first; a sum is as good as its worst part."""

    MEASURED = 0
    CALIBRATED = 1
    EXTRAPOLATED = 2
    ASSUMED = 3

    @property
    def label(self) -> str:
        """The word shown to people."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Price of one execution of a kernel on one device (arrays over the cases of its shape).

    seconds : predicted time [s]
    compute_s, memory_s, network_s : the roofline terms inside it, for "what bound it" [s]
    tensor_s : what its products, the padding of tiles too, would take at the tensor units' peak [s]
    log_sigma : standard deviation of log(measured / predicted) on shapes that the fit never saw
    provenance : Provenance value of each case
    """

    seconds: Array
    compute_s: Array
    memory_s: Array
    network_s: Array
    tensor_s: Array
    log_sigma: Array
    provenance: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a kernel's physics says, before any correction: the time, and the roofline terms inside it (arrays) [s]."""

    seconds: Array
    compute_s: Array
    memory_s: Array


def widened(timing: Timing, *, log_sigma_extra: float, known: Provenance = Provenance.EXTRAPOLATED) -> Timing:
    """``timing`` with a spread added in quadrature, at best ``known``; unchanged where nothing is added."""
    if log_sigma_extra == 0:
        return timing
    return replace(
        timing,
        log_sigma=np.hypot(timing.log_sigma, log_sigma_extra),
        provenance=np.maximum(timing.provenance, float(known)),
    )


TimesT = TypeVar("TimesT", Terms, Timing)


def matrix_vector_terms(
    weights: Array,
    rows: Array,
    *,
    bits: float,
    moved_bytes: Array,
    widen_s: float,
    hardware: AcceleratorSpec,
    parameters: Mapping[str, float],
) -> Terms:
    """A matrix-vector kernel (llama.cpp's mul_mat_vec): vector units multiply the rows that each weight meets and fill
    no tile [Williams2009]. Leaves out integer units, which multiply four 8-bit numbers at once.

    weights : of ``bits`` that are read; moved_bytes : of activations; widen_s : device time to widen one weight
    """
    compute = weights * (widen_s + rows * FLOPS_PER_INSTRUCTION / hardware.vector_flops_per_s[Dtype.FP32])
    rate = parameters["memory_fraction"] * hardware.memory_bytes_per_s
    memory = (weights * bits / BITS_PER_BYTE + moved_bytes) / rate
    seconds = parameters["launch_s"] + smooth_maximum(compute, memory, sharpness=parameters["overlap"])
    return Terms(seconds=seconds, compute_s=compute, memory_s=memory)


def chosen(first: NDArray[np.bool_], one: TimesT, other: TimesT) -> TimesT:
    """The cases of ``one`` where ``first`` holds, of ``other`` elsewhere."""
    names = (field.name for field in fields(one))
    return type(one)(**{name: np.where(first, getattr(one, name), getattr(other, name)) for name in names})


def between(one: Timing, other: Timing, share: float) -> Timing:
    """A kernel that lies from ``one`` towards ``other`` by ``share``, as little known as the less known of the two."""
    names = ("seconds", "compute_s", "memory_s", "network_s", "tensor_s")
    mixed = {name: (1 - share) * getattr(one, name) + share * getattr(other, name) for name in names}
    return Timing(
        **mixed,
        log_sigma=np.maximum(one.log_sigma, other.log_sigma),
        provenance=np.maximum(one.provenance, other.provenance),
    )


def mean_timing(timings: Sequence[Timing]) -> Timing:
    """The mean of what several say of one kernel."""
    mean = timings[0]
    for place, timing in enumerate(timings[1:], start=2):
        mean = between(mean, timing, 1 / place)
    return mean


L2_SHARPNESS = 3.0
"""How abruptly the share of L2 hits falls when the working set outgrows the L2, where a fit does not say."""


def l2_hit_share(working_set_bytes: Array, *, l2_bytes: float, sharpness: float = L2_SHARPNESS) -> Array:
    """Share of the traffic that the L2 serves: near 1 below its capacity, falling off above [-]."""
    return 1.0 / (1.0 + (working_set_bytes / l2_bytes) ** sharpness)


def smooth_maximum(first: Array, second: Array | float, *, sharpness: float) -> Array:
    """(a**q + b**q)**(1/q): at least the larger of two positive terms, at most 2**(1/q) times it."""
    large = np.maximum(first, second)
    return large * (1.0 + (np.minimum(first, second) / large) ** sharpness) ** (1.0 / sharpness)


def without_idle(timing: Timing, work: Work) -> Timing:
    """``timing`` with nothing for the cases that have nothing to do."""
    # A collective moves its message over links, not through this device's memory. Most rows always have work.
    flops = np.asarray(work.flops)
    if isinstance(work.shape, CollectiveShape) or np.count_nonzero(flops) == flops.size:
        return timing
    moved = np.asarray(work.bytes)
    if np.count_nonzero(moved) == moved.size:
        return timing
    idle = (flops == 0) & (moved == 0)
    if not idle.any():
        return timing
    return replace(
        timing,
        seconds=np.where(idle, 0.0, timing.seconds),
        log_sigma=np.where(idle, 0.0, timing.log_sigma),
        provenance=np.where(idle, 0.0, timing.provenance),
    )


# Products of more cases than this are priced one by one: joined, their intermediate arrays would leave the cache.
JOINED_CASES = 256


def join(shapes: Sequence[GemmShape]) -> GemmShape:
    """The cases of products of one format and batch, end to end."""
    sizes = [np.size(shape.m) for shape in shapes]
    m = np.concatenate([np.atleast_1d(np.asarray(shape.m, dtype=np.float64)) for shape in shapes])
    # Prices broadcast n and k just as m; few rows have one of each for every case.
    of_columns: Any = {name: _repeated([getattr(shape, name) for shape in shapes], sizes) for name in ("n", "k")}
    return replace(shapes[0], m=m, **of_columns)


def _repeated(values: Sequence[Any], sizes: Sequence[int]) -> Array:
    """Each value as often as its row has cases, unless it has one for every case."""
    if any(np.ndim(value) for value in values):
        return np.concatenate(
            [np.full(size, value, dtype=np.float64) for value, size in zip(values, sizes, strict=True)]
        )
    return np.repeat(np.array(values, dtype=np.float64), sizes)


def distinct(m: Array, n: Array, k: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """One place of each product that differs, and for every case which of those it is.

    Steps of many batches hold the same products again and again: a full step has the token budget's rows whoever it
    serves. What is priced once costs half of it.
    """
    order = np.lexsort((m, n, k))
    new = np.ones(len(order), dtype=np.bool_)
    for sizes in (m[order], n[order], k[order]):
        new[1:] &= sizes[1:] == sizes[:-1]
    new[1:] = ~new[1:]
    cases = np.empty(len(order), dtype=np.intp)
    cases[order] = np.cumsum(new) - 1
    return order[new], cases


def priced_once(shape: GemmShape, price: Callable[[GemmShape], Timing | None]) -> Timing | None:
    """``price`` of the products that differ; every case gets its own back."""
    m, n, k = (
        np.asarray(size, dtype=np.float64) for size in np.broadcast_arrays(np.atleast_1d(shape.m), shape.n, shape.k)
    )
    once, cases = distinct(m, n, k)
    of_columns: Any = {"n": n[once], "k": k[once]}
    timing = price(replace(shape, m=m[once], **of_columns))
    if timing is None:
        return None
    return Timing(**{field.name: getattr(timing, field.name)[cases] for field in fields(Timing)})


def split(timing: Timing, *, sizes: Sequence[int]) -> tuple[Timing, ...]:
    """The parts of a joined timing, with ``sizes`` cases each."""
    joined = {field.name: getattr(timing, field.name) for field in fields(Timing)}
    ends = list(accumulate(sizes))
    cuts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    return tuple(Timing(**{name: values[cut] for name, values in joined.items()}) for cut in cuts)


WIDENING_PER_OCTAVE = 0.05
"""Spread of log(measured / predicted) added per octave outside the fitted box; an assumption, not a measurement."""

EDGE_OCTAVES = MICRO
"""Distance from the box that is still rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    """Values of log(measured / physics) at the crossings of ``nodes``.

    axes : names of the log2 coordinates, in order
    nodes : per axis the ascending coordinates [octaves]
    values : one value per crossing, shape (len(nodes[0]), len(nodes[1]), ...)
    reach : decay length outside the box [octaves], the same on every axis
    """

    axes: tuple[str, ...]
    nodes: tuple[Array, ...]
    values: Array
    reach: float = 1.0


def log2_coordinates(*coordinates: ArrayLike) -> Array:
    """Positive quantities, broadcast together, as points in log2 space: shape (points, axes) [octaves]."""
    shape = np.broadcast_shapes(*map(np.shape, coordinates))
    points = np.empty((*shape, len(coordinates)))
    for axis, value in enumerate(coordinates):
        points[..., axis] = np.log2(value)
    return points.reshape(-1, len(coordinates))


def octaves_outside(points: Array, *, low: Array, high: Array) -> Array:
    """Distance of each point from the box [low, high], Euclidean [octaves]; 0 inside."""
    below, above = low - points, points - high
    outside: Array = np.sqrt(np.sum(np.maximum(np.maximum(below, above), 0.0) ** 2, axis=1))
    return outside


def _cells(lattice: Lattice, points: Array) -> tuple[list[NDArray[np.intp]], list[Array]]:
    """Per axis: index of the node at or below each point (clipped to the box) and the weight of the next node."""
    indices: list[NDArray[np.intp]] = []
    weights: list[Array] = []
    for axis, nodes in enumerate(lattice.nodes):
        clipped = np.minimum(np.maximum(points[:, axis], nodes[0]), nodes[-1])
        if len(nodes) == 1:
            indices.append(np.zeros(len(clipped), dtype=np.intp))
            weights.append(np.zeros(len(clipped)))
            continue
        index = np.searchsorted(nodes[1:-1], clipped, side="right")
        below = nodes[index]
        indices.append(index)
        weights.append((clipped - below) / (nodes[index + 1] - below))
    return indices, weights


@lru_cache(maxsize=512)
def _corner_offsets(shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Places of a cell's corners behind its first in an array of this shape, the last axis fastest."""
    offsets = [0]
    for axis, size in enumerate(shape):
        onwards = prod(shape[axis + 1 :]) if size > 1 else 0
        offsets = [place + step for place in offsets for step in (0, onwards)]
    return np.array(offsets, dtype=np.intp)


def corner_weights(lattice: Lattice, points: Array) -> tuple[NDArray[np.intp], Array]:
    """The 2**axes nodes around each point and their multilinear weights, both of shape (points, 2**axes). Indices are
    into ``lattice.values.ravel()``; each row of weights sums to 1."""
    indices, weights = _cells(lattice, points)
    first: NDArray[np.intp] = np.zeros(len(points), dtype=np.intp)
    share = np.ones((len(points), 1))
    # Axis by axis, each corner so far splits into the node below and the node above, the last axis fastest.
    for index, weight, size in zip(indices, weights, lattice.values.shape, strict=True):
        first = first * size + index
        split = np.empty((len(points), share.shape[1], 2))
        np.multiply(share, (1.0 - weight)[:, None], out=split[:, :, 0])
        np.multiply(share, weight[:, None], out=split[:, :, 1])
        share = split.reshape(len(points), 2 * share.shape[1])
    return first[:, None] + _corner_offsets(lattice.values.shape), share


def decay(octaves: Array, *, reach: float) -> Array:
    """How much of the correction is left at this distance from the box, 1 inside and towards 0 far away."""
    return np.exp(-0.5 * (octaves / reach) ** 2)


def log_correction(lattice: Lattice | None, points: Array) -> Array:
    """log(measured / physics) at ``points`` (log2 coordinates, (points, axes)) [octaves]; 0 without a lattice."""
    if lattice is None:
        return np.zeros(len(points))
    indices, weights = corner_weights(lattice, points)
    inside = np.sum(lattice.values.ravel()[indices] * weights, axis=1)
    low = np.array([nodes[0] for nodes in lattice.nodes])
    high = np.array([nodes[-1] for nodes in lattice.nodes])
    corrected: Array = inside * decay(octaves_outside(points, low=low, high=high), reach=lattice.reach)
    return corrected


class _FittedBox(NamedTuple):
    """Corners of a fit's box [octaves], and its regimes from the widest: column, upper end [octaves], log_sigma."""

    low: Array
    high: Array
    regimes: tuple[tuple[int, float, float], ...]


@lru_cache(maxsize=512)
def _fitted_box(fit: Same[KernelFit], axes: tuple[str, ...]) -> _FittedBox:
    box = fit.held.box
    return _FittedBox(
        low=np.log2(np.array([box[axis][0] for axis in axes])),
        high=np.log2(np.array([box[axis][1] for axis in axes])),
        regimes=tuple(
            (axes.index(regime.axis), float(np.log2(regime.upper)) + EDGE_OCTAVES, regime.log_sigma)
            for regime in sorted(fit.held.regimes, key=lambda regime: -regime.upper)
        ),
    )


def shape_confidence(fit: KernelFit, points: Array, *, axes: tuple[str, ...]) -> tuple[Array, Array]:
    """(log_sigma, provenance) of each point: the regime's held-out spread inside the fitted box, wider outside it.

    points : log2 coordinates named by ``axes``, shape (points, axes). Outside the box the correction dies away, so
    that the spread becomes that of the physics alone, and grows with the distance.
    """
    box = _fitted_box(Same(fit), axes)
    outside = octaves_outside(points, low=box.low, high=box.high)
    inside_sigma = np.full(len(points), fit.error.log_sigma)
    for column, upper, log_sigma in box.regimes:
        inside_sigma = np.where(points[:, column] <= upper, log_sigma, inside_sigma)
    physics_sigma = fit.physics_log_sigma or fit.error.log_sigma
    gone = 1.0 - decay(outside, reach=fit.correction.reach if fit.correction else 1.0)
    variance = inside_sigma**2 + gone * physics_sigma**2 + (WIDENING_PER_OCTAVE * outside) ** 2
    provenance = np.where(outside > EDGE_OCTAVES, Provenance.EXTRAPOLATED, Provenance.CALIBRATED).astype(np.float64)
    return np.sqrt(variance), provenance


PEAK_SHARES = ("compute_fraction", "tensor_fraction")
"""Parameters that say at which share of the tensor units' peak a kernel multiplies; others multiply nothing there."""


def corrected_timing(
    terms: Terms, points: Array, *, fit: KernelFit, lattice: Lattice | None, axes: tuple[str, ...]
) -> Timing:
    """Physics x fitted correction, with interval and provenance.

    points : log2 coordinates named by ``axes``, shape (points, axes); the lattice may stop short of the last axes
    """
    log_sigma, provenance = shape_confidence(fit, points, axes=axes)
    corrected = points if lattice is None else points[:, : len(lattice.nodes)]
    return Timing(
        seconds=terms.seconds * np.exp(log_correction(lattice, corrected)),
        compute_s=terms.compute_s,
        memory_s=terms.memory_s,
        network_s=np.zeros(len(points)),
        tensor_s=terms.compute_s * next((fit.parameters[name] for name in PEAK_SHARES if name in fit.parameters), 0.0),
        log_sigma=log_sigma,
        provenance=provenance,
    )
