"""Waiting lines in closed form: exact where theory is, named approximations elsewhere; a load of one waits for ever."""

from __future__ import annotations

from functools import lru_cache
from math import comb, log, pi

import numpy as np
from numpy.typing import ArrayLike

from simulator.records import dataclass
from simulator.traffic.lengths import Array

_TINY = float(np.finfo(np.float64).tiny)
_EPSILON = float(np.finfo(np.float64).eps)
# Below this the window factor's closed form loses its digits, and is 1 to within them.
_SMALL = _EPSILON ** (1 / 4)
# To 1e-12 for up to a million prompts.
_NEWTON_ROUNDS = 8


def _array(value: ArrayLike) -> Array:
    return np.asarray(value, dtype=np.float64)


def gg1_wait_mean_s(
    *, arrival_rate_per_s: ArrayLike, service_mean_s: ArrayLike, service_cv: ArrayLike, arrival_cv: ArrayLike
) -> Array:
    """Mean time in the queue of one server with general arrivals and service, G/G/1 [s].

    Equation
    --------
    rho / (1 - rho) E[S] (ca^2 + cs^2) / 2 with the load rho = lambda E[S].

    Parameters
    ----------
    arrival_rate_per_s : lambda, arrivals [1/s]
    service_mean_s : E[S], mean service [s]
    service_cv : cs, standard deviation of the service over its mean [-]
    arrival_cv : ca, the same of the gaps between arrivals, 1 for Poisson [-]

    Range of validity
    -----------------
    Exact for Poisson arrivals. Otherwise its error vanishes in heavy traffic; it overestimates light loads of arrivals
    smoother than Poisson (ca < 1). Left out: dependence between gaps, and between services.

    References
    ----------
    [Kingman1961] heavy-traffic form; [Allen1990] section 5.3.4; [Kleinrock1975] section 5.6.

    Examples
    --------
    M/M/1 at a load of 0.8 and a service of 100 ms: four services.

    >>> round(float(gg1_wait_mean_s(arrival_rate_per_s=8, service_mean_s=0.1, service_cv=1, arrival_cv=1)), 9)
    0.4
    """
    service_s = _array(service_mean_s)
    rho = _array(arrival_rate_per_s) * service_s
    variability = (_array(arrival_cv) ** 2 + _array(service_cv) ** 2) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(rho < 1, rho / (1 - rho) * service_s * variability, np.inf)


def smooth_arrivals_factor(*, load: ArrayLike, service_cv: ArrayLike, arrival_cv: ArrayLike) -> Array:
    """What is left of the mean wait of Poisson arrivals when they come with another variability [-].

    Equation
    --------
    (ca^2 + cs^2) / (1 + cs^2), for arrivals smoother than Poisson times exp(-2 (1 - rho) (1 - ca^2)^2 / (3 rho (ca^2 +
    cs^2))): with few others about, a smooth stream hardly ever waits.

    Parameters
    ----------
    load : rho, share of the time in which the server is busy [-]
    service_cv : cs, standard deviation of the service over its mean [-]
    arrival_cv : ca, the same of the gaps between arrivals [-]

    Range of validity
    -----------------
    For Erlang arrivals and exponential service the wait is up to 11 % too long at a load of 0.4 and within 3 % from 0.8
    on (tests/engine/lanes/test_prompt_queue.py). Left out: dependence between gaps.

    References
    ----------
    [Kramer1976]; [Whitt1983] section 5.1.

    Examples
    --------
    Poisson arrivals keep all of it; even gaps before an even service keep none.

    >>> smooth_arrivals_factor(load=0.5, service_cv=[1, 0], arrival_cv=[1, 0]).tolist()
    [1.0, 0.0]
    """
    rho = np.maximum(_array(load), _TINY)
    served, arriving = _array(service_cv) ** 2, _array(arrival_cv) ** 2
    both = np.maximum(served + arriving, _TINY)
    seldom = np.exp(-2 * (1 - rho) * np.maximum(1 - arriving, 0.0) ** 2 / (3 * rho * both))
    factor: Array = both / (1 + served) * seldom
    return factor


