"""80 % intervals around predictions, and the chance that a bound is kept."""

from __future__ import annotations

from math import exp, inf, isfinite, isnan, log
from statistics import NormalDist

Range = tuple[float, float]
"""Low and high end of an interval."""
LEVEL = 0.8
"""Share of measured values that an interval should hold."""
DEVIATE: float = NormalDist().inv_cdf((1 + LEVEL) / 2)


def interval(value: float, *, log_sigma: float) -> Range | None:
    """The 80 % interval around a positive prediction with log-normal error; None where there is no prediction.

    value / s to value s with s = exp(z sigma) and z = 1.2816 the deviate that leaves a tenth on either side: at a
    spread of 10 %, 100 ms are 88 to 114 ms.

    >>> low, high = interval(0.1, log_sigma=0.1)
    >>> round(low, 4), round(high, 4)
    (0.088, 0.1137)
    """
    if isnan(value):
        return None
    spread = exp(DEVIATE * log_sigma)
    return value / spread, value * spread


def inverse_ends(value: float, *, now: float, ends: Range) -> Range:
    """The 80 % interval of ``value`` that stands inversely to a prediction ``now`` with the interval ``ends``.

    A known amount of work over a time, or a known rate of spending over a throughput: at the long end it is low. An end
    of nothing gives no bound.

    >>> inverse_ends(0.5, now=0.1, ends=(0.08, 0.125))
    (0.4, 0.625)
    """
    low, high = ends
    return value * now / high, value * now / low if low else inf


def chance_within(bound: float, *, value: float, ends: Range) -> float:
    """Probability that a prediction with an 80 % interval stays at or under a bound.

    Log-normal on either side of the value, with that side's own width, so that waiting times, which grow faster than
    step times, keep their longer upper end. A value without an interval is taken as certain, an infinite one as
    overload, which meets no bound; nothing takes no time.

    >>> round(chance_within(0.11, value=0.1, ends=(0.09, 0.11)), 2)
    0.9
    """
    if not isfinite(value) or bound <= 0 < value:
        return 0.0
    end = ends[1] if bound >= value else ends[0]
    if end == value:
        return 1.0 if value <= bound else 0.0
    if not 0 < end < inf:
        return 0.5
    return NormalDist().cdf(DEVIATE * log(bound / value) / abs(log(end / value)))
