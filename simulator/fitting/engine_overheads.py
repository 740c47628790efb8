"""Two host overheads of an engine from measured serving runs: time per step and time per request or per prompt.

Time per output token says what a step takes beyond its kernels, time to first token what a request takes beyond its
steps. That is spent before the request is in the queue, where nobody else waits for it, or inside the step that takes
in its prompt, for which every running request waits: the runs say which, by the median of first tokens and by how both
times grow with load. Everything else of the engine, and all kernels, stay as they are. Benchmark results of a served
model become an engine profile: two overheads, their errors, and the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from math import exp
from pathlib import Path
from typing import Literal

import numpy as np

from simulator.engine.runs.answers import run_of
from simulator.engine.runs.scenario_setup import ServeOptions, deployment_of
from simulator.engine.runs.served_run import ServedRun
from simulator.engine.uniform.record import UniformRun
from simulator.engine.uniform.steps import PhaseEstimate
from simulator.errors import RoofcastError
from simulator.fitting.replay import UNKNOWN_CV, run_scenario, runs_that_tell, spread_of
from simulator.kernels.intervals import DEVIATE
from simulator.phases.deployment import Deployment
from simulator.records import dataclass
from simulator.specs.base import Source
from simulator.specs.engine.engine import EngineProfile, load_engine
from simulator.specs.measured.serving_results import ServedSpec, ServingRun
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.writing import HEADING, ProfileText, yaml_text
from simulator.units import MILLI

OVERLOAD = 0.9
"""A run that answers less than this share of what is sent builds a queue, and its TTFT says how long it lasted."""
ROUNDS = 6
PRECISION = 1e-3
LEAST_SLOPE = 0.5
"""Of TTFT over the time of a prompt, which delays its own request by itself at least."""
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
    """Means over the requests of a run: TTFT and TPOT [s], or what they differ by as a share.

    ttft_p50 : median, 0 as a difference where it was not measured
    """

    ttft: float
    tpot: float
    ttft_p50: float = 0.0

    def errors(self, run: ServingRun) -> Means:
        """Predicted over measured minus 1."""
        median = self.ttft_p50 / run.ttft_p50_s - 1 if run.ttft_p50_s is not None else 0.0
        return Means(ttft=self.ttft / run.ttft_s - 1, tpot=self.tpot / run.tpot_s - 1, ttft_p50=median)

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
    """The overheads [s] and the errors of every run; changed : whether they differ from those in force.

    request_s, prompt_s : of a request outside the steps, and inside (``EngineOverheads.step_per_prompt_s``); a fit has
        one of them
    """

    step_s: float
    request_s: float
    prompt_s: float = 0.0
    errors: tuple[RunErrors, ...]
    changed: bool


def with_overheads(
    deployment: Deployment, *, step_s: float = 0.0, request_s: float = 0.0, prompt_s: float = 0.0
) -> Deployment:
    """The deployment whose host takes these times a step, a request, and a prompt inside its step [s]."""
    updates = {"step_s": step_s, "request_s": request_s, "step_per_prompt_s": prompt_s}
    overheads = deployment.engine.overheads.model_copy(update=updates)
    return replace(deployment, engine=replace(deployment.engine, overheads=overheads))


def predicted_means(deployment: Deployment, scenario: ScenarioSpec) -> Means:
    """TTFT and TPOT [s] of the scenario's load on this deployment."""
    return _means_of(_run(deployment, scenario))


def _run(deployment: Deployment, scenario: ScenarioSpec) -> UniformRun | ServedRun:
    return run_of(scenario, deployment, options=ServeOptions(intervals=False))


def _means_of(run: UniformRun | ServedRun) -> Means:
    spread = spread_of(run)
    return Means(ttft=run.ttft_s, tpot=run.tpot_s, ttft_p50=spread.ttft.p50_s if spread else 0.0)


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


def _slack(alone: UniformRun | ServedRun, *, chance: Means) -> Means:
    """How much less than the kernels ``alone`` a measurement may be without a contradiction, as shares: what chance
    makes, or how far off the kernels' own prices are at the end of their 80 % interval."""

    def share(chance: float, phase: PhaseEstimate | None) -> float:
        return max(chance, 1 - exp(-DEVIATE * phase.log_sigma) if phase is not None else 0.0)

    return Means(ttft=share(chance.ttft, alone.prefill), tpot=share(chance.tpot, alone.decode))


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


def _check_floor(run: ServingRun, *, floor: Means, slack: Means) -> None:
    for field, measured_s, least_s in (
        ("ttft", run.ttft_s, floor.ttft * (1 - slack.ttft)),
        ("tpot", run.tpot_s, floor.tpot * (1 - slack.tpot)),
    ):
        if measured_s < least_s:
            raise RoofcastError(
                f"{run.path}: measured {measured_s / MILLI:.3g} ms, but the kernels alone take at least "
                f"{least_s / MILLI:.3g} ms: an overhead below 0 cannot be fitted",
                field=field,
                code="not_identifiable",
                hint="check the model, the accelerators and the weight format; prompts that hit a prefix cache lower "
                "TTFT too",
            )


