"""Two host overheads of an engine from measured serving runs: time per step and time per request.

Time per output token says what a step takes beyond its kernels, time to first token what a request takes beyond its
steps. Everything else of the engine, and all kernels, stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.engine.runs.answers import run_of
from simulator.engine.runs.scenario_setup import ServeOptions
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment
from simulator.specs.measured.serving_results import ServingRun
from simulator.specs.question.scenario import ScenarioSpec
from simulator.units import MILLI

OVERLOAD = 0.9
"""A run that answers less than this share of what is sent builds a queue, and its TTFT says how long it lasted."""
ROUNDS = 6
PRECISION = 1e-3
STEP_S_AT_MOST = 0.2
"""A host that takes longer per step is not what is being fitted."""
SEEDS = range(1, 6)
"""Draws of lengths and arrivals that tell how far means of as many requests differ by chance."""
DEVIATIONS = 3.0
"""Standard deviations of such means within which a prediction agrees with a measurement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A run of a benchmark and the scenario that it is."""

    run: ServingRun
    scenario: ScenarioSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """Means over the requests of a run: TTFT and TPOT [s], or what they differ by as a share."""

    ttft: float
    tpot: float

    def errors(self, run: ServingRun) -> Means:
        """Predicted over measured minus 1."""
        return Means(ttft=self.ttft / run.ttft_s - 1, tpot=self.tpot / run.tpot_s - 1)

    def within(self, chance: Means) -> bool:
        """Whether both are as small as what chance makes."""
        return abs(self.ttft) <= chance.ttft and abs(self.tpot) <= chance.tpot


@dataclass(frozen=True, slots=True, kw_only=True)
class RunErrors:
    """Predicted over measured minus 1, of one run, before and after the fit."""

    run: ServingRun
    ttft_before: float
    tpot_before: float
    ttft_after: float
    tpot_after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadFit:
    """The two overheads [s] and the errors of every run; changed : whether they differ from those in force."""

    step_s: float
    request_s: float
    errors: tuple[RunErrors, ...]
    changed: bool


def _with(deployment: Deployment, *, step_s: float, request_s: float) -> Deployment:
    overheads = deployment.engine.overheads.model_copy(update={"step_s": step_s, "request_s": request_s})
    return replace(deployment, engine=replace(deployment.engine, overheads=overheads))


def _predicted(deployment: Deployment, scenario: ScenarioSpec) -> Means:
    run = run_of(scenario, deployment, options=ServeOptions(intervals=False))
    return Means(ttft=run.ttft_s, tpot=run.tpot_s)


def _drawn_again(scenario: ScenarioSpec, seed: int) -> ScenarioSpec | None:
    """The same load with other lengths and moments; None where none of them are drawn."""
    workload = scenario.workload
    if workload is not None and workload.trace is None:
        return scenario.model_copy(update={"workload": workload.model_copy(update={"seed": seed})})
    if workload is not None or not (scenario.isl_cv or scenario.osl_cv or (scenario.range_ratio or 1.0) < 1):
        return None
    return scenario.model_copy(update={"seed": seed})


def _chance(deployment: Deployment, scenario: ScenarioSpec) -> Means:
    """How far predictions may differ from a measurement for the requests that happened to be drawn, as shares."""
    drawn = [item for seed in SEEDS if (item := _drawn_again(scenario, seed)) is not None]
    means = [_predicted(deployment, item) for item in drawn]

    def share(values: list[float]) -> float:
        return max(PRECISION, DEVIATIONS * float(np.std(values) / np.mean(values))) if values else PRECISION

    return Means(ttft=share([item.ttft for item in means]), tpot=share([item.tpot for item in means]))


def _check_load(run: ServingRun) -> None:
    """Refuse an overload: what is sent takes longer to answer than to send, beyond the last answers."""
    rate = run.request_rate_per_s
    if rate is None:
        return
    last_answer_s = run.tpot_s * (run.longest_osl_tokens or run.osl_tokens)
    expected_per_s = run.requests / (run.requests / rate + last_answer_s)
    if run.answered_per_s < OVERLOAD * expected_per_s:
        raise RoofcastError(
            f"{run.path}: {rate:g} requests/s sent, {run.answered_per_s:.3g} answered: an overload tells no overhead",
            field="request_rate",
            code="not_identifiable",
            hint="run at a lower rate",
        )


def _check_floor(run: ServingRun, *, floor: Means, chance: Means) -> None:
    for field, measured_s, least_s in (
        ("ttft", run.ttft_s, floor.ttft * (1 - chance.ttft)),
        ("tpot", run.tpot_s, floor.tpot * (1 - chance.tpot)),
    ):
        if measured_s < least_s:
            raise RoofcastError(
                f"{run.path}: measured {measured_s / MILLI:.3g} ms, but the kernels alone take "
                f"{least_s / MILLI:.3g} ms: an overhead below 0 cannot be fitted",
                field=field,
                code="not_identifiable",
                hint="check the model, the accelerators and the weight format; prompts that hit a prefix cache lower "
                "TTFT too",
            )


def _step_s(deployment: Deployment, measured: MeasuredRun, *, floor_tpot_s: float) -> float:
    """Host time per step with which TPOT is the measured one [s]: secant steps, TPOT rises with it."""
    target_s = measured.run.tpot_s
    low_s, low_tpot_s = 0.0, floor_tpot_s
    step_s = max(0.0, target_s - floor_tpot_s)
    for _ in range(ROUNDS):
        tpot_s = _predicted(_with(deployment, step_s=step_s, request_s=0.0), measured.scenario).tpot
        if abs(tpot_s / target_s - 1) < PRECISION or step_s == low_s:
            break
        slope = (tpot_s - low_tpot_s) / (step_s - low_s)
        low_s, low_tpot_s = step_s, tpot_s
        step_s = float(np.clip(step_s + (target_s - tpot_s) / max(slope, PRECISION), 0.0, STEP_S_AT_MOST))
    return step_s


def _request_s(stepped: Deployment, runs: Sequence[MeasuredRun], *, chances: Sequence[Means]) -> float:
    """Time per request that TTFT shows beyond the steps (median over the runs) [s]."""
    waits = [item.run.ttft_s - _predicted(stepped, item.scenario).ttft for item in runs]
    request_s = float(np.median(waits))
    slack_s = max(chance.ttft * item.run.ttft_s for chance, item in zip(chances, runs, strict=True))
    if request_s < -slack_s:
        raise RoofcastError(
            f"{runs[0].run.path}: TTFT is {-request_s / MILLI:.3g} ms less than its steps take with the step time that "
            "TPOT shows: no time per request can be fitted",
            field="ttft",
            code="not_identifiable",
            hint="prompts that hit a prefix cache lower TTFT; run with prompts that do not repeat",
        )
    return max(0.0, request_s)


def fit_overheads(deployment: Deployment, *, runs: Sequence[MeasuredRun]) -> OverheadFit:
    """Fit ``step_s`` and ``request_s`` to the runs, each one's solution counting once (median over the runs).

    The overheads in force stay where they predict every run as closely as chance lets them, or closer than the fit.

    Raises
    ------
    RoofcastError
        A run is overloaded, or faster than the kernels alone, so that its overheads cannot be told.
    """
    for item in runs:
        _check_load(item.run)
    before = [_predicted(deployment, item.scenario).errors(item.run) for item in runs]
    chances = [_chance(deployment, item.scenario) for item in runs]
    if all(error.within(chance) for error, chance in zip(before, chances, strict=True)):
        return _kept(deployment, runs, before)
    steps, bare = [], _with(deployment, step_s=0.0, request_s=0.0)
    for item, chance in zip(runs, chances, strict=True):
        floor = _predicted(bare, item.scenario)
        _check_floor(item.run, floor=floor, chance=chance)
        steps.append(_step_s(bare, item, floor_tpot_s=floor.tpot))
    step_s = float(np.median(steps))
    request_s = _request_s(_with(deployment, step_s=step_s, request_s=0.0), runs, chances=chances)
    fitted = _with(deployment, step_s=step_s, request_s=request_s)
    after = [_predicted(fitted, item.scenario).errors(item.run) for item in runs]
    if _size(after) >= _size(before):
        return _kept(deployment, runs, before)
    errors = tuple(_errors(item.run, *both) for item, *both in zip(runs, before, after, strict=True))
    return OverheadFit(step_s=step_s, request_s=request_s, errors=errors, changed=True)


def _kept(deployment: Deployment, runs: Sequence[MeasuredRun], before: Sequence[Means]) -> OverheadFit:
    overheads = deployment.engine.overheads
    errors = tuple(_errors(item.run, error, error) for item, error in zip(runs, before, strict=True))
    return OverheadFit(step_s=overheads.step_s, request_s=overheads.request_s, errors=errors, changed=False)


def _size(errors: Sequence[Means]) -> float:
    return float(np.mean([abs(error.ttft) + abs(error.tpot) for error in errors]))


def _errors(run: ServingRun, before: Means, after: Means) -> RunErrors:
    return RunErrors(
        run=run,
        ttft_before=before.ttft,
        tpot_before=before.tpot,
        ttft_after=after.ttft,
        tpot_after=after.tpot,
    )
