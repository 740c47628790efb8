"""From flags, a workload file or a trace to the rate, the lengths and the hours that accelerators must serve."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, inf, log2
from typing import TYPE_CHECKING

from simulator.errors import InfeasibleError, Option, RoofcastError, contradiction, no_effect
from simulator.planner.records import Demand, LengthOrigins, TraceName
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note, ValueOrigin
from simulator.specs.engine.engine import load_engine, named_engine
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import LatencyMetric, ObjectiveSpec
from simulator.traffic.lengths import Array, LengthDistribution, RequestMix, normal_points
from simulator.traffic.workload_presets import CHAT, WorkloadPreset, kind_by_lengths, kinds_of_demand, workload_preset
from simulator.units import percent_text

if TYPE_CHECKING:
    from simulator.traffic.recorded.demand import RecordedDemand


# From here on bursts that are left out move a plan: worth a warning, not only a word among assumptions. Assumed.
_NOTABLE_DISPERSION = 1.5


# What a trace says about the shape of a demand; where one of these is given, it is no longer the trace's.
_SHAPED_BY = ("isl_tokens", "osl_tokens", "isl_cv", "osl_cv", "prefix_hit", "arrival_cv", "peak_to_mean")


def replays_trace(spec: PlanSpec) -> bool:
    """Whether the demand is a trace as it was recorded, at whatever rate."""
    return spec.trace is not None and all(getattr(spec, name) is None for name in _SHAPED_BY)


_DRAWN = 1024
"""Requests that are drawn to find those which an engine refuses."""


def whole_tokens(mix: RequestMix, *, reserves_full_length: bool) -> Array:
    """Tokens of drawn requests that a step must hold where the engine splits no prompt. Who may be preempted is
    computed again with its answer so far (``refusals``)."""
    prompts, answers = (lengths.at(at) for lengths, at in zip((mix.isl, mix.osl), normal_points(_DRAWN), strict=False))
    return prompts if reserves_full_length else prompts + answers


HOLDS_ALL = Note("holds_longest")


def step_for_whole(spec: PlanSpec, *, mix: RequestMix, objectives: tuple[ObjectiveSpec, ...]) -> tuple[int, int | None]:
    """Fewest tokens of a step that hold every request of an engine which splits no prompt, 0 of others, and the budget
    to start it with where its own steps are shorter.

    Raises InfeasibleError: the steps that are asked for leave more requests unanswered than an objective allows.
    """
    engine = load_engine(named_engine(spec.engine).name, profiles=spec.profiles)
    if engine.chunked_prefill:
        return 0, None
    whole, given = whole_tokens(mix, reserves_full_length=engine.reserves_full_length), spec.max_num_batched_tokens
    least = 2 ** ceil(log2(whole.max()))
    strictest = max(objectives, key=lambda item: item.percentile)
    refused, allowed = float((whole > (given or least)).mean()), 1 - strictest.percentile / 100
    if refused > allowed:
        raise InfeasibleError(
            f"steps of {given} tokens are too short for {percent_text(refused)} of the requests: {engine.name} splits "
            f"no prompt and refuses them, and {strictest.name} leaves {percent_text(allowed)}",
            field=Option("max_num_batched_tokens"),
            hint=f"`max_num_batched_tokens` {least} answers all; an engine that splits prompts needs none",
        ).offering({"max_num_batched_tokens": least})
    return least, None if given or engine.max_num_batched_tokens >= whole.max() else least


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sourced:
    """A number and where it came from."""

    value: float
    origin: ValueOrigin
    detail: object = None

    def of(self, key: str) -> Assumption:
        """The assumption of this number for a field of the question."""
        return Assumption(key=key, value=self.value, origin=self.origin, detail=self.detail)


def _first(*options: tuple[float | None, ValueOrigin, object]) -> _Sourced:
    for value, origin, detail in options:
        if value is not None:
            return _Sourced(value=float(value), origin=origin, detail=detail)
    raise AssertionError("the last option is a default")


def _rate(spec: PlanSpec, trace: RecordedDemand | None) -> _Sourced:
    if spec.rate_per_s is None and trace is None:
        raise RoofcastError(
            "a request rate is needed",
            field=Option("rate_per_s"),
            code="missing",
            hint="`rate_per_s` 1000, or `trace` FILE for its own rate",
        ).offering({"rate_per_s": 1000})
    return _first(
        (spec.rate_per_s, ValueOrigin.GIVEN, None), (trace.rate_per_s if trace else None, ValueOrigin.TRACE, None)
    )


def _of_profile(spec: PlanSpec, rate: _Sourced) -> tuple[_Sourced, _Sourced | None]:
    """The mean under the given peak and the peak over it, where the hours of a day or a week are given as well."""
    hours = spec.load_profile or spec.weekend is not None
    if not hours or spec.rate_per_s is None or spec.peak_to_mean is not None or spec.trace is not None:
        return rate, None
    # Hours are given for few demands.
    from simulator.planner.load_profile import load_shape, peak_over_mean

    found = peak_over_mean(load_shape(spec)[0])
    mean = _Sourced(value=rate.value / found, origin=ValueOrigin.RULE, detail=rate.value)
    return mean, _Sourced(value=found, origin=ValueOrigin.RULE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traced:
    """A trace in numbers, and what it says beside the defaults that stand for the rest of it."""

    found: RecordedDemand | None = None
    arrival_cv: Note | None = None
    warnings: tuple[Note, ...] = ()
    cache_tokens: float | None = None

    @property
    def name(self) -> TraceName | None:
        """Which recording it is."""
        own = self.found
        return None if own is None else TraceName(source=own.source, requests=own.requests, duration_s=own.duration_s)

    @property
    def name_of_hits(self) -> TraceName | None:
        """The trace's name with the cache that its prompts were looked up in."""
        return None if self.name is None else replace(self.name, cache_tokens=self.cache_tokens)


