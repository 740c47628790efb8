"""How sure the occupancy of a loaded deployment is: its saturation, its batch and its cache in use."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot

import numpy as np

from simulator.engine.lane import lane_curve, lanes
from simulator.engine.load_curve import saturation
from simulator.engine.load_sweep import request_mix
from simulator.engine.metrics import StageResult
from simulator.engine.serve_interval import DEVIATE, ServeInterval
from simulator.engine.steady_state import steady_state
from simulator.phases.deployment import Deployment
from simulator.specs.workload import WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRanges:
    """80 % intervals (low, high) of what has no latency: rate [requests/s], sequences, share of the KV blocks.

    limit_per_s : the rate that saturates all replicas, of which ``saturation_per_s`` is the interval
    """

    limit_per_s: float
    saturation_per_s: tuple[float, float]
    mean_batch: tuple[float, float]
    kv_utilization: tuple[float, float]


def has_load_ranges(workload: WorkloadSpec) -> bool:
    """Whether the load of a workload is one: a single stage whose lengths are given, not read from a trace."""
    known = workload.isl_tokens is not None or workload.question_tokens is not None
    return workload.arrival != "trace" and len(workload.stages) == 1 and known and workload.osl_tokens is not None


def load_ranges(
    deployment: Deployment,
    *,
    workload: WorkloadSpec,
    replicas: int,
    interval: ServeInterval,
    served: StageResult,
) -> LoadRanges:
    """What a run would show where its steps take as long as the ends of their 80 % interval say.

    Steps that all take s times as long make a deployment at rate r one at rate s r whose clock runs s times slower:
    it saturates at 1/s of the rate, and holds as much as at s r. ``served`` is the run of all ``replicas``, whose
    batch and cache are scaled by what the steady state says of those rates; a queue that grows fills every slot.
    The engine's own spread counts for saturation, as one of all its times. Left out: errors of the workload, and of
    the steady state's formulas, which only give ratios here.
    """
    count = replicas * lanes(deployment)
    rate_per_s = workload.stages[0].rate_per_s / count
    curve = lane_curve(deployment, mix=request_mix(workload))
    limit_per_s = saturation(curve).rate_per_s * count
    scales = np.exp(DEVIATE * interval.step_log_sigma * np.array([-1.0, 0.0, 1.0]))
    state = steady_state(curve, rates_per_s=rate_per_s * scales)
    spread = exp(DEVIATE * hypot(interval.step_log_sigma, deployment.engine.spread.e2e))
    kv_low, kv_high = _around(served.kv_utilization, state.kv_utilization)
    return LoadRanges(
        limit_per_s=limit_per_s,
        saturation_per_s=(limit_per_s / spread, limit_per_s * spread),
        mean_batch=_around(served.mean_batch, state.mean_sequences),
        kv_utilization=(kv_low, min(kv_high, 1.0)),
    )


def _around(value: float, steady: np.ndarray) -> tuple[float, float]:
    """A simulated value with the spread that the steady state shows between faster, equal and slower steps."""
    low, middle, high = (float(item) for item in steady)
    if middle <= 0:
        return value, value
    return value * low / middle, value * high / middle
