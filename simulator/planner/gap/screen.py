"""The fleets of a gap study: screened state by state on shared tables, the nearest evaluated exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property
from itertools import chain, product

import numpy as np
from numpy.typing import NDArray

from simulator.planner.fleet.fleet import Sized
from simulator.planner.gap.changes import GapChange, GapState, single_changes
from simulator.planner.gap.limits import Overrun, option_of, priced, screened_overrun
from simulator.planner.gap.records import GapOption
from simulator.planner.records import Candidate, Platform, SearchSpace, Variant
from simulator.planner.search.candidates import engine_on, platforms
from simulator.planner.search.question import (
    WIDE_SEQUENCES,
    WIDE_TOKENS,
    Question,
    each_variant,
    own_limits,
    parallelisms,
    variants,
    variants_on,
)
from simulator.planner.search.screen_tables import ScreenTable, TableMaker
from simulator.planner.search.screened_space import candidate_of, of_all_ranks, screened_load
from simulator.planner.search.screening import screen
from simulator.planner.search.usual_search import evaluate_all, evaluate_together, usual_search
from simulator.specs.base import Note
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.techniques.applied import works_on
from simulator.traffic.lengths import Array

# Engine limits that are tried beside the engine's own.
_SEQUENCES = (32, 64, 128, 512)
_TOKENS = (512, 2048)
_FINALISTS = 4
# Accelerators that stay in the race once all have been tried.
_KEPT_PLATFORMS = 8
_SetUp = tuple[ParallelismSpec, Variant]


def can_screen(question: Question) -> bool:
    """Whether a question is among those that the screen answers: answers that are decoded, a paged cache."""
    return question.demand.mix.decode_steps > 0 and "max_length" not in question.spec.kv_allocation


class GapScreen:
    """The fleet of any state that comes nearest to the limits."""

    def __init__(self, question: Question, overrun: Overrun) -> None:
        spec = question.spec
        wide = spec.search == "wide"
        self.question, self.overrun = question, overrun
        # No way out leads to what nobody sells, but where it is named.
        offered = priced(platforms(spec.model_copy(update={"hardware": ()})), question=question)
        asked = platforms(spec) if spec.hardware else offered
        self._named = {item.hardware.name for item in asked}
        names = {item.hardware.name for item in offered}
        self._all = (*offered, *(item for item in asked if item.hardware.name not in names))
        self._usual = {
            item.hardware.name: own_limits(engine_on(spec, item), item, profiles=spec.profiles) for item in self._all
        }
        running, budgets = (set(values) for values in zip(*self._usual.values(), strict=True))
        given = {spec.max_num_batched_tokens} if spec.max_num_batched_tokens else set()
        more = WIDE_TOKENS if wide else _TOKENS
        self._space = SearchSpace(
            platforms=self._all,
            parallelisms=self._spreads(GapState(any_degrees=True)),
            variants=each_variant(variants(spec, model=question.model, platforms=self._all)),
            sequences=tuple(sorted({*spec.max_num_seqs, *running, *(WIDE_SEQUENCES if wide else _SEQUENCES)})),
            tokens=tuple(sorted({*given, *budgets, *(item for item in more if item >= question.least_tokens)})),
        )
        self._offered = variants_on(self._space, self._all, spec=spec, model=question.model)
        self._tables: dict[tuple[str, ParallelismSpec, Variant], ScreenTable | None] = {}
        self._variants: dict[Variant, Variant] = {}
        self._least: dict[str, float] = {}
        self._seen: dict[GapState, tuple[Candidate, ...]] = {}
        self._least_of: dict[GapState, float] = {}
        self._exact: dict[GapState, Sized | None] = {}
        self._degrees = cache(self._spreads)
        self._kept: frozenset[str] | None = None

    @cached_property
    def _maker(self) -> TableMaker:
        question = self.question
        return TableMaker(
            {item: engine_on(question.spec, item) for item in self._all},
            model=question.model,
            mix=question.demand.mix,
            space=self._space,
            profiles=question.spec.profiles,
        )

    def look_ahead(self, states: Sequence[GapState]) -> None:
        """Make the tables of states that are asked for next in one go."""
        new = [state for state in states if state not in self._seen]
        wanted = {
            item: dict.fromkeys(
                pair
                for state in new
                for pair in self._set_ups(state, item)
                if (item.hardware.name, *pair) not in self._tables
            )
            for item in self._all
        }
        self._tables.update({(item.hardware.name, *pair): None for item, pairs in wanted.items() for pair in pairs})
        made = self._maker.tables(wanted) if any(wanted.values()) else ()
        self._tables.update({(table.platform.hardware.name, table.parallelism, table.variant): table for table in made})

    def least(self, state: GapState) -> float:
        """Overrun of the best screened fleet in a state, infinite where nothing serves."""
        self._screened(state)
        return self._least_of[state]

    def evaluate(self, states: Sequence[GapState], *, among: int = _FINALISTS) -> None:
        """Evaluate in one go what ``exact`` of each state asks for."""
        self.look_ahead(states)
        new = [state for state in dict.fromkeys(states) if state not in self._exact]
        tried = chain(*(self._screened(state)[:among] for state in new))
        evaluate_together(self.question, tuple(dict.fromkeys(tried)))

    def exact(self, state: GapState, *, among: int = _FINALISTS) -> Sized | None:
        """A state's fleet nearest to the limits, evaluated exactly, ``among`` so many; None where nothing serves."""
        if state not in self._exact:
            trial = evaluate_all(self.question, self._screened(state)[:among])
            self._exact[state] = min(trial.sized, key=self.overrun.order, default=None)
        return self._exact[state]

    def narrow(self) -> None:
        """Go on with the accelerators that came nearest to the limits in any state so far, with those on which nothing
        served, and with those asked for; once more of them serve, fewer are left.
        """
        served = [
            name for name in sorted(self._least, key=lambda name: self._least[name]) if self._least[name] < np.inf
        ]
        far = frozenset(served[_KEPT_PLATFORMS:]) - (self._named if self.question.spec.hardware else frozenset())
        self._kept = frozenset(item.hardware.name for item in self._all) - far

    def _is_open(self, state: GapState, platform: Platform) -> bool:
        name = platform.hardware.name
        return (self._kept is None or name in self._kept) and (state.any_hardware or name in self._named)

    def _spreads(self, state: GapState) -> tuple[ParallelismSpec, ...]:
        spec = self.question.spec
        if state.any_degrees:
            spec = spec.model_copy(update={"tp_size": (), "pp_size": (), "search": "wide"})
        if state.ranks is not None:
            spec = spec.model_copy(update={"dp_size": state.ranks})
        found = parallelisms(spec, model=self.question.model)
        if state.spread_experts or spec.ep_size or self.question.spec.search == "wide":
            return found
        # Without ranks of attention, experts are spread only where that was asked for.
        return tuple(item for item in found if item.ep_size == 1 or item.dp_size > 1)

    def _made(self, state: GapState) -> tuple[ScreenTable, ...]:
        self.look_ahead((state,))
        found = (
            self._tables[platform.hardware.name, *pair]
            for platform in self._all
            for pair in self._set_ups(state, platform)
        )
        return tuple(table for table in found if table is not None)

    def _set_ups(self, state: GapState, platform: Platform) -> tuple[_SetUp, ...]:
        """Of a state on a platform; none where it is out of the race or the state keeps to those asked for."""
        if not self._is_open(state, platform):
            return ()
        changed = dict.fromkeys(
            Variant(precision=state.precision(item.precision), techniques=state.techniques(item.techniques))
            for item in self._offered[platform]
        )
        kept = [self._variants.setdefault(item, item) for item in changed]
        return tuple(pair for pair in product(self._degrees(state), kept) if works_on(pair[1].techniques, pair[0]))

    def _screened(self, state: GapState) -> tuple[Candidate, ...]:
        """The set-ups of a state that come nearest to the limits, one of each table, the nearest and cheapest first."""
        if state in self._seen:
            return self._seen[state]
        tables = self._made(state)
        self._seen[state], self._least_of[state] = (), np.inf
        if not tables:
            return ()
        over, cost = self._overruns(tables, state)
        if self.overrun.limits:
            over = np.maximum(over, 1.0)
        within = np.array([np.lexsort((cost[row], over[row]))[0] for row in range(len(tables))])
        rows = np.arange(len(tables))
        least, price = over[rows, within], cost[rows, within]
        for table, value in zip(tables, least, strict=True):
            name = table.platform.hardware.name
            self._least[name] = min(self._least.get(name, np.inf), float(value))
        order = [int(index) for index in np.lexsort((price, least))[:_FINALISTS] if np.isfinite(least[index])]
        self._seen[state] = tuple(self._candidate(tables[index], int(within[index])) for index in order)
        self._least_of[state] = float(least.min())
        return self._seen[state]

    def _overruns(self, tables: tuple[ScreenTable, ...], state: GapState) -> tuple[Array, Array]:
        """Overrun and cost of every table under every engine limit that the state allows, flat [tables, limits]."""
        question = self.question
        one_rank = screen(tables, screened_load(question, steps=self._maker.steps, space=self._space))
        capacity = of_all_ranks(one_rank, tables).capacity_per_s
        if not state.any_limits:
            capacity = np.where(np.stack([self._own_limits(item.platform) for item in tables]), capacity, 0.0)
        return screened_overrun(tables, capacity, question=question, limits=self.overrun.limits)

    def _own_limits(self, platform: Platform) -> NDArray[np.bool_]:
        """Which engine limits [sequences, tokens] a state without other ones has on a platform."""
        spec, usual = self.question.spec, self._usual[platform.hardware.name]
        wide = spec.search == "wide"
        sequences = np.isin(self._space.sequences, spec.max_num_seqs or usual[:1])
        tokens = np.isin(self._space.tokens, spec.max_num_batched_tokens or usual[1])
        return (sequences | (wide and not spec.max_num_seqs))[:, None] & (
            tokens | (wide and not spec.max_num_batched_tokens)
        )

    def _candidate(self, table: ScreenTable, place: int) -> Candidate:
        sequences, tokens = divmod(place, len(self._space.tokens))
        limits = (self._space.sequences[sequences], self._space.tokens[tokens])
        return candidate_of(self.question, table, limits=limits)


