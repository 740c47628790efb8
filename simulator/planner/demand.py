"""From flags, a workload file or a trace to the rate and the lengths that accelerators must serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulator.engine.lengths import LengthDistribution, RequestMix
from simulator.engine.steady_state import LatencyMetric
from simulator.errors import RoofcastError
from simulator.planner.records import Assumption, Demand, Objective
from simulator.specs.plan import PlanSpec
from simulator.units import KILO, bound_text, percent_text, plain_text

if TYPE_CHECKING:
    from simulator.engine.recorded.trace_files import TraceSummary

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
    from simulator.planner.load_shape import given_shape, peak_over_mean

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
    from simulator.engine.recorded.trace_files import read_trace, summarise
    from simulator.planner.trace_notes import burstiness_note, left_out, measured_trace, prefix_note

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
