"""Demand by hour over a day or a week: as it was given, or assumed from a peak over the mean."""

from __future__ import annotations

from math import cos, pi

import numpy as np
from numpy.typing import ArrayLike

from simulator.errors import Option, contradiction
from simulator.specs.base import Note
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import DAYS_PER_WEEK, HOURS_PER_DAY, WEEKDAYS

# A raised cosine with its peak in the early afternoon. Assumed, not measured, and only where a peak over the mean says
# that hours differ: chat services of one region look like this; ``load_profile`` gives your own.
_PEAK_HOUR = 14
_STEPS = 60
# Rounding of numbers that people type, not a difference of two loads.
_SAME = 0.01
# Of a day's hours that carry its demand in the narrowest one: beyond that, a peak is no hour of the day.
_NARROWEST = 1 / 12


def _raised_cosine(power: float = 1.0) -> np.ndarray:
    """Between 0 and 1 by hour, its peak at 1; a higher power makes the busy hours fewer."""
    hours = np.array([(1 + cos(2 * pi * (hour - _PEAK_HOUR) / HOURS_PER_DAY)) / 2 for hour in range(HOURS_PER_DAY)])
    return hours**power


def day_profile(mean: float) -> tuple[float, ...]:
    """A day whose mean is that share of its peak: a higher night down to half, a narrower peak below.

    Raises ValueError: the mean is not above one hour's share of a day, or above the peak.
    """
    if not 1 / HOURS_PER_DAY < mean <= 1:
        raise ValueError(f"a day's mean lies between 1/{HOURS_PER_DAY} and 1 of its peak, got {mean:g}")
    middle = float(_raised_cosine().mean())
    if mean >= middle:
        trough = (mean - middle) / (1 - middle)
        return tuple(trough + (1 - trough) * float(value) for value in _raised_cosine())
    low, high = 1.0, 2.0
    while float(_raised_cosine(high).mean()) > mean:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        power = (low + high) / 2
        low, high = (power, high) if float(_raised_cosine(power).mean()) > mean else (low, power)
    return tuple(float(value) for value in _raised_cosine(low))


def peak_over_mean(profile: ArrayLike) -> float:
    """Busiest hour over the mean of all."""
    hours = np.asarray(profile, dtype=np.float64)
    return float(hours.max() / hours.mean())


def week_of(day: ArrayLike, *, weekend: float) -> np.ndarray:
    """Five equal days from Monday on, and two with ``weekend`` of their demand."""
    hours = np.asarray(day, dtype=np.float64)
    return np.concatenate([hours] * WEEKDAYS + [hours * weekend] * (DAYS_PER_WEEK - WEEKDAYS))


def given_shape(spec: PlanSpec) -> np.ndarray | None:
    """The load profile that was given, with its weekends; None where there is none.

    Raises RoofcastError: it contradicts the peak over the mean that was given: an hour cannot be busier than the peak.
    """
    if not spec.load_profile:
        return None
    shape = np.array(spec.load_profile)
    if spec.weekend is not None:
        shape = week_of(shape, weekend=spec.weekend)
    found = peak_over_mean(shape)
    if spec.peak_to_mean is not None and found > spec.peak_to_mean * (1 + _SAME):
        raise contradiction(
            f"its busiest hour is {found:.3g} times its mean, more than `peak_to_mean` {spec.peak_to_mean:g} allows",
            field=Option("load_profile"),
            hint="leave `peak_to_mean` out: `rate_per_s` is then the peak",
        )
    return shape


def load_shape(spec: PlanSpec) -> tuple[np.ndarray, Note]:
    """Demand by hour over its peak, of a day or a week, and where the shape comes from.

    Without a profile the assumed day has the peak over the mean that was given, and is flat without one, so that rented
    hours, served tokens and energy belong to one load.

    Raises RoofcastError: the profile or the weekend contradicts the peak over the mean that was given.
    """
    shape = given_shape(spec)
    if shape is not None:
        return shape / shape.max(), Note("given")
    weekend = 1.0 if spec.weekend is None else spec.weekend
    day, source = _assumed_day(spec, busy=(WEEKDAYS + (DAYS_PER_WEEK - WEEKDAYS) * weekend) / DAYS_PER_WEEK)
    if spec.weekend is None:
        return np.array(day), source
    return week_of(day, weekend=weekend), Note("with_weekends", {"day": source, "weekend": weekend})


def _assumed_day(spec: PlanSpec, *, busy: float) -> tuple[tuple[float, ...], Note]:
    """A weekday, and where it comes from; ``busy`` is the mean day over a weekday."""
    if spec.peak_to_mean is None:
        return (1.0,) * HOURS_PER_DAY, Note("flat_day")
    mean = 1 / (spec.peak_to_mean * busy)
    if mean > 1 + _SAME:
        raise contradiction(
            f"the week's peak is at least {1 / busy:.3g} times its mean, `peak_to_mean` is {spec.peak_to_mean:g}",
            field=Option("weekend"),
            hint="leave `peak_to_mean` out: `rate_per_s` is then the peak",
        )
    shown = 1 / (_NARROWEST * busy) if mean < _NARROWEST else 0.0
    source = Note("raised_cosine", {"peak_to_mean": spec.peak_to_mean, "bursts": mean < _NARROWEST, "shown": shown})
    return day_profile(min(1.0, max(mean, _NARROWEST))), source
