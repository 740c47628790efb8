"""Which fleets a question gets: the usual ones, or widely over arrays, and then the families that people deploy.

The families: running requests and token budgets, data-parallel attention with expert parallelism, pools for prompts and
for answers. All are screened on tables that they share; the best of each on each accelerator is evaluated exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from math import inf
from typing import TYPE_CHECKING

from simulator.errors import InfeasibleError
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized, Trial, with_doubt
from simulator.planner.records import Candidate, FamilyFound, Platform, SearchFamily
from simulator.planner.search.candidates import USUAL_DP_SIZES, platforms, unlike_pairs
from simulator.planner.search.question import Question, check_decodes
from simulator.planner.search.screen_rows import DistinctRows
from simulator.planner.search.screened_space import ScreenedSpace, cheapest, finalists, search_summary
from simulator.planner.search.usual_search import evaluate_all, try_pair, usual_search
from simulator.planner.search.wide_search import pool_finalists, screen_space
from simulator.records import dataclass
from simulator.specs.question.plan import NONE

if TYPE_CHECKING:
    from simulator.planner.records import SearchSummary
    from simulator.planner.search.screen_tables import ScreenTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What a search found; ``summary`` is None for the usual one, ``families`` and the accelerators that were
    ``searched`` for them empty for any other."""

    trial: Trial
    summary: SearchSummary | None = None
    families: tuple[FamilyFound, ...] = ()
    searched: tuple[str, ...] = ()


def is_wide(question: Question) -> bool:
    """Whether more is varied than hardware and tensor parallelism."""
    spec = question.spec
    return spec.search == "wide" or spec.any_precision or spec.any_technique


def wide_search(question: Question, tried: Sequence[Platform]) -> tuple[tuple[Candidate, ...], SearchSummary]:
    """Screen every set-up of the question's search space: the best, to be evaluated exactly, and how many it had."""
    found = screen_space(question, tuple(tried))
    chosen = finalists(found, question) if "aggregated" in question.serving else ()
    chosen += pool_finalists(found, question) if "disaggregated" in question.serving else ()
    return chosen, search_summary(found, finalists=len(chosen), serving=question.serving)


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
    searched = search_families(question, tried, trial)
    return Tried(
        trial=replace(trial.with_more(searched.trial), more=trial.more + searched.candidates),
        families=searched.families,
        searched=searched.hardware,
    )


def search(question: Question, tried: tuple[Platform, ...] = ()) -> Tried:
    """Search accelerators of a question by themselves, and then pools on two of them where those are asked for.

    tried : what is searched by itself; every accelerator of the question where nothing is given
    """
    found = try_platforms(question, tried or platforms(question.spec))
    if not question.spec.prefill_hardware:
        return found
    more = _unlike_pools(question, found.trial)
    return replace(found, trial=found.trial.with_more(more))


def _unlike_pools(question: Question, trial: Trial) -> Trial:
    """Pools for prompts on one accelerator and for answers on another, each pair of kinds at its best.

    Answers are tried on all accelerators that are named; where none are, on those that are best by themselves.
    """
    pairs, below = unlike_pairs(question.spec), _cost_to_beat(question, trial)
    if not question.spec.hardware:
        nearest = _nearest(question, _bests(trial))[:SEARCHED_WITH_EXPERTS]
        pairs = tuple(pair for pair in pairs if pair[1].hardware.name in nearest) or pairs
    found = _usual_pairs(question, pairs, below=below)
    if not _screens_pools(question) or (question.spec.serving == ("disaggregated",) and not is_wide(question)):
        return found
    asked = question if is_wide(question) else _widened(question)
    space = screen_space(asked, tuple(dict.fromkeys(chain(*pairs))))
    screened = evaluate_all(question, pool_finalists(space, asked, per_platform=1, unlike=pairs, below=below))
    return found.with_more(screened)


