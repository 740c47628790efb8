"""How sure the occupancy of a loaded deployment is: its saturation, its batch and its cache in use."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot

import numpy as np

from simulator.engine.lane import lane_curve, lanes
from simulator.engine.load_sweep import LoadSweep, request_mix
from simulator.engine.metrics import StageResult
from simulator.engine.serve_interval import DEVIATE, ServeInterval
from simulator.engine.steady_state import steady_state
from simulator.phases.deployment import Deployment
from simulator.specs.workload import WorkloadSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRanges:
    """80 % intervals (low, high) of what has no latency: rate [requests/s], sequences, share of the KV blocks."""

    saturation_per_s: tuple[float, float]
    mean_batch: tuple[float, float]
    kv_utilization: tuple[float, float]


def load_ranges(
    deployment: Deployment,
    *,
    workload: WorkloadSpec,
    sweep: LoadSweep,
    interval: ServeInterval,
    served: StageResult,
) -> LoadRanges:
    """What a run would show where its steps take as long as the ends of their 80 % interval say.

    Steps that all take s times as long make a deployment at rate r one at rate s r whose clock runs s times slower:
    it saturates at 1/s of the rate, and holds as much as at s r. ``served`` is the run at the sweep's deployment whose
    batch and cache are scaled by what the steady state says of those rates; a queue that grows fills every slot.
    The engine's own spread counts for saturation, as one of all its times. Left out: errors of the workload, and of
    the steady state's formulas, which only give ratios here.
    """
    rate_per_s = workload.stages[0].rate_per_s / sweep.replicas / lanes(deployment)
    scales = np.exp(DEVIATE * interval.step_log_sigma * np.array([-1.0, 0.0, 1.0]))
    state = steady_state(lane_curve(deployment, mix=request_mix(workload)), rates_per_s=rate_per_s * scales)
    spread = exp(DEVIATE * hypot(interval.step_log_sigma, deployment.engine.spread.e2e))
    kv_low, kv_high = _around(served.kv_utilization, state.kv_utilization)
    return LoadRanges(
        saturation_per_s=(sweep.saturation_per_s / spread, sweep.saturation_per_s * spread),
        mean_batch=_around(served.mean_batch, state.mean_sequences),
        kv_utilization=(kv_low, min(kv_high, 1.0)),
    )


def _around(value: float, steady: np.ndarray) -> tuple[float, float]:
    """A simulated value with the spread that the steady state shows between faster, equal and slower steps."""
    low, middle, high = (float(item) for item in steady)
    if middle <= 0:
        return value, value
    return value * low / middle, value * high / middle
