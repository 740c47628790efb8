"""Can this replica serve at all, and how much: memory, context length and objectives, each refusal with its amount."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from simulator.engine.lane import lanes
from simulator.engine.lengths import RequestMix
from simulator.engine.load_curve import (
    LoadCurve,
    Saturation,
    SlotLimit,
    kv_tokens_for_one,
    saturation,
)
from simulator.engine.steady_state import SteadyState, steady_state
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import MemoryPlan, memory_plan
from simulator.phases.step import StepEstimate
from simulator.planner.candidates import Candidate
from simulator.planner.records import Latencies, Objective, Rejection, Replica
from simulator.planner.replica_capacity import Capacity, Missed, capacity_within, lane_latencies
from simulator.planner.replica_curve import replica_curve
from simulator.specs.model import ModelSpec
from simulator.units import GIGA, percent_text

if TYPE_CHECKING:
    from simulator.planner.pool_states import Transfer

CurveOf = Callable[[Deployment, MemoryPlan], tuple[LoadCurve, StepEstimate]]
"""A replica's load curve and the priced steps that it is made of."""


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
    lost = "an unknown part" if quality.loss is None else percent_text(quality.loss, digits=3)
    message = f"answers lose {lost}, above {percent_text(allowed, digits=3)}: {quality.note}"
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """A replica that can serve, with what later questions about it are answered from.

    curve, steps : of one lane, and the priced steps that it was made of
    prefill : the replica that computes the prompts where this one only decodes; transfer : of its KV caches
    """

    candidate: Candidate
    replica: Replica
    curve: LoadCurve
    steps: StepEstimate
    prefill: Evaluated | None = None
    transfer: Transfer | None = None

    def latencies(self, *rates_per_s: float, objectives: tuple[Objective, ...]) -> tuple[Latencies, ...]:
        """At each arrival rate of the whole replica [1/s]; a prefill pool is taken to be as loaded as this one."""
        if self.prefill is not None:
            from simulator.planner.disaggregated import pool_latencies

            share = self.prefill.replica.capacity_per_s / self.replica.capacity_per_s
            return pool_latencies(self, rates_per_s, [rate * share for rate in rates_per_s], objectives=objectives)
        count = lanes(self.replica.deployment)
        return lane_latencies(
            steady_state(self.curve, rates_per_s=np.array(rates_per_s) / count),
            objectives=objectives,
            saturation_per_s=self.replica.saturation_per_s / count,
            count=count,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A candidate that fits, with what one lane of it costs for a mix of requests."""

    candidate: Candidate
    deployment: Deployment
    memory: MemoryPlan
    curve: LoadCurve
    steps: StepEstimate


def prepare(
    candidate: Candidate, *, model: ModelSpec, mix: RequestMix, policy: Policy, curve_of: CurveOf | None = None
) -> Prepared | Rejection:
    """Deploy a candidate and price its steps, or say why it cannot hold one request.

    curve_of : its load curve, where the caller may have it already
    """
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
        curve, steps = curve_of(deployment, memory) if curve_of else replica_curve(deployment, memory=memory, mix=mix)
    except RoofcastError as error:
        return _refuse(candidate, code=error.code, message=error.message, excess=float("inf"))
    refusal = _slot_refusal(candidate, memory, curve=curve)
    return refusal or Prepared(candidate=candidate, deployment=deployment, memory=memory, curve=curve, steps=steps)


def missed_objective(candidate: Candidate, missed: Missed) -> Rejection:
    """The refusal of a candidate that misses an objective even without load."""
    item, excess = missed.objective, missed.excess
    reached = f"{item.name} of an idle replica is {excess * item.bound_s:.4g} s"
    message = f"{reached}, above {item.bound_s:g} s by a factor of {excess:.3g}"
    return _refuse(candidate, code="objective", message=message, excess=excess - 1)


def evaluate(
    candidate: Candidate,
    *,
    model: ModelSpec,
    mix: RequestMix,
    objectives: tuple[Objective, ...],
    policy: Policy,
    curve_of: CurveOf | None = None,
) -> Evaluated | Rejection:
    """What one replica sustains, or why it cannot serve; with ``candidate.prefill``, what two pools do.

    curve_of : the load curve of the replica, where the caller may have it already
    """
    if candidate.prefill is not None:
        from simulator.planner.disaggregated import evaluate_pools

        return evaluate_pools(candidate, model=model, mix=mix, objectives=objectives, policy=policy)
    found = prepare(candidate, model=model, mix=mix, policy=policy, curve_of=curve_of)
    if isinstance(found, Rejection):
        return found
    limit = saturation(found.curve)
    capacity = capacity_within(
        lambda rates: steady_state(found.curve, rates_per_s=rates),
        saturation_per_s=limit.rate_per_s,
        objectives=objectives,
        utilization=policy.utilization,
    )
    if isinstance(capacity, Missed):
        return missed_objective(candidate, capacity)
    return Evaluated(
        candidate=candidate,
        replica=replica_of(found, limit=limit, capacity=capacity, state=capacity.state, objectives=objectives),
        curve=found.curve,
        steps=found.steps,
    )


def replica_of(
    found: Prepared, *, limit: Saturation, capacity: Capacity, state: SteadyState, objectives: tuple[Objective, ...]
) -> Replica:
    """The replica of a prepared candidate; ``state`` is what its requests see idle and at capacity."""
    count = lanes(found.deployment)
    unloaded, at_capacity = lane_latencies(state, objectives=objectives, saturation_per_s=limit.rate_per_s, count=count)
    return Replica(
        deployment=found.deployment,
        memory=found.memory,
        slots=found.curve.slots * count,
        slot_limit=limit.limit,
        saturated_sequences=limit.sequences * count,
        saturation_per_s=limit.rate_per_s * count,
        capacity_per_s=capacity.rate_per_s * count,
        utilization=capacity.rate_per_s / limit.rate_per_s,
        binding=capacity.binding,
        unloaded=unloaded,
        at_capacity=at_capacity,
    )
