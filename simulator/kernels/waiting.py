"""What devices wait for each other at a collective, beyond the time of its kernel."""

from __future__ import annotations

from dataclasses import replace

from simulator.kernels.timing import Timing


def slowest_lag(participants: int) -> float:
    """How far the slowest of ``participants`` hosts is behind an average one, in units of the mean lag.

    Lags are exponential and independent, so that the expected largest of p is the p-th harmonic number times the mean.
    Valid for participants >= 1; leaves out that a device which is far ahead of its host's queue hides a part.

    References
    ----------
    [David2003]
    """
    return sum(1 / place for place in range(2, participants + 1))


def with_wait(timing: Timing, *, lag_s: float, participants: int) -> Timing:
    """A collective's price with the wait for the device whose host issued it last; ``lag_s`` is the hosts' mean lag."""
    if not lag_s or participants == 1:
        return timing
    return replace(timing, seconds=timing.seconds + lag_s * slowest_lag(participants))
