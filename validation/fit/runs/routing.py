"""Fit how unevenly routers choose experts to closed loops of today's models, and score it on what was left out.

``python -m validation.fit.runs.routing --data DIR [--write all]``: the skew under which time per token
(validation.end_to_end.steps) grows with the batch as it was measured, without attention data parallelism. A fixed part
of each layout, which says nothing about routing, is left free, and every accelerator, engine and weight format of a
model counts alike. Models of vLLM's serving runs join with their TPOT, models whose routing was published with that.
The skew of all models is the median of their own, each model scored under the median of the others. A family that ran
on several accelerators keeps its own; printed beside it is what one chosen without an accelerator does there. Engines
whose answers reach fewer experts (``APART``) have one of their own where that does better over their accelerators,
each left out in turn. ``--write all`` puts them into hardware_profiles/calibration/routing.yaml.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.specs.base import Source
from simulator.specs.huggingface.registry import field_table
from simulator.specs.model.architecture import MoeSpec
from simulator.specs.model.fitted import RoutingFit, load_routing_fit
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.writing import yaml_text
from validation.end_to_end.measured.inferencex import MODES, TodayRun, load_inferencex
from validation.end_to_end.measured.serving import (
    ServingRun,
    deployment_of,
    load_serving,
    predicted_stages,
    stage_metric,
)
from validation.end_to_end.steps import LEAST_RUNS, Loop, loops, predicted_seconds
from validation.end_to_end.stored import TODAY_EVERY
from validation.end_to_end.today import thinned
from validation.fit.files import HEADING, calibration_directory
from validation.writing import write_whole

Array = NDArray[np.float64]
Group = tuple[str, ...]
"""Accelerator, engine, model, weight format."""
TPOT = "tpot_mean_s"
PUBLISHED = ("mistralai/Mixtral-8x7B-v0.1",)
"""Models whose profile brings a skew."""
LEAST_ACCELERATORS = 3
"""Of a family with a skew of its own, so that leaving one out leaves more than one."""
APART = ("tensorrt-llm", "atom")
"""Engines that gpt-oss's runs set apart from vLLM: 8 to 64 sequences add less time a layer under them than the memory
takes for the experts that vLLM's runs reach."""
GRID = tuple(round(0.1 * step, 1) for step in range(25))
"""Coefficients of variation to try: an error is flat around its least."""


def routed_runs(data: Path) -> list[TodayRun]:
    """Runs of models with experts, without speculation, each rank with all sequences; none that the sample scores."""
    runs = [item for item in load_inferencex(data) if item.mode == MODES[0]]
    scored = {item.run.scenario["id"] for item in thinned(runs, every=TODAY_EVERY[MODES[0]])}
    return [
        item
        for item in runs
        if "dp_size" not in item.run.scenario and "Llama" not in item.model and item.run.scenario["id"] not in scored
    ]


def _skewed(model: str, *, skew: float) -> dict[str, object]:
    """Techniques that give all experts a skew: none where they have it, since what changes nothing is refused."""
    has_it = all(block.routing_skew == skew for block in _experts(model))
    return {} if has_it else {"structure": {"routing_skew": skew}}


def with_skew(item: TodayRun, skew: float) -> TodayRun:
    """The run as a scenario whose router chooses experts with ``skew``."""
    scenario = {**item.run.scenario, "techniques": _skewed(item.model, skew=skew)}
    return replace(item, run=replace(item.run, scenario=scenario))


def left_errors(loop: Loop) -> Array:
    """Relative errors of a deployment's runs that no fixed time per step explains."""
    errors = predicted_seconds(loop) / loop.measured_s - 1
    fixed = 1 / loop.measured_s
    left: Array = errors - fixed * (errors @ fixed) / (fixed @ fixed)
    return left


def errors_by_group(runs: Iterable[TodayRun], *, skew: float) -> dict[Group, float]:
    """Mean absolute error that is left, by accelerator, engine, model and weight format."""
    found, _ = loops(with_skew(item, skew) for item in runs)
    gathered: dict[Group, list[Array]] = defaultdict(list)
    for loop in found:
        if len(loop.batch) >= LEAST_RUNS:
            gathered[loop.key[:4]].append(np.abs(left_errors(loop)))
    return {group: float(np.concatenate(parts).mean()) for group, parts in gathered.items()}


