"""Fit the host overheads of engines that only offline tables tell about, on a third of the rows.

``python -m validation.fit.static_engines --data DIR [--write]``: non-negative least squares on the log of measured
over predicted, outliers weighing less, on every third run of a source; the table shows the errors of the others.
``--write`` puts the parameters into hardware_profiles/engines/.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear

from simulator.engine.answers import deployment_of, run_of
from simulator.engine.served_run import ServedRun, ServeOptions
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment
from simulator.specs.documents import validate
from simulator.specs.scenario import ScenarioSpec
from validation.end_to_end.runs import MeasuredRun
from validation.end_to_end.sources import load_source

Array = NDArray[np.float64]
EVERY = 3
ROUNDS = 2
# Errors beyond this count linearly: a table's odd rows are not the host's [Huber1964].
OUTLIER = 0.1
SCALES = {
    "step_s": 1e-4,
    "step_per_sequence_s": 1e-5,
    "eager_launch_s": 1e-6,
    "collective_lag_s": 1e-5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Overheads of one engine (``before``: of its releases before that version) and the sources that tell them."""

    engine: str
    sources: tuple[str, ...]
    fitted: tuple[str, ...]
    before: str | None = None


QUESTIONS = (
    Question(
        engine="vllm", before="0.6", sources=("argonne",), fitted=("step_s", "step_per_sequence_s", "collective_lag_s")
    ),
    Question(
        engine="tensorrt-llm",
        sources=("argonne", "tensorrt-llm"),
        fitted=("step_s", "step_per_sequence_s", "collective_lag_s"),
    ),
    Question(
        engine="torch-eager",
        sources=("splitwise",),
        fitted=("step_per_sequence_s", "eager_launch_s", "collective_lag_s"),
    ),
    Question(
        engine="deepspeed-mii",
        sources=("argonne",),
        fitted=("step_s", "step_per_sequence_s", "collective_lag_s"),
    ),
    Question(engine="llama.cpp", sources=("argonne",), fitted=("step_s",)),
    Question(engine="fastertransformer", sources=("fastertransformer",), fitted=("step_s", "collective_lag_s")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A measured run with its replica, built once."""

    run: MeasuredRun
    scenario: ScenarioSpec
    deployment: Deployment


def cases(question: Question, data: Path) -> list[Case]:
    """The runs that tell about the engine; those that are refused are left out."""
    found = []
    for run in (run for source in question.sources for run in load_source(source, data)):
        scenario = validate(ScenarioSpec, run.scenario, where=run.source)
        if scenario.engine.name != question.engine:
            continue
        try:
            deployment = deployment_of(scenario)
            run_of(scenario, deployment, options=ServeOptions())
        except RoofcastError:
            continue
        found.append(Case(run=run, scenario=scenario, deployment=deployment))
    return found


def _with(deployment: Deployment, values: dict[str, float]) -> Deployment:
    engine = replace(deployment.engine, overheads=deployment.engine.overheads.model_copy(update=values))
    traits = replace(deployment.kernels.traits, collective_lag_s=engine.overheads.collective_lag_s)
    return replace(deployment, engine=engine, kernels=replace(deployment.kernels, traits=traits))


def log_errors(some: Sequence[Case], values: dict[str, float]) -> Array:
    """log(predicted / measured) of every metric of every case."""
    errors = []
    for case in some:
        run = run_of(case.scenario, _with(case.deployment, values), options=ServeOptions())
        assert not isinstance(run, ServedRun), "offline tables hold no served load"
        errors += [float(np.log(getattr(run, name) / measured)) for name, measured in case.run.measured.items()]
    return np.array(errors)


def fit(question: Question, some: Sequence[Case]) -> dict[str, float]:
    """The overheads [s] that explain ``some`` best, none below zero."""
    overheads = some[0].deployment.engine.overheads
    values = {name: float(getattr(overheads, name)) for name in question.fitted}
    for _ in range(ROUNDS):
        here = log_errors(some, values)
        moved = [log_errors(some, {**values, name: values[name] + SCALES[name]}) - here for name in question.fitted]
        steps = _step(here, np.stack(moved, axis=1), low=[-values[name] / SCALES[name] for name in question.fitted])
        values = {
            name: max(value + step * SCALES[name], 0.0)
            for (name, value), step in zip(values.items(), steps, strict=True)
        }
    return {name: float(f"{value:.3g}") for name, value in values.items()}


def _step(here: Array, slopes: Array, *, low: Sequence[float]) -> Array:
    """The step, at least ``low``, that makes the linearised errors smallest, outliers weighing less [Huber1964]."""
    weights = np.ones_like(here)
    step = np.zeros(slopes.shape[1])
    for _ in range(10):
        bounds = (np.array(low) - 1e-9, np.full(len(low), np.inf))
        step = lsq_linear(slopes * weights[:, None], -here * weights, bounds=bounds).x
        left = np.abs(here + slopes @ step)
        weights = np.sqrt(np.minimum(1.0, OUTLIER / np.maximum(left, 1e-9)))
    return step


def _write(question: Question, values: dict[str, float], folder: Path) -> None:
    """Replace the numbers in the profile, those of the release where the question is about one."""
    path = folder / f"{question.engine}.yaml"
    head, mark, tail = path.read_text(encoding="utf-8").partition("\nreleases:\n")
    for name, value in values.items():
        line = re.compile(rf"^( +{name}: ).*$", flags=re.MULTILINE)
        if question.before is None:
            head = line.sub(rf"\g<1>{value:.3e}", head)
        else:
            tail = line.sub(rf"\g<1>{value:.3e}", tail)
    path.write_text(head + mark + tail, encoding="utf-8")


def main() -> None:
    """Fit, score on the rows left out, print, and optionally write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds e2e/")
    parser.add_argument("--engine", action="append", help="only this one (repeatable)")
    parser.add_argument("--write", action="store_true", help="update hardware_profiles/engines/")
    arguments = parser.parse_args()
    for question in QUESTIONS:
        if arguments.engine and question.engine not in arguments.engine:
            continue
        found = cases(question, arguments.data)
        seen, unseen = found[::EVERY], [case for place, case in enumerate(found) if place % EVERY]
        before = np.abs(np.expm1(log_errors(unseen, {})))
        values = fit(question, seen)
        after = np.abs(np.expm1(log_errors(unseen, values)))
        print(
            f"{question.engine}: {values}; {len(unseen)} errors not fitted: median {100 * np.median(before):.1f} -> "
            f"{100 * np.median(after):.1f} %, mean {100 * before.mean():.1f} -> {100 * after.mean():.1f} %",
            flush=True,
        )
        if arguments.write:
            _write(question, values, Path("hardware_profiles/engines"))


if __name__ == "__main__":
    main()
