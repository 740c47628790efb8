"""Which fleets a question gets, of every shape: searched candidate by candidate, or widely over arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from simulator.planner.candidate import Candidate, Platform, Rejection
from simulator.planner.fleet.fleet import Sized, Trial, size
from simulator.planner.search.candidates import candidates
from simulator.planner.search.evaluated_once import KEPT, evaluate_ahead, evaluate_once
from simulator.planner.search.question import Question
from simulator.specs.question.plan import PlanSpec

if TYPE_CHECKING:
    from simulator.planner.records import FamilyFound, SearchSummary


# Pipeline depths tried on hardware that was asked for by name and is too small otherwise.
PIPELINE_DEPTHS = (2, 4, 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a search found; ``summary`` is None for the usual one, ``families`` empty for any other."""

    trial: Trial
    summary: SearchSummary | None = None
    families: tuple[FamilyFound, ...] = ()


def is_wide(question: Question) -> bool:
    """Whether more is varied than hardware and tensor parallelism."""
    spec = question.spec
    return spec.search == "wide" or spec.any_precision or spec.any_technique


def wide_search(question: Question, tried: Sequence[Platform]) -> tuple[tuple[Candidate, ...], SearchSummary]:
    """Screen every set-up of the question's search space: the best, to be evaluated exactly, and how many it had."""
    from simulator.planner.search.screened_pools import pool_finalists
    from simulator.planner.search.wide_search import finalists, screen_space

    found = screen_space(question, tuple(tried))
    chosen = finalists(found, question) if "aggregated" in question.serving else ()
    chosen += pool_finalists(found, question) if "disaggregated" in question.serving else ()
    return chosen, found.space.summary(feasible=found.feasible, finalists=len(chosen), serving=question.serving)


def try_platforms(question: Question, tried: Sequence[Platform]) -> Tried:
    """Search the given platforms."""
    if is_wide(question):
        chosen, summary = wide_search(question, tried)
        trial = evaluate_all(question, chosen)
        if not chosen:
            # Nothing passed the screen: why the usual candidates are refused says how near they came.
            trial = usual_search(question, tried)
        return Tried(trial=trial, summary=summary)
    trial = usual_search(question, tried)
    if "aggregated" not in question.serving:
        return Tried(trial=trial)
    from simulator.planner.search.families import search_families

    searched = search_families(question, tried, trial, evaluate=evaluate_all)
    return Tried(
        trial=replace(trial.with_more(searched.trial), more=trial.more + searched.candidates),
        families=searched.families,
    )


def usual_search(question: Question, tried: Sequence[Platform]) -> Trial:
    """Evaluate the candidates of every platform: in one go those that each will ask for first."""
    spec, model = question.spec, question.model
    if "aggregated" in question.serving:
        usual = [candidates(spec, model=model, platform=platform) for platform in tried]
        evaluate_together(question, tuple(chain(*usual)))
    trial = Trial()
    for platform in tried:
        trial = trial.with_more(try_platform(question, platform))
    return trial


def evaluate_together(question: Question, tried: Sequence[Candidate]) -> None:
    """Evaluate those of one kind of replica in one go, to be remembered when each is asked for."""
    alone = [candidate for candidate in tried if len(candidate.parts) == 1]
    if len(alone) <= KEPT:
        evaluate_ahead(
            alone,
            model=question.model,
            mix=question.demand.mix,
            objectives=question.objectives,
            policy=question.policy,
        )


def try_platform(question: Question, platform: Platform) -> Trial:
    """Evaluate a platform's candidates, as one kind of replica, as two pools, or both ways."""
    trial = _try_replicas(question, platform) if "aggregated" in question.serving else Trial()
    if "disaggregated" in question.serving:
        from simulator.planner.search.pairs import try_pools

        trial = trial.with_more(try_pools(question, platform))
    return trial


def _try_replicas(question: Question, platform: Platform) -> Trial:
    """Replicas that do both phases; where all are too small, larger tensor and then pipeline degrees."""
    spec, model = question.spec, question.model
    tried = candidates(spec, model=model, platform=platform)
    trial = _evaluate(question, tried)
    if not trial.sized and not spec.tp_size and trial.all_too_small:
        larger = candidates(spec, model=model, platform=platform, large=True)
        tried, trial = tried + larger, trial.with_more(_evaluate(question, larger))
    if not trial.sized and spec.hardware and not spec.pp_size and trial.all_too_small:
        depths = tuple(depth for depth in PIPELINE_DEPTHS if depth <= model.num_hidden_layers)
        deeper = spec.model_copy(update={"pp_size": depths, "tp_size": _largest_tp(tried, spec)})
        trial = trial.with_more(_evaluate(question, candidates(deeper, model=model, platform=platform)))
    return trial


def _largest_tp(tried: Sequence[Candidate], spec: PlanSpec) -> tuple[int, ...]:
    return spec.tp_size or (max((candidate.parallelism.tp_size for candidate in tried), default=1),)


def evaluate_all(question: Question, tried: Sequence[Candidate]) -> Trial:
    """Size every candidate that can serve; nothing is left out."""
    evaluate_together(question, tried)
    trial = Trial()
    for candidate in tried:
        trial = trial.with_more(_evaluate(question, (candidate,)))
    return trial


def _evaluate(question: Question, tried: Sequence[Candidate]) -> Trial:
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
        best[family] = (
            float("inf") if declines and not question.spec.tp_size else max(per_device, best.get(family, 0.0))
        )
    return Trial(sized=tuple(sized), rejections=tuple(rejections))