def wait_probability(*, load: ArrayLike, service_cv: ArrayLike, arrival_cv: ArrayLike) -> Array:
    """Share of arrivals at a single server that find it busy [-].

    Equation
    --------
    rho + (ca^2 - 1) rho (1 - rho) h, with h = (1 + ca^2 + rho cs^2) / (1 + rho (cs^2 - 1) + rho^2 (4 ca^2 + cs^2)) for
    ca <= 1 and h = 4 rho / (ca^2 + rho^2 (4 ca^2 + cs^2)) beyond.

    Parameters
    ----------
    load : rho, share of the time in which the server is busy [-]
    service_cv : cs, standard deviation of the service over its mean [-]
    arrival_cv : ca, the same of the gaps between arrivals [-]

    Range of validity
    -----------------
    Exact for Poisson arrivals, of which the load's share waits; an approximation elsewhere, held to 0 to 1. Leaves out
    gaps that depend on each other.

    References
    ----------
    [Kramer1976]; [Whitt1983] section 5.1.

    Examples
    --------
    >>> wait_probability(load=0.6, service_cv=0.7, arrival_cv=[1.0, 0.5]).round(3).tolist()
    [0.6, 0.374]
    """
    rho, served, arriving = _array(load), _array(service_cv) ** 2, _array(arrival_cv) ** 2
    smooth = (1 + arriving + rho * served) / (1 + rho * (served - 1) + rho**2 * (4 * arriving + served))
    bursty = 4 * rho / np.maximum(arriving + rho**2 * (4 * arriving + served), _TINY)
    share = rho + (arriving - 1) * rho * (1 - rho) * np.where(arriving <= 1, smooth, bursty)
    return np.clip(share, 0.0, 1.0)


def arrivals_after_one(expected: ArrayLike, *, arrival_cv: ArrayLike) -> Array:
    """Mean number of arrivals in the time after one that sees ``expected`` of them on average [-].

    Equation
    --------
    x - v / 2 (1 - exp(-2 x / v)) with v = 1 - ca^2; x for arrivals at least as variable as Poisson.

    Parameters
    ----------
    expected : x, arrivals in a time of that length on average [-]
    arrival_cv : ca, standard deviation of the gaps between arrivals over their mean [-]

    Range of validity
    -----------------
    The renewal function of Erlang-2 gaps exactly (ca^2 = 1 / 2), and the right ends of others: none at once, x - v / 2
    in the long run. Left out: that burstier arrivals than Poisson come in company.

    References
    ----------
    [Cox1962] section 4.2.

    Examples
    --------
    Two mean gaps after an arrival of Erlang-2 gaps: 2 - (1 - exp(-8)) / 4.

    >>> round(float(arrivals_after_one(2.0, arrival_cv=0.5**0.5)), 6)
    1.750084
    """
    mean, short = _array(expected), np.maximum(1 - _array(arrival_cv) ** 2, 0.0)
    missing = short / 2 * -np.expm1(-2 * mean / np.maximum(short, _EPSILON))
    return mean - missing


def busy_servers_probability(*, load: ArrayLike, servers: ArrayLike) -> Array:
    """Share of arrivals that find all of several servers busy [-].

    Equation
    --------
    rho^(sqrt(2 (c + 1)) - 1)

    Parameters
    ----------
    load : rho, offered load per server, 0 to 1 [-]
    servers : c, at least 1 [-]

    Range of validity
    -----------------
    Poisson arrivals and exponential service; exact for one server. For M/M/c above 70 % load the p99 of the wait that
    follows is within a quarter, or 8 % of the service time, of Erlang C. Left out: other variability.

    References
    ----------
    [Sakasegawa1977]

    Examples
    --------
    One server at half load is busy half of the time; of seven servers (an exponent of 3) an eighth of arrivals wait.

    >>> busy_servers_probability(load=0.5, servers=[1, 7]).tolist()
    [0.5, 0.125]
    """
    probability: Array = _array(load) ** (np.sqrt(2 * (_array(servers) + 1)) - 1)
    return probability