def _everywhere(group: Group) -> bool:
    return bool(group)


def of_models(errors: dict[Group, float], *, keep: Callable[[Group], bool] = _everywhere) -> dict[str, float]:
    """Errors by model, every group that is kept alike."""
    gathered: dict[str, list[float]] = defaultdict(list)
    for group, error in errors.items():
        if keep(group):
            gathered[group[2]].append(error)
    return {model: float(np.mean(parts)) for model, parts in gathered.items()}


def _best(table: Sequence[dict[Group, float]], model: str, *, keep: Callable[[Group], bool] = _everywhere) -> float:
    return best_skew([of_models(row, keep=keep) for row in table], model)


def _unseen(
    table: Sequence[dict[Group, float]], model: str, place: Group, *, mine: Callable[[Group], bool], other: float
) -> tuple[float, float]:
    """Error of a model at one place under ``other``, and under the skew chosen from the rest of ``mine``; printed."""

    def here(group: Group) -> bool:
        return mine(group) and group[: len(place)] == place

    chosen = _best(table, model, keep=lambda group: mine(group) and not here(group))
    before, after = (of_models(table[GRID.index(one)], keep=here)[model] for one in (other, chosen))
    print(f"{model:20s} without {' '.join(place):22s} {chosen:.1f}: {100 * before:.1f} -> {100 * after:.1f} %")
    return before, after


def _places(
    table: Sequence[dict[Group, float]], *, names: int, mine: Callable[[Group], bool]
) -> dict[str, list[Group]]:
    """Accelerators (and engines) by model, where there are enough to leave one out."""
    found: dict[str, set[Group]] = defaultdict(set)
    for group in filter(mine, table[0]):
        found[group[2]].add(group[:names])
    return {model: sorted(ran) for model, ran in sorted(found.items()) if len(ran) >= LEAST_ACCELERATORS}


def families(table: Sequence[dict[Group, float]], *, skew: float) -> dict[str, float]:
    """Skews of the models of several accelerators; prints errors on one left out, beside those under ``skew``."""
    places = _places(table, names=1, mine=_everywhere)
    for model, ran in places.items():
        for left in ran:
            _unseen(table, model, left, mine=_everywhere, other=skew)
    return {model: _best(table, model) for model in places}


def set_apart(table: Sequence[dict[Group, float]]) -> dict[str, float]:
    """Skews of the models under engines of ``APART`` that do better than the other engines' over places left out."""

    def mine(group: Group) -> bool:
        return group[1] in APART

    found = {}
    for model, ran in _places(table, names=2, mine=mine).items():
        others = _best(table, model, keep=lambda group: not mine(group))
        pairs = [_unseen(table, model, left, mine=mine, other=others) for left in ran]
        if sum(after - before for before, after in pairs) < 0:
            found[model] = _best(table, model, keep=mine)
    return found


def serving_cases(data: Path) -> list[ServingRun]:
    """Serving runs, not overloaded, of models whose routers choose by the fitted skew."""
    return [
        run
        for run in load_serving(data)
        if not run.is_overload and any(block.routing_skew is None for block in _experts(run.scenario.model))
    ]


def _experts(model: str) -> list[MoeSpec]:
    layers = load_model(model).layers
    return [block for layer in layers for block in layer.feed_forward if isinstance(block, MoeSpec)]


def serving_errors_by_model(runs: Iterable[ServingRun], *, skew: float) -> dict[str, float]:
    """Mean absolute error of mean TPOT, by model."""
    gathered: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        techniques = TechniquesSpec.model_validate(_skewed(run.scenario.model, skew=skew))
        skewed = replace(run, scenario=run.scenario.model_copy(update={"techniques": techniques}))
        for stage, measured in zip(predicted_stages(skewed, deployment_of(skewed)), run.stages, strict=True):
            error = stage_metric(stage, TPOT) / measured[TPOT] - 1
            gathered[run.scenario.model.rsplit("/", 1)[-1]].append(abs(error))
    return {model: float(np.mean(errors)) for model, errors in gathered.items()}


