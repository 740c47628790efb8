"""Which fleets a question gets, of every shape: searched candidate by candidate, or widely over arrays.

What people deploy beside an engine's own limits is searched on the best accelerators of a usual search: running
requests and token budgets, data-parallel attention with expert parallelism, pools for prompts and for answers. All are
screened on tables that they share; the best of each family on each accelerator is evaluated exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

from simulator.planner.candidate import Candidate, Platform, Rejection
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized, Trial, size
from simulator.planner.records import FamilyFound, SearchFamily
from simulator.planner.search.candidates import candidates, has_experts
from simulator.planner.search.evaluated_once import KEPT, evaluate_ahead, evaluate_once
from simulator.planner.search.question import Question
from simulator.planner.search.screen_tables import ScreenTable
from simulator.planner.search.wide_search import ScreenedSpace, cheapest, screen_space
from simulator.specs.question.plan import PlanSpec

if TYPE_CHECKING:
    from simulator.planner.records import SearchSummary

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


SEARCHED, SEARCHED_WITH_EXPERTS = 3, 5
"""Accelerators whose families are searched; experts move the order of accelerators more."""
WORTH = {SearchFamily.LIMITS: 0.03, SearchFamily.EXPERTS: 0.03, SearchFamily.POOLS: 0.1}
"""Least saving for which a fleet of a family stands among the options: flags cost little, two pools to run much."""

Evaluate = Callable[[Question, Sequence[Candidate]], Trial]


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The best fleets of the families that are worth it, what was found of each, and how many set-ups were screened."""

    trial: Trial = field(default_factory=Trial)
    families: tuple[FamilyFound, ...] = ()
    candidates: int = 0


def families_of(question: Question) -> tuple[SearchFamily, ...]:
    """Families that a question leaves open; what it fixes or what cannot be screened is not varied."""
    spec, mix = question.spec, question.demand.mix
    if mix.decode_steps < 1 or "max_length" in spec.kv_allocation:
        return ()
    found = []
    if not (spec.max_num_seqs and spec.max_num_batched_tokens):
        found.append(SearchFamily.LIMITS)
    if has_experts(question.model) and not spec.dp_size and not spec.ep_size:
        found.append(SearchFamily.EXPERTS)
    # A trace is replayed on one kind of replica, and pools that guess are not screened.
    if not spec.serving and not replays_trace(spec) and not spec.speculation:
        found.append(SearchFamily.POOLS)
    return tuple(found)


def _widened(question: Question) -> Question:
    """The question with every engine limit and spread of experts, in one stage where no others were given."""
    spec = question.spec
    fields = {"search": "wide", "pp_size": spec.pp_size or (1,)}
    return replace(question, spec=spec.model_copy(update=fields))


def _spreads_experts(table: ScreenTable) -> bool:
    return table.parallelism.ep_size > 1


def _candidates(family: SearchFamily, found: ScreenedSpace, question: Question) -> tuple[Candidate, ...]:
    match family:
        case SearchFamily.LIMITS:
            return cheapest(found, question, among=lambda table: not _spreads_experts(table))
        case SearchFamily.EXPERTS:
            return cheapest(found, question, among=_spreads_experts)
        case SearchFamily.POOLS:
            from simulator.planner.search.screened_pools import pool_finalists

            return pool_finalists(found, question, per_platform=1)


def _bests(trial: Trial) -> dict[str, Sized]:
    """The best fleet of every accelerator, the best accelerator first."""
    best: dict[str, Sized] = {}
    for item in sorted(trial.sized, key=lambda sized: sized.rank):
        best.setdefault(item.evaluated.candidate.platform.hardware.name, item)
    return best


def _over(question: Question, item: Sized | None) -> float:
    """What a fleet takes over the limits of a question, 1 where it holds them all; nothing takes infinitely much."""
    if not question.has_limits:
        return 1.0
    from simulator.planner.fleet.constraints import fleet_limits

    return float("inf") if item is None else max([1.0, *(limit.share(item) for limit in fleet_limits(question))])


def _nearest(question: Question, bests: Mapping[str, Sized]) -> list[str]:
    """The accelerators in their order; those whose best fleet breaks a limit after the others, the nearest first."""
    return sorted(bests, key=lambda name: _over(question, bests[name]))


def _saving(item: Sized, than: Sized | None) -> float:
    """Share of the cost, or of the devices where nothing has a price, that a fleet saves; all of it over none."""
    if than is None:
        return 1.0
    if item.cost.per_hour is None or than.cost.per_hour is None:
        return 1 - item.devices / than.devices
    return 1 - item.cost.per_hour / than.cost.per_hour


def search_families(question: Question, tried: Sequence[Platform], trial: Trial, *, evaluate: Evaluate) -> Searched:
    """Search the open families on the best accelerators of ``trial``, on all where none of its candidates can serve.

    Where the fleet has limits, those are the best that hold them or come near: what saves there is what is asked for.
    """
    bests, families = _bests(trial), families_of(question)
    most = SEARCHED_WITH_EXPERTS if has_experts(question.model) else SEARCHED
    names = _nearest(question, bests)[:most] or [item.hardware.name for item in tried]
    chosen = tuple(item for item in tried if item.hardware.name in names)
    if not families or not chosen:
        return Searched()
    asked = _widened(question)
    found = screen_space(asked, chosen)
    kept, outcomes = Trial(), []
    for family in families if found.tables else ():
        sized = evaluate(question, _candidates(family, found, asked)).sized
        usual = [bests.get(_name(item)) for item in sized]
        savings = [(_saving(item, than), item) for item, than in zip(sized, usual, strict=True)]
        # Any saving is worth it that brings a fleet within its limits.
        worth = tuple(
            item
            for (saving, item), than in zip(savings, usual, strict=True)
            if saving >= WORTH[family] or _over(question, item) == 1 < _over(question, than)
        )
        kept = kept.with_more(Trial(sized=worth))
        if savings:
            saving, best = min(savings, key=lambda pair: (pair[1] not in worth, pair[1].rank))
            outcomes.append(
                FamilyFound(
                    family=family,
                    hardware=_name(best),
                    label=best.evaluated.candidate.label,
                    devices=best.devices,
                    saving=saving,
                    kept=best in worth,
                )
            )
    screened = found.space.candidates * (1 + (SearchFamily.POOLS in families))
    return Searched(trial=kept, families=tuple(outcomes), candidates=screened)


def _name(item: Sized) -> str:
    return item.evaluated.candidate.platform.hardware.name
