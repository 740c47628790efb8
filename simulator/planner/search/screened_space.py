"""The set-ups of a search space as arrays: what each sustains, what its fleet costs, and which may be the best.

Tables hold what an accelerator takes for a step; they are remembered, since neither the rate to carry nor the
objectives are part of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from simulator.engine.lanes.limits import LaneLimits
from simulator.planner.money.market import market_price, plan_rule
from simulator.planner.records import Candidate, Platform, SearchSpace, SearchSummary, Variant
from simulator.planner.search.candidates import asked_engine, engine_on
from simulator.planner.search.question import Question, own_limits
from simulator.planner.search.screen_tables import ScreenedSteps, ScreenTable, TableMaker
from simulator.planner.search.screening import Screened, ScreenedLoad, screen
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import FULL_LENGTH, EngineSpec, load_engine
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.techniques.quality import answer_quality
from simulator.traffic.lengths import Array, RequestMix

Pairs = Iterable[tuple[ParallelismSpec, Variant]]
"""Set-ups of one accelerator."""


def device_power_w(platform: Platform, *, nameplate: bool = False) -> float:
    """Typical or ``nameplate`` power of one accelerator with its share of the server, or its limit [W]."""
    server = platform.server
    if server is None:
        return platform.hardware.limit_w
    whole_w = server.nameplate_w(platform.hardware) if nameplate else server.expected_w(platform.hardware)
    return whole_w / server.accelerators_per_server


def screened_load(question: Question, *, steps: ScreenedSteps, space: SearchSpace) -> ScreenedLoad:
    """What a question screens its set-ups for; limits of a lane that no set-up changes: block size and host costs."""
    asked = asked_engine(question.spec)
    profile = load_engine(asked.name, profiles=question.policy.profiles)
    limits = LaneLimits(
        sequences=1,
        batched_tokens=1,
        kv_tokens=0.0,
        block_tokens=profile.block_size_tokens,
        request_s=profile.overheads.request_s,
        prompt_token_s=profile.overheads.prompt_token_s,
        prompts_apart=steps.apart,
        full_length=(asked.scheduler or profile.scheduler) == FULL_LENGTH,
        steps_ahead=int(profile.async_scheduling),
    )
    return ScreenedLoad(
        steps=steps,
        space=space,
        mix=question.demand.mix,
        limits=limits,
        objectives=question.objectives,
        utilization=question.policy.utilization,
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
        """Whether each table decodes with speculation."""
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
    engine = engine_on(question.spec, table.platform)
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
        found = maker.tables(wanted)
    if sum(map(len, wanted.values())) <= _LARGEST_KEPT:
        _TABLES[asked] = found
    while len(_TABLES) > _KEPT:
        _TABLES.pop(next(iter(_TABLES)), None)
    return found


def _nothing(space: SearchSpace) -> Screened:
    nothing = np.zeros((0, len(space.sequences), len(space.tokens)))
    return Screened(capacity_per_s=nothing, ttft_p95_s=nothing, tpot_p95_s=nothing, e2e_p95_s=nothing)


def capacities(question: Question, found: ScreenedSpace, objectives: tuple[ObjectiveSpec, ...]) -> Screened:
    """What every set-up sustains within the objectives."""
    load = screened_load(question, steps=found.steps, space=found.space)
    return of_all_ranks(screen(found.tables, replace(load, objectives=objectives)), found.tables)


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


SCREEN_ERROR = 1 / 5
"""Share by which the screen may take a size of replica to carry too much or too little beside another: what comes this
near is worked out exactly."""
ALIKE = 3 / 100
"""Share of a capacity that the screen does not tell apart: about its mean error beside the exact one."""
_PARETO_FINALISTS = 16


def alike(capacity_per_s: Array) -> NDArray[np.bool_]:
    """Which limits of one table carry as much as any."""
    found: NDArray[np.bool_] = capacity_per_s >= (1 - ALIKE) * capacity_per_s.max()
    return found


def sizes_that_may_do(
    found: ScreenedSpace, members: Sequence[int], capacity_per_s: Array, *, rate_per_s: float
) -> list[int]:
    """The best table of every size of a replica that may need the fewest devices at a rate or any above it.

    Small replicas waste little, large ones may carry more per device: what does neither is left out, and so are small
    ones where the rate fills the large. Nothing comes back at a higher rate: what is found there is found at every
    lower one. ``capacity_per_s``: of every table.
    """
    by_size: dict[int, int] = {}
    for index in sorted(members, key=lambda index: -capacity_per_s[index]):
        if capacity_per_s[index] > 0:
            by_size.setdefault(found.tables[index].parallelism.devices, index)
    each = {size: size / capacity_per_s[index] for size, index in by_size.items()}
    best = min(each, key=lambda size: (each[size], size), default=0)
    return [
        by_size[size]
        for size in sorted(by_size)
        if all((1 - SCREEN_ERROR) * each[size] < each[smaller] for smaller in by_size if smaller < size)
        and rate_per_s * ((1 - SCREEN_ERROR) * each[size] - each[best]) <= best
    ]


def _best_per_platform(
    found: ScreenedSpace, question: Question, *, among: Callable[[ScreenTable], bool] = lambda table: True
) -> list[int]:
    """Places of the set-ups of every accelerator ``among`` the tables that may make the smallest fleet. Of limits that
    carry alike, the smallest: shorter steps are surer, and the engine's own are tried anyway."""
    capacity = found.screened.capacity_per_s
    most, within = capacity.max(axis=(1, 2)), capacity[0].size
    by_platform: dict[str, list[int]] = {}
    for index, table in enumerate(found.tables):
        if among(table):
            by_platform.setdefault(table.platform.hardware.name, []).append(index)
    return [
        index * within + int(alike(capacity[index]).argmax())
        for members in by_platform.values()
        for index in sizes_that_may_do(found, members, most, rate_per_s=question.demand.planned_rate_per_s)
    ]


