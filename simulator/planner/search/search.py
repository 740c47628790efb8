"""Resolve a plan's question and try every candidate of a platform."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.planner.fleet.fleet import Sized, size
from simulator.planner.records import Rejection
from simulator.planner.search.candidates import Candidate, Platform, candidates
from simulator.planner.search.evaluated_once import KEPT, evaluate_ahead, evaluate_once
from simulator.planner.search.question import Question
from simulator.specs.question.plan import PlanSpec

# Pipeline depths tried on hardware that was asked for by name and is too small otherwise.
PIPELINE_DEPTHS = (2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Candidates of all platforms: those that can serve, sized, and those refused; ``more`` were tried and beaten."""

    sized: tuple[Sized, ...]
    rejections: tuple[Rejection, ...]
    more: int = 0


def look_ahead(question: Question, tried: tuple[Platform, ...]) -> None:
    """Evaluate together what the platforms will be asked for first, as far as that is remembered until then."""
    if "aggregated" not in (question.spec.serving or ("aggregated",)):
        return
    found = [
        candidate
        for platform in tried
        for candidate in candidates(question.spec, model=question.model, platform=platform)
    ]
    if len(found) <= KEPT:
        evaluate_ahead(
            found,
            model=question.model,
            mix=question.demand.mix,
            objectives=question.objectives,
            policy=question.policy,
        )


def try_platform(question: Question, platform: Platform) -> Trial:
    """Evaluate a platform's candidates, as one kind of replica, as two pools, or both ways."""
    serving = question.spec.serving or ("aggregated",)
    trial = _try_replicas(question, platform) if "aggregated" in serving else Trial(sized=(), rejections=())
    if "disaggregated" in serving:
        from simulator.planner.serving.disaggregated_search import try_pools

        trial = join(trial, try_pools(question, platform))
    return trial


def _try_replicas(question: Question, platform: Platform) -> Trial:
    """Replicas that do both phases; where all are too small, larger tensor and then pipeline degrees."""
    spec, model = question.spec, question.model
    trial = _evaluate(question, candidates(spec, model=model, platform=platform))
    if not trial.sized and not spec.tp and _all_too_small(trial):
        trial = join(trial, _evaluate(question, candidates(spec, model=model, platform=platform, large=True)))
    if not trial.sized and spec.hardware and not spec.pp and _all_too_small(trial):
        deeper = spec.model_copy(update={"pp": PIPELINE_DEPTHS, "tp": _largest_tp(trial, spec)})
        depths = [depth for depth in PIPELINE_DEPTHS if depth <= model.num_hidden_layers]
        deeper = deeper.model_copy(update={"pp": tuple(depths)})
        trial = join(trial, _evaluate(question, candidates(deeper, model=model, platform=platform)))
    return trial


def _largest_tp(trial: Trial, spec: PlanSpec) -> tuple[int, ...]:
    tried = [int(rejection.label.split()[0].removeprefix("TP")) for rejection in trial.rejections]
    return spec.tp or ((max(tried),) if tried else (1,))


def _all_too_small(trial: Trial) -> bool:
    return all(rejection.code in ("memory", "slots") for rejection in trial.rejections)


def join(first: Trial, second: Trial) -> Trial:
    """Two trials as one."""
    return Trial(
        sized=first.sized + second.sized,
        rejections=first.rejections + second.rejections,
        more=first.more + second.more,
    )


def evaluate_all(question: Question, tried: tuple[Candidate, ...]) -> Trial:
    """Size every candidate that can serve; nothing is left out."""
    trial = Trial(sized=(), rejections=())
    for candidate in tried:
        trial = join(trial, _evaluate(question, (candidate,)))
    return trial


def _evaluate(question: Question, tried: tuple[Candidate, ...]) -> Trial:
    """Size every candidate, the smallest tensor-parallel degree first.

    Degrees above one that gives less per device without an objective being the reason are left out, unless asked for.
    """
    sized: list[Sized] = []
    rejections: list[Rejection] = []
    best: dict[str, float] = {}
    for candidate in tried:
        family = candidate.family
        if best.get(family) == float("inf"):
            continue
        outcome = evaluate_once(
            candidate,
            model=question.model,
            mix=question.demand.mix,
            objectives=question.objectives,
            policy=question.policy,
        )
        if isinstance(outcome, Rejection):
            rejections.append(outcome)
            continue
        sized.append(size(outcome, demand=question.demand, spec=question.spec, prices=question.prices))
        per_device = outcome.replica.capacity_per_s / outcome.replica.devices
        declines = outcome.replica.binding is None and per_device < best.get(family, 0.0)
        best[family] = float("inf") if declines and not question.spec.tp else max(per_device, best.get(family, 0.0))
    return Trial(sized=tuple(sized), rejections=tuple(rejections))
