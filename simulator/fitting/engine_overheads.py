"""Two host overheads of an engine from measured serving runs: time per step and time per request.

Time per output token says what a step takes beyond its kernels, time to first token what a request takes beyond its
steps. Everything else of the engine, and all kernels, stay as they are. Benchmark results of a served model become an
engine profile: two overheads, their errors, and the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from simulator.engine.runs.answers import run_of
from simulator.engine.runs.scenario_setup import ServeOptions, deployment_of
from simulator.errors import RoofcastError
from simulator.fitting.replay import run_scenario
from simulator.phases.deployment import Deployment
from simulator.records import dataclass
from simulator.specs.base import Source
from simulator.specs.engine.engine import EngineProfile, load_engine
from simulator.specs.measured.serving_results import ServedSpec, ServingRun, load_serving_runs
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.writing import HEADING, ProfileText, yaml_text
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


def with_overheads(deployment: Deployment, *, step_s: float, request_s: float) -> Deployment:
    """The deployment whose host takes these times a step and a request [s]."""
    overheads = deployment.engine.overheads.model_copy(update={"step_s": step_s, "request_s": request_s})
    return replace(deployment, engine=replace(deployment.engine, overheads=overheads))


def predicted_means(deployment: Deployment, scenario: ScenarioSpec) -> Means:
    """TTFT and TPOT [s] of the scenario's load on this deployment."""
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
    means = [predicted_means(deployment, item) for item in drawn]

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
        tpot_s = predicted_means(with_overheads(deployment, step_s=step_s, request_s=0.0), measured.scenario).tpot
        if abs(tpot_s / target_s - 1) < PRECISION or step_s == low_s:
            break
        slope = (tpot_s - low_tpot_s) / (step_s - low_s)
        low_s, low_tpot_s = step_s, tpot_s
        step_s = float(np.clip(step_s + (target_s - tpot_s) / max(slope, PRECISION), 0.0, STEP_S_AT_MOST))
    return step_s


def _request_s(stepped: Deployment, runs: Sequence[MeasuredRun], *, chances: Sequence[Means]) -> float:
    """Time per request that TTFT shows beyond the steps (median over the runs) [s]."""
    waits = [item.run.ttft_s - predicted_means(stepped, item.scenario).ttft for item in runs]
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

    Raises RoofcastError: a run is overloaded, or faster than the kernels alone, so that its overheads cannot be told.
    """
    for item in runs:
        _check_load(item.run)
    before = [predicted_means(deployment, item.scenario).errors(item.run) for item in runs]
    chances = [_chance(deployment, item.scenario) for item in runs]
    if all(error.within(chance) for error, chance in zip(before, chances, strict=True)):
        return _kept(deployment, runs, before)
    steps, bare = [], with_overheads(deployment, step_s=0.0, request_s=0.0)
    for item, chance in zip(runs, chances, strict=True):
        floor = predicted_means(bare, item.scenario)
        _check_floor(item.run, floor=floor, chance=chance)
        steps.append(_step_s(bare, item, floor_tpot_s=floor.tpot))
    step_s = float(np.median(steps))
    request_s = _request_s(with_overheads(deployment, step_s=step_s, request_s=0.0), runs, chances=chances)
    fitted = with_overheads(deployment, step_s=step_s, request_s=request_s)
    after = [predicted_means(fitted, item.scenario).errors(item.run) for item in runs]
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
        run=run, ttft_before=before.ttft, tpot_before=before.tpot, ttft_after=after.ttft, tpot_after=after.tpot
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCalibration:
    """The overheads of ``engine``, the errors of every run before and after, and what to write.

    profile : None where the overheads in force stay
    """

    engine: str
    fit: OverheadFit
    profile: ProfileText | None


def _fitted_profile(
    profile: EngineProfile, fit: OverheadFit, *, files: Sequence[str], served: Deployment, what: str
) -> EngineProfile:
    tools = ", ".join(sorted({item.run.tool for item in fit.errors}))
    names = ", ".join(Path(name).name for name in files)
    earlier = profile.sources.get("overheads")
    rest = f"; the others as before: {earlier.source}" if earlier else ""
    source = Source(
        source=f"fitted by roofcast calibrate on {names} ({tools})",
        date=datetime.now(UTC).date().isoformat(),
        note=f"step_s and request_s from {what}{rest}",
    )
    values = {"step_s": float(f"{fit.step_s:.4g}"), "request_s": float(f"{fit.request_s:.4g}")}
    overheads = served.engine.overheads.model_copy(update=values)
    return profile.model_copy(update={"overheads": overheads, "sources": {**profile.sources, "overheads": source}})


def calibrate_engine(files: Sequence[str], *, served: ServedSpec, profiles: str | None = None) -> EngineCalibration:
    """Fit an engine's time per step and per request to results of vLLM bench, GuideLLM or AIPerf.

    served : the replica that answered; profiles : directory of profiles read beside the built-in ones

    Raises RoofcastError: a run is overloaded, or faster than the kernels alone, so that its overheads cannot be told.
    """
    runs = tuple(
        MeasuredRun(run=run, scenario=run_scenario(run, identifier=name, served=served, unknown_cv=0.0))
        for name in files
        for run in load_serving_runs(name)
    )
    scenario = runs[0].scenario
    replica = deployment_of(scenario, profiles=profiles)
    fit = fit_overheads(replica, runs=runs)
    profile = load_engine(served.engine.name, profiles=profiles)
    if not fit.changed:
        return EngineCalibration(engine=profile.name, fit=fit, profile=None)
    fitted = _fitted_profile(profile, fit, files=files, served=replica, what=_replica_text(scenario))
    text = ProfileText(path=f"engines/{profile.name}.yaml", text=yaml_text(fitted, heading=HEADING))
    return EngineCalibration(engine=profile.name, fit=fit, profile=text)


def _replica_text(scenario: ScenarioSpec) -> str:
    """``llama-3.1-70b on h100, tp 4``, other degrees where they are not 1."""
    sizes = {"pp": scenario.pp_size, "dp": scenario.dp_size, "ep": scenario.ep_size, "cp": scenario.cp_size}
    degrees = [f"tp {scenario.tp_size}", *(f"{name} {size}" for name, size in sizes.items() if size > 1)]
    return f"{scenario.model} on {scenario.hardware}, {', '.join(degrees)}"
