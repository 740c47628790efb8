"""Textbook queues that simulated ones are held against: exact for M/M/c and M/G/1, Allen-Cunneen for the rest."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.engine.lanes.queueing import Array, gg1_wait_mean_s


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def mm1_wait_mean_s(*, arrival_rate_per_s: ArrayLike, service_mean_s: ArrayLike) -> Array:
    """Mean time in the queue of M/M/1 [s]: rho / (1 - rho) * E[S]. Exact for rho < 1, infinite above.

    References
    ----------
    [Kleinrock1975] eq. 3.26.
    """
    return mg1_wait_mean_s(arrival_rate_per_s=arrival_rate_per_s, service_mean_s=service_mean_s, service_cv=1.0)


def mm1_wait_quantile_s(*, arrival_rate_per_s: ArrayLike, service_mean_s: ArrayLike, probability: ArrayLike) -> Array:
    """Time in the queue of M/M/1 that a share ``probability`` of arrivals does not exceed [s]. Exact, FCFS.

    P(W > t) = rho * exp(-(1 - rho) t / E[S]).

    References
    ----------
    [Kleinrock1975] eq. 5.123.
    """
    rho = _array(arrival_rate_per_s) * _array(service_mean_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        conditional_mean_s = np.where(rho < 1, _array(service_mean_s) / (1 - rho), np.inf)
    return delayed_exponential_quantile_s(
        wait_probability=rho, conditional_mean_s=conditional_mean_s, probability=probability
    )


def md1_wait_mean_s(*, arrival_rate_per_s: ArrayLike, service_mean_s: ArrayLike) -> Array:
    """Mean time in the queue of M/D/1 [s]: half of M/M/1. Exact for rho < 1, infinite above.

    References
    ----------
    [Kleinrock1975] eq. 5.70 with zero service variance.
    """
    return mg1_wait_mean_s(arrival_rate_per_s=arrival_rate_per_s, service_mean_s=service_mean_s, service_cv=0.0)


def mg1_wait_mean_s(*, arrival_rate_per_s: ArrayLike, service_mean_s: ArrayLike, service_cv: ArrayLike) -> Array:
    """Pollaczek-Khinchine: mean time in the queue of M/G/1 [s]. Exact for Poisson arrivals and rho < 1.

    rho / (1 - rho) * E[S] * (1 + cv^2) / 2, with ``service_cv`` the coefficient of variation of service times.

    References
    ----------
    [Kleinrock1975] eq. 5.70.
    """
    return gg1_wait_mean_s(
        arrival_rate_per_s=arrival_rate_per_s, service_mean_s=service_mean_s, service_cv=service_cv, arrival_cv=1.0
    )


def erlang_c(*, offered_load: ArrayLike, servers: ArrayLike) -> Array:
    """Probability that an arrival to M/M/c waits [-]. Exact for offered_load < servers, 1 at and above.

    ``offered_load`` is lambda * E[S] in erlangs. Computed by the stable recursion of Erlang's loss formula,
    1/B(n) = 1 + n / a * 1/B(n-1), and C = B / (1 - rho (1 - B)).

    References
    ----------
    Cooper, "Introduction to Queueing Theory" (1981), section 3.3 (loss) and eq. 3.4.7 (delay).
    """
    load, count = np.broadcast_arrays(_array(offered_load), _array(servers))
    inverse_blocking = np.ones(load.shape)
    safe_load = np.maximum(load, np.finfo(np.float64).tiny)
    for server in range(1, int(count.max(initial=0)) + 1):
        with np.errstate(over="ignore"):
            step = 1 + server / safe_load * inverse_blocking
        inverse_blocking = np.where(server <= count, step, inverse_blocking)
    blocking = 1 / inverse_blocking
    rho = load / count
    return np.where(rho < 1, blocking / (1 - np.minimum(rho, 1) * (1 - blocking)), 1.0)


def mmc_wait_mean_s(*, arrival_rate_per_s: ArrayLike, service_mean_s: ArrayLike, servers: ArrayLike) -> Array:
    """Mean time in the queue of M/M/c [s]. Exact for rho < 1, infinite above.

    References
    ----------
    Cooper, "Introduction to Queueing Theory" (1981), section 3.4.
    """
    return ggc_wait_mean_s(
        arrival_rate_per_s=arrival_rate_per_s,
        service_mean_s=service_mean_s,
        servers=servers,
        service_cv=1.0,
        arrival_cv=1.0,
    )


def ggc_wait_mean_s(
    *,
    arrival_rate_per_s: ArrayLike,
    service_mean_s: ArrayLike,
    servers: ArrayLike,
    service_cv: ArrayLike,
    arrival_cv: ArrayLike,
) -> Array:
    """Allen-Cunneen: mean time in the queue of G/G/c [s]; exact for M/M/c and M/G/1, otherwise an approximation.

    C(c, a) / (c (1 - rho)) * E[S] * (ca^2 + cs^2) / 2. Typically within 10 % for cv up to about 2 and loads above
    one half; it knows two moments only.

    References
    ----------
    [Allen1990] eq. 5.3.43; accuracy in Whitt, "Approximations for the GI/G/m queue" (1993).
    """
    load = _array(arrival_rate_per_s) * _array(service_mean_s)
    rho = load / _array(servers)
    variability = (_array(arrival_cv) ** 2 + _array(service_cv) ** 2) / 2
    waits = erlang_c(offered_load=load, servers=servers)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean_s = waits * _array(service_mean_s) * variability / (_array(servers) * (1 - rho))
    return np.where(rho < 1, mean_s, np.inf)


def ggc_wait_quantile_s(
    *,
    arrival_rate_per_s: ArrayLike,
    service_mean_s: ArrayLike,
    servers: ArrayLike,
    service_cv: ArrayLike,
    arrival_cv: ArrayLike,
    probability: ArrayLike,
) -> Array:
    """Time in the queue of G/G/c that a share ``probability`` of arrivals does not exceed [s].

    Exact for M/M/c under FCFS; otherwise the wait of those that wait is taken as exponential with the Allen-Cunneen
    mean, which heavy traffic justifies.

    References
    ----------
    Cooper, "Introduction to Queueing Theory" (1981), section 3.4;
    Whitt, "Approximations for the GI/G/m queue" (1993), section 4; [Kingman1961].
    """
    waits = erlang_c(offered_load=_array(arrival_rate_per_s) * _array(service_mean_s), servers=servers)
    mean_s = ggc_wait_mean_s(
        arrival_rate_per_s=arrival_rate_per_s,
        service_mean_s=service_mean_s,
        servers=servers,
        service_cv=service_cv,
        arrival_cv=arrival_cv,
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        conditional_mean_s = np.where(waits > 0, mean_s / waits, 0.0)
    return delayed_exponential_quantile_s(
        wait_probability=waits, conditional_mean_s=conditional_mean_s, probability=probability
    )


def delayed_exponential_quantile_s(
    *, wait_probability: ArrayLike, conditional_mean_s: ArrayLike, probability: ArrayLike
) -> Array:
    """Quantile of a wait that is zero with probability 1 - w and exponential otherwise [s].

    max(0, m ln(w / (1 - p))) for ``probability`` p in [0, 1); infinite where the mean is.

    References
    ----------
    Cooper, "Introduction to Queueing Theory" (1981), section 3.4.
    """
    waits, mean_s, share = np.broadcast_arrays(
        np.minimum(_array(wait_probability), 1.0), _array(conditional_mean_s), _array(probability)
    )
    tail = 1 - share
    delayed = waits > tail
    with np.errstate(divide="ignore", invalid="ignore"):
        quantile_s = mean_s * np.log(np.where(delayed, waits, 1.0) / np.where(delayed, tail, 1.0))
    # An unstable queue makes everybody wait without bound, also those that the log would give 0 * inf.
    return np.where(np.isinf(mean_s), np.inf, np.where(delayed, quantile_s, 0.0))
