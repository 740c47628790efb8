"""A small correction on top of the physics: log(measured / physics) on a lattice in log2 of the shape.

Inside the lattice it is multilinear; outside the box it keeps the value of the nearest face and decays to zero
(a factor of 1) within ``reach`` octaves, so that the physics stands alone where nothing was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.kernels.timing import Provenance, Terms, Timing
from simulator.operators.work import Array
from simulator.records import dataclass
from simulator.specs.base import LARGEST_INTEGER, Same
from simulator.specs.hardware.calibration import LARGEST_CORRECTION, KernelFit, LatticeSpec
from simulator.units import MICRO

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


def lattice_of(correction: LatticeSpec | None, arrays: Mapping[str, Array]) -> Lattice | None:
    """The lattice that ``correction`` names in the arrays beside its calibration; None without one.

    ``key`` holds the values and ``key.axis`` the sizes at the nodes of each axis (not their logarithms); lattices with
    the same nodes share those under ``axis``.

    Raises KeyError: an array is missing.
    Raises ValueError: nodes do not rise, or values are not one for every crossing, or no corrections.
    """
    if correction is None:
        return None
    own = ((f"{correction.key}.{axis}", axis) for axis in correction.axes)
    nodes = tuple(np.asarray(arrays[key if key in arrays else axis]) for key, axis in own)
    values = arrays[correction.key]
    for axis, sizes in zip(correction.axes, nodes, strict=True):
        rising = sizes.ndim == 1 and len(sizes) and np.all(np.diff(sizes, prepend=0.0) > 0)
        if not rising or sizes[-1] > LARGEST_INTEGER:
            raise ValueError(f"the nodes of {axis} are no sizes that rise from above 0")
    if values.shape != tuple(len(sizes) for sizes in nodes) or not np.all(np.abs(values) <= LARGEST_CORRECTION):
        raise ValueError(f"{correction.key} is not one correction within {LARGEST_CORRECTION:g} of 0 for every node")
    return Lattice(
        axes=correction.axes, nodes=tuple(np.log2(sizes) for sizes in nodes), values=values, reach=correction.reach
    )
