"""The correction: exact at nodes, multilinear between them, dying away outside, and never without a stated spread."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.kernels.fits import lattice_of
from simulator.kernels.timing import (
    Lattice,
    Provenance,
    corner_weights,
    decay,
    log2_coordinates,
    log_correction,
    octaves_outside,
    shape_confidence,
)
from simulator.specs.hardware.calibration import FitError, KernelFit, LatticeSpec, RegimeSigma

NODES = (np.array([0.0, 1.0, 4.0]), np.array([2.0, 3.0]))
VALUES = np.array([[0.1, -0.2], [0.3, 0.0], [-0.1, 0.2]])
LATTICE = Lattice(axes=("m", "n"), nodes=NODES, values=VALUES)
ERROR = FitError(
    score_mape=0.04, fit_mape=0.02, score_bias=0.0, log_sigma=0.05, coverage_80=0.8, score_points=10, fit_points=40
)
FIT = KernelFit(
    family="gemm",
    format="bf16",
    model="tiled_gemm",
    parameters={},
    box={"m": (1.0, 16.0), "n": (4.0, 8.0)},
    error=ERROR,
    physics_log_sigma=0.12,
    regimes=(RegimeSigma(axis="m", upper=4.0, log_sigma=0.03), RegimeSigma(axis="m", upper=16.0, log_sigma=0.06)),
)


def test_values_at_nodes_are_kept() -> None:
    points = np.array([[a, b] for a in NODES[0] for b in NODES[1]])
    np.testing.assert_allclose(log_correction(LATTICE, points), VALUES.ravel(), atol=1e-15)


def test_between_nodes_it_is_multilinear() -> None:
    # Halfway in both axes of the first cell: the mean of its four corners.
    assert log_correction(LATTICE, np.array([[0.5, 2.5]]))[0] == pytest.approx((0.1 - 0.2 + 0.3 + 0.0) / 4)
    # One third of the way from node 1 to node 4.
    assert log_correction(LATTICE, np.array([[2.0, 2.0]]))[0] == pytest.approx(0.3 + (-0.1 - 0.3) / 3)


@given(st.floats(-5, 10), st.floats(-5, 10))
def test_corner_weights_are_a_partition_of_one(first: float, second: float) -> None:
    indices, weights = corner_weights(LATTICE, np.array([[first, second]]))
    assert weights.sum() == pytest.approx(1.0)
    assert weights.min() >= -1e-12
    assert indices.min() >= 0
    assert indices.max() < VALUES.size


@given(st.floats(-20, 20), st.floats(-20, 20))
def test_correction_never_exceeds_what_the_lattice_holds(first: float, second: float) -> None:
    value = log_correction(LATTICE, np.array([[first, second]]))[0]
    assert np.abs(VALUES).max() + 1e-12 >= abs(value)


def test_outside_it_dies_away_to_the_physics() -> None:
    far = log_correction(LATTICE, np.array([[5.0, 2.0], [6.0, 2.0], [10.0, 2.0]]))
    at_edge = VALUES[2, 0]
    np.testing.assert_allclose(far[:2], at_edge * decay(np.array([1.0, 2.0]), reach=1.0))
    assert abs(far[2]) < 1e-6


def test_no_lattice_means_no_correction() -> None:
    assert np.array_equal(log_correction(None, np.array([[1.0, 2.0], [3.0, 4.0]])), [0.0, 0.0])


def test_distance_outside_is_euclidean() -> None:
    points = np.array([[0.5, 2.5], [-3.0, 2.5], [7.0, 7.0]])
    low, high = np.array([0.0, 2.0]), np.array([4.0, 3.0])
    np.testing.assert_allclose(octaves_outside(points, low=low, high=high), [0.0, 3.0, 5.0])


def test_log2_coordinates_broadcast() -> None:
    np.testing.assert_allclose(log2_coordinates([1.0, 2.0, 8.0], 4.0), [[0, 2], [1, 2], [3, 2]])


def test_lattice_of_reads_sizes_as_nodes() -> None:
    spec = LatticeSpec(file="x.npz", key="gemm.bf16", axes=("m", "n"))
    arrays = {"gemm.bf16": VALUES, "gemm.bf16.m": np.array([1.0, 2.0, 16.0]), "gemm.bf16.n": np.array([4.0, 8.0])}
    read = lattice_of(spec, arrays)
    assert read is not None
    points = np.array([[0.3, 2.2], [3.0, 2.9]])
    np.testing.assert_allclose(log_correction(read, points), log_correction(LATTICE, points))
    assert lattice_of(None, arrays) is None


def test_inside_the_box_the_regime_states_the_spread() -> None:
    points = log2_coordinates([1.0, 4.0, 8.0, 16.0], 4.0)
    log_sigma, provenance = shape_confidence(FIT, points, axes=("m", "n"))
    np.testing.assert_allclose(log_sigma, [0.03, 0.03, 0.06, 0.06])
    assert np.all(provenance == Provenance.CALIBRATED)


def test_outside_the_box_it_widens_without_end_and_says_extrapolated() -> None:
    points = log2_coordinates([16.0, 32.0, 64.0, 4096.0], 4.0)
    log_sigma, provenance = shape_confidence(FIT, points, axes=("m", "n"))
    assert np.all(np.diff(log_sigma) > 0)
    assert log_sigma[2] > 0.12
    assert provenance.tolist() == [Provenance.CALIBRATED] + [Provenance.EXTRAPOLATED] * 3
