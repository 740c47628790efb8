"""What people deploy beside an engine's own limits, searched on the best accelerators of a usual search.

Running requests and token budgets, data-parallel attention with expert parallelism, pools for prompts and for answers.
All of them are screened on tables that they share; the best of each family on each accelerator is evaluated exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from simulator.planner.candidate import Candidate, Platform
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized, Trial
from simulator.planner.records import FamilyFound, SearchFamily
from simulator.planner.search.candidates import has_experts
from simulator.planner.search.question import Question
from simulator.planner.search.screen_tables import ScreenTable
from simulator.planner.search.wide_search import ScreenedSpace, cheapest, screen_space

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
