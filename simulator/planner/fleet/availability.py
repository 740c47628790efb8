"""How often enough replicas of a fleet are up, and how many spares that takes."""

from __future__ import annotations

from math import lgamma, log, log1p, pi, sqrt

import numpy as np

from simulator.units import KILO

# 419 unexpected interruptions in 54 days of 16,384 H100 [Grattafiori2024] table 5: hours between failures of one.
DEVICE_MTBF_HOURS = 16384 * 54 * 24 / 419
DEFAULT_MTTR_HOURS = 24.0


def enough_up(*, replicas: int, spares: int, unavailability: float) -> float:
    """Probability that at least ``replicas`` of ``replicas + spares`` are up, each down independently.

    The binomial tail sum_{d <= s} C(n, d) u^d (1 - u)^(n - d), added up on that side of s on which the terms fall: ten
    standard deviations of them at most, whatever the number of spares. Left out: failures that take several replicas
    at once (a server, a rack, a network), for which see the loss of a server.

    Reference: [Trivedi2002], k-out-of-n systems.
    """
    total, down, up = replicas + spares, unavailability, 1 - unavailability
    if down <= 0:
        return 1.0
    below = spares < total * down
    first = spares if below else spares + 1
    count = min(first if below else total - first, int(10 * sqrt(total * down * up)) + 100)
    at = first - np.arange(count) if below else first + np.arange(count)
    ratios = at / (total - at + 1.0) * (up / down) if below else (total - at) / (at + 1.0) * (down / up)
    logs = _log_binomial(total, first, down) + np.concatenate(([0.0], np.cumsum(np.log(ratios))))
    side = float(min(np.exp(logs).sum(), 1.0))
    return side if below else 1 - side


def _log_binomial(total: int, count: int, chance: float) -> float:
    """Log of C(n, k) p^k (1 - p)^(n - k) by deviances, whose error does not grow with n as that of log factorials does.

    Reference: [Loader2000].
    """
    if count in (0, total):
        return total * (log(chance) if count else log1p(-chance))
    mean, rest = total * chance, total * (1 - chance)
    deviance = _deviance(count - mean, mean) + _deviance(mean - count, rest)
    corrections = _stirling_error(total) - _stirling_error(count) - _stirling_error(total - count)
    return corrections - deviance - log(2 * pi * count * ((total - count) / total)) / 2


def _deviance(excess: float, mean: float) -> float:
    """x log(x / m) + m - x of x = m + excess."""
    return (mean + excess) * log1p(excess / mean) - excess


def _stirling_error(count: int) -> float:
    """Log of n! beyond Stirling's formula."""
    if count > KILO:
        return 1 / (12 * count)
    return lgamma(count + 1) - (count + 0.5) * log(count) + count - log(2 * pi) / 2


def spares_for(*, replicas: int, unavailability: float, target: float) -> int:
    """Fewest spares with which enough replicas are up a share ``target`` of the time, by bisection from the mean on."""

    def enough(spares: int) -> bool:
        return enough_up(replicas=replicas, spares=spares, unavailability=unavailability) >= target

    odds = unavailability / (1 - unavailability)
    low, high, step = -1, int(replicas * odds), 1 + int(sqrt(replicas * odds))
    while not enough(high):
        low, high, step = high, high + step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def replica_unavailability(*, devices: int, mtbf_hours: float, mttr_hours: float) -> float:
    """MTTR / (MTBF + MTTR) of a replica that is down when one of its accelerators is; ``mtbf_hours`` is of one.

    Reference: [Trivedi2002], steady-state availability.
    """
    return mttr_hours / (mtbf_hours / devices + mttr_hours)
