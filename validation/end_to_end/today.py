"""InferenceX's runs scored by accelerator, engine and model: where the errors lie, not only how large they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simulator.errors import RoofcastError
from simulator.units import percent_text
from validation.end_to_end.measured.inferencex import TodayRun
from validation.end_to_end.score import Prediction, predict


@dataclass(frozen=True, slots=True, kw_only=True)
class TodayPrediction:
    """A run, its predictions by metric (None where it was refused) and why it was refused."""

    item: TodayRun
    predictions: tuple[Prediction, ...]
    refused: RoofcastError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentScore:
    """Errors of one accelerator, engine and model in one metric; coverage is that of the 80 % intervals.

    median, mean_absolute : of predicted / measured - 1
    """

    hardware: str
    engine: str
    model: str
    metric: str
    count: int
    median: float
    mean_absolute: float
    coverage: float | None


def thinned(items: Sequence[TodayRun], *, every: int) -> tuple[TodayRun, ...]:
    """Every ``every``-th run of each accelerator, engine, model, weight format and mode, in the order of the table."""
    seen: dict[tuple[str, ...], int] = {}
    kept = []
    for item in items:
        key = (item.hardware, item.engine, item.model, item.weights, item.mode, item.speculation)
        seen[key] = seen.get(key, -1) + 1
        if seen[key] % every == 0:
            kept.append(item)
    return tuple(kept)


def without_recipe(item: TodayRun) -> TodayRun:
    """The run as somebody asks for it who knows the model, the accelerators and their layout, the engine's name, the
    format of the weights, the lengths and the load: the engine's own limits, cache format and guesses a step."""
    scenario = {name: value for name, value in item.run.scenario.items() if name not in ("num_requests", "techniques")}
    if "techniques" in item.run.scenario:
        scenario["techniques"] = {"speculation": {"method": "mtp"}}
    scenario["engine"] = {"name": item.run.scenario["engine"]["name"]}
    scenario["precision"] = {"weights": item.weights}
    return replace(item, run=replace(item.run, scenario=scenario))


def predict_today(items: Iterable[TodayRun]) -> list[TodayPrediction]:
    """Every run beside its predictions."""
    found = []
    for item in items:
        predictions, refused = predict((item.run,))
        error = refused[0][1] if refused else None
        found.append(TodayPrediction(item=item, predictions=tuple(predictions), refused=error))
    return found


def deployment_scores(rows: Iterable[TodayPrediction]) -> list[DeploymentScore]:
    """One score per accelerator, engine, model and metric, and one over all that an accelerator runs."""
    grouped: dict[tuple[str, str, str, str], list[Prediction]] = {}
    for row in rows:
        item = row.item
        for prediction in row.predictions:
            name = item.model.rsplit("/", maxsplit=1)[-1]
            for key in ((item.hardware, item.engine, name), (item.hardware, "all", "all")):
                grouped.setdefault((*key, prediction.metric), []).append(prediction)
    return [_score(key, grouped[key]) for key in sorted(grouped)]


def _score(key: tuple[str, str, str, str], predictions: Sequence[Prediction]) -> DeploymentScore:
    errors = np.array([prediction.error for prediction in predictions])
    covered = [prediction.is_covered for prediction in predictions if prediction.is_covered is not None]
    return DeploymentScore(
        hardware=key[0],
        engine=key[1],
        model=key[2],
        metric=key[3],
        count=len(errors),
        median=float(np.median(errors)),
        mean_absolute=float(np.mean(np.abs(errors))),
        coverage=float(np.mean(covered)) if covered else None,
    )


def today_table(scores: Iterable[DeploymentScore]) -> str:
    """The scores as a table for people: median signed and mean absolute error, runs and coverage."""
    lines = [
        "| accelerator | engine | model | metric | runs | median | mean absolute | in 80 % interval |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {score.hardware} | {score.engine} | {score.model} | `{score.metric}` | {score.count} | "
        f"{100 * score.median:+.0f} % | {100 * score.mean_absolute:.0f} % | "
        f"{'' if score.coverage is None else percent_text(score.coverage)} |"
        for score in scores
    ]
    return "\n".join(lines) + "\n"
