"""How many arrive in the time after an arrival: gamma gaps, whose burstier kinds come in company."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb, log, pi

import numpy as np
from numpy.typing import ArrayLike

from simulator.engine.lanes.queueing import arrivals_after_one
from simulator.traffic.lengths import Array

_POINTS = 96
# In mean gaps; before the first the law is a power of the time, and beyond the last its asymptote is reached.
_SHORTEST, _LONGEST = 2e-6, 2e3
# The method's own parameters [Abate1995]: a discretisation error of 1e-8 and the sums that are averaged.
_DIGITS, _TERMS, _AVERAGED = 8, 15, 11
_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True, kw_only=True)
class Followers:
    """Arrivals N in a time after one (arrays of one shape): P(N = 0), the mean of N, and its variance over that."""

    none: Array
    mean: Array
    dispersion: Array


def followers(expected: ArrayLike, *, arrival_cv: float) -> Followers:
    """Arrivals in a time after one in which ``expected`` come on average [-].

    Equation
    --------
    With g(s) the transform of a gap of mean one, those of P(N = 0), E[N] and E[N (N - 1)] over that time x are
    (1 - g) / s, g / s (1 - g) and 2 g^2 / s (1 - g)^2; of gamma gaps g = (1 + s ca^2)^(-1 / ca^2).

    Parameters
    ----------
    expected : x, mean arrivals in a time of that length [-]
    arrival_cv : ca, standard deviation of the gaps between arrivals over their mean [-]

    Range of validity
    -----------------
    Poisson arrivals and burstier ones of independent gamma gaps (ca > 1) to about a thousandth, from a table.
    Smoother ones count as Poisson ones of the mean that ``arrivals_after_one`` gives.

    References
    ----------
    [Cox1962] chapters 3 and 4; [Abate1995] for the inversion.

    Examples
    --------
    After an arrival with gaps of ca = 2, in a tenth of a mean gap: three quarters of another one, where Poisson
    arrivals would bring a tenth.

    >>> found = followers(0.1, arrival_cv=2.0)
    >>> round(float(found.mean), 2), round(float(found.none), 2)
    (0.72, 0.56)
    """
    x = np.asarray(expected, dtype=np.float64)
    if arrival_cv <= 1:
        mean = x if arrival_cv == 1 else arrivals_after_one(x, arrival_cv=arrival_cv)
        return Followers(none=np.exp(-mean), mean=mean, dispersion=np.ones_like(x))
    table = _table(arrival_cv)
    place = (np.log(np.maximum(x, _TINY)) - log(_SHORTEST)) * ((_POINTS - 1) / log(_LONGEST / _SHORTEST))
    low = np.minimum(np.maximum(place, 0.0).astype(np.intp), _POINTS - 2)
    share = np.clip(place - low, 0.0, 1.0)
    none, beyond, dispersion = (row[low] + share * (row[low + 1] - row[low]) for row in table)
    return Followers(none=none, mean=x + beyond, dispersion=dispersion)


@lru_cache(maxsize=64)
def _table(arrival_cv: float) -> Array:
    """P(N = 0), E[N] - x and Var[N] / E[N], each slow to change, at evenly spaced logarithms of x."""
    x = np.geomspace(_SHORTEST, _LONGEST, _POINTS)
    # Abate and Whitt's EULER sum: an alternating series whose last partial sums are averaged binomially.
    order = np.arange(_TERMS + _AVERAGED + 1)
    s = (_DIGITS * log(10) + 2j * pi * order[:, None]) / (2 * x)
    square = arrival_cv**2
    gap = np.exp(-np.log1p(s * square) / square)
    short = -np.expm1(-np.log1p(s * square) / square)
    weights = np.array([comb(_AVERAGED, place) for place in range(_AVERAGED + 1)]) / 2**_AVERAGED
    signs = (-1.0) ** order[:, None]
    signs[0] /= 2

    def inverted(transform: np.ndarray) -> Array:
        sums = np.cumsum(signs * transform.real, axis=0)[_TERMS:]
        value: Array = 10 ** (_DIGITS / 2) / x * (weights @ sums)
        return value

    mean, pairs = inverted(gap / (s * short)), inverted(2 * gap**2 / (s * short**2))
    return np.array([np.clip(inverted(short / s), 0.0, 1.0), mean - x, pairs / mean + 1 - mean])
