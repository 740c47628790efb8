"""What residuals say: errors on shapes that a fit saw and did not see, and intervals that cover as promised."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.operators.step_shape import Array
from simulator.specs.hardware.calibration import FitError

NORMAL_80 = 1.2816
"""Half width of the central 80 % of a normal distribution, in standard deviations."""
SMALLEST_SIGMA = 0.005


def interval_sigma(log_residuals: Array, *, smallest: float = SMALLEST_SIGMA) -> float:
    """Sigma whose 80 % interval covers 80 % of held-out residuals: their 0.8 quantile of |r| over 1.2816."""
    return max(float(np.quantile(np.abs(log_residuals), 0.8)) / NORMAL_80, smallest)


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