def delayed_wait_variance(*, mean_s: ArrayLike, probability: ArrayLike) -> Array:
    """Variance of a wait that is nothing or exponential, in the square of its unit [s].

    Equation
    --------
    w^2 (2 / p - 1): a second moment of 2 p (w / p)^2, less w^2.

    Parameters
    ----------
    mean_s : w, mean wait over all arrivals [s]
    probability : p, share of those that wait, above 0 [-]

    Range of validity
    -----------------
    Exact for M/M/1. Left out: tails of waits that are not exponential.

    References
    ----------
    [Kleinrock1975] section 3.2.

    Examples
    --------
    Where everyone waits it is that of the exponential itself, the square of its mean.

    >>> delayed_wait_variance(mean_s=0.2, probability=[1.0, 0.5]).round(3).tolist()
    [0.04, 0.12]
    """
    return _array(mean_s) ** 2 * (2 / _array(probability) - 1)


def arrivals_in_turns(arrivals: Array) -> Array:
    """Prompts that a step meets where those that arrive in it are computed next, before anybody decodes again [-].

    Of the a prompts from one step that decodes to the next: w with w e^w = a, for e^w steps share them, and each is
    followed by one of prompts with 1 - e^-w (Poisson arrivals below saturation, steps of about one length). By Newton's
    method from log(1 + a), which is too large everywhere.

    Reference: [Corless1996]
    """
    met = np.log1p(arrivals)
    for _ in range(_NEWTON_ROUNDS):
        met = met - (met - arrivals * np.exp(-met)) / (1 + met)
    return met


def arrival_rate_per_s(
    *, sequences: ArrayLike, decode_steps: ArrayLike, decode_s: ArrayLike, prefill_s: ArrayLike
) -> Array:
    """Arrival rate that keeps a number of sequences decoding on average [1/s].

    Equation
    --------
    lambda = n / (d S + n W): Little's law for the decode phase, n = lambda d T, with steps stretched by the prompts
    that they carry, T = S / (1 - lambda W).

    Parameters
    ----------
    sequences : n, sequences that decode at once [-]
    decode_steps : d, steps of a request after its first token [-]
    decode_s : S, a step of n sequences that only decode [s]
    prefill_s : W, what one request's prompt adds to such steps [s]

    Range of validity
    -----------------
    Any n that the lane has slots for, any distribution of lengths. Left out: how n fluctuates around its mean.

    References
    ----------
    [Little1961]

    Examples
    --------
    Ten sequences of 100 steps of 20 ms each, and prompts of 100 ms: 10 / (2 s + 1 s).

    >>> round(float(arrival_rate_per_s(sequences=10, decode_steps=100, decode_s=0.02, prefill_s=0.1)), 3)
    3.333
    """
    running = _array(sequences)
    return running / (_array(decode_steps) * _array(decode_s) + running * _array(prefill_s))


def window_factor(relaxations: ArrayLike) -> Array:
    """Variance of the time average of an exponentially correlated process, over that of the process [-].

    Equation
    --------
    2 (x - 1 + exp(-x)) / x^2

    Parameters
    ----------
    relaxations : x, length of the averaged window in correlation times [-]

    Range of validity
    -----------------
    Any window: 1 for a short one, 2 / x for a long one. Left out: correlations that do not die out exponentially.

    References
    ----------
    [Papoulis1991] section 12-1.

    Examples
    --------
    >>> window_factor([0.0, 1.0, 100.0]).round(4).tolist()
    [1.0, 0.7358, 0.0198]
    """
    x = np.maximum(_array(relaxations), _SMALL)
    factor: Array = 2 * (x - 1 + np.exp(-x)) / x**2
    return factor


_POINTS = 96
# In mean gaps; before the first the law is a power of the time, and beyond the last its asymptote is reached.
_SHORTEST, _LONGEST = 2e-6, 2e3
# The method's own parameters [Abate1995]: a discretisation error of 1e-8 and the sums that are averaged.
_DIGITS, _TERMS, _AVERAGED = 8, 15, 11


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
    Smoother ones count as Poisson ones of the mean that ``arrivals_after_one`` gives. Leaves out gaps that depend on
    each other.

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
