"""The set-ups of a search space as arrays: their tables, what each sustains, and what its fleet costs.

Tables hold what an accelerator takes for a step; they are remembered, since neither the rate to carry nor the
objectives are part of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace

import numpy as np

from simulator.engine.lanes.load_curve import LaneLimits
from simulator.engine.lanes.steady_state import Objective
from simulator.planner.candidate import Candidate, Platform, SearchSpace, Variant
from simulator.planner.money.market import market_price, plan_rule
from simulator.planner.records import SearchSummary
from simulator.planner.search.candidates import asked_engine
from simulator.planner.search.question import Question, own_limits
from simulator.planner.search.screen_tables import ScreenedSteps, ScreenTable, TableMaker
from simulator.planner.search.screening import Screened, screen
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec, load_engine
from simulator.specs.model.architecture import ModelSpec
from simulator.traffic.lengths import Array, RequestMix

Pairs = Iterable[tuple[ParallelismSpec, Variant]]
"""Set-ups of one accelerator."""


def device_power_w(platform: Platform) -> float:
    """Typical power of one accelerator with its share of the server, or its limit [W]."""
    server = platform.server
    if server is None:
        return platform.hardware.limit_w
    return server.expected_w(platform.hardware) / server.accelerators_per_server


def screened_limits(question: Question) -> LaneLimits:
    """What of a lane's limits no set-up changes: block size and host costs."""
    profile = load_engine(asked_engine(question.spec).name, profiles=question.policy.profiles)
    return LaneLimits(
        sequences=1,
        batched_tokens=1,
        kv_tokens=0.0,
        block_tokens=profile.block_size_tokens,
        request_s=profile.overheads.request_s,
        prompt_token_s=profile.overheads.prompt_token_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedSpace:
    """A search space with what every set-up of it sustains.

    combined, in_all_formats : platforms on which techniques and every format were tried, that a cheaper platform does
        not make pointless
    """

    space: SearchSpace
    tables: tuple[ScreenTable, ...]
    screened: Screened
    steps: ScreenedSteps
    combined: int
    in_all_formats: int

    @property
    def feasible(self) -> int:
        """Set-ups that can serve."""
        return int((self.screened.capacity_per_s > 0).sum())

    @property
    def speculates(self) -> list[bool]:
        """Of every table, whether it decodes with speculation."""
        return [table.variant.techniques.speculation is not None for table in self.tables]

    def with_more(self, more: ScreenedSpace) -> ScreenedSpace:
        """Set-ups of both."""
        both = Screened(
            **{
                item.name: np.concatenate([getattr(self.screened, item.name), getattr(more.screened, item.name)])
                for item in fields(Screened)
            }
        )
        return replace(self, tables=self.tables + more.tables, screened=both)

    def candidate(self, place: int, question: Question) -> Candidate:
        """The set-up at a flat place of the screened arrays."""
        table, sequences, tokens = (int(i) for i in np.unravel_index(place, self.screened.capacity_per_s.shape))
        limits = (self.space.sequences[sequences], self.space.tokens[tokens])
        return candidate_of(question, self.tables[table], limits=limits)


def search_summary(found: ScreenedSpace, *, finalists: int, serving: tuple[str, ...]) -> SearchSummary:
    """How wide the search was; of two pools, every set-up of either counts, not their pairs."""
    space, ways = found.space, set(serving)
    prefill = len(space.platforms) * len(space.parallelisms) * len(space.variants) * len(space.tokens)
    candidates = space.candidates * len(ways) + (prefill if "disaggregated" in ways else 0)
    formats = len({variant.precision for variant in space.variants})
    techniques = len({variant.techniques for variant in space.variants})
    axes = (
        *(("aggregated and two pools",) if len(ways) > 1 else ("two pools",) if "disaggregated" in ways else ()),
        f"{len(space.platforms)} accelerators",
        f"{len(space.parallelisms)} parallelisms",
        f"{formats} number formats",
        *((f"{techniques} techniques",) if techniques > 1 else ()),
        f"{len(space.sequences)} batch limits",
        f"{len(space.tokens)} token budgets",
    )
    return SearchSummary(
        candidates=candidates,
        feasible=found.feasible,
        finalists=finalists,
        axes=axes,
        combined=found.combined,
        in_all_formats=found.in_all_formats,
        platforms=len(space.platforms),
    )


def candidate_of(question: Question, table: ScreenTable, *, limits: tuple[int, int]) -> Candidate:
    """The set-up of a table under (max_num_seqs, max_num_batched_tokens)."""
    engine = asked_engine(question.spec)
    own = own_limits(engine, table.platform, table.parallelism, profiles=question.policy.profiles)
    # The engine's own limits need no flag.
    fields = zip(("max_num_seqs", "max_num_batched_tokens"), limits, own, strict=True)
    named = {name: value for name, value, usual in fields if value != usual}
    return Candidate(
        platform=table.platform,
        parallelism=table.parallelism,
        precision=table.variant.precision,
        techniques=table.variant.techniques,
        engine=engine.model_copy(update=named),
    )


def screened_pairs(
    question: Question, maker: TableMaker, space: SearchSpace, wanted: Mapping[Platform, Pairs]
) -> ScreenedSpace:
    """Price what is wanted of a space and screen it."""
    tables = _remembered_tables(question, maker, space, {item: tuple(pairs) for item, pairs in wanted.items()})
    found = ScreenedSpace(
        space=space,
        tables=tables,
        screened=_nothing(space),
        steps=maker.steps,
        combined=len(space.platforms),
        in_all_formats=len(space.platforms),
    )
    return replace(found, screened=capacities(question, found, question.objectives)) if tables else found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Screening:
    """What tables are made of. The rate to carry and the objectives are no part of it."""

    model: Same[ModelSpec]
    mix: RequestMix
    space: SearchSpace
    engine: EngineSpec
    profiles: str | None
    wanted: tuple[tuple[Platform, tuple[tuple[ParallelismSpec, Variant], ...]], ...]


_KEPT, _LARGEST_KEPT = 8, 2000
"""Searches whose tables are kept, and set-ups of one that is: some kilobytes each."""
_TABLES: dict[_Screening, tuple[ScreenTable, ...]] = {}


def _remembered_tables(
    question: Question,
    maker: TableMaker,
    space: SearchSpace,
    wanted: Mapping[Platform, tuple[tuple[ParallelismSpec, Variant], ...]],
) -> tuple[ScreenTable, ...]:
    """The tables of all that is wanted; plans that differ in rate or objectives alone share them."""
    asked = _Screening(
        model=Same(question.model),
        mix=question.demand.mix,
        space=space,
        engine=asked_engine(question.spec),
        profiles=question.policy.profiles,
        wanted=tuple(wanted.items()),
    )
    found = _TABLES.pop(asked, None)
    if found is None:
        found = tuple(table for item, pairs in wanted.items() for table in maker.tables(item, pairs).values())
    if sum(map(len, wanted.values())) <= _LARGEST_KEPT:
        _TABLES[asked] = found
    while len(_TABLES) > _KEPT:
        _TABLES.pop(next(iter(_TABLES)), None)
    return found


def _nothing(space: SearchSpace) -> Screened:
    nothing = np.zeros((0, len(space.sequences), len(space.tokens)))
    return Screened(capacity_per_s=nothing, ttft_p95_s=nothing, tpot_p95_s=nothing, e2e_p95_s=nothing)


def capacities(question: Question, found: ScreenedSpace, objectives: tuple[Objective, ...]) -> Screened:
    """What every set-up sustains within the objectives."""
    screened = screen(
        found.tables,
        steps=found.steps,
        space=found.space,
        mix=question.demand.mix,
        limits=screened_limits(question),
        objectives=objectives,
        utilization=question.policy.utilization,
    )
    return of_all_ranks(screened, found.tables)


def of_all_ranks(screened: Screened, tables: tuple[ScreenTable, ...]) -> Screened:
    """Capacity of whole replicas: every rank of data-parallel attention serves as many requests as the screened one."""
    ranks = np.array([table.parallelism.dp_size for table in tables], dtype=np.float64).reshape(-1, 1, 1)
    return replace(screened, capacity_per_s=screened.capacity_per_s * ranks)


def per_table(found: ScreenedSpace, values: list[float]) -> Array:
    """One value of each table for all its set-ups."""
    return np.array(values, dtype=np.float64).reshape(-1, 1, 1) * np.ones_like(found.screened.capacity_per_s)


def fleet_axes(found: ScreenedSpace, question: Question) -> tuple[Array, Array]:
    """Cost per hour (infinite where no price is known) and power [W] of a fleet for each set-up, flat."""
    rule = plan_rule(question.spec)
    offers = [market_price(question.prices, hardware=item.platform.hardware.name, rule=rule) for item in found.tables]
    prices = [offer.per_hour if offer is not None else float("inf") for offer in offers]
    capacity = found.screened.capacity_per_s
    with np.errstate(divide="ignore"):
        replicas = np.ceil(question.demand.planned_rate_per_s / capacity)
    devices = replicas * per_table(found, [float(item.parallelism.devices) for item in found.tables])
    power = devices * per_table(found, [device_power_w(item.platform) for item in found.tables])
    cost = np.where(capacity > 0, devices * per_table(found, prices), np.inf)
    # Without a price only the number of devices speaks, behind everything that has one.
    return cost.ravel(), np.where(capacity > 0, power, np.inf).ravel()
