"""Can this replica serve at all, and how much: within its memory, its context length and its objectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from simulator.engine.lanes.load_curve import (
    LoadCurve,
    Saturation,
    lanes,
    saturation,
)
from simulator.engine.lanes.rows import lane_rows, stack
from simulator.engine.lanes.steady_state import SteadyState, steady_state, steady_states
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import MemoryPlan, memory_plan
from simulator.phases.step import StepEstimate
from simulator.planner.records import Latencies, Objective, Rejection, Replica
from simulator.planner.search.candidates import Candidate
from simulator.planner.search.refusals import memory_refusal, quality_refusal, refuse, slot_refusal
from simulator.planner.search.refusals import missed_objective as missed_objective
from simulator.planner.serving.replica_capacity import Capacity, Missed, capacities_within, lane_latencies
from simulator.planner.serving.replica_curve import replica_curves
from simulator.specs.model.architecture import ModelSpec
from simulator.traffic.lengths import RequestMix

if TYPE_CHECKING:
    from simulator.planner.serving.pool_states import Transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How far a replica may be loaded."""

    utilization: float
    profiles: str | None = None
    max_quality_loss: float | None = None


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
            from simulator.planner.serving.disaggregated import pool_latencies

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


def prepare(candidate: Candidate, *, model: ModelSpec, mix: RequestMix, policy: Policy) -> Prepared | Rejection:
    """Deploy a candidate and price its steps, or say why it cannot hold one request."""
    (found,) = prepare_all((candidate,), model=model, mix=mix, policy=policy)
    return found


def prepare_all(
    tried: Sequence[Candidate], *, model: ModelSpec, mix: RequestMix, policy: Policy
) -> list[Prepared | Rejection]:
    """``prepare`` of several candidates: the steps of those on one platform are priced together."""
    found: list[Prepared | Rejection] = []
    for _, same in groupby(tried, key=lambda candidate: id(candidate.platform.hardware)):
        found += _prepared(tuple(same), model=model, mix=mix, policy=policy)
    return found


def _prepared(
    tried: tuple[Candidate, ...], *, model: ModelSpec, mix: RequestMix, policy: Policy
) -> list[Prepared | Rejection]:
    found = [_deployed(candidate, model=model, policy=policy) for candidate in tried]
    try:
        curves = iter(replica_curves([item for item in found if not isinstance(item, Rejection)], mix=mix))
    except RoofcastError as error:
        if len(tried) == 1:
            return [refuse(tried[0], code=error.code, message=error.message, excess=float("inf"))]
        # Which of them has no price, each says alone.
        return [one for candidate in tried for one in _prepared((candidate,), model=model, mix=mix, policy=policy)]
    return [
        item if isinstance(item, Rejection) else _with_slots(candidate, item, *next(curves))
        for candidate, item in zip(tried, found, strict=True)
    ]


def _deployed(candidate: Candidate, *, model: ModelSpec, policy: Policy) -> tuple[Deployment, MemoryPlan] | Rejection:
    """A candidate's deployment and what its memory holds, or why it is none."""
    if policy.max_quality_loss is not None:
        below = quality_refusal(candidate, model=model, allowed=policy.max_quality_loss)
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
        return refuse(candidate, code=error.code, message=error.message, excess=float("inf"))
    memory = memory_plan(deployment)
    return memory_refusal(candidate, memory) or (deployment, memory)


def _with_slots(
    candidate: Candidate, found: tuple[Deployment, MemoryPlan], curve: LoadCurve, steps: StepEstimate
) -> Prepared | Rejection:
    deployment, memory = found
    refusal = slot_refusal(candidate, memory, curve=curve)
    return refusal or Prepared(candidate=candidate, deployment=deployment, memory=memory, curve=curve, steps=steps)


def evaluate(
    candidate: Candidate,
    *,
    model: ModelSpec,
    mix: RequestMix,
    objectives: tuple[Objective, ...],
    policy: Policy,
) -> Evaluated | Rejection:
    """What one replica sustains, or why it cannot serve; with ``candidate.prefill``, what two pools do."""
    if candidate.prefill is not None:
        from simulator.planner.serving.disaggregated import evaluate_pools

        return evaluate_pools(candidate, model=model, mix=mix, objectives=objectives, policy=policy)
    found = prepare(candidate, model=model, mix=mix, policy=policy)
    return evaluate_prepared((found,), objectives=objectives, policy=policy)[0]


def evaluate_prepared(
    tried: Sequence[Prepared | Rejection], *, objectives: tuple[Objective, ...], policy: Policy
) -> list[Evaluated | Rejection]:
    """What each of the prepared candidates of one mix sustains, looked for side by side; refusals as they are."""
    found = [item for item in tried if isinstance(item, Prepared)]
    outcomes = iter(_evaluated(found, objectives=objectives, policy=policy) if found else [])
    return [item if isinstance(item, Rejection) else next(outcomes) for item in tried]


def _evaluated(
    found: Sequence[Prepared], *, objectives: tuple[Objective, ...], policy: Policy
) -> list[Evaluated | Rejection]:
    lanes_of, limits = stack([item.curve for item in found]), [saturation(item.curve) for item in found]
    capacities = capacities_within(
        lambda of, rates: steady_states(lane_rows(lanes_of, of=of, rates_per_s=rates)),
        saturation_per_s=np.array([limit.rate_per_s for limit in limits]),
        objectives=objectives,
        utilization=policy.utilization,
    )
    return [
        missed_objective(item.candidate, capacity)
        if isinstance(capacity, Missed)
        else Evaluated(
            candidate=item.candidate,
            replica=replica_of(item, limit=limit, capacity=capacity, state=capacity.state, objectives=objectives),
            curve=item.curve,
            steps=item.steps,
        )
        for item, limit, capacity in zip(found, limits, capacities, strict=True)
    ]


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
