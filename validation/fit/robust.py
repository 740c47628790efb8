"""Least squares that odd rows do not pull."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

Array = NDArray[np.float64]
ROUNDS = 10


def robust_step(here: Array, slopes: Array, *, low: Array, outlier: float) -> Array:
    """The step, at least ``low``, that makes linearised errors smallest; those beyond ``outlier`` count linearly.

    here : errors [n] at the present parameters; slopes : their change [n, p] per unit of each parameter

    References
    ----------
    [Huber1964]
    """
    weights = np.ones_like(here)
    step = np.zeros(slopes.shape[1])
    for _ in range(ROUNDS):
        bounds = (low - 1e-9, np.full(len(low), np.inf))
        step = lsq_linear(slopes * weights[:, None], -here * weights, bounds=bounds).x
        left = np.abs(here + slopes @ step)
        weights = np.sqrt(np.minimum(1.0, outlier / np.maximum(left, 1e-9)))
    return step
