"""Can this replica serve at all, and how much: memory, context length and objectives, each refusal with its amount."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.lane import lanes
from simulator.engine.lengths import Array, RequestMix
from simulator.engine.load_curve import (
    LoadCurve,
    Saturation,
    SlotLimit,
    kv_tokens_for_one,
    saturation,
)
from simulator.engine.steady_state import LatencyMetric, SteadyState, rows_of, steady_state
from simulator.errors import RoofcastError
from simulator.phases.deployment import deploy
from simulator.phases.memory import MemoryPlan, memory_plan
from simulator.phases.step import StepEstimate
from simulator.planner.candidates import Candidate
from simulator.planner.records import Latencies, Objective, Rejection, Replica
from simulator.planner.replica_curve import replica_curve
from simulator.specs.model import ModelSpec
from simulator.units import GIGA

# An idle replica is asked at this share of its saturation rate: no queue, one request at a time.
UNLOADED_SHARE = 0.001
_SEARCH_POINTS = 16
_SEARCH_ROUNDS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How far a replica may be loaded."""

    utilization: float
    profiles: str | None = None
    max_quality_loss: float | None = None


def _refuse(candidate: Candidate, *, code: str, message: str, excess: float) -> Rejection:
    return Rejection(
        hardware=candidate.platform.hardware.name, label=candidate.label, code=code, message=message, excess=excess
    )


def _quality_refusal(candidate: Candidate, *, model: ModelSpec, allowed: float) -> Rejection | None:
    # Published figures are read only where a floor asks for them.
    from simulator.planner.format_quality import answer_quality

    quality = answer_quality(model, candidate.precision, candidate.techniques)
    if quality.within(allowed):
        return None
    lost = "an unknown part" if quality.loss is None else f"{quality.loss:.2%}"
    message = f"answers lose {lost}, above {allowed:.2%}: {quality.note}"
    excess = float("inf") if quality.loss is None else quality.loss - allowed
    return _refuse(candidate, code="quality", message=message, excess=excess)


def _memory_refusal(candidate: Candidate, memory: MemoryPlan) -> Rejection | None:
    if memory.shortfall_bytes > 0:
        message = (
            f"does not fit by {memory.shortfall_bytes / GIGA:.1f} GB per device: weights "
            f"{memory.weights_bytes / GIGA:.1f} GB of a budget of {memory.budget_bytes / GIGA:.1f} GB"
        )
        excess = memory.shortfall_bytes / memory.budget_bytes
        return _refuse(candidate, code="memory", message=message, excess=excess)
    return None


def _slot_refusal(candidate: Candidate, memory: MemoryPlan, *, curve: LoadCurve) -> Rejection | None:
    """A lane that cannot run one sequence: its token budget or its share of the cache is too small."""
    if curve.slots > 0:
        return None
    limits, stages = curve.limits, candidate.parallelism.pp_size
    if curve.limit is SlotLimit.TOKEN_BUDGET:
        message = (
            f"a token budget of {limits.batched_tokens} per step is 1 too small: 2 are the least, "
            "one for a decoding sequence and one for a prompt"
        )
        return _refuse(candidate, code="token_budget", message=message, excess=1 / limits.batched_tokens)
    needed = kv_tokens_for_one(curve.mix, limits=limits)
    short_bytes = (needed - limits.kv_tokens) * stages * memory.kv_bytes_per_token
    share = f"KV cache of {memory.kv_capacity_tokens} tokens"
    if stages > 1:
        share += f" leaves {limits.kv_tokens:.0f} to each of {stages} pipeline lanes, which"
    message = (
        f"{share} does not hold one request: {curve.mix.decode_context_tokens:.0f} tokens on average, "
        f"{needed:.0f} with two standard deviations ({short_bytes / GIGA:.3g} GB per device short)"
    )
    return _refuse(candidate, code="slots", message=message, excess=short_bytes / memory.budget_bytes)


