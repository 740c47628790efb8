"""Fit of a correction lattice: the posterior mean of a Gaussian process whose prior lives on the lattice itself.

Along each axis the prior is an Ornstein-Uhlenbeck process (exponential covariance) in octaves, so that its precision
matrix is tridiagonal and that of the whole lattice a Kronecker product of tridiagonals [Rasmussen2006]. The prior may
be a sum of several such fields (one that varies slowly with m, one that does not). Points may lie anywhere: they see
the lattice through its multilinear weights. Outliers lose weight [Huber1964]. Away from data the value returns to
zero over the correlation lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import cg

from simulator.kernels.timing import Lattice, corner_weights

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothness:
    """One field of the prior: how fast it may vary and how large it may be.

    lengths : correlation length of each axis [octaves]
    noise : variance of the measurement noise over that of this field
    """

    lengths: tuple[float, ...]
    noise: float


def _precision(nodes: Array, length: float) -> sparse.csr_matrix:
    """Inverse of exp(-|distance| / length) on ascending nodes: tridiagonal."""
    if len(nodes) == 1:
        return sparse.csr_matrix(np.ones((1, 1)))
    step = np.exp(-np.diff(nodes) / length)
    gain = 1.0 / (1.0 - step**2)
    diagonal = np.ones(len(nodes))
    diagonal[:-1] += step**2 * gain
    diagonal[1:] += step**2 * gain
    off = -step * gain
    return sparse.diags([off, diagonal, off], [-1, 0, 1], format="csr")


def _precision_of(nodes: Sequence[Array], lengths: Sequence[float]) -> sparse.csr_matrix:
    prior = sparse.csr_matrix(np.ones((1, 1)))
    for axis, length in zip(nodes, lengths, strict=True):
        prior = sparse.kron(prior, _precision(axis, length), format="csr")
    return prior


def _design(lattice: Lattice, points: Array) -> sparse.csr_matrix:
    columns, weights = corner_weights(lattice, points)
    rows = np.repeat(np.arange(len(points)), columns.shape[1])
    shape = (len(points), lattice.values.size)
    return sparse.csr_matrix((weights.ravel(), (rows, columns.ravel())), shape=shape)


def fit_lattice(
    points: Array,
    residuals: Array,
    *,
    axes: tuple[str, ...],
    nodes: tuple[Array, ...],
    prior: tuple[Smoothness, ...],
    weights: Array | None = None,
    outlier: float = 2.0,
    rounds: int = 3,
    reach: float = 1.0,
    iterations: int = 600,
) -> Lattice:
    """Lattice whose multilinear interpolation follows ``residuals`` = log(measured / physics).

    points : log2 coordinates, shape (points, axes) [octaves]; nodes : ascending lattice coordinates per axis
    weights : relative trust in each point (default 1); outlier : residuals beyond this many robust standard
        deviations lose weight; rounds : how often they are re-weighted; reach : see Lattice [octaves]
    iterations : steps of the solver in each round; fewer leave the slowest variation nearer to zero
    """
    empty = Lattice(axes=axes, nodes=nodes, values=np.zeros(tuple(len(axis) for axis in nodes)), reach=reach)
    single = _design(empty, points)
    design = sparse.hstack([single] * len(prior), format="csr")
    penalty = sparse.block_diag([_precision_of(nodes, field.lengths) * field.noise for field in prior], format="csr")
    trust = np.ones(len(points)) if weights is None else weights
    robust = np.ones(len(points))
    values = np.zeros(design.shape[1])
    for _ in range(max(rounds, 1)):
        share = sparse.diags(trust * robust)
        system = (design.T @ share @ design + penalty).tocsr()
        jacobi = sparse.diags(1.0 / system.diagonal())
        target = design.T @ (trust * robust * residuals)
        values, _ = cg(system, target, x0=values, rtol=1e-4, maxiter=iterations, M=jacobi)
        left = np.abs(residuals - design @ values)
        spread = max(float(np.median(left)) / 0.6745, 1e-3)
        robust = np.minimum(1.0, outlier * spread / np.maximum(left, 1e-12))
    return replace(empty, values=values.reshape(len(prior), *empty.values.shape).sum(axis=0))


def held_out_corrections(
    points: Array,
    residuals: Array,
    folds: NDArray[np.int64],
    *,
    axes: tuple[str, ...],
    nodes: tuple[Array, ...],
    prior: tuple[Smoothness, ...],
    weights: Array | None = None,
    outlier: float = 2.0,
    rounds: int = 3,
    iterations: int = 600,
) -> Array:
    """Correction of each point from a lattice that did not see its fold: for choices and for intervals."""
    predicted = np.zeros(len(points))
    for fold in np.unique(folds):
        seen, unseen = folds != fold, folds == fold
        lattice = fit_lattice(
            points[seen],
            residuals[seen],
            axes=axes,
            nodes=nodes,
            prior=prior,
            weights=None if weights is None else weights[seen],
            outlier=outlier,
            rounds=rounds,
            iterations=iterations,
        )
        predicted[unseen] = _design(lattice, points[unseen]) @ lattice.values.ravel()
    return predicted
