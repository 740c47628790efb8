"""Benchmark results as scenarios, beside what is predicted of the same load."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from simulator.engine.runs.answers import answer, run_intervals
from simulator.kernels.timing import Range
from simulator.specs.documents import validate
from simulator.specs.engine.engine import DEFAULT_ENGINE
from simulator.specs.measured.serving_results import ServingRun, load_serving_runs
from simulator.specs.question.scenario import ScenarioSpec

UNKNOWN_CV = 0.064
"""Spread of lengths of which a file has means alone: that of a uniform draw between 0.8 and 1.0 of the nominal ones."""
REQUESTS = 400
"""Of open arrivals that are simulated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedValue:
    """One measured mean in SI units and its prediction; interval : 80 %, None where there is none."""

    metric: str
    measured: float
    predicted: float
    interval: Range | None

    @property
    def error(self) -> float:
        """Predicted over measured minus 1."""
        return self.predicted / self.measured - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedRun:
    """A run of a result file, the scenario that it is, and its values."""

    run: ServingRun
    scenario: ScenarioSpec
    values: tuple[ReplayedValue, ...]


def _load(run: ServingRun) -> dict[str, Any]:
    """The scenario's fields that say what clients sent."""
    isl, osl = max(1, round(run.isl_tokens)), max(2, round(run.osl_tokens))
    rate = run.request_rate_per_s
    spread = {
        "isl_cv": UNKNOWN_CV if run.isl_cv is None else run.isl_cv,
        "osl_cv": UNKNOWN_CV if run.osl_cv is None else run.osl_cv,
    }
    if rate is not None:
        stage = {"rate_per_s": rate, "duration_s": min(run.requests, REQUESTS) / rate}
        return {"kind": "serve", "workload": {"stages": [stage], "isl_tokens": isl, "osl_tokens": osl, **spread}}
    return {
        "kind": "closed_loop",
        "concurrency": max(1, round(run.concurrency)),
        "num_requests": run.requests,
        "isl_tokens": isl,
        "osl_tokens": osl,
        **({"range_ratio": run.range_ratio} if run.range_ratio is not None else spread),
    }


def run_scenario(
    run: ServingRun,
    *,
    identifier: str,
    model: str,
    hardware: str,
    tp_size: int = 1,
    engine: str = DEFAULT_ENGINE,
    weights: str | None = None,
    kv_cache: str | None = None,
) -> ScenarioSpec:
    """The scenario of a measured run on a deployment that its file does not describe."""
    fields = {
        "id": identifier,
        "model": model,
        "hardware": hardware,
        "tp_size": tp_size,
        "engine": {"name": engine},
        "precision": {"weights": weights, "kv_cache": kv_cache},
        **_load(run),
    }
    return validate(ScenarioSpec, fields, where=run.path)


def replay_results(
    files: Sequence[str],
    *,
    model: str,
    hardware: str,
    tp_size: int = 1,
    engine: str = DEFAULT_ENGINE,
    weights: str | None = None,
    kv_cache: str | None = None,
    profiles: str | None = None,
) -> tuple[ReplayedRun, ...]:
    """Every run of benchmark result files beside its prediction.

    Parameters
    ----------
    files : results of InferenceX, vLLM bench, GuideLLM or AIPerf; model, hardware, tp_size, engine : what ran
    weights, kv_cache : number formats; None leaves them as the checkpoint has them

    Raises
    ------
    RoofcastError
        A file is of no known kind, lacks lengths or a load, or the deployment is refused.
    """
    found = []
    for name in files:
        for place, run in enumerate(load_serving_runs(name)):
            scenario = run_scenario(
                run,
                identifier=f"{name}#{place}",
                model=model,
                hardware=hardware,
                tp_size=tp_size,
                engine=engine,
                weights=weights,
                kv_cache=kv_cache,
            )
            found.append(ReplayedRun(run=run, scenario=scenario, values=_values(run, scenario, profiles=profiles)))
    return tuple(found)


def _values(run: ServingRun, scenario: ScenarioSpec, *, profiles: str | None) -> tuple[ReplayedValue, ...]:
    result = answer(scenario, profiles=profiles)
    intervals = run_intervals(scenario, result.deployment, result.run)
    output_s = run.answered_per_s * run.osl_tokens
    pairs = (
        ("ttft_s", run.ttft_s, result.ttft_s),
        ("tpot_s", run.tpot_s, result.tpot_s),
        ("output_tokens_per_s", output_s, result.output_tokens_per_s),
    )
    return tuple(
        ReplayedValue(metric=metric, measured=measured, predicted=predicted, interval=intervals.get(metric))
        for metric, measured, predicted in pairs
        if predicted is not None
    )
