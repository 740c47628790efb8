"""How far off a served workload's numbers may be: step times, the engine's own spread, and the luck of one seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from math import exp, isnan, log, log1p

import numpy as np

from simulator.engine.runs.metrics import ServeResult, StageResult
from simulator.engine.uniform.steps import PhaseEstimate
from simulator.kernels.intervals import DEVIATE, Range
from simulator.kernels.timing import Provenance
from simulator.records import dataclass
from simulator.specs.engine.fits import EngineSpread
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.requests import Floats

_STATISTICS = ("mean_s", "p50_s", "p90_s", "p95_s", "p99_s")
RATES = ("requests_per_s", "output_tokens_per_s")
"""Those of METRICS that are no latencies."""
_TAIL_WEIGHTS = (("p95_s", log(10 / 5) / log(10 / 1)), ("p99_s", 1.0))
METRICS: tuple[str, ...] = (
    *(f"{name}_{statistic}" for name in ("ttft", "tpot", "e2e") for statistic in _STATISTICS),
    *RATES,
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
class IntervalSource:
    """Where intervals come from.

    step_log_sigma : of log(measured / predicted) of the mean step
    further_seeds : seeds beside the run's own whose scatter is included
    """

    steps: IntervalMethod
    step_log_sigma: float
    further_seeds: int

    @property
    def step_spread(self) -> float:
        """What a step at the long end of its 80 % interval takes more than predicted, as a share."""
        return exp(DEVIATE * self.step_log_sigma) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeInterval:
    """80 % intervals of every stage and of the whole run."""

    source: IntervalSource
    stages: tuple[StageInterval, ...]
    overall: StageInterval


def stage_values(stage: StageResult) -> Floats:
    """The METRICS of a stage."""
    times = [getattr(summary, name) for summary in (stage.ttft, stage.tpot, stage.e2e) for name in _STATISTICS]
    return np.array([*times, *(getattr(stage, name) for name in RATES)])


def _windows(result: ServeResult) -> Floats:
    """[stages and overall, METRICS]."""
    return np.stack([stage_values(stage) for stage in (*result.stages, result.overall)])


def engine_sigma(spread: EngineSpread) -> Floats:
    """[below and above, METRICS]: spread of whole requests beyond that of the steps.

    The tail of first tokens only adds above, all of it at p99 and less towards p90, evenly in the log of the share of
    requests beyond the percentile. Rates in steady state are those of the clients.
    """
    common = np.repeat([spread.ttft, spread.tpot, spread.e2e, 0.0], [*([len(_STATISTICS)] * 3), len(RATES)])
    tail = np.zeros_like(common)
    for statistic, weight in _TAIL_WEIGHTS:
        tail[METRICS.index(f"ttft_{statistic}")] = weight * spread.ttft_tail
    return np.stack([common, np.hypot(common, tail)])


def _edges(result: ServeResult) -> Floats:
    """[stages and overall, METRICS]: what rates differ by when a client divides by the time to its last answer instead
    of that in which it sends, or the other way round (log)."""
    edges = np.zeros((len(result.stages) + 1, len(METRICS)))
    for row, stage in zip(edges, (*result.stages, result.overall), strict=True):
        if stage.finished:
            row[-len(RATES) :] = log1p(stage.e2e.p99_s / (stage.end_s - stage.start_s))
    return edges


def _scaled(result: ServeResult, *, half: float) -> tuple[Floats, Floats]:
    """Deviations of log values by steps that are faster and slower by ``half``, where nothing is simulated again.
    Latencies go with the steps; rates only where a queue grows, and then against them."""
    saturated = np.array([[stage.saturated] for stage in (*result.stages, result.overall)])
    latencies = len(METRICS) - len(RATES)
    slower = np.concatenate(
        [np.full((len(saturated), latencies), half), np.repeat(np.where(saturated, -half, 0.0), len(RATES), axis=1)],
        axis=1,
    )
    return -slower, slower


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
    Rates: by what time a client divides. Left out: errors of the workload itself.
    """
    values = _log(_windows(result))
    if rerun is None:
        faster, slower = _scaled(result, half=DEVIATE * step_log_sigma)
    else:
        runs = [_log(_windows(rerun(exp(sign * DEVIATE * step_log_sigma)))) for sign in (-1, 1)]
        with np.errstate(invalid="ignore"):  # a stage in which nothing is done has a rate of zero, and no interval
            faster, slower = (run - values for run in runs)
    # Steps that are slower never make an interval tighter at its upper end, whatever two runs happen to draw.
    below, above = np.minimum(np.minimum(faster, slower), 0.0), np.maximum(np.maximum(faster, slower), 0.0)
    engine_below, engine_above = DEVIATE * engine_sigma(spread)
    others = _edges(result) ** 2
    if reseed is not None and seeds > 0:
        drawn = np.stack([values, *(_log(_windows(reseed(number))) for number in range(1, seeds + 1))])
        with np.errstate(invalid="ignore"):
            others = others + 2 * DEVIATE**2 * drawn.var(axis=0, ddof=1)
    low = np.exp(values - np.sqrt(below**2 + engine_below**2 + others))
    high = np.exp(values + np.sqrt(above**2 + engine_above**2 + others))
    *stages, overall = (
        StageInterval(low=tuple(map(float, lower)), high=tuple(map(float, upper)))
        for lower, upper in zip(low, high, strict=True)
    )
    return ServeInterval(
        source=IntervalSource(
            steps=IntervalMethod.SCALED if rerun is None else IntervalMethod.RERUN,
            step_log_sigma=step_log_sigma,
            further_seeds=seeds if reseed is not None else 0,
        ),
        stages=tuple(stages),
        overall=overall,
    )


