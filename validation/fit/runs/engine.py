"""Fit what an engine takes beside its kernels on serving runs, and score it on models that the fit did not see.

``python -m validation.fit.runs.engine --data DIR [--write]``: Gauss-Newton on the log of TTFT, TPOT and E2E means over
all stages but overloaded ones, with every overhead at least 0; then once per model without its runs (leave one model
out). These runs tell two of them; times per step, per sequence and per request come out as 0 beside these and are not
fitted. ``--write`` puts the parameters of all runs into hardware_profiles/calibration/engines/vllm.yaml.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.phases.deployment import Deployment
from simulator.specs.base import Source
from simulator.specs.engine.fits import EngineOverheads
from validation.end_to_end.measured.serving import (
    METRICS,
    ServingRun,
    deployment_of,
    load_serving,
    predicted_stages,
    stage_metric,
    with_overheads,
)
from validation.fit.files import write_engine_fits
from validation.fit.robust import robust_step

Array = NDArray[np.float64]
FITTED = ("sampled_logit_s", "prompt_token_s")
SCALES = np.array([1e-10, 4e-6])
OUTLIER = 0.05
FITTED_METRICS = METRICS[:3]
ROUNDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run with its deployment; deployments are built once."""

    run: ServingRun
    deployment: Deployment


def overheads_from(base: EngineOverheads, values: Array) -> EngineOverheads:
    updates = dict(zip(FITTED, (float(value) for value in values), strict=True))
    return base.model_copy(update=updates)


def log_errors(cases: Sequence[Case], values: Array, *, metrics: Sequence[str]) -> Array:
    """log(predicted / measured) for every case, stage and metric, in that order."""
    errors = []
    for case in cases:
        overheads = overheads_from(case.deployment.engine.overheads, values)
        stages = predicted_stages(case.run, with_overheads(case.deployment, overheads))
        for stage, measured in zip(stages, case.run.stages, strict=True):
            errors += [float(np.log(stage_metric(stage, name) / measured[name])) for name in metrics]
    return np.array(errors)


def _owners(cases: Sequence[Case], *, metrics: Sequence[str]) -> NDArray[np.str_]:
    """The model that each entry of ``log_errors`` belongs to."""
    return np.array([case.run.scenario.model for case in cases for _ in case.run.stages for _ in metrics])


def _linearised(cases: Sequence[Case], values: Array) -> tuple[Array, Array]:
    """Errors at ``values`` and their slopes per scaled parameter."""
    here = log_errors(cases, values, metrics=FITTED_METRICS)
    slopes = [
        log_errors(cases, values + scale * np.eye(len(values))[index], metrics=FITTED_METRICS) - here
        for index, scale in enumerate(SCALES)
    ]
    return here, np.stack(slopes, axis=1)


def _solve(here: Array, slopes: Array, values: Array) -> Array:
    """The non-negative parameters that make the linearised errors smallest, outliers weighing less [Huber1964]."""
    step = robust_step(here, slopes, low=-values / SCALES, outlier=OUTLIER)
    moved: Array = np.maximum(values + step * SCALES, 0.0)
    return moved


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedOverheads:
    """Overheads (in the order of FITTED) from all runs, and from all but those of one model, by that model's name."""

    values: Array
    without: Mapping[str, Array]


def fit_overheads(cases: Sequence[Case]) -> FittedOverheads:
    """Fit on all cases, and once more without each model in turn."""
    base = cases[0].deployment.engine.overheads
    values = np.array([getattr(base, name) for name in FITTED])
    for _ in range(ROUNDS):
        values = _solve(*_linearised(cases, values), values)
    here, slopes = _linearised(cases, values)
    owners = _owners(cases, metrics=FITTED_METRICS)
    others = {str(model): owners != model for model in sorted(set(owners))}
    without = {model: _solve(here[rows], slopes[rows], values) for model, rows in others.items()}
    return FittedOverheads(values=values, without=without)


def fit_and_score(cases: Sequence[Case]) -> tuple[FittedOverheads, dict[str, float], dict[str, float]]:
    """Parameters, mean absolute errors of the fit on all cases, and with each model left out in turn."""
    overheads = fit_overheads(cases)
    values = overheads.values
    held_out: dict[str, list[float]] = {name: [] for name in METRICS}
    for model, without in overheads.without.items():
        unseen = [case for case in cases if case.run.scenario.model == model]
        errors = np.exp(log_errors(unseen, without, metrics=METRICS)) - 1
        for index, name in enumerate(METRICS):
            held_out[name] += list(np.abs(errors[index :: len(METRICS)]))
    fitted = np.abs(np.exp(log_errors(cases, values, metrics=METRICS)) - 1)
    seen = {name: float(fitted[index :: len(METRICS)].mean()) for index, name in enumerate(METRICS)}
    return overheads, seen, {name: float(np.mean(errors)) for name, errors in held_out.items()}


def measured_cases(data: Path) -> list[Case]:
    """The runs below ``data`` with their deployments, overloaded ones left out."""
    runs = [run for run in load_serving(data) if not run.is_overload]
    return [Case(run=run, deployment=deployment_of(run)) for run in runs]


def main() -> None:
    """Fit, score, print and optionally write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds serving/")
    parser.add_argument("--write", action="store_true", help="update the fits of vLLM")
    arguments = parser.parse_args()
    cases = measured_cases(arguments.data)
    overheads, seen, held_out = fit_and_score(cases)
    values = overheads.values
    print("fitted: " + ", ".join(f"{name} {value:.3g}" for name, value in zip(FITTED, values, strict=True)))
    for name in METRICS:
        print(f"{name:12s} fit {100 * seen[name]:5.1f} %   leave one model out {100 * held_out[name]:5.1f} %")
    if arguments.write:
        errors = ", ".join(f"{name} {100 * held_out[name]:.1f} %" for name in METRICS)
        source = Source(
            source=f"{len(cases)} vLLM 0.15.1 runs on H100 (inference-sim training data, 2026-02), "
            "validation/fit/runs/engine.py; overload left out",
            date=datetime.now(UTC).date().isoformat(),
            note=f"{' and '.join(FITTED)} of all models. Leave one model out: {errors}. eager_launch_s is assumed.",
        )
        fitted = dict(zip(FITTED, values.tolist(), strict=True))
        # One accelerator cannot tell time from traffic; others can (InferenceX on B200, not fitted).
        memory_bytes_per_s = cases[0].deployment.hardware.memory_bytes_per_s
        fitted["sampled_bytes_per_logit"] = fitted["sampled_logit_s"] * memory_bytes_per_s
        write_engine_fits("vllm", overheads=fitted, sources={"overheads": source})


if __name__ == "__main__":
    main()
