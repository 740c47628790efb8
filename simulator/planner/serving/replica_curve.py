"""What a replica's step times come to over its batch, with the techniques that change what a step yields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from simulator.engine.lanes.load_curve import LaneLimits, LoadCurve, lane_limits, lane_step_s, lane_steps, load_curve
from simulator.operators.kv_layout import kv_bytes_per_sequence, kv_bytes_per_token
from simulator.operators.step_shape import StepShape
from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan
from simulator.phases.step import StepEstimate, estimate_steps
from simulator.traffic.lengths import Array, RequestMix


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSteps:
    """What later questions need of priced steps, case by case: their rows take hundred times the memory.

    bound : what most of the time waits for, one of BOUNDS
    log_sigma : standard deviation of log(measured / predicted)
    provenance : Provenance value of what matters in it
    """

    bound: tuple[str, ...]
    log_sigma: Array
    provenance: Array

    @classmethod
    def of(cls, estimate: StepEstimate) -> KnownSteps:
        """Of a priced step."""
        return cls(bound=estimate.bound, log_sigma=estimate.log_sigma, provenance=estimate.provenance)


def kept_share(deployment: Deployment, *, mix: RequestMix) -> float:
    """Share of a running sequence's cache that a KV policy keeps, at the mean context; 1 without a policy."""
    if deployment.techniques.spec.kv_policy is None:
        return 1.0
    parallelism, context = deployment.parallelism, mix.decode_context_tokens
    empty, full = kv_bytes_per_sequence(
        deployment.model,
        plan=deployment.plan,
        tp_size=parallelism.tp_size,
        pp_size=parallelism.pp_size,
        context_tokens=np.array([0.0, context]),
    )
    per_token = kv_bytes_per_token(
        deployment.model, plan=deployment.plan, tp_size=parallelism.tp_size, pp_size=parallelism.pp_size
    )
    return float((full - empty) / (per_token * context))


def bounded_limits(deployment: Deployment, memory: MemoryPlan, *, mix: RequestMix) -> LaneLimits:
    """Limits of a lane; a policy that drops tokens lets the same memory hold more of them."""
    limits = lane_limits(deployment, memory)
    return replace(limits, kv_tokens=limits.kv_tokens / kept_share(deployment, mix=mix))


def bubble_factor(sequences: Array, *, mix: RequestMix, batched_tokens: ArrayLike, stages: int) -> Array:
    """How many times its own lane's delay a prompt costs where ``stages`` lanes share a pipeline.

    A step with prompts holds every stage for longer than the steps of the other lanes, which wait for it: one lane's
    prompts delay all. A step carries prompts with p = 1 - e^-a for a arrivals a step; with independent lanes one of
    them does with 1 - (1 - p)^stages, so that the delay of each counts (1 - (1 - p)^stages) / p times. No bubbles
    remain where all lanes carry prompts all the time. ``sequences`` decode in one lane; arrays broadcast together.
    Against the event simulation sequences come within a tenth below 85 % load, TTFT stays on the safe side.

    References
    ----------
    [Agrawal2024] pipeline bubbles of unequal micro-batches.
    """
    room = np.maximum(np.asarray(batched_tokens) - sequences, 1.0)
    pieces = np.maximum(mix.new_prompt_tokens / room, 1.0)
    arrivals = sequences / max(mix.decode_steps, 1.0) * pieces
    carries = -np.expm1(-np.maximum(arrivals, np.finfo(float).tiny))
    factor: Array = -np.expm1(stages * np.log1p(-np.minimum(carries, 1 - np.finfo(float).eps))) / carries
    return factor


def replica_curve(deployment: Deployment, *, memory: MemoryPlan, mix: RequestMix) -> tuple[LoadCurve, KnownSteps]:
    """Load curve of one lane, and what is known of the priced steps it was made of.

    With speculation a step is what one token takes at the pace of its rounds.
    """
    # Needs the methods of speculation, which a plan without any does not import.
    from simulator.phases.draft_cost import per_token_step

    estimates: list[StepEstimate] = []

    def seconds(estimate: StepEstimate) -> Array:
        estimates.append(estimate)
        return lane_step_s(estimate)

    def step_times(step: StepShape) -> Array:
        return per_token_step(deployment, step, seconds=seconds)

    curve = load_curve(step_times, mix=mix, limits=bounded_limits(deployment, memory, mix=mix))
    # Speculation prices the verify steps alone first, then with the prompts that ride along.
    known = KnownSteps.of(estimates[0 if deployment.speculation is None else 1])
    return with_bubbles(curve, deployment), known


def with_bubbles(curve: LoadCurve, deployment: Deployment) -> LoadCurve:
    """The curve of one of a pipeline's lanes, with what the prompts of the others cost it."""
    stages = deployment.parallelism.pp_size
    if stages == 1:
        return curve
    every = np.arange(curve.slots + 1, dtype=np.float64)
    factor = bubble_factor(every, mix=curve.mix, batched_tokens=curve.limits.batched_tokens, stages=stages)
    return replace(curve, prefill_s=curve.prefill_s * factor)


def replica_curves(
    replicas: Sequence[tuple[Deployment, MemoryPlan]], *, mix: RequestMix
) -> list[tuple[LoadCurve, KnownSteps]]:
    """``replica_curve`` of several replicas: one call prices those that share kernels, and do not speculate."""
    steps = [lane_steps(mix, limits=bounded_limits(deployment, memory, mix=mix)) for deployment, memory in replicas]
    plain = [index for index, (deployment, _) in enumerate(replicas) if deployment.speculation is None]
    estimates = iter(estimate_steps([(replicas[index][0], steps[index].at.step) for index in plain]))
    found: list[tuple[LoadCurve, KnownSteps]] = []
    for (deployment, memory), lane in zip(replicas, steps, strict=True):
        if deployment.speculation is not None:
            found.append(replica_curve(deployment, memory=memory, mix=mix))
            continue
        estimate = next(estimates)
        found.append((with_bubbles(lane.curve(lane_step_s(estimate)), deployment), KnownSteps.of(estimate)))
    return found