def _step_s(bare: Deployment, measured: MeasuredRun, *, floor_tpot_s: float, prompt_s: float = 0.0) -> float:
    """Host time per step with which TPOT is the measured one [s]: secant steps, TPOT rises with it.

    floor_tpot_s : TPOT with the time per prompt alone [s]
    """
    target_s = measured.run.tpot_s
    low_s, low_tpot_s = 0.0, floor_tpot_s
    step_s = max(0.0, target_s - floor_tpot_s)
    for _ in range(ROUNDS):
        slower = with_overheads(bare, step_s=step_s, prompt_s=prompt_s)
        tpot_s = predicted_means(slower, measured.scenario).tpot
        if abs(tpot_s / target_s - 1) < PRECISION or step_s == low_s:
            break
        slope = (tpot_s - low_tpot_s) / (step_s - low_s)
        low_s, low_tpot_s = step_s, tpot_s
        step_s = float(np.clip(step_s + (target_s - tpot_s) / max(slope, PRECISION), 0.0, STEP_S_AT_MOST))
    return step_s


def _request_s(stepped: Deployment, runs: Sequence[MeasuredRun], *, slacks: Sequence[Means]) -> float:
    """Time per request that TTFT shows beyond the steps (median over the runs) [s]."""
    waits = [item.run.ttft_s - predicted_means(stepped, item.scenario).ttft for item in runs]
    request_s = float(np.median(waits))
    slack_s = max(slack.ttft * item.run.ttft_s for slack, item in zip(slacks, runs, strict=True))
    if request_s < -slack_s:
        raise RoofcastError(
            f"{runs[0].run.path}: TTFT is {-request_s / MILLI:.3g} ms less than its steps take with the step time that "
            "TPOT shows: no time per request can be fitted",
            field="ttft",
            code="not_identifiable",
            hint="prompts that hit a prefix cache lower TTFT; run with prompts that do not repeat",
        )
    return max(0.0, request_s)


def _inside_s(bare: Deployment, measured: MeasuredRun, *, floor: Means) -> tuple[float, float]:
    """Times per step and per prompt inside its step with which TPOT and TTFT are the measured ones [s]: secant steps
    over the latter, TTFT rises with it; nothing a prompt where the time per step explains TTFT."""
    target_s = measured.run.ttft_s

    def tried(prompt_s: float) -> tuple[float, float]:
        alone = predicted_means(with_overheads(bare, prompt_s=prompt_s), measured.scenario) if prompt_s else floor
        step_s = _step_s(bare, measured, floor_tpot_s=alone.tpot, prompt_s=prompt_s)
        slower = with_overheads(bare, step_s=step_s, prompt_s=prompt_s)
        return step_s, predicted_means(slower, measured.scenario).ttft

    prompt_s, low_s = 0.0, 0.0
    step_s, low_ttft_s = tried(prompt_s)
    if low_ttft_s >= target_s:
        return step_s, 0.0
    prompt_s = (target_s - low_ttft_s) / 2
    for _ in range(ROUNDS):
        step_s, ttft_s = tried(prompt_s)
        if abs(ttft_s / target_s - 1) < PRECISION or prompt_s == low_s:
            break
        slope = max((ttft_s - low_ttft_s) / (prompt_s - low_s), LEAST_SLOPE)
        low_s, low_ttft_s = prompt_s, ttft_s
        prompt_s = float(np.clip(prompt_s + (target_s - ttft_s) / slope, 0.0, STEP_S_AT_MOST))
    return step_s, prompt_s


def fit_overheads(deployment: Deployment, *, runs: Sequence[MeasuredRun]) -> OverheadFit:
    """Fit ``step_s`` and a time per request to the runs, each one's solution counting once (median over the runs).

    The time per request is ``request_s``, or ``step_per_prompt_s`` where the runs are closer with that: one run of
    which the mean of first tokens alone is known cannot tell. The overheads in force stay where they predict every run
    as closely as chance lets them, or closer than the fit.

    Raises RoofcastError: a run is overloaded, or faster than the kernels alone, so that its overheads cannot be told.
    """
    for item in runs:
        _check_load(item.run)
    before = [predicted_means(deployment, item.scenario).errors(item.run) for item in runs]
    chances = [_chance(deployment, item.scenario) for item in runs]
    if all(error.within(chance) for error, chance in zip(before, chances, strict=True)):
        return _kept(deployment, runs, before)
    bare = with_overheads(deployment)
    alone = [_run(bare, item.scenario) for item in runs]
    floors = [_means_of(run) for run in alone]
    pairs = tuple(zip(runs, floors, strict=True))
    slacks = [_slack(run, chance=chance) for run, chance in zip(alone, chances, strict=True)]
    for item, floor, slack in zip(runs, floors, slacks, strict=True):
        _check_floor(item.run, floor=floor, slack=slack)
    step_s = float(np.median([_step_s(bare, item, floor_tpot_s=floor.tpot) for item, floor in pairs]))
    request_s = _request_s(with_overheads(bare, step_s=step_s), runs, slacks=slacks)
    found = _fit(bare, runs, before, step_s=step_s, request_s=request_s)
    if request_s:
        beside = np.array([_inside_s(bare, item, floor=floor) for item, floor in pairs])
        held_s, prompt_s = np.median(beside, axis=0).tolist()
        found = min(found, _fit(bare, runs, before, step_s=held_s, prompt_s=prompt_s), key=lambda one: one.size)
    return _kept(deployment, runs, before) if found.size >= _size(before) else found.fit


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """Overheads, and how far all runs are off with them."""

    fit: OverheadFit
    size: float


