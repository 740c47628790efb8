"""How many spares keep enough replicas up a given share of the time."""

from __future__ import annotations

from math import lgamma

import numpy as np

from simulator.units import percent_text

# 419 unexpected interruptions in 54 days of 16,384 H100 [Grattafiori2024] table 5: hours between failures of one.
DEVICE_MTBF_HOURS = 16384 * 54 * 24 / 419
MTBF_SOURCE = "419 unexpected interruptions in 54 days of 16,384 H100 (Llama 3 training run), any cause"
DEFAULT_SPARES = 1
DEFAULT_MTTR_HOURS = 24.0
MTTR_SOURCE = "assumed: a day to notice, drain, repair and return"


def availability_text(fraction: float) -> str:
    """``99.995 %``, to seven digits: down to three seconds a year."""
    return percent_text(fraction, digits=7)


def enough_up(*, replicas: int, spares: int, unavailability: float) -> float:
    """Probability that at least ``replicas`` of ``replicas + spares`` are up, each down independently.

    The binomial tail sum_{d <= s} C(n, d) u^d (1 - u)^(n - d). Left out: failures that take several replicas at once
    (a server, a rack, a network), for which see the loss of a server.

    References
    ----------
    [Trivedi2002], k-out-of-n systems.
    """
    total = replicas + spares
    if unavailability <= 0:
        return 1.0
    down = np.arange(spares + 1)
    choose = np.array([lgamma(total + 1) - lgamma(d + 1) - lgamma(total - d + 1) for d in down])
    logs = choose + down * np.log(unavailability) + (total - down) * np.log1p(-unavailability)
    return float(min(np.exp(logs).sum(), 1.0))


def spares_for(*, replicas: int, unavailability: float, target: float) -> int:
    """Fewest spares with which enough replicas are up a share ``target`` of the time."""
    spares = 0
    while enough_up(replicas=replicas, spares=spares, unavailability=unavailability) < target:
        spares += 1
    return spares


def replica_unavailability(*, devices: int, mtbf_hours: float, mttr_hours: float) -> float:
    """MTTR / (MTBF + MTTR) of a replica that is down when one of its accelerators is; ``mtbf_hours`` is of one.

    References
    ----------
    [Trivedi2002], steady-state availability.
    """
    return mttr_hours / (mtbf_hours / devices + mttr_hours)
