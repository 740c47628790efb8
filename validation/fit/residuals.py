"""Intervals by regime, from residuals of shapes that a fit did not see."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import interval_sigma
from simulator.specs.hardware.calibration import FitError, RegimeSigma

Array = NDArray[np.float64]

NOT_SCORED = FitError(score_mape=0, fit_mape=0, score_bias=0, log_sigma=1, coverage_80=0, score_points=0, fit_points=0)
"""Stands in a draft until its error is known."""


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
