"""Waiting lines in closed form: exact where theory is exact, named approximations where it is not.

Arguments broadcast as numpy arrays. A load of one or more has no steady state: mean waits are then infinite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

_TINY = float(np.finfo(np.float64).tiny)
_EPSILON = float(np.finfo(np.float64).eps)
# Below this the window factor's closed form loses its digits, and is 1 to within them.
_SMALL = _EPSILON ** (1 / 4)


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def utilisation(*, arrival_rate_per_s: ArrayLike, service_mean_s: ArrayLike, servers: ArrayLike = 1) -> Array:
    """Offered load per server, lambda * E[S] / c [-]; stable below 1.

    References
    ----------
    [Kleinrock1975] section 2.1.
    """
    return _array(arrival_rate_per_s) * _array(service_mean_s) / _array(servers)


def gg1_wait_mean_s(
    *, arrival_rate_per_s: ArrayLike, service_mean_s: ArrayLike, service_cv: ArrayLike, arrival_cv: ArrayLike
) -> Array:
    """Mean time in the queue of G/G/1 [s]; exact for Poisson arrivals, otherwise an approximation.

    rho / (1 - rho) * E[S] * (ca^2 + cs^2) / 2. Its error vanishes in heavy traffic; it overestimates light loads of
    arrivals smoother than Poisson (ca < 1).

    References
    ----------
    [Kingman1961] heavy-traffic form; [Allen1990] section 5.3.4.
    """
    rho = utilisation(arrival_rate_per_s=arrival_rate_per_s, service_mean_s=service_mean_s)
    variability = (_array(arrival_cv) ** 2 + _array(service_cv) ** 2) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rho < 1, rho / (1 - rho) * _array(service_mean_s) * variability, np.inf)


def smooth_arrivals_factor(*, load: ArrayLike, service_cv: ArrayLike, arrival_cv: ArrayLike) -> Array:
    """What is left of the mean wait of Poisson arrivals when they come with another variability [-].

    (ca^2 + cs^2) / (1 + cs^2), for arrivals smoother than Poisson times exp(-2 (1 - rho) (1 - ca^2)^2 / (3 rho (ca^2 +
    cs^2))): with few others about, a smooth stream hardly ever waits. For Erlang arrivals and exponential service the
    wait is up to 11 % too long at a load of 0.4 and within 3 % from 0.8 on (tests/engine/test_prompt_queue.py).

    References
    ----------
    [Kramer1976]; [Whitt1983] section 5.1.
    """
    rho = np.maximum(_array(load), _TINY)
    served, arriving = _array(service_cv) ** 2, _array(arrival_cv) ** 2
    both = np.maximum(served + arriving, _TINY)
    seldom = np.exp(-2 * (1 - rho) * np.maximum(1 - arriving, 0.0) ** 2 / (3 * rho * both))
    factor: Array = both / (1 + served) * seldom
    return factor


def wait_probability(*, load: ArrayLike, service_cv: ArrayLike, arrival_cv: ArrayLike) -> Array:
    """Share of arrivals at a single server that find it busy [-]: the load for Poisson, less for smoother ones.

    References
    ----------
    [Kramer1976]; [Whitt1983] section 5.1.
    """
    rho, served, arriving = _array(load), _array(service_cv) ** 2, _array(arrival_cv) ** 2
    smooth = (1 + arriving + rho * served) / (1 + rho * (served - 1) + rho**2 * (4 * arriving + served))
    bursty = 4 * rho / np.maximum(arriving + rho**2 * (4 * arriving + served), _TINY)
    share = rho + (arriving - 1) * rho * (1 - rho) * np.where(arriving <= 1, smooth, bursty)
    return np.clip(share, 0.0, 1.0)


def arrivals_after_one(expected: ArrayLike, *, arrival_cv: ArrayLike) -> Array:
    """Mean number of arrivals in the time after one that sees ``expected`` of them on average [-].

    x - v / 2 (1 - exp(-2 x / v)) with v = 1 - ca^2, the renewal function of Erlang-2 gaps exactly and the right ends of
    others: none at once, x - v / 2 in the long run. At least as variable as Poisson: x.

    References
    ----------
    [Cox1962] section 4.2.
    """
    mean, short = _array(expected), np.maximum(1 - _array(arrival_cv) ** 2, 0.0)
    missing = short / 2 * -np.expm1(-2 * mean / np.maximum(short, _EPSILON))
    left: Array = mean - missing
    return left


def window_factor(relaxations: Array) -> Array:
    """Variance of the time average of an exponentially correlated process over ``relaxations`` correlation times [-].

    2 (x - 1 + e^-x) / x^2: 1 for a short window, 2 / x for a long one.

    References
    ----------
    [Papoulis1991] section 12-1.
    """
    x = np.maximum(relaxations, _SMALL)
    factor: Array = 2 * (x - 1 + np.exp(-x)) / x**2
    return factor