def with_prefix_hits(question: Question, share: float) -> Question:
    """The question with another share of prompt tokens in the prefix cache."""
    mix = replace(question.demand.mix, prefix_hit_fraction=share)
    return replace(question, demand=replace(question.demand, mix=mix))


def with_cache_hits(question: Question, share: float) -> Question:
    """The question with another share of requests answered without an accelerator."""
    return replace(question, demand=replace(question.demand, cache_hit_fraction=share))


# Fleets of a change alone that are evaluated exactly: fewer than of a step, there are many changes.
_OPTIONS_FINALISTS = 2


def _nothing(change: GapChange, overrun: Overrun) -> GapOption:
    return GapOption(
        name=change.name,
        given=change.given,
        taken=(None,) * len(overrun.limits),
        reason=Note("serves_not_alone"),
        quality=change.quality.note,
        quality_loss=change.quality.loss,
    )


def _alone(question: Question, screen: GapScreen, change: GapChange, start: Sized | None) -> GapOption | None:
    item = screen.exact(change.state, among=_OPTIONS_FINALISTS)
    if item is None:
        return _nothing(change, screen.overrun)
    if not change.is_in(item.evaluated.candidate):
        return None
    return option_of(
        question,
        item,
        name=change.name,
        given=change.given_with(item.evaluated.candidate),
        overrun=screen.overrun,
        start=start,
        texts=change.state.texts,
    )


