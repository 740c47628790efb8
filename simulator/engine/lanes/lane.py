"""A deployment as one lane of the steady state: its limits, and its step times over the batch."""

from __future__ import annotations

import numpy as np

from simulator.engine.lanes.load_curve import LaneLimits, LoadCurve, load_curve
from simulator.operators.step_shape import StepShape
from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan, memory_plan
from simulator.phases.step import StepEstimate
from simulator.traffic.lengths import Array, RequestMix


def lane_step_s(estimate: StepEstimate) -> Array:
    """Seconds between the steps of one lane: a step passes all stages, and each stage serves all lanes [s].

    References
    ----------
    [Narayanan2021] pipeline schedules without bubbles, as many micro-batches as stages.
    """
    return np.maximum(estimate.step_s, len(estimate.stage_s) * estimate.interval_s)


def lane_limits(deployment: Deployment, memory: MemoryPlan) -> LaneLimits:
    """Limits of one of the lanes (as many as pipeline stages) that share a replica's cache and batch limit."""
    engine, stages = deployment.engine, deployment.parallelism.pp_size
    return LaneLimits(
        sequences=max(1, engine.max_num_seqs // stages),
        batched_tokens=engine.max_num_batched_tokens,
        kv_tokens=memory.kv_capacity_tokens / stages if memory.kv_bytes_per_token else float("inf"),
        block_tokens=engine.block_size_tokens,
        request_s=engine.overheads.request_s,
        prompt_token_s=engine.overheads.prompt_token_s,
        graph_sequences=0 if engine.eager else min(engine.cuda_graph_max_sequences, 2 * engine.max_num_seqs),
    )


def lane_curve(deployment: Deployment, *, mix: RequestMix, memory: MemoryPlan | None = None) -> LoadCurve:
    """What requests of a mix cost one lane of ``deployment`` as its batch grows."""

    # Needs the methods of speculation, which a plan without any does not import.
    from simulator.phases.draft_cost import per_token_step

    def step_times(step: StepShape) -> Array:
        return per_token_step(deployment, step, seconds=lane_step_s)

    return load_curve(step_times, mix=mix, limits=lane_limits(deployment, memory or memory_plan(deployment)))


def lanes(deployment: Deployment) -> int:
    """Lanes of one replica: one per pipeline stage, for each attention-data-parallel rank."""
    return deployment.parallelism.pp_size * deployment.parallelism.dp_size
