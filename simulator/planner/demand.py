"""From flags, a workload file or a trace to the rate and the lengths that accelerators must serve.

How demand is spread over the hours of a day or a week, and what that says of its mean and its peak.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from simulator.engine.lanes.steady_state import LatencyMetric
from simulator.errors import RoofcastError
from simulator.planner.records import Assumption, Demand, Objective
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import DAYS_PER_WEEK, HOURS_PER_DAY, WEEKDAYS
from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.units import KILO, bound_text, percent_text, plain_text

if TYPE_CHECKING:
    from simulator.traffic.recorded.traces import TraceSummary


# A raised cosine with its peak in the early afternoon and nights at two fifths of it. Assumed, not measured: chat
# services of one region look like this, global ones are flatter; --load-profile gives your own.
_PEAK_HOUR = 14
_TROUGH = 0.4
PROFILE_SOURCE = "default, assumed: raised cosine over the day, night at 40 % of the peak"
_STEPS = 60
# Rounding of numbers that people type, not a difference of two loads.
_SAME = 0.01
# Of a day's hours that carry its demand in the narrowest one: beyond that, a peak is no hour of the day.
_NARROWEST = 1 / 12


def _raised_cosine(power: float = 1.0) -> np.ndarray:
    """Between 0 and 1 by hour, its peak at 1; a higher power makes the busy hours fewer."""
    hours = np.array([(1 + cos(2 * pi * (hour - _PEAK_HOUR) / HOURS_PER_DAY)) / 2 for hour in range(HOURS_PER_DAY)])
    raised: np.ndarray = hours**power
    return raised


def default_profile(mean: float = (1 + _TROUGH) / 2) -> tuple[float, ...]:
    """A day whose mean is that share of its peak: a higher night down to half, a narrower peak below.

    Raises
    ------
    ValueError
        The mean is not above one hour's share of a day, or above the peak.
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

    Raises
    ------
    RoofcastError
        It contradicts the peak over the mean that was given: an hour cannot be busier than the peak.
    """
    if not spec.load_profile:
        return None
    shape = np.array(spec.load_profile)
    if spec.weekend is not None:
        shape = week_of(shape, weekend=spec.weekend)
    found = peak_over_mean(shape)
    if spec.peak_to_mean is not None and found > spec.peak_to_mean * (1 + _SAME):
        raise RoofcastError(
            f"its busiest hour is {found:.3g} times its mean, more than --peak-to-mean {spec.peak_to_mean:g} allows",
            field="--load-profile",
            code="contradiction",
            hint="leave --peak-to-mean out: --rps is then the peak",
        )
    return shape


def load_shape(spec: PlanSpec) -> tuple[np.ndarray, str]:
    """Demand by hour over its peak, of a day or a week, and where the shape comes from.

    Without a profile the assumed day has the peak over the mean that was given, so that rented hours and served tokens
    belong to one load.

    Raises
    ------
    RoofcastError
        The profile or the weekend contradicts the peak over the mean that was given.
    """
    shape = given_shape(spec)
    if shape is not None:
        return shape / shape.max(), "given"
    weekend = 1.0 if spec.weekend is None else spec.weekend
    day, source = _assumed_day(spec, busy=(WEEKDAYS + (DAYS_PER_WEEK - WEEKDAYS) * weekend) / DAYS_PER_WEEK)
    if spec.weekend is None:
        return np.array(day), source
    return week_of(day, weekend=weekend), f"{source}; weekends at {percent_text(weekend)} of weekdays"


def _assumed_day(spec: PlanSpec, *, busy: float) -> tuple[tuple[float, ...], str]:
    """A weekday, and where it comes from; ``busy`` is the mean day over a weekday."""
    if spec.peak_to_mean is None:
        return default_profile(), PROFILE_SOURCE
    mean = 1 / (spec.peak_to_mean * busy)
    if mean > 1 + _SAME:
        raise RoofcastError(
            f"the week's peak is at least {1 / busy:.3g} times its mean, --peak-to-mean is {spec.peak_to_mean:g}",
            field="--weekend",
            code="contradiction",
            hint="leave --peak-to-mean out: --rps is then the peak",
        )
    source = f"assumed: raised cosine over the day with the given peak over mean of {spec.peak_to_mean:g}"
    if mean < _NARROWEST:
        source += f", of which a day shows {1 / (_NARROWEST * busy):.3g} at most: the rest is in bursts"
    return default_profile(min(1.0, max(mean, _NARROWEST))), source


# Means and coefficients of variation over the 19,366 requests of AzureLLMInferenceTrace2023_conv.csv [Patel2024a].
CHAT_ISL = LengthDistribution(mean_tokens=1155.0, cv=0.96)
CHAT_OSL = LengthDistribution(mean_tokens=211.0, cv=0.77)
CHAT_SOURCE = "default: mean of the Azure 2023 conversation trace"
# MLPerf Inference, llama2-70b, Server scenario: p99 TTFT 2 s and p99 TPOT 200 ms [MLPerf2024]. Held at p95 here.
DEFAULT_OBJECTIVES = (
    Objective(metric=LatencyMetric.TTFT, percentile=95.0, bound_s=2.0),
    Objective(metric=LatencyMetric.TPOT, percentile=95.0, bound_s=0.2),
)
OBJECTIVE_SOURCE = "default: bounds of MLPerf Inference llama2-70b Server, at p95"
# What a trace says about the shape of a demand; where one of these is given, it is no longer the trace's.
_SHAPED_BY = ("isl", "osl", "isl_cv", "osl_cv", "prefix_hit", "arrival_cv", "peak_to_mean")


def replays_trace(spec: PlanSpec) -> bool:
    """Whether the demand is a trace as it was recorded, at whatever rate."""
    return spec.trace is not None and all(getattr(spec, name) is None for name in _SHAPED_BY)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sourced:
    """A number and where it came from."""

    value: float
    source: str


def _first(*options: tuple[float | None, str]) -> _Sourced:
    for value, source in options:
        if value is not None:
            return _Sourced(value=float(value), source=source)
    raise AssertionError("the last option is a default")


def _rate(spec: PlanSpec, trace: TraceSummary | None) -> _Sourced:
    if spec.rps is None and trace is None:
        raise RoofcastError(
            "a request rate is needed",
            field="--rps",
            code="missing",
            hint="--rps 1000, or --trace FILE for its own rate",
        )
    return _first((spec.rps, "given"), (trace.mean_rate_per_s if trace else None, "trace"))


def _of_profile(spec: PlanSpec, rate: _Sourced) -> tuple[_Sourced, _Sourced | None]:
    """The mean under the given peak and the peak over it, where the hours of a day or a week are given as well."""
    if not spec.load_profile or spec.rps is None or spec.peak_to_mean is not None or spec.trace is not None:
        return rate, None

    shape = given_shape(spec)
    found = peak_over_mean(shape) if shape is not None else 1.0
    peak = plain_text(rate.value)
    mean = _Sourced(value=rate.value / found, source=f"mean of --load-profile under the given peak of {peak}")
    return mean, _Sourced(value=found, source="--load-profile")


def _trace_name(trace: TraceSummary) -> str:
    return f"trace {trace.source} ({trace.requests} requests in {trace.duration_s:.0f} s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traced:
    """A trace in numbers, and what to say beside the defaults that stand for the rest of it."""

    summary: TraceSummary | None = None
    prefix_note: str = ""
    burstiness_note: str = ""
    warnings: tuple[str, ...] = ()


def _read_trace(spec: PlanSpec) -> _Traced:
    if not spec.trace:
        return _Traced()
    from simulator.planner.trace_notes import burstiness_note, left_out, measured_trace, prefix_note
    from simulator.traffic.recorded.traces import read_trace, summarise

    trace = read_trace(spec.trace)
    found = measured_trace(trace)
    return _Traced(
        summary=summarise(trace),
        prefix_note=prefix_note(found),
        burstiness_note=burstiness_note(found),
        warnings=(*trace.warnings, *left_out(spec, found)),
    )


def read_demand(spec: PlanSpec) -> Demand:
    """Demand of a plan. Every value that was not given is listed with its source.

    Raises
    ------
    RoofcastError
        No rate is given, or the trace is malformed.
    """
    read = _read_trace(spec)
    trace = read.summary
    traced = _trace_name(trace) if trace else ""
    rate, hourly = _of_profile(spec, _rate(spec, trace))
    peak = hourly or _first(
        (spec.peak_to_mean, "given"),
        (trace.peak_to_mean if trace else None, f"busiest minute over mean of the {traced}"),
        (1.0, "default: --rps is taken as the peak; --peak-to-mean plans above a mean"),
    )
    isl = _first((spec.isl, "given"), (trace.isl.mean if trace else None, traced), (CHAT_ISL.mean_tokens, CHAT_SOURCE))
    osl = _first((spec.osl, "given"), (trace.osl.mean if trace else None, traced), (CHAT_OSL.mean_tokens, CHAT_SOURCE))
    isl_cv = _first((spec.isl_cv, "given"), (trace.isl.cv if trace else None, traced), (CHAT_ISL.cv, CHAT_SOURCE))
    osl_cv = _first((spec.osl_cv, "given"), (trace.osl.cv if trace else None, traced), (CHAT_OSL.cv, CHAT_SOURCE))
    prefix = _first((spec.prefix_hit, "given"), (0.0, f"default: every prompt is new{read.prefix_note}"))
    arrival_cv = _first((spec.arrival_cv, "given"), (1.0, f"default: Poisson arrivals{read.burstiness_note}"))
    mix = RequestMix(
        isl=LengthDistribution(mean_tokens=isl.value, cv=isl_cv.value),
        osl=LengthDistribution(mean_tokens=osl.value, cv=osl_cv.value),
        prefix_hit_fraction=prefix.value,
        arrival_cv=arrival_cv.value,
    )
    assumptions = (
        Assumption(name="request rate", value=f"{plain_text(rate.value, digits=6)} requests/s", source=rate.source),
        Assumption(name="peak over mean", value=f"{peak.value:.3g}", source=peak.source),
        Assumption(name="answered from cache", value=percent_text(spec.cache_hit), source=_given(spec, "cache_hit")),
        Assumption(name="prompt length", value=_length(isl, isl_cv), source=_lengths_source(isl, isl_cv)),
        Assumption(name="answer length", value=_length(osl, osl_cv), source=_lengths_source(osl, osl_cv)),
        Assumption(name="prompt tokens in prefix cache", value=percent_text(prefix.value), source=prefix.source),
        Assumption(name="burstiness of arrivals (cv)", value=f"{arrival_cv.value:g}", source=arrival_cv.source),
        Assumption(name="headroom for growth", value=percent_text(spec.headroom), source=_given(spec, "headroom")),
    )
    return Demand(
        mean_rate_per_s=rate.value,
        peak_to_mean=peak.value,
        cache_hit_fraction=spec.cache_hit,
        headroom_fraction=spec.headroom,
        mix=mix,
        assumptions=assumptions,
        warnings=read.warnings,
    )


def _given(spec: PlanSpec, field: str) -> str:
    return "given" if field in spec.model_fields_set else "default"


def _length(mean: _Sourced, cv: _Sourced) -> str:
    digits = 0 if mean.value >= KILO else 1
    shown = f"{mean.value:,.{digits}f}".removesuffix(".0")
    return f"{shown} tokens on average, cv {cv.value:.2f}" + (", log-normal" if cv.value > 0 else "")


def _lengths_source(mean: _Sourced, cv: _Sourced) -> str:
    return mean.source if mean.source == cv.source else f"mean {mean.source}; cv {cv.source}"


def read_objectives(spec: PlanSpec) -> tuple[tuple[Objective, ...], Assumption]:
    """The latencies to hold, and where they came from."""
    given = tuple(
        Objective(metric=LatencyMetric(item.metric), percentile=item.percentile, bound_s=item.bound_s)
        for item in spec.objectives
    )
    objectives = given or DEFAULT_OBJECTIVES
    shown = ", ".join(f"{item.name} <= {bound_text(item.bound_s)}" for item in objectives)
    return objectives, Assumption(name="objectives", value=shown, source="given" if given else OBJECTIVE_SOURCE)