def _left_out(spec: PlanSpec, dispersion: float | None) -> tuple[Note, ...]:
    """Where the trace's own bursts would move the plan of a few replicas, and nothing was given for them."""
    if spec.arrival_cv is not None or dispersion is None or dispersion < _NOTABLE_DISPERSION:
        return ()
    from simulator.traffic.recorded.demand import burst_note

    return (burst_note("bursts_left_out", dispersion),)


def _check_reuse(spec: PlanSpec, *, known: bool) -> None:
    """Tiers are filled by prompts that come again as they did, which a replay needs to know."""
    given = [f"`{name}`" for name in _SHAPED_BY if getattr(spec, name) is not None]
    if given:
        left_out = f"hits come from a replay of the trace, which {' and '.join(given)} would replace"
        raise contradiction(left_out, field=Option("kv_tiers"), hint="leave out one or the other")
    if not known:
        raise no_effect(
            f"{spec.trace} does not tell which prompts begin alike",
            field=Option("kv_tiers"),
            hint="a trace with hash_ids, or leave the tiers out",
        )


def _read_trace(spec: PlanSpec, *, below_tokens: float) -> _Traced:
    if not spec.trace:
        return _Traced()
    from simulator.traffic.recorded.demand import burst_note, measured_demand
    from simulator.traffic.recorded.importers import trace_hits
    from simulator.traffic.recorded.traces import read_trace
    from simulator.traffic.requests import CACHE_TOKENS

    trace = read_trace(spec.trace)
    trace.check_rate_is_its_own("trace")
    if spec.kv_tiers:
        _check_reuse(spec, known=trace.hashes is not None)
    cache_tokens = CACHE_TOKENS + below_tokens
    found = measured_demand(trace, tool="trace", prefix_hit=trace_hits(trace, cache_tokens=cache_tokens))
    return _Traced(
        cache_tokens=cache_tokens,
        found=found,
        arrival_cv=Note("trace_too_short") if found.dispersion is None else burst_note("bursts", found.dispersion),
        warnings=(*trace.warnings, *_left_out(spec, found.dispersion)),
    )


def read_demand(
    spec: PlanSpec, *, context_tokens: float = inf, encodes: bool = False, below_tokens: float = 0.0
) -> Demand:
    """Demand of a plan, in requests that fit a context. Every value that was not given is listed with its source.

    encodes : the model generates nothing, so that what is not given is that of embeddings
    below_tokens : of a trace's prompts that tiers below the device keep [tokens]

    Raises RoofcastError: no rate is given, or the trace is malformed.
    """
    read = _read_trace(spec, below_tokens=below_tokens)
    trace = read.found
    rate, hourly = _of_profile(spec, _rate(spec, trace))
    peak = hourly or _first(
        (spec.peak_to_mean, ValueOrigin.GIVEN, None),
        (trace.peak_to_mean if trace else None, ValueOrigin.MEASURED, read.name),
        (1.0, ValueOrigin.DEFAULT, None),
    )
    isl, osl = _lengths(spec, read, encodes=encodes)
    named = None if spec.workload is None else workload_preset(spec.workload)
    prefix = _first(
        (spec.prefix_hit, ValueOrigin.GIVEN, None),
        (trace.prefix_hit if trace else None, ValueOrigin.MEASURED, read.name_of_hits),
        (named.prefix_hit if named else 0.0, ValueOrigin.DEFAULT, named),
    )
    arrival_cv = _first((spec.arrival_cv, ValueOrigin.GIVEN, None), (1.0, ValueOrigin.DEFAULT, read.arrival_cv))
    mix = RequestMix(isl=isl.lengths, osl=osl.lengths, prefix_hit_fraction=prefix.value, arrival_cv=arrival_cv.value)
    mix = mix.answered(spec.answers_per_request).within(context_tokens)
    answers = Assumption(key="answers_per_request", value=spec.answers_per_request, origin=ValueOrigin.GIVEN)
    assumptions = (
        rate.of("rate_per_s"),
        peak.of("peak_to_mean"),
        Assumption(key="cache_hit", value=spec.cache_hit, origin=_given(spec, "cache_hit")),
        isl.assumption(mix.isl),
        osl.assumption(mix.osl),
        prefix.of("prefix_hit"),
        arrival_cv.of("arrival_cv"),
        Assumption(key="headroom", value=spec.headroom, origin=_given(spec, "headroom")),
        *((answers,) if spec.answers_per_request > 1 else ()),
    )
    return Demand(
        mean_rate_per_s=rate.value * spec.answers_per_request,
        peak_to_mean=peak.value,
        cache_hit_fraction=spec.cache_hit,
        headroom_fraction=spec.headroom,
        mix=mix,
        assumptions=assumptions,
        warnings=read.warnings,
        answers_per_request=spec.answers_per_request,
    )


