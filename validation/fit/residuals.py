"""What residuals say: error on shapes that the fit saw and did not see, and intervals that cover as promised."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.specs.hardware.calibration import FitError, RegimeSigma

Array = NDArray[np.float64]

NORMAL_80 = 1.2816
"""Half width of the central 80 % of a normal distribution, in standard deviations."""

SMALLEST_SIGMA = 0.005

NOT_SCORED = FitError(score_mape=0, fit_mape=0, score_bias=0, log_sigma=1, coverage_80=0, score_points=0, fit_points=0)
"""Stands in a draft until its error is known."""


def interval_sigma(log_residuals: Array) -> float:
    """Sigma whose 80 % interval covers 80 % of held-out residuals: their 0.8 quantile of |r| over 1.2816."""
    return max(float(np.quantile(np.abs(log_residuals), 0.8)) / NORMAL_80, SMALLEST_SIGMA)


def regime_sigmas(
    log_residuals: Array, values: Array, *, axis: str, uppers: Sequence[float], fewest: int = 30
) -> tuple[RegimeSigma, ...]:
    """``interval_sigma`` by bands of ``values``, each ending at an upper bound; bands with few points are joined on."""
    regimes: list[RegimeSigma] = []
    low = -np.inf
    for upper in uppers:
        inside = (values > low) & (values <= upper)
        if inside.sum() >= fewest:
            sigma = round(interval_sigma(log_residuals[inside]), 5)
            regimes.append(RegimeSigma(axis=axis, upper=upper, log_sigma=sigma))
            low = upper
    return tuple(regimes)


def fit_error(measured: Array, predicted: Array, *, log_sigma: Array, is_score: NDArray[np.bool_]) -> FitError:
    """Errors on both parts; the overall log_sigma and the coverage are those of the score part.

    Every argument has one entry per measured point; ``log_sigma`` is the interval that the model states for it.
    """
    relative = predicted / measured - 1.0
    log_residual = np.log(measured / predicted)
    covered = np.abs(log_residual) <= NORMAL_80 * log_sigma
    return FitError(
        score_mape=round(float(np.mean(np.abs(relative[is_score]))), 5),
        fit_mape=round(float(np.mean(np.abs(relative[~is_score]))), 5) if not is_score.all() else 0.0,
        score_bias=round(float(np.mean(relative[is_score])), 5),
        log_sigma=round(interval_sigma(log_residual[is_score]), 5),
        coverage_80=round(float(np.mean(covered[is_score])), 4),
        score_points=int(is_score.sum()),
        fit_points=int((~is_score).sum()),
    )
