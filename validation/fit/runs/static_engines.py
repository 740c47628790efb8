"""Fit the host overheads of engines that only offline tables tell about, on a third of the rows.

``python -m validation.fit.runs.static_engines --data DIR [--write]``: non-negative least squares on the log of measured
over predicted, outliers weighing less, on every third run of a source; the table shows the errors of the others. Of a
source with fewer than three runs all are fitted, and the errors are those of each under a fit to the others.
Their spread is the smallest that makes the 80 % intervals hold 80 % of the others.
``--write`` puts both into hardware_profiles/calibration/engines/.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.engine.runs.answers import run_intervals, run_of
from simulator.engine.runs.scenario_setup import ServeOptions, deployment_of
from simulator.engine.runs.served_run import ServedRun
from simulator.errors import RoofcastError
from simulator.kernels.intervals import DEVIATE, LEVEL
from simulator.phases.deployment import Deployment
from simulator.phases.engine_settings import EngineSettings
from simulator.specs.base import validate
from simulator.specs.engine.engine import EngineProfile, load_engine
from simulator.specs.engine.fits import EngineSpread
from simulator.specs.question.scenario import ScenarioSpec
from validation.end_to_end.measured.runs import MeasuredRun
from validation.end_to_end.measured.sources import load_source
from validation.fit.files import write_engine_fits
from validation.fit.robust import robust_step

Array = NDArray[np.float64]
EVERY = 3
EXACT = EngineSpread(ttft=0.0, tpot=0.0, e2e=0.0)
ROUNDS = 2
# Errors beyond this count linearly: a table's odd rows are not the host's [Huber1964].
OUTLIER = 0.1
ELEMENTS = "vector_elements_per_clock"
"""Of decode attention on vector units; the other numbers are overheads."""
SCALES = {"step_s": 1e-4, "step_per_sequence_s": 1e-5, "eager_launch_s": 1e-6, "collective_lag_s": 1e-5, ELEMENTS: 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Overheads of one engine (``before``: of its releases before that version) and the sources that tell them.

    others : sources that no fit of the engine takes; they tell how far another's machine and way to drive it are off
    """

    engine: str
    sources: tuple[str, ...]
    fitted: tuple[str, ...]
    before: str | None = None
    others: tuple[str, ...] = ()


