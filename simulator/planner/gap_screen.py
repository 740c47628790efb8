"""The fleets of a gap study: screened state by state on tables that states share, the smallest evaluated exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulator.engine.lengths import Array
from simulator.planner.candidates import Candidate, Platform, platforms
from simulator.planner.fleet import Sized
from simulator.planner.gap_changes import GapState
from simulator.planner.screen_tables import ScreenTable, TableMaker
from simulator.planner.screening import screen
from simulator.planner.search import Question, evaluate_all
from simulator.planner.search_space import SearchSpace, Variant, parallelisms, variants
from simulator.planner.wide_search import asked_engine, candidate_of, of_all_ranks, screened_limits
from simulator.specs.deployment import ParallelismSpec
from simulator.specs.engines import load_engine

# Engine limits that are tried beside the engine's own.
_SEQUENCES = (32, 64, 128, 512)
_TOKENS = (512, 2048)
_FINALISTS = 4
# Accelerators that stay in the race once all have been tried.
_KEPT_PLATFORMS = 12
_Key = tuple[str, ParallelismSpec, Variant]


class GapScreen:
    """Devices of the smallest fleet in any state."""

    def __init__(self, question: Question) -> None:
        spec = question.spec
        profile = load_engine(spec.engine or "vllm", profiles=spec.profiles)
        own = spec.max_num_seqs or (profile.max_num_seqs,)
        budget = spec.max_num_batched_tokens or profile.max_num_batched_tokens
        self.question = question
        self._asked = platforms(spec)
        self._all = platforms(spec.model_copy(update={"hardware": ()})) if spec.hardware else self._asked
        self._space = SearchSpace(
            platforms=self._all,
            parallelisms=parallelisms(spec, model=question.model),
            variants=variants(spec),
            sequences=tuple(sorted({*own, *(() if spec.max_num_seqs else _SEQUENCES)})),
            tokens=tuple(sorted({budget, *(() if spec.max_num_batched_tokens else _TOKENS)})),
        )
        kept = np.isin(self._space.sequences, own)[:, None] & (np.array(self._space.tokens) == budget)
        self._own_limits: NDArray[np.bool_] = kept
        self._maker = TableMaker(
            model=question.model,
            mix=question.demand.mix,
            space=self._space,
            engine=asked_engine(question),
            profiles=spec.profiles,
        )
        self._tables: dict[_Key, ScreenTable | None] = {}
        self._least: dict[str, float] = {}
        self._seen: dict[GapState, tuple[Candidate, ...]] = {}
        self._least_of: dict[GapState, float] = {}
        self._kept: frozenset[str] | None = None

    def least_devices(self, state: GapState) -> float:
        """Accelerators of the smallest screened fleet in a state, infinite where nothing serves."""
        self._screened(state)
        return self._least_of[state]

    def exact(self, state: GapState) -> Sized | None:
        """The smallest fleet of a state, evaluated exactly; None where nothing serves."""
        trial = evaluate_all(self.question, self._screened(state))
        return min(trial.sized, key=lambda item: (item.devices, item.rank), default=None)

    def narrow(self) -> None:
        """Go on with the accelerators that needed the fewest devices in any state so far."""
        order = sorted(self._least, key=lambda name: self._least[name])
        self._kept = frozenset(order[:_KEPT_PLATFORMS])

    def _allowed(self, state: GapState) -> list[Platform]:
        chosen = self._all if state.any_hardware else self._asked
        return [item for item in chosen if self._kept is None or item.hardware.name in self._kept]

    def _parallelisms(self, state: GapState) -> tuple[ParallelismSpec, ...]:
        if state.ranks is None:
            return self._space.parallelisms
        return parallelisms(self.question.spec.model_copy(update={"dp": state.ranks}), model=self.question.model)

    def _made(self, state: GapState) -> tuple[ScreenTable, ...]:
        """Tables of a state, each made once."""
        asked = self._space.variants
        changed = [
            Variant(precision=state.precision(item.precision), techniques=state.techniques(item.techniques))
            for item in asked
        ]
        found = []
        for platform in self._allowed(state):
            for parallelism in self._parallelisms(state):
                for variant in dict.fromkeys(changed):
                    key = (platform.hardware.name, parallelism, variant)
                    if key not in self._tables:
                        self._tables[key] = self._maker.table(platform, parallelism, variant)
                    found.append(self._tables[key])
        return tuple(table for table in found if table is not None)

    def _screened(self, state: GapState) -> tuple[Candidate, ...]:
        """The set-ups of a state that need the fewest devices, one of each table, the smallest first."""
        if state in self._seen:
            return self._seen[state]
        self._seen[state], self._least_of[state] = (), np.inf
        tables = self._made(state)
        if not tables:
            return ()
        devices = self._devices(tables, state)
        within = devices.argmin(axis=1)
        least = devices[np.arange(len(tables)), within]
        for table, value in zip(tables, least, strict=True):
            name = table.platform.hardware.name
            self._least[name] = min(self._least.get(name, np.inf), float(value))
        order = [int(index) for index in np.argsort(least, kind="stable")[:_FINALISTS] if np.isfinite(least[index])]
        found = tuple(self._candidate(tables[index], int(within[index])) for index in order)
        self._seen[state], self._least_of[state] = found, float(least.min())
        return found

    def _devices(self, tables: tuple[ScreenTable, ...], state: GapState) -> Array:
        """Of every table under every engine limit that the state allows, flat [tables, limits]."""
        question = self.question
        one_rank = screen(
            tables,
            steps=self._maker.steps,
            space=self._space,
            mix=question.demand.mix,
            limits=screened_limits(question),
            objectives=question.objectives,
            utilization=question.policy.utilization,
        )
        screened = of_all_ranks(one_rank, tables)
        with np.errstate(divide="ignore"):
            replicas = np.ceil(question.demand.planned_rate_per_s / screened.capacity_per_s)
        each = np.array([table.parallelism.devices for table in tables], dtype=np.float64).reshape(-1, 1, 1)
        spares = 1 if question.spec.spares is None else question.spec.spares
        devices = (replicas + spares) * each
        if not state.any_limits:
            devices = np.where(self._own_limits, devices, np.inf)
        flat: Array = devices.reshape(len(tables), -1)
        return flat

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