def _given(spec: PlanSpec, field: str) -> ValueOrigin:
    return ValueOrigin.GIVEN if field in spec.model_fields_set else ValueOrigin.DEFAULT


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lengths:
    """Lengths of prompts or answers, and where they come from."""

    key: str
    lengths: LengthDistribution
    origins: LengthOrigins

    def assumption(self, lengths: LengthDistribution) -> Assumption:
        """The assumption that requests have ``lengths``, once they end at the context."""
        found = self.origins
        origin = found.mean if found.mean is found.cv else ValueOrigin.GIVEN
        return Assumption(key=self.key, value=lengths, origin=origin, detail=found)


def _lengths(spec: PlanSpec, read: _Traced, *, encodes: bool) -> tuple[_Lengths, _Lengths]:
    """Lengths of prompts and of answers. Means that are not given are those of the kind of demand. How much lengths
    vary follows what is served: of the kind that was named, or of the one whose means are nearest to these."""
    trace = read.found
    workload, nearest = kinds_of_demand(
        spec.workload,
        isl_tokens=spec.isl_tokens or (trace.isl.mean if trace else None),
        osl_tokens=spec.osl_tokens or (trace.osl.mean if trace else None),
        encodes=encodes,
    )
    isl_mean, osl_mean, isl_cv, osl_cv = (
        _first((given, ValueOrigin.GIVEN, None), (own, ValueOrigin.TRACE, None), (usual, ValueOrigin.DEFAULT, None))
        for given, own, usual in (
            (spec.isl_tokens, trace.isl.mean if trace else None, workload.isl_tokens),
            (spec.osl_tokens, trace.osl.mean if trace else None, workload.osl_tokens),
            (spec.isl_cv, trace.isl.cv if trace else None, nearest.isl_cv),
            (spec.osl_cv, trace.osl.cv if trace else None, nearest.osl_cv),
        )
    )
    isl, osl = (
        _Lengths(
            key=key,
            lengths=LengthDistribution(mean_tokens=mean.value, cv=cv.value),
            origins=LengthOrigins(mean=mean.origin, cv=cv.origin, trace=read.name, workload=workload, nearest=nearest),
        )
        for key, mean, cv in (("isl_tokens", isl_mean, isl_cv), ("osl_tokens", osl_mean, osl_cv))
    )
    return isl, osl


def preset_objectives(preset: WorkloadPreset) -> tuple[ObjectiveSpec, ...]:
    """The latencies that a kind of demand is served within."""
    return (
        ObjectiveSpec(metric=LatencyMetric.TTFT, percentile=95.0, bound_s=preset.ttft_p95_s),
        ObjectiveSpec(metric=LatencyMetric.TPOT, percentile=95.0, bound_s=preset.tpot_p95_s),
    )


DEFAULT_OBJECTIVES = preset_objectives(CHAT)


def read_objectives(spec: PlanSpec, *, mix: RequestMix | None = None) -> tuple[tuple[ObjectiveSpec, ...], Assumption]:
    """The latencies to hold, and where they came from: given, or of the kind of demand.

    mix : of the demand, whose mean lengths say which kind it is where none was named
    """
    if spec.objectives:
        # A bound of the whole answer bounds both; an answer of one token has no time per token.
        bounded = {item.metric for item in spec.objectives}
        needed = (LatencyMetric.TTFT, LatencyMetric.TPOT)[: 1 if mix is not None and mix.decode_steps == 0 else 2]
        free = (
            "" if LatencyMetric.E2E in bounded else " and ".join(item.upper() for item in needed if item not in bounded)
        )
        said = Note("unbounded", {"metric": free}) if free else None
        return spec.objectives, Assumption(
            key="objectives", value=spec.objectives, origin=ValueOrigin.GIVEN, detail=said
        )
    if spec.workload is not None:
        kind = workload_preset(spec.workload)
    else:
        kind = CHAT if mix is None else kind_by_lengths(mix.isl.mean_tokens, mix.osl.mean_tokens)
    found = preset_objectives(kind)
    return found, Assumption(key="objectives", value=found, origin=ValueOrigin.DEFAULT, detail=kind)