def _usual_pairs(question: Question, pairs: Sequence[tuple[Platform, Platform]], *, below: float) -> Trial:
    """The best pools for prompts on one accelerator and for answers on another, of every such pair.

    below : the counted cost of a fleet that was found already, infinite where dearer ones are wanted too
    """
    check_decodes(question, "prefill_hardware")
    trial = Trial()
    for prefill, decode in pairs:
        trial = trial.with_more(try_pair(question, prefill, decode, below=below))
    return replace(trial, rejections=tuple(dict.fromkeys(trial.rejections)))


def _cost_to_beat(question: Question, trial: Trial) -> float:
    """Of the best fleet within the limits, its doubt counted; infinite where dearer ones are of use too."""
    if question.spec.pareto or question.spec.stock:
        return inf
    priced = (item for item in with_doubt(trial.sized) if item.cost.per_hour is not None)
    counted = (item.rank[1] for item in priced if _over(question, item) == 1)
    return min(counted, default=inf)


SEARCHED, SEARCHED_WITH_EXPERTS = 3, 5
"""Accelerators whose families are searched first where none is named; experts move the order of accelerators more."""
SHOWN_FLEETS = 6
"""Fleets that an answer shows before it is asked for all."""
WORTH, WORTH_POOLS = 0.03, 0.1
"""Least saving for which a fleet of a family stands among the options: flags cost little, two pools to run much where
nobody asked for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """The best fleets of the families that are worth it, what was found of each, how many set-ups were screened and on
    which accelerators."""

    trial: Trial = field(default_factory=Trial)
    families: tuple[FamilyFound, ...] = ()
    candidates: int = 0
    hardware: tuple[str, ...] = ()


def _screens_pools(question: Question) -> bool:
    """Whether pools of a question are screened: not those that guess, hold room for the longest, or do not decode."""
    spec = question.spec
    guesses = spec.speculation and NONE not in spec.speculation
    return question.demand.mix.decode_steps >= 1 and "max_length" not in spec.kv_allocation and not guesses


def families_of(question: Question) -> tuple[SearchFamily, ...]:
    """Families that a question leaves open; what it fixes or what cannot be screened is not varied."""
    spec, mix = question.spec, question.demand.mix
    if mix.decode_steps < 1 or "max_length" in spec.kv_allocation:
        return ()
    found, alone = [], "aggregated" in question.serving
    if alone and not (spec.max_num_seqs and spec.max_num_batched_tokens):
        found.append(SearchFamily.LIMITS)
    if alone and question.model.has_experts and not spec.dp_size and not spec.ep_size:
        found.append(SearchFamily.EXPERTS)
    # A trace is replayed on one kind of replica.
    if spec.serving != ("aggregated",) and not replays_trace(spec) and _screens_pools(question):
        found.append(SearchFamily.POOLS)
    return tuple(found)


def _widened(question: Question, *, over_servers: bool = False) -> Question:
    """The question with every engine limit and spread of experts, in one stage where no others were given.

    over_servers : experts may leave the domain of fast links
    """
    spec = question.spec
    fields = {"search": "wide", "pp_size": spec.pp_size or (1,)}
    if over_servers and not spec.dp_size:
        fields["dp_size"] = (1, *USUAL_DP_SIZES)
    return replace(question, spec=spec.model_copy(update=fields))


def _leaves_domain(item: Sized) -> bool:
    candidate = item.evaluated.candidate
    return candidate.parallelism.devices > candidate.platform.linked_devices


def _sizes(table: ScreenTable) -> tuple[int, int]:
    return table.parallelism.dp_size, table.parallelism.ep_size


def _candidates(family: SearchFamily, found: ScreenedSpace, question: Question) -> tuple[Candidate, ...]:
    match family:
        case SearchFamily.LIMITS:
            return cheapest(found, question, among=lambda table: table.parallelism.ep_size == 1)
        case SearchFamily.EXPERTS:
            # Ranks of attention wait for each other, which the screen does not know: without them is tried too.
            alone = cheapest(found, question, among=lambda table: _sizes(table)[0] == 1 < _sizes(table)[1])
            return alone + cheapest(found, question, among=lambda table: min(_sizes(table)) > 1)
        case SearchFamily.POOLS:
            return pool_finalists(found, question, per_platform=1)


def best_of_each(ranked: list[Sized]) -> list[Sized]:
    """The best of every accelerator, as one kind of replica and as two pools; where only one was tried, all of them."""
    if len({item.evaluated.candidate.hardware for item in ranked}) == 1:
        return ranked
    best: dict[tuple[str, int], Sized] = {}
    for item in ranked:
        candidate = item.evaluated.candidate
        best.setdefault((candidate.hardware, len(candidate.parts)), item)
    return list(best.values())


def _bests(trial: Trial) -> dict[str, Sized]:
    best: dict[str, Sized] = {}
    for item in sorted(trial.sized, key=lambda sized: sized.rank):
        best.setdefault(item.evaluated.candidate.hardware, item)
    return best


def _over(question: Question, item: Sized | None) -> float:
    """What a fleet takes over the limits of a question, 1 where it holds them all; nothing takes infinitely much."""
    if not question.has_limits:
        return 1.0
    from simulator.planner.gap.limits import fleet_limits

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Saved:
    """The best fleet of a family on an accelerator; saving : against its best fleet outside the family."""

    family: SearchFamily
    fleet: Sized
    saving: float
    worth: bool


def search_families(question: Question, tried: Sequence[Platform], trial: Trial) -> Searched:
    """Search the open families on the best accelerators of ``trial`` and on all of the fleets that are shown then, on
    all that are named and can serve, on all where none can.

    Where the fleet has limits, those are the best that hold them or come near: what saves there is what is asked for.
    """
    bests, families = _bests(trial), families_of(question)
    most = SEARCHED_WITH_EXPERTS if question.model.has_experts else SEARCHED
    nearest = _nearest(question, bests)[: None if question.spec.hardware else most]
    asked = _widened(question, over_servers=question.model.has_experts and any(map(_leaves_domain, bests.values())))
    new = set(nearest) or {item.hardware.name for item in tried}
    saved, screened, searched, kept, rows = list[_Saved](), 0, set[str](), Trial(), DistinctRows()
    while families and new:
        searched |= new
        try:
            found = screen_space(asked, tuple(item for item in tried if item.hardware.name in new), known=rows)
        except InfeasibleError:
            break
        screened += found.space.candidates * (1 + (SearchFamily.POOLS in families))
        for family in families if found.tables else ():
            sized = evaluate_all(question, _candidates(family, found, asked)).sized
            saved += [_saved(question, family, item, bests.get(_name(item))) for item in sized]
        kept = Trial(sized=tuple(item.fleet for item in saved if item.worth))
        new = set() if question.spec.hardware else _shown(question, trial.with_more(kept)) - searched
    return Searched(
        trial=kept,
        families=tuple(_outcome(own) for family in families if (own := [i for i in saved if i.family is family])),
        candidates=screened,
        hardware=tuple(item.hardware.name for item in tried if item.hardware.name in searched),
    )


def _shown(question: Question, trial: Trial) -> set[str]:
    """Accelerators of the fleets that an answer shows first."""
    rows = sorted(best_of_each(with_doubt(trial.sized)), key=lambda item: _over(question, item))
    return set(map(_name, rows[:SHOWN_FLEETS]))


def _saved(question: Question, family: SearchFamily, item: Sized, than: Sized | None) -> _Saved:
    saving = _saving(item, than)
    least = WORTH_POOLS if family is SearchFamily.POOLS and not question.spec.serving else WORTH
    # Any saving is worth it that brings a fleet within its limits.
    worth = saving >= least or _over(question, item) == 1 < _over(question, than)
    return _Saved(family=family, fleet=item, saving=saving, worth=worth)


def _outcome(found: Sequence[_Saved]) -> FamilyFound:
    best = min(found, key=lambda item: (not item.worth, item.fleet.rank))
    return FamilyFound(
        family=best.family,
        hardware=_name(best.fleet),
        label=best.fleet.evaluated.candidate.label,
        devices=best.fleet.devices,
        saving=best.saving,
        kept=best.worth,
    )


def _name(item: Sized) -> str:
    return item.evaluated.candidate.hardware
