"""``simulator.fitting.kernel_fits``: intervals cover what they promise, errors count each part once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.fitting.kernel_fits import NORMAL_80, SMALLEST_SIGMA, fit_error, interval_sigma


@settings(max_examples=20, deadline=None)
@given(sigma=st.floats(0.01, 0.5), seed=st.integers(0, 100))
def test_an_interval_covers_four_fifths_of_what_it_was_made_of(sigma: float, seed: int) -> None:
    residuals = np.random.default_rng(seed).normal(0.0, sigma, 500)
    covered = np.abs(residuals) <= NORMAL_80 * interval_sigma(residuals)
    assert covered.mean() == pytest.approx(0.8, abs=0.003)


def test_sigma_of_normal_residuals_is_their_standard_deviation() -> None:
    residuals = np.random.default_rng(1).normal(0.0, 0.1, 100_000)
    assert interval_sigma(residuals) == pytest.approx(0.1, rel=0.02)


def test_no_interval_is_narrower_than_the_floor() -> None:
    assert interval_sigma(np.zeros(10)) == SMALLEST_SIGMA
    assert interval_sigma(np.zeros(10), smallest=0.02) == 0.02


def test_the_normal_quantile_is_that_of_a_central_eighty_percent() -> None:
    draws = np.random.default_rng(0).normal(size=400_000)
    assert np.mean(np.abs(draws) <= NORMAL_80) == pytest.approx(0.8, abs=0.002)


def test_hand_numbers_of_four_points() -> None:
    """Two scored points predicted 10 % high and 20 % low, two fitted ones 5 % high."""
    error = fit_error(
        np.ones(4),
        np.array([1.1, 0.8, 1.05, 1.05]),
        log_sigma=np.full(4, 0.1),
        is_score=np.array([True, True, False, False]),
    )
    assert error.score_mape == pytest.approx(0.15)
    assert error.score_bias == pytest.approx(-0.05)
    assert error.fit_mape == pytest.approx(0.05)
    assert (error.score_points, error.fit_points) == (2, 2)
    # |log 1.1| = 0.095 lies inside 0.128, |log 0.8| = 0.223 outside.
    assert error.coverage_80 == pytest.approx(0.5)


def test_wider_stated_intervals_cover_more_and_change_no_error() -> None:
    draw = np.random.default_rng(3)
    measured, predicted = np.ones(200), np.exp(draw.normal(0.0, 0.1, 200))
    held = np.arange(200) % 5 == 0
    errors = [
        fit_error(measured, predicted, log_sigma=np.full(200, sigma), is_score=held) for sigma in (0.02, 0.1, 0.5)
    ]
    coverage = [error.coverage_80 for error in errors]
    assert coverage[0] < coverage[1] < coverage[2] == 1.0
    assert len({(error.score_mape, error.log_sigma) for error in errors}) == 1


def test_everything_held_out_leaves_no_fit_error() -> None:
    error = fit_error(np.ones(3), np.full(3, 1.1), log_sigma=np.full(3, 0.1), is_score=np.ones(3, dtype=bool))
    assert error.fit_mape == 0.0
    assert error.fit_points == 0


def test_scaling_both_times_changes_nothing() -> None:
    draw = np.random.default_rng(5)
    measured, predicted = draw.uniform(1.0, 2.0, (2, 50))
    held = np.arange(50) < 10
    one = fit_error(measured, predicted, log_sigma=np.full(50, 0.1), is_score=held)
    assert fit_error(measured * 1e-6, predicted * 1e-6, log_sigma=np.full(50, 0.1), is_score=held) == one
