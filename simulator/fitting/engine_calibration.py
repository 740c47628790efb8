"""Benchmark results of a served model become an engine profile: two overheads, their errors, and the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from simulator.fitting.engine_overheads import OverheadFit, fit_overheads
from simulator.fitting.profile_text import HEADING, ProfileText
from simulator.phases.deployment import Deployment, deploy
from simulator.specs.base import Source
from simulator.specs.documents import validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import DEFAULT_ENGINE, EngineProfile, EngineSpec, load_engine
from simulator.specs.loading import load_hardware
from simulator.specs.measured.serving_results import load_serving_runs
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.writing import yaml_text


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCalibration:
    """The overheads of ``engine``, the errors of every run before and after, and what to write."""

    engine: str
    fit: OverheadFit
    profile: ProfileText


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


def calibrate_engine(
    files: Sequence[str],
    *,
    model: str,
    hardware: str,
    tp_size: int = 1,
    engine: str = DEFAULT_ENGINE,
    weights: str | None = None,
    kv_cache: str | None = None,
    profiles: str | None = None,
) -> EngineCalibration:
    """Fit an engine's time per step and per request to benchmark results.

    Parameters
    ----------
    files : results of vLLM bench, GuideLLM or AIPerf; model, hardware, tp_size, engine : what ran
    weights, kv_cache : number formats; None leaves them as the checkpoint has them
    profiles : directory of profiles read beside the built-in ones

    Raises
    ------
    RoofcastError
        A run is overloaded, or faster than the kernels alone, so that its overheads cannot be told.
    """
    runs = tuple(run for name in files for run in load_serving_runs(name))
    profile = load_engine(engine, profiles=profiles)
    served = deploy(
        model=load_model(model, profiles=profiles),
        hardware=load_hardware(hardware, profiles=profiles),
        parallelism=ParallelismSpec(tp_size=tp_size),
        precision=validate(PrecisionSpec, {"weights": weights, "kv_cache": kv_cache}, where=""),
        engine=validate(EngineSpec, {"name": engine}, where=""),
        profiles=profiles,
    )
    fit = fit_overheads(served, runs=runs)
    fitted = _fitted_profile(profile, fit, files=files, served=served, what=f"{model} on {hardware}, tp {tp_size}")
    text = ProfileText(path=f"engines/{profile.name}.yaml", text=yaml_text(fitted, heading=HEADING))
    return EngineCalibration(engine=profile.name, fit=fit, profile=text)