def pareto_front(points: Array, *, limit: int | None = None) -> list[int]:
    """Rows of ``points`` [cases, axes] (all to be small) that no other row beats or equals on every axis. Found from
    the smallest first axis up; ``limit`` ends the search early. Infinite rows are never chosen."""
    order = np.lexsort(points.T[::-1])
    order = order[np.isfinite(points[order]).all(axis=1)]
    front: list[int] = []
    while len(order) and (limit is None or len(front) < limit):
        best = int(order[0])
        front.append(best)
        order = order[(points[order] < points[best]).any(axis=1)]
    return front


def _loss(question: Question, table: ScreenTable) -> float:
    """Published loss of answers as a fraction; what nobody published stands behind everything that is known."""
    loss = answer_quality(question.model, table.variant.precision, table.variant.techniques).loss
    return 1.0 if loss is None else loss


def cheapest(
    found: ScreenedSpace, question: Question, *, among: Callable[[ScreenTable], bool]
) -> tuple[Candidate, ...]:
    """The cheapest set-up of every accelerator ``among`` the tables."""
    return tuple(found.candidate(place, question) for place in _best_per_platform(found, question, among=among))


def finalists(found: ScreenedSpace, question: Question) -> tuple[Candidate, ...]:
    """The cheapest set-ups of every accelerator; with ``pareto`` also those that no other beats on every axis of it."""
    if not found.tables:
        return ()
    places = _best_per_platform(found, question)
    if question.spec.pareto:
        cost, power = fleet_axes(found, question)
        loss = per_table(found, [_loss(question, item) for item in found.tables]).ravel()
        axes = np.stack([cost, power, found.screened.e2e_p95_s.ravel(), loss], axis=1)
        front = pareto_front(axes)
        spread = np.unique(np.linspace(0, len(front) - 1, min(len(front), _PARETO_FINALISTS)).astype(int))
        places += [front[int(index)] for index in spread]
    return tuple(found.candidate(place, question) for place in dict.fromkeys(places))
