"""How far off a served workload's numbers may be: step times, the engine's own spread, and the luck of one seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from math import exp
from statistics import NormalDist

import numpy as np

from simulator.engine.metrics import ServeResult, StageResult
from simulator.engine.request import Floats
from simulator.specs.engine import EngineSpread

LEVEL = 0.8
"""Share of measured values that an interval should hold."""
DEVIATE: float = NormalDist().inv_cdf((1 + LEVEL) / 2)

_STATISTICS = ("mean_s", "p50_s", "p90_s", "p95_s", "p99_s")
_RATES = ("requests_per_s", "output_tokens_per_s")
METRICS: tuple[str, ...] = (
    *(f"{name}_{statistic}" for name in ("ttft", "tpot", "e2e") for statistic in _STATISTICS),
    *_RATES,
)
"""What has an interval, in the order of ``StageInterval``."""

StepRun = Callable[[float], ServeResult]
"""Simulates the same requests with every step that many times as long."""
SeedRun = Callable[[int], ServeResult]
"""Simulates the same workload with another seed, counted from 1."""


class IntervalMethod(StrEnum):
    """Whether the run was repeated with slower and faster steps, or its times were scaled with them."""

    RERUN = "rerun"
    SCALED = "scaled"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInterval:
    """Bounds of one stage's METRICS, in their order; NaN where the stage has no such value."""

    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeInterval:
    """80 % intervals of every stage and of the whole run.

    step_log_sigma : of log(measured / predicted) of the mean step; seeds : further seeds whose scatter is included
    """

    method: IntervalMethod
    step_log_sigma: float
    seeds: int
    stages: tuple[StageInterval, ...]
    overall: StageInterval


def stage_values(stage: StageResult) -> Floats:
    """The METRICS of a stage."""
    times = [getattr(summary, name) for summary in (stage.ttft, stage.tpot, stage.e2e) for name in _STATISTICS]
    return np.array([*times, *(getattr(stage, name) for name in _RATES)])


def _windows(result: ServeResult) -> Floats:
    """[stages and overall, METRICS]."""
    return np.stack([stage_values(stage) for stage in (*result.stages, result.overall)])


def _engine_sigma(spread: EngineSpread) -> Floats:
    """Spread of whole requests beyond that of the steps; rates in steady state are those of the clients."""
    return np.repeat([spread.ttft, spread.tpot, spread.e2e, 0.0], [*([len(_STATISTICS)] * 3), len(_RATES)])


def _log(values: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(values)


def serve_interval(
    result: ServeResult,
    *,
    step_log_sigma: float,
    spread: EngineSpread,
    rerun: StepRun | None = None,
    reseed: SeedRun | None = None,
    seeds: int = 0,
) -> ServeInterval:
    """Combine three independent errors of log values in quadrature, separately above and below.

    Steps: the same requests with all steps at the ends of their 80 % interval, errors of all steps taken as common;
    without ``rerun`` latencies are scaled alike, which misses how queues amplify. Engine: ``spread``. Chance: the
    standard deviation over ``seeds`` further seeds, twice in variance, because a measured run draws its own requests.
    Left out: errors of the workload itself.
    """
    values = _log(_windows(result))
    if rerun is None:
        latencies = len(METRICS) - len(_RATES)
        slow = np.repeat([DEVIATE * step_log_sigma, 0.0], [latencies, len(_RATES)])
        deviations = [np.broadcast_to(-slow, values.shape), np.broadcast_to(slow, values.shape)]
    else:
        factors = [exp(sign * DEVIATE * step_log_sigma) for sign in (-1, 1)]
        deviations = [_log(_windows(rerun(factor))) - values for factor in factors]
    # Steps that are slower never make an interval tighter at its upper end, whatever two runs happen to draw.
    below = np.minimum(np.minimum(deviations[0], deviations[1]), 0.0)
    above = np.maximum(np.maximum(deviations[0], deviations[1]), 0.0)
    noise = (DEVIATE * _engine_sigma(spread)) ** 2
    if reseed is not None and seeds > 0:
        runs = np.stack([values, *(_log(_windows(reseed(number))) for number in range(1, seeds + 1))])
        noise = noise + 2 * DEVIATE**2 * runs.var(axis=0, ddof=1)
    low, high = np.exp(values - np.sqrt(below**2 + noise)), np.exp(values + np.sqrt(above**2 + noise))
    *stages, overall = (
        StageInterval(low=tuple(map(float, lower)), high=tuple(map(float, upper)))
        for lower, upper in zip(low, high, strict=True)
    )
    return ServeInterval(
        method=IntervalMethod.SCALED if rerun is None else IntervalMethod.RERUN,
        step_log_sigma=step_log_sigma,
        seeds=seeds if reseed is not None else 0,
        stages=tuple(stages),
        overall=overall,
    )


def step_sigma(*, prefill_sigma: float, decode_sigma: float, prompt_share: float) -> float:
    """Log-sigma of the mean step that spends ``prompt_share`` of its time on prompts, errors of both as common."""
    share = min(max(prompt_share, 0.0), 1.0)
    return share * prefill_sigma + (1 - share) * decode_sigma
