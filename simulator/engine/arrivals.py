"""When requests arrive: constant gaps, random gaps, or those of a recorded trace."""

from __future__ import annotations

import numpy as np

from simulator.engine.request import Floats
from simulator.errors import RoofcastError
from simulator.specs.workload import StageSpec, WorkloadSpec


def _count(stage: StageSpec) -> int:
    return int(np.floor(stage.rate_per_s * stage.duration_s + 1 / 2))


def constant_arrivals(stage: StageSpec) -> Floats:
    """The k-th request at k / rate, for as many as rate x duration, rounded [s after the stage's start]."""
    return np.arange(_count(stage)) / stage.rate_per_s


def scattered_arrivals(stage: StageSpec, *, rng: np.random.Generator) -> Floats:
    """As many, each at a random moment of the stage: a Poisson process whose count is known [s after the start]."""
    return np.sort(rng.uniform(0.0, stage.duration_s, size=_count(stage)))


def gamma_arrivals(stage: StageSpec, *, burstiness: float, rng: np.random.Generator) -> Floats:
    """Independent gamma gaps with mean 1 / rate and coefficient of variation ``burstiness`` [s after the start].

    Notes
    -----
    Shape 1 / cv^2 and scale cv^2 / rate: cv 1 is the Poisson process, above 1 arrivals come in bursts. The stage starts
    at a request that is not counted, so that the first gap has the same law as the others.
    """
    variance = burstiness * burstiness
    mean_count = stage.rate_per_s * stage.duration_s
    times = np.zeros(0)
    last_s = 0.0
    while last_s < stage.duration_s:
        # Usually one draw suffices: the mean number, and four standard deviations of it.
        draws = int(mean_count + 4 * burstiness * np.sqrt(mean_count)) + 2
        gaps_s = rng.gamma(1 / variance, variance / stage.rate_per_s, size=draws)
        times = np.concatenate([times, last_s + np.cumsum(gaps_s)])
        last_s = float(times[-1])
    return times[times < stage.duration_s]


def trace_arrivals(stage: StageSpec, *, recorded_s: Floats) -> tuple[Floats, np.ndarray]:
    """Recorded arrivals, sped up or slowed down to the stage's rate and repeated until its end.

    Returns times after the stage's start [s] and, for each, the index of the recorded request. The gap from the last
    request back to the first is the mean gap.
    """
    count = len(recorded_s)
    mean_gap_s = float(recorded_s[-1] - recorded_s[0]) / max(count - 1, 1)
    if mean_gap_s <= 0:
        raise RoofcastError("all requests carry one time, so that there is no rate to scale", field="workload.trace")
    scaled_s = (recorded_s - recorded_s[0]) / (mean_gap_s * stage.rate_per_s)
    period_s = count / stage.rate_per_s
    rounds = int(np.ceil(stage.duration_s / period_s))
    times = (np.arange(rounds)[:, np.newaxis] * period_s + scaled_s).ravel()
    kept = times < stage.duration_s
    return times[kept], np.tile(np.arange(count), rounds)[kept]


def stage_arrivals(workload: WorkloadSpec) -> tuple[Floats, np.ndarray, Floats]:
    """Arrival times of all stages one after another, the stage of each, and where each stage ends [s].

    For ``constant``, ``poisson`` and ``gamma`` arrivals; deterministic for a seed, and no stage changes the draws of
    another.
    """
    if not workload.stages:
        raise RoofcastError("no stages", field="workload.stages", hint='e.g. [{"rate_per_s": 8, "duration_s": 600}]')
    times, stages = [], []
    ends_s = np.cumsum([stage.duration_s for stage in workload.stages])
    for index, stage in enumerate(workload.stages):
        rng = np.random.default_rng([workload.seed, index])
        if workload.arrival == "constant" and workload.spacing == "even":
            offsets_s = constant_arrivals(stage)
        elif workload.arrival == "constant":
            offsets_s = scattered_arrivals(stage, rng=rng)
        else:
            burstiness = 1.0 if workload.arrival == "poisson" else workload.burstiness
            offsets_s = gamma_arrivals(stage, burstiness=burstiness, rng=rng)
        times.append(ends_s[index] - stage.duration_s + offsets_s)
        stages.append(np.full(len(offsets_s), index))
    return np.concatenate(times), np.concatenate(stages), ends_s
