"""Waiting lines in closed form: exact where theory is exact, named approximations where it is not.

Arguments broadcast as numpy arrays. A load of one or more has no steady state: mean waits are then infinite.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


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
