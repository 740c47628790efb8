"""Benchmark results of a served model become an engine profile: two overheads, their errors, and the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from simulator.engine.runs.scenario_setup import deployment_of
from simulator.fitting.engine_overheads import MeasuredRun, OverheadFit, fit_overheads
from simulator.fitting.replay import run_scenario
from simulator.phases.deployment import Deployment
from simulator.specs.base import Source
from simulator.specs.engine.engine import EngineProfile, load_engine
from simulator.specs.measured.result_file import ServedSpec
from simulator.specs.measured.serving_results import load_serving_runs
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.writing import HEADING, ProfileText, yaml_text


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

    Raises
    ------
    RoofcastError
        A run is overloaded, or faster than the kernels alone, so that its overheads cannot be told.
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
    sizes = {"pp": scenario.pp_size, "dp": scenario.dp_size, "ep": scenario.ep_size}
    degrees = [f"tp {scenario.tp_size}", *(f"{name} {size}" for name, size in sizes.items() if size > 1)]
    return f"{scenario.model} on {scenario.hardware}, {', '.join(degrees)}"
