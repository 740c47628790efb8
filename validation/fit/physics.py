"""Bounded robust fit of a physics model: soft-L1 on log time over a stratified sample, parameters on a log scale."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Range of one positive parameter and where the search starts."""

    low: float
    high: float
    start: float


def stratified_sample(strata: Array, *, count: int, seed: int = 0) -> NDArray[np.int64]:
    """Indices of ``count`` rows, every stratum (a rounded number such as log2 m) equally likely."""
    if len(strata) <= count:
        return np.arange(len(strata))
    _, label = np.unique(np.round(strata), return_inverse=True)
    share = 1.0 / np.bincount(label)[label]
    return np.random.default_rng(seed).choice(len(strata), count, replace=False, p=share / share.sum())


def fit_parameters(
    seconds_of: Callable[[Mapping[str, float]], Array],
    measured_s: Array,
    *,
    bounds: Mapping[str, Bound],
    softness: float = 0.05,
    evaluations: int = 40,
) -> dict[str, float]:
    """Parameters that bring log(seconds_of) close to log(measured); residuals beyond ``softness`` count linearly."""
    names = list(bounds)
    low = np.log([bounds[name].low for name in names])
    high = np.log([bounds[name].high for name in names])
    start = np.clip(np.log([bounds[name].start for name in names]), low + 1e-3, high - 1e-3)
    target = np.log(measured_s)

    def residuals(logs: Array) -> Array:
        return np.log(seconds_of(dict(zip(names, np.exp(logs), strict=True)))) - target

    found = least_squares(
        residuals, start, bounds=(low, high), loss="soft_l1", f_scale=softness, diff_step=1e-3, max_nfev=evaluations
    )
    return {name: float(f"{value:.5g}") for name, value in zip(names, np.exp(found.x), strict=True)}