def _fit(
    bare: Deployment, runs: Sequence[MeasuredRun], before: Sequence[Means], *, step_s: float, request_s: float = 0.0,
    prompt_s: float = 0.0,
) -> _Tried:  # fmt: skip
    fitted = with_overheads(bare, step_s=step_s, request_s=request_s, prompt_s=prompt_s)
    after = [predicted_means(fitted, item.scenario).errors(item.run) for item in runs]
    errors = tuple(_errors(item.run, *both) for item, *both in zip(runs, before, after, strict=True))
    fit = OverheadFit(step_s=step_s, request_s=request_s, prompt_s=prompt_s, errors=errors, changed=True)
    # What is known to a tenth of a percent decides nothing: times outside the steps come first.
    return _Tried(fit=fit, size=_size(after) + (PRECISION if prompt_s else 0.0))


def _kept(deployment: Deployment, runs: Sequence[MeasuredRun], before: Sequence[Means]) -> OverheadFit:
    overheads = deployment.engine.overheads
    errors = tuple(_errors(item.run, error, error) for item, error in zip(runs, before, strict=True))
    return OverheadFit(
        step_s=overheads.step_s,
        request_s=overheads.request_s,
        prompt_s=overheads.step_per_prompt_s,
        errors=errors,
        changed=False,
    )


def _size(errors: Sequence[Means]) -> float:
    return float(np.mean([abs(error.ttft) + abs(error.tpot) + abs(error.ttft_p50) for error in errors]))


def _errors(run: ServingRun, before: Means, after: Means) -> RunErrors:
    return RunErrors(
        run=run, ttft_before=before.ttft, tpot_before=before.tpot, ttft_after=after.ttft, tpot_after=after.tpot
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCalibration:
    """The overheads of ``engine``, the errors of every run before and after, and what to write.

    lengths : how lengths were taken of which a file has means alone; None where every file tells
    profile : None where the overheads in force stay
    """

    engine: str
    fit: OverheadFit
    lengths: Literal["equal", "varied"] | None
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
        note=f"step_s, request_s and step_per_prompt_s from {what}{rest}",
    )
    fitted = {"step_s": fit.step_s, "request_s": fit.request_s, "step_per_prompt_s": fit.prompt_s}
    values = {name: float(f"{value:.4g}") for name, value in fitted.items()}
    overheads = served.engine.overheads.model_copy(update=values)
    return profile.model_copy(update={"overheads": overheads, "sources": {**profile.sources, "overheads": source}})


def calibrate_engine(files: Sequence[str], *, served: ServedSpec, profiles: str | None = None) -> EngineCalibration:
    """Fit an engine's time per step and per request to results of vLLM bench, GuideLLM or AIPerf.

    served : the replica that answered; profiles : directory of profiles read beside the built-in ones

    Raises RoofcastError: a run is overloaded, or faster than the kernels alone, so that its overheads cannot be told.
    """
    measured = runs_that_tell(files)

    def runs(unknown_cv: float) -> tuple[MeasuredRun, ...]:
        scenarios = (run_scenario(run, identifier=name, served=served, unknown_cv=unknown_cv) for run, name in measured)
        return tuple(MeasuredRun(run=run, scenario=own) for (run, _), own in zip(measured, scenarios, strict=True))

    equal, varied = runs(0.0), runs(UNKNOWN_CV)
    scenario = equal[0].scenario
    replica = deployment_of(scenario, profiles=profiles)
    lengths: Literal["equal", "varied"] | None = None if equal == varied else "equal"
    try:
        fit = fit_overheads(replica, runs=equal)
    except RoofcastError:
        if equal == varied:
            raise
        # Clients of equal requests move in waves, whose prompts wait for each other: lengths that differ are no such.
        fit, lengths = fit_overheads(replica, runs=varied), "varied"
    profile = load_engine(scenario.engine.name, profiles=profiles)
    if not fit.changed:
        return EngineCalibration(engine=profile.name, fit=fit, lengths=lengths, profile=None)
    fitted = _fitted_profile(profile, fit, files=files, served=replica, what=_replica_text(scenario))
    text = ProfileText(path=f"engines/{profile.name}.yaml", text=yaml_text(fitted, heading=HEADING))
    return EngineCalibration(engine=profile.name, fit=fit, lengths=lengths, profile=text)


def _replica_text(scenario: ScenarioSpec) -> str:
    """``llama-3.1-70b on h100, tp 4``, other degrees where they are not 1."""
    return f"{scenario.model} on {scenario.hardware}, {', '.join(scenario.parallelism.sizes)}"