def _order(option: GapOption) -> tuple[bool, bool, bool, float, float]:
    """Ways out first, known losses before unknown ones, small fleets before large ones."""
    loss = float("inf") if option.quality_loss is None else option.quality_loss
    devices = float("inf") if option.devices is None else float(option.devices)
    return option.devices is None, not option.closes, bool(option.reason), devices, loss


def gap_options(
    question: Question, screen: GapScreen, changes: Sequence[GapChange], *, start: Sized | None
) -> tuple[GapOption, ...]:
    """Every change alone, the best first."""
    screen.evaluate([change.state for change in changes], among=_OPTIONS_FINALISTS)
    found = [_alone(question, screen, change, start) for change in changes]
    return tuple(sorted((item for item in found if item is not None), key=_order))


def usual_options(question: Question, overrun: Overrun, *, start: Sized | None) -> tuple[GapOption, ...]:
    """For questions that cannot be screened: smaller formats, free degrees and other hardware by the usual search."""
    found = []
    for change in single_changes(question):
        sized = usual_search(replace(question, spec=change.spec), platforms(change.spec)).sized
        item = min(sized, key=overrun.order, default=None)
        if item is None:
            continue
        given = (change.given(item.evaluated.candidate),)
        found.append(option_of(question, item, name=change.name, given=given, overrun=overrun, start=start))
    return tuple(sorted(found, key=_order))