def named(interval: StageInterval) -> dict[str, Range | None]:
    """Low and high end of each metric; None where the stage has none."""
    pairs = zip(METRICS, interval.low, interval.high, strict=True)
    return {name: None if isnan(low) else (low, high) for name, low, high in pairs}


def with_intervals(result: ServeResult, interval: ServeInterval) -> ServeResult:
    """The result with the intervals of each stage and of the whole run in them."""
    return replace(
        result,
        stages=tuple(
            replace(stage, interval=named(bounds)) for stage, bounds in zip(result.stages, interval.stages, strict=True)
        ),
        overall=replace(result.overall, interval=named(interval.overall)),
    )


def step_sigma(*, prefill_sigma: float, decode_sigma: float, prompt_share: float) -> float:
    """Log-sigma of the mean step that spends ``prompt_share`` of its time on prompts, errors of both as common."""
    share = min(max(prompt_share, 0.0), 1.0)
    return share * prefill_sigma + (1 - share) * decode_sigma


RERUN_REQUESTS = 20_000
"""Runs up to this size are repeated with slower and faster steps for their intervals; longer ones are scaled."""
RERUN_STEPS = 10_000_000
"""Steps up to which they are: so many take half a second."""
RESEED_REQUESTS = 5_000
"""Runs up to this size are also repeated with other seeds, because the scatter of a short run is worth knowing."""
FURTHER_SEEDS = 3


def is_calibrated(*, prefill: PhaseEstimate, decode: PhaseEstimate | None) -> bool:
    """Whether the steps that generate are known as well as those of the runs that an engine's spread was fitted on."""
    return (decode or prefill).provenance <= Provenance.CALIBRATED


def phase_sigmas(*, prefill: PhaseEstimate, decode: PhaseEstimate | None, spread: EngineSpread) -> tuple[float, float]:
    """Log-sigma of the steps of either phase; less where the engine's overheads were fitted on steps like these."""
    share = spread.steps if is_calibrated(prefill=prefill, decode=decode) else 1.0
    return share * prefill.log_sigma, share * (decode or prefill).log_sigma


def repeated_interval(
    result: ServeResult,
    *,
    log_sigma: float,
    spread: EngineSpread,
    rerun: StepRun,
    reseed: SeedRun,
    workload: WorkloadSpec,
) -> ServeInterval:
    """Repeat the run where that is cheap, and say what was done."""
    count = len(result.requests)
    if count > RERUN_REQUESTS or result.run.steps > RERUN_STEPS:
        return serve_interval(result, step_log_sigma=log_sigma, spread=spread)
    draws = workload.trace is None and count <= RESEED_REQUESTS
    return serve_interval(
        result,
        step_log_sigma=log_sigma,
        spread=spread,
        rerun=rerun,
        reseed=reseed if draws else None,
        seeds=FURTHER_SEEDS if draws else 0,
    )