def check_context(model: ModelSpec, *, mix: RequestMix, max_model_len: int | None) -> None:
    """Refuse requests that the model cannot take on any hardware."""
    positions = model.max_position_embeddings
    if max_model_len is not None and positions is not None and max_model_len > positions:
        raise RoofcastError(
            f"{max_model_len} is more than {model.name} has positions; allowed: 1 to {positions}",
            field="--max-model-len",
            code="context_too_long",
        )
    tokens = mix.isl.mean_tokens + mix.osl.mean_tokens
    limit = max_model_len or positions
    if limit is not None and tokens > limit:
        raise RoofcastError(
            f"a mean request of {tokens:.0f} tokens is longer than the {limit} positions of {model.name}",
            field="--isl",
            code="context_too_long",
            hint="shorten --isl and --osl, or plan for a model with a longer context",
        )


def _latencies(
    state: SteadyState, index: int, *, objectives: tuple[Objective, ...], saturation_per_s: float, count: int
) -> Latencies:
    def at(metric: LatencyMetric, percentile: float) -> float:
        return float(state.percentile_s(metric, percentile)[index])

    return Latencies(
        rate_per_s=float(state.rates_per_s[index]) * count,
        mean_sequences=float(state.mean_sequences[index]) * count,
        ttft_mean_s=float(state.ttft_mean_s[index]),
        tpot_mean_s=float(state.tpot_mean_s[index]),
        e2e_mean_s=float(state.e2e_mean_s[index]),
        ttft_p95_s=at(LatencyMetric.TTFT, 95.0),
        tpot_p95_s=at(LatencyMetric.TPOT, 95.0),
        e2e_p95_s=at(LatencyMetric.E2E, 95.0),
        objectives_s=tuple(at(item.metric, item.percentile) for item in objectives),
        kv_utilization=float(state.kv_utilization[index]),
        prompt_share=float(state.prompt_share[index]),
        slot_wait_probability=float(state.slot_wait_probability[index]),
        load=float(state.rates_per_s[index] / saturation_per_s),
    )


def _excess(state: SteadyState, objectives: tuple[Objective, ...]) -> Array:
    """Measured over bound, per objective and rate [objectives, rates]; at most 1 where it holds."""
    return np.array([state.percentile_s(item.metric, item.percentile) / item.bound_s for item in objectives])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Capacity:
    """``state`` holds two rates: of an idle replica and the capacity."""

    rate_per_s: float
    binding: int | None
    state: SteadyState


def _highest_rate(curve: LoadCurve, ends: SteadyState, *, objectives: tuple[Objective, ...]) -> _Capacity:
    """Largest rate between two ends up to which every objective holds, and the one that fails next.

    The first end holds and the second does not. Two rounds of evenly spaced rates; the answer was seen to hold.
    """
    low, high = (float(rate) for rate in ends.rates_per_s)
    binding, holds = 0, (ends, 0)
    for _ in range(_SEARCH_ROUNDS):
        rates = np.linspace(low, high, _SEARCH_POINTS)
        state = steady_state(curve, rates_per_s=rates)
        excess = _excess(state, objectives)
        first = max(1, int(np.argmax((excess > 1).any(axis=0))))
        binding, holds = int(np.argmax(excess[:, first])), (state, first - 1)
        low, high = float(rates[first - 1]), float(rates[first])
    return _Capacity(rate_per_s=low, binding=binding, state=rows_of((ends, 0), holds))


