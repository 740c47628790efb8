"""How recorded requests are spread over the hours of a day, or of a week where seven days were recorded."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.specs.plan_values import HOURS_PER_DAY, HOURS_PER_WEEK
from simulator.units import SECONDS_PER_HOUR

# The first hour of Unix time was midnight of a Thursday, three days after a Monday.
_HOURS_SINCE_MONDAY = 3 * HOURS_PER_DAY


def load_by_hour(times_s: ArrayLike, counts: ArrayLike, *, has_dates: bool) -> tuple[float, ...]:
    """Relative demand by hour, its busiest 1: 168 hours from Monday, 24, or none of a record shorter than a day.

    times_s, counts : rising Unix times in UTC [s] and the requests until each, spread evenly in between
    has_dates : whether the days of the week are known; without, time starts at some midnight

    Whole hours in whole days or weeks are used, the rest is left out, so that every hour counts as often.
    """
    times, total = np.asarray(times_s, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    first, last = int(np.ceil(times[0] / SECONDS_PER_HOUR)), int(np.floor(times[-1] / SECONDS_PER_HOUR))
    period = HOURS_PER_WEEK if has_dates and last - first >= HOURS_PER_WEEK else HOURS_PER_DAY
    hours = np.arange(first, first + max(0, last - first) // period * period)
    if not len(hours):
        return ()
    edges = np.append(hours, hours[-1] + 1) * SECONDS_PER_HOUR
    inside = np.diff(np.interp(edges, times, total))
    place = (hours + _HOURS_SINCE_MONDAY) % period
    mean = np.bincount(place, weights=inside, minlength=period)
    return tuple(float(value) for value in mean / mean.max()) if mean.max() > 0 else ()