def best_skew(table: Sequence[dict[str, float]], model: str) -> float:
    """The skew of GRID with the least error of a model."""
    return GRID[int(np.argmin([row[model] for row in table]))]


def main() -> None:
    """Fit, score on models left out, print and optionally write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that holds today/")
    parser.add_argument("--write", choices=("all", "engines"), help="update the fit, or the part of engines in it")
    arguments = parser.parse_args()
    runs = routed_runs(arguments.data)
    types = {item.model.rsplit("/", 1)[-1]: load_model(item.model).model_type for item in runs}
    date = datetime.now(UTC).date().isoformat()

    groups = [errors_by_group(runs, skew=skew) for skew in GRID]
    own_engines = set_apart(groups)
    part = _part_of_engines(own_engines, types=types, date=date)
    if arguments.write == "engines":
        _write(load_routing_fit().model_copy(update=part))
        return
    serving = serving_cases(arguments.data)
    groups = [
        {group: error for group, error in row.items() if group[1] not in APART or group[2] not in own_engines}
        for row in groups
    ]
    table = [
        {**of_models(row), **serving_errors_by_model(serving, skew=skew)}
        for row, skew in zip(groups, GRID, strict=True)
    ]
    models = sorted(table[0])
    published = {name.rsplit("/", 1)[-1]: _experts(name)[0].routing_skew or 0.0 for name in PUBLISHED}
    own = {**{model: best_skew(table, model) for model in models}, **published}
    scores = []
    for model in models:
        others = float(np.median([skew for name, skew in own.items() if name != model]))
        uniform, unseen = table[0][model], float(np.interp(others, GRID, [row[model] for row in table]))
        scores.append((uniform, unseen))
        said = f"uniform {100 * uniform:.1f} -> {100 * unseen:.1f} %"
        print(f"{model:20s} own {own[model]:.1f}, others' {others:.2f}: {said}")
    skew = float(np.median(list(own.values())))
    before, after = (100 * float(np.mean(part)) for part in zip(*scores, strict=True))
    print(f"skew {skew:.1f}; leave one model out: uniform {before:.1f} -> {after:.1f} %")
    apart = families(groups, skew=skew)
    if not arguments.write:
        return
    source = Source(
        source=f"InferenceX closed loops and vLLM's serving runs on H100 of {', '.join(models)}, and published routing "
        f"of {', '.join(published)}; validation/fit/runs/routing.py",
        date=date,
        note=f"Median of the models' own ({', '.join(f'{value:.1f}' for value in own.values())}). Error that no fixed "
        f"time per step explains (serving: TPOT), each model under the median of the others: {after:.1f} %, "
        f"uniform routing {before:.1f} %. Families of three accelerators and more keep their own.",
    )
    classes = {str(field_table().families[types[model]]["config_class"]): value for model, value in apart.items()}
    fit = RoutingFit(date=date, skew=skew, families=classes, sources={"skew": source})
    _write(fit.model_copy(update={**part, "sources": {**part["sources"], **fit.sources}}))


def _part_of_engines(own: dict[str, float], *, types: dict[str, str], date: str) -> dict[str, dict[str, object]]:
    """The fields of the fit that say what engines have of their own, beside the sources in force."""
    source = Source(
        source=f"InferenceX closed loops of {', '.join(own)} under {', '.join(APART)}; validation/fit/runs/routing.py",
        date=date,
        note="Chosen without each accelerator in turn it is better there, over all, than the other engines' skew. Why "
        "fewer experts are reached is not known; answers that repeat themselves would do it.",
    )
    engines = {engine: {types[model]: value for model, value in own.items()} for engine in APART}
    return {"engines": engines, "sources": {**load_routing_fit().sources, "engines": source}}


def _write(fit: RoutingFit) -> None:
    write_whole(calibration_directory() / "routing.yaml", yaml_text(fit, heading=HEADING))


if __name__ == "__main__":
    main()