def _capacity(
    curve: LoadCurve, limit: Saturation, *, objectives: tuple[Objective, ...], policy: Policy
) -> _Capacity | tuple[Objective, float]:
    """Rate of one lane within the objectives and the target utilisation, or the objective that even idling misses."""
    ends = np.array([UNLOADED_SHARE, policy.utilization]) * limit.rate_per_s
    state = steady_state(curve, rates_per_s=ends)
    if not objectives:
        return _Capacity(rate_per_s=float(ends[1]), binding=None, state=state)
    excess = _excess(state, objectives)
    if (excess[:, 0] > 1).any():
        worst = int(np.argmax(excess[:, 0]))
        return objectives[worst], float(excess[worst, 0])
    if (excess[:, 1] <= 1).all():
        return _Capacity(rate_per_s=float(ends[1]), binding=None, state=state)
    return _highest_rate(curve, state, objectives=objectives)


def lane_latencies(
    state: SteadyState, *, objectives: tuple[Objective, ...], saturation_per_s: float, count: int = 1
) -> tuple[Latencies, ...]:
    """Latencies of ``count`` equal lanes at each rate of one lane's state; rates and sequences are of all of them."""
    return tuple(
        _latencies(state, index, objectives=objectives, saturation_per_s=saturation_per_s, count=count)
        for index in range(len(state.rates_per_s))
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A replica that can serve, with what later questions about it are answered from.

    curve, steps : of one lane, and the priced steps that it was made of
    """

    candidate: Candidate
    replica: Replica
    curve: LoadCurve
    steps: StepEstimate

    def latencies(self, *rates_per_s: float, objectives: tuple[Objective, ...]) -> tuple[Latencies, ...]:
        """At each arrival rate of the whole replica [1/s]."""
        count = lanes(self.replica.deployment)
        return lane_latencies(
            steady_state(self.curve, rates_per_s=np.array(rates_per_s) / count),
            objectives=objectives,
            saturation_per_s=self.replica.saturation_per_s / count,
            count=count,
        )


def evaluate(
    candidate: Candidate, *, model: ModelSpec, mix: RequestMix, objectives: tuple[Objective, ...], policy: Policy
) -> Evaluated | Rejection:
    """What one replica sustains, or why it cannot serve."""
    if policy.max_quality_loss is not None:
        below = _quality_refusal(candidate, model=model, allowed=policy.max_quality_loss)
        if below:
            return below
    try:
        deployment = deploy(
            model=model,
            hardware=candidate.platform.hardware,
            parallelism=candidate.parallelism,
            precision=candidate.precision,
            techniques=candidate.techniques,
            engine=candidate.engine,
            profiles=policy.profiles,
        )
    except RoofcastError as error:
        return _refuse(candidate, code=error.code, message=error.message, excess=float("inf"))
    memory = memory_plan(deployment)
    refusal = _memory_refusal(candidate, memory)
    if refusal:
        return refusal
    try:
        curve, steps = replica_curve(deployment, memory=memory, mix=mix)
    except RoofcastError as error:
        return _refuse(candidate, code=error.code, message=error.message, excess=float("inf"))
    refusal = _slot_refusal(candidate, memory, curve=curve)
    if refusal:
        return refusal
    limit = saturation(curve)
    capacity = _capacity(curve, limit, objectives=objectives, policy=policy)
    if isinstance(capacity, tuple):
        missed, excess = capacity
        message = f"{missed.name} of an idle replica is {excess * missed.bound_s:.4g} s, above {missed.bound_s:g} s"
        return _refuse(candidate, code="objective", message=message, excess=excess - 1)
    count = lanes(deployment)
    unloaded, at_capacity = lane_latencies(
        capacity.state, objectives=objectives, saturation_per_s=limit.rate_per_s, count=count
    )
    replica = Replica(
        deployment=deployment,
        memory=memory,
        slots=curve.slots * count,
        slot_limit=limit.limit,
        saturated_sequences=limit.sequences * count,
        saturation_per_s=limit.rate_per_s * count,
        capacity_per_s=capacity.rate_per_s * count,
        utilization=capacity.rate_per_s / limit.rate_per_s,
        binding=capacity.binding,
        unloaded=unloaded,
        at_capacity=at_capacity,
    )
    return Evaluated(candidate=candidate, replica=replica, curve=curve, steps=steps)
