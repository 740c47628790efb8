"""A recorded demand, as every importer returns it, and how it is spread over the hours of a day or a week."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.question.plan_values import HOURS_PER_DAY, HOURS_PER_WEEK
from simulator.traffic.lengths import Array
from simulator.traffic.recorded.traces import RequestTrace
from simulator.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE

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


QUEUE_S = 5.0
"""About how long a crowd in front of a replica lasts, against objectives of seconds. Assumed."""
_FEW_MINUTES = 2
"""Fewer minutes say nothing about how counts vary within them."""
_MANY_TIES = 1 / 2
"""Share of gaps of zero above which a clock that ticks slowly, and no burst, is what they show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean, coefficient of variation and percentiles of token counts; None where the record does not say."""

    mean: float
    cv: float | None = None
    p50: float | None = None
    p95: float | None = None

    @classmethod
    def of(cls, values: Array) -> Spread:
        """Spread of samples."""
        mean = float(values.mean())
        p50, p95 = (float(value) for value in np.percentile(values, [50, 95]))
        # In units of a power of two, which rounds nothing, the squares of huge counts are small.
        unit = 2.0 ** (math.frexp(mean)[1] - 1)
        return cls(mean=mean, cv=float((values / unit).std()) / (mean / unit) if mean else None, p50=p50, p95=p95)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDemand:
    """Rate and lengths of recorded requests; None where the record does not say.

    rate_per_s : mean over ``duration_s``; peak_to_mean : busiest minute over the mean
    isl, osl : prompt and answer tokens; prefix_hit : share of prompt tokens found in a cache
    dispersion : how bursty all arrivals are at the time scale of a replica's queue, see ``dispersion``
    model : what the record calls the model
    load_profile : relative demand by hour (UTC) of a day or a week, empty of records shorter than a day
    notes : what the record leaves open; warnings : what was put right or looks wrong
    """

    source: str
    tool: str
    requests: int
    duration_s: float
    rate_per_s: float
    peak_to_mean: float | None = None
    isl: Spread
    osl: Spread
    prefix_hit: float | None = None
    dispersion: float | None = None
    notes: tuple[Note, ...]
    warnings: tuple[Note, ...] = ()
    load_profile: tuple[float, ...] = ()
    model: str | None = None

    @property
    def busiest_to_mean(self) -> float | None:
        """The busiest minute over the mean, or the busiest hour of the day where that is more; at least 1."""
        if self.peak_to_mean is None:
            return None
        shape = self.load_profile
        return max(1.0, self.peak_to_mean, max(shape) * len(shape) / sum(shape) if shape else 1.0)


def dispersion(arrivals_s: Array) -> float | None:
    """Variance over mean of the counts in windows as long as a replica's queue lasts: 1 for Poisson, 0 for even gaps.

    Windows are compared within their minute: the day's tide, of which the peak is planned for, is no burst. Of a clock
    that ticks slowly they hold whole ticks. It is the fleet's: one of N replicas behind a router in turns, or of N
    sources like this one, sees 1 + (this - 1) / N. None of records that are too short.
    """
    gaps = np.diff(arrivals_s)
    ticking = float((gaps == 0).mean()) > _MANY_TIES if len(gaps) else False
    tick_s = float(gaps[gaps > 0].min()) if ticking and (gaps > 0).any() else QUEUE_S
    each = int(SECONDS_PER_MINUTE / (tick_s * max(1.0, round(QUEUE_S / tick_s))))
    minutes = int(arrivals_s[-1] // SECONDS_PER_MINUTE)
    if each < 2 or minutes < _FEW_MINUTES:
        return None
    inside = arrivals_s[arrivals_s < minutes * SECONDS_PER_MINUTE]
    place = (inside * each // SECONDS_PER_MINUTE).astype(np.int64)
    counts = np.bincount(place, minlength=minutes * each).reshape(minutes, each)
    return float(counts.var(axis=1, ddof=1).mean() / counts.mean())


def burst_note(key: str, dispersion: float) -> Note:
    """Said of a trace's bursts. ``excess`` : what they add to Poisson arrivals, of which one of N replicas sees an N-th
    part."""
    return Note(key, {"dispersion": dispersion, "excess": dispersion - 1})


def _peak_to_mean(arrivals_s: Array, *, duration_s: float) -> float:
    """The busiest whole minute over the mean of those."""
    window_s = min(SECONDS_PER_MINUTE, duration_s)
    windows = max(1, int(duration_s // window_s))
    inside = arrivals_s[arrivals_s < windows * window_s]
    counts = np.bincount((inside // window_s).astype(np.int64), minlength=windows)
    return max(1.0, float(counts.max() / counts.mean()))


def measured_demand(
    trace: RequestTrace, *, tool: str, prefix_hit: float | None = None, notes: tuple[Note, ...] = ()
) -> RecordedDemand:
    """Demand of recorded requests, rate and peak as a plan takes them. Raises RoofcastError: all carry one time."""
    rate_per_s, duration_s = trace.mean_rate_per_s, float(trace.arrival_s[-1])
    counts = np.arange(1.0, len(trace.arrival_s) + 1)
    return RecordedDemand(
        source=trace.source,
        tool=tool,
        requests=len(trace.arrival_s),
        duration_s=duration_s,
        rate_per_s=rate_per_s,
        peak_to_mean=_peak_to_mean(trace.arrival_s, duration_s=duration_s),
        isl=Spread.of(trace.isl_tokens),
        osl=Spread.of(trace.osl_tokens),
        prefix_hit=prefix_hit,
        dispersion=dispersion(trace.arrival_s),
        notes=notes,
        warnings=trace.warnings,
        load_profile=load_by_hour(trace.first_s + trace.arrival_s, counts, has_dates=trace.has_dates),
    )