QUESTIONS = (
    Question(
        engine="vllm", before="0.6", sources=("argonne",), fitted=("step_s", "step_per_sequence_s", "collective_lag_s")
    ),
    Question(
        engine="tensorrt-llm",
        before="0.10",
        sources=("tensorrt-llm",),
        fitted=("step_s", "step_per_sequence_s", "collective_lag_s", ELEMENTS),
    ),
    Question(
        engine="tensorrt-llm",
        before="0.15",
        sources=("tensorrt-llm",),
        fitted=("step_s", "step_per_sequence_s", "collective_lag_s"),
    ),
    Question(
        engine="tensorrt-llm",
        before="1.0",
        sources=("argonne",),
        fitted=("step_s", "step_per_sequence_s", "collective_lag_s"),
    ),
    Question(
        engine="torch-eager",
        sources=("splitwise",),
        fitted=("step_per_sequence_s", "eager_launch_s", "collective_lag_s"),
    ),
    Question(
        engine="deepspeed-mii", sources=("argonne",), fitted=("step_s", "step_per_sequence_s", "collective_lag_s")
    ),
    # Two rows, each the check of the other: what the host does between steps besides issuing kernels.
    Question(
        engine="llama.cpp", before="b2800", sources=("llama.cpp",), fitted=("step_s",), others=("argonne-llama.cpp",)
    ),
    Question(engine="fastertransformer", sources=("fastertransformer",), fitted=("step_s", "collective_lag_s")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A measured run with its replica, built once."""

    run: MeasuredRun
    scenario: ScenarioSpec
    deployment: Deployment


def cases(question: Question, data: Path, *, others: bool = False) -> list[Case]:
    """The runs that tell about the engine (``others``: those of any release that no fit takes); those that are refused
    are left out."""
    found = []
    for run in (
        run for source in (question.others if others else question.sources) for run in load_source(source, data)
    ):
        scenario = validate(ScenarioSpec, run.scenario, where=run.source)
        if scenario.engine.name != question.engine or not (others or _release(scenario) == question.before):
            continue
        try:
            deployment = deployment_of(scenario)
            run_of(scenario, deployment, options=ServeOptions())
        except RoofcastError:
            continue
        found.append(Case(run=run, scenario=scenario, deployment=deployment))
    return found


def _release(scenario: ScenarioSpec) -> str | None:
    return load_engine(scenario.engine.name).release(scenario.engine.version)


@cache
def _profile(engine: str, version: str) -> EngineProfile:
    return load_engine(engine).at(version)


def _now(settings: EngineSettings, name: str) -> float:
    profile = _profile(settings.name, settings.version)
    return float(getattr(profile.overheads, name))


def _with(deployment: Deployment, values: dict[str, float]) -> Deployment:
    """The replica with these overheads, which are those of the host that its engine's profile names."""
    settings, hardware = deployment.engine, deployment.hardware
    times = {name: value for name, value in values.items() if name != ELEMENTS}
    reference = _profile(settings.name, settings.version).overheads
    engine = replace(settings, overheads=reference.model_copy(update=times).on_host(hardware.host_speed))
    traits = replace(deployment.kernels.traits, collective_lag_s=engine.overheads.collective_lag_s)
    if ELEMENTS in values:
        rate_per_s = values[ELEMENTS] * hardware.compute_units * hardware.boost_clock_hz
        traits = replace(traits, vector_elements_per_s=rate_per_s)
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
    values = {name: _now(some[0].deployment.engine, name) for name in question.fitted}
    for _ in range(ROUNDS):
        here = log_errors(some, values)
        moved = [log_errors(some, {**values, name: values[name] + SCALES[name]}) - here for name in question.fitted]
        low = np.array([-values[name] / SCALES[name] for name in question.fitted])
        steps = robust_step(here, np.stack(moved, axis=1), low=low, outlier=OUTLIER)
        values = {
            name: max(value + step * SCALES[name], 0.0)
            for (name, value), step in zip(values.items(), steps, strict=True)
        }
    return {name: float(f"{value:.3g}") for name, value in values.items()}


def left_out_errors(question: Question, found: Sequence[Case]) -> Array:
    """log(predicted / measured) of every case under a fit to the others, where a third would leave too few to fit."""
    others = [[case for case in found if case is not left] for left in found]
    return np.concatenate([log_errors([left], fit(question, rest)) for left, rest in zip(found, others, strict=True)])


def _missing(case: Case, values: dict[str, float]) -> dict[str, list[float]]:
    """What must join the kernels' spread in quadrature for the intervals of a case to reach what was measured."""
    deployment = _with(case.deployment, values)
    deployment = replace(deployment, engine=replace(deployment.engine, spread=EXACT))
    run = run_of(case.scenario, deployment, options=ServeOptions())
    bounds = run_intervals(case.scenario, deployment, run)
    missing: dict[str, list[float]] = defaultdict(list)
    for name, measured in case.run.measured.items():
        predicted, bound = float(getattr(run, name)), bounds[name]
        assert bound is not None, "a metric that was measured is predicted"
        kernels, error = np.log(bound[1] / predicted), np.log(measured / predicted)
        metric = name.removesuffix("_s") if name in ("ttft_s", "tpot_s") else "e2e"
        missing[metric].append(float(np.sqrt(max(error**2 - kernels**2, 0.0)) / DEVIATE))
    return missing


def spread(unseen: Sequence[Case], values: dict[str, float]) -> EngineSpread:
    """The smallest spread of each metric that holds 80 % of the runs which were not fitted.

    A table without a metric says nothing about it: TPOT then takes that of whole requests, the others stay as they are.
    """
    gathered: dict[str, list[float]] = defaultdict(list)
    for case in unseen:
        for metric, missing in _missing(case, values).items():
            gathered[metric] += missing
    found = {
        metric: float(f"{np.quantile(missing, LEVEL, method='higher'):.3f}") for metric, missing in gathered.items()
    }
    if "e2e" in found:
        found.setdefault("tpot", found["e2e"])
    return unseen[0].deployment.engine.spread.model_copy(update=found)


def spread_of_sources(fitted: Sequence[Case], others: Sequence[Case], values: dict[str, float]) -> EngineSpread:
    """The smallest spread that holds 80 % of the sources, each of which 80 % of its runs hold: of an engine that few
    measured. Time per token and whole requests; first tokens stay as they are.
    """
    by_source: dict[str, list[float]] = defaultdict(list)
    for case in (*fitted, *others):
        by_source[case.run.source] += [each for some in _missing(case, values).values() for each in some]
    holding = [np.quantile(missing, LEVEL, method="higher") for missing in by_source.values()]
    found = float(f"{np.quantile(holding, LEVEL, method='higher'):.3f}")
    return fitted[0].deployment.engine.spread.model_copy(update={"tpot": found, "e2e": found})


def main() -> None:
    """Fit, score on the rows left out, print, and optionally write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds e2e/")
    parser.add_argument("--engine", action="append", help="only this one (repeatable)")
    parser.add_argument("--write", action="store_true", help="update the fits of each engine")
    arguments = parser.parse_args()
    for question in QUESTIONS:
        if arguments.engine and question.engine not in arguments.engine:
            continue
        found = cases(question, arguments.data)
        seen, unseen = found[::EVERY], [case for place, case in enumerate(found) if place % EVERY]
        if len(found) < EVERY:
            seen = unseen = found
        before = np.abs(np.expm1(log_errors(unseen, {})))
        values = fit(question, seen)
        after = np.abs(np.expm1(log_errors(unseen, values) if seen is not unseen else left_out_errors(question, found)))
        print(
            f"{question.engine}: {values}; {len(unseen)} errors not fitted: median {100 * np.median(before):.1f} -> "
            f"{100 * np.median(after):.1f} %, mean {100 * before.mean():.1f} -> {100 * after.mean():.1f} %",
            flush=True,
        )
        others = cases(question, arguments.data, others=True)
        scatter = spread_of_sources(found, others, values) if others else spread(unseen, values)
        print(f"  spread: ttft {scatter.ttft}, tpot {scatter.tpot}, e2e {scatter.e2e}", flush=True)
        if arguments.write:
            widths = scatter.model_dump(include={"ttft", "tpot", "e2e"})
            write_engine_fits(question.engine, release=question.before, overheads=values, spread=widths)
            if others:
                write_engine_fits(question.engine, spread=widths)


if __name__ == "__main__":
    main()
