"""The lattice fit finds a smooth residual, generalises to unseen shapes, shrugs at outliers, and covers as promised."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.fitting.kernel_fits import fit_error, interval_sigma
from simulator.kernels.fits import lattice_of
from simulator.kernels.timing import log_correction
from simulator.specs.hardware.calibration import CORRECTION_STEP, LatticeSpec, calibration_name, load_arrays
from validation.fit.files import lattice_arrays, packed
from validation.fit.kernels.moe_rows import power_law_distinct
from validation.fit.lattice import Smoothness, fit_lattice, held_out_corrections
from validation.fit.physics import Bound, fit_parameters, stratified_sample
from validation.fit.residuals import regime_sigmas

NODES = (np.arange(0.0, 11.0), np.arange(5.0, 13.0))
PRIOR = (Smoothness(lengths=(4.0, 4.0), noise=0.05),)
RNG = np.random.default_rng(3)
POINTS = np.stack([RNG.uniform(0, 10, 600), RNG.uniform(5, 12, 600)], axis=1)
TRUTH = 0.2 * np.sin(POINTS[:, 0] / 3) + 0.05 * (POINTS[:, 1] - 8)


def test_smooth_residuals_are_recovered_on_unseen_points() -> None:
    folds = np.arange(len(POINTS)) % 4
    held_out = held_out_corrections(POINTS, TRUTH, folds, axes=("m", "n"), nodes=NODES, prior=PRIOR)
    assert np.abs(held_out - TRUTH).mean() < 0.1 * np.abs(TRUTH).mean()


def test_outliers_lose_their_weight() -> None:
    noisy = TRUTH + RNG.normal(0, 0.01, len(TRUTH))
    noisy[::15] += 1.5
    robust, plain = (
        fit_lattice(POINTS, noisy, axes=("m", "n"), nodes=NODES, prior=PRIOR, rounds=rounds) for rounds in (5, 1)
    )
    robust_error, plain_error = (np.abs(log_correction(each, POINTS) - TRUTH).mean() for each in (robust, plain))
    assert robust_error < 0.5 * plain_error


def test_without_data_nearby_the_correction_returns_to_nothing() -> None:
    near = POINTS[POINTS[:, 0] < 2]
    lattice = fit_lattice(
        near, np.full(len(near), 0.3), axes=("m", "n"), nodes=NODES, prior=(Smoothness(lengths=(1.0, 4.0), noise=0.05),)
    )
    assert log_correction(lattice, np.array([[1.0, 8.0]]))[0] == pytest.approx(0.3, abs=0.03)
    assert abs(log_correction(lattice, np.array([[9.0, 8.0]]))[0]) < 0.01


@pytest.mark.parametrize("largest", [0.9, 3.0])
def test_a_lattice_survives_the_file_within_half_a_step(tmp_path: Path, largest: float) -> None:
    fitted = fit_lattice(POINTS, TRUTH, axes=("m", "n"), nodes=NODES, prior=PRIOR)
    lattice = replace(fitted, values=fitted.values * largest / np.abs(fitted.values).max())
    name = calibration_name("x", library="vllm", group="gemm")
    directory = tmp_path / "calibration"
    directory.mkdir()
    coarser = replace(lattice, nodes=(NODES[0] / 2, NODES[1]))
    arrays = lattice_arrays(lattice, key="gemm.bf16") | lattice_arrays(coarser, key="gemm.fp8")
    (directory / f"{name}.npz").write_bytes(packed(arrays))
    (directory / f"{name}.yaml").touch()
    stored = load_arrays("x", library="vllm", group="gemm", profiles=str(tmp_path))
    for key, written in (("gemm.bf16", lattice), ("gemm.fp8", coarser)):
        read = lattice_of(LatticeSpec(file="x.npz", key=key, axes=("m", "n")), stored)
        difference = log_correction(read, POINTS) - log_correction(written, POINTS)
        assert 0 < np.abs(difference).max() <= CORRECTION_STEP / 2


def test_bounded_fit_recovers_parameters_despite_outliers() -> None:
    size = np.exp2(RNG.uniform(0, 20, 400))
    measured = 3e-6 + size / 2e9
    measured[::20] *= 4
    bounds = {"launch_s": Bound(low=1e-7, high=1e-4, start=1e-6), "rate": Bound(low=1e8, high=1e11, start=1e10)}
    found = fit_parameters(lambda trial: trial["launch_s"] + size / trial["rate"], measured, bounds=bounds)
    assert found["launch_s"] == pytest.approx(3e-6, rel=0.03)
    assert found["rate"] == pytest.approx(2e9, rel=0.03)


def test_sample_is_even_over_strata() -> None:
    strata = np.repeat([0.0, 1.0, 2.0], [10000, 1000, 1000])
    chosen = strata[stratified_sample(strata, count=900)]
    assert np.bincount(chosen.astype(int)).min() > 200


def test_intervals_cover_eighty_percent() -> None:
    residuals = RNG.standard_t(3, 4000) * 0.05
    sigma = interval_sigma(residuals)
    assert np.mean(np.abs(residuals) <= 1.2816 * sigma) == pytest.approx(0.8, abs=0.01)
    size = np.exp2(RNG.uniform(0, 12, 4000))
    wide = np.where(size <= 64, residuals, 2 * residuals)
    small, large = regime_sigmas(wide, size, axis="m", uppers=(64.0, 8192.0))
    assert large.log_sigma == pytest.approx(2 * small.log_sigma, rel=0.15)


def test_error_counts_both_parts_apart() -> None:
    held = np.array([True, True, False, False])
    error = fit_error(
        np.ones(4), np.array([1.1, 0.9, 1.01, 1.03]), log_sigma=np.array([0.08, 0.05, 1.0, 1.0]), is_score=held
    )
    assert error.score_mape == pytest.approx(0.1)
    assert error.fit_mape == pytest.approx(0.02)
    assert error.coverage_80 == 0.5
    assert (error.score_points, error.fit_points) == (2, 2)


@pytest.mark.parametrize(("tokens", "low", "high"), [(1, 8, 8), (16, 40, 75), (64, 90, 128), (16384, 120, 128)])
def test_skewed_routing_reaches_fewer_experts(tokens: float, low: float, high: float) -> None:
    """8 of 128 experts: all of one token's eight, then ever more of them, never more than there are."""
    assert low <= power_law_distinct(tokens, experts=128, top_k=8, exponent=1.2) <= high
