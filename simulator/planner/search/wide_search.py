"""A search over a hundred thousand set-ups: screened as arrays, the best of them evaluated exactly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from simulator.engine.lanes.load_curve import LaneLimits
from simulator.engine.lanes.queueing import delayed_wait_variance, gg1_wait_mean_s
from simulator.engine.lanes.steady_state import LatencyMetric
from simulator.errors import Option, RoofcastError
from simulator.planner.candidate import Candidate, Platform
from simulator.planner.money.market import market_price, plan_rule
from simulator.planner.records import Objective, SearchSummary
from simulator.planner.search.candidates import asked_engine
from simulator.planner.search.question import Question
from simulator.planner.search.screen_tables import ScreenedSteps, ScreenTable, TableMaker
from simulator.planner.search.screening import LOADS, Moments, Screened, screen
from simulator.planner.search.search_space import SearchSpace, own_limits, search_space
from simulator.planner.serving.pool_states import decode_mix
from simulator.specs.engine.engine import load_engine
from simulator.techniques.quality import answer_quality
from simulator.traffic.lengths import Array

# Finalists of every accelerator, each on a parallelism and format of its own.
_PER_PLATFORM = 2
_PARETO_FINALISTS = 16
DECODE_SHARE = 9 / 10
"""Of the bound of an objective on E2E, what the decode pool may take while it is screened."""
_PAIRS_PER_PLATFORM = 2
"""Pairs of a platform that are worked out in full, each on a parallelism and format of its own."""


def device_power_w(platform: Platform) -> float:
    """Typical power of one accelerator with its share of the server, or its TDP [W]."""
    server = platform.server
    if server is None:
        return platform.hardware.tdp_w
    return server.system_power_typical_w / server.accelerators_per_server


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
    """A search space with what every set-up of it sustains."""

    space: SearchSpace
    tables: tuple[ScreenTable, ...]
    screened: Screened
    steps: ScreenedSteps

    @property
    def feasible(self) -> int:
        """Set-ups that can serve."""
        return int((self.screened.capacity_per_s > 0).sum())

    def candidate(self, place: int, question: Question) -> Candidate:
        """The set-up at a flat place of the screened arrays."""
        table, sequences, tokens = (int(i) for i in np.unravel_index(place, self.screened.capacity_per_s.shape))
        limits = (self.space.sequences[sequences], self.space.tokens[tokens])
        return candidate_of(question, self.tables[table], limits=limits)


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


def screen_space(question: Question, platforms: tuple[Platform, ...]) -> ScreenedSpace:
    """Price the shared kernels of a question's search space and screen every set-up."""
    if question.demand.mix.decode_steps == 0:
        raise RoofcastError(
            "a wide search needs answers of more than one token", field=Option("search"), hint="`search` usual"
        )
    if "max_length" in question.spec.kv_allocation:
        raise RoofcastError(
            "max_length is not screened: the usual search compares it",
            field=Option("kv_allocation"),
            hint="`search` usual",
        )
    spec, engine = question.spec, asked_engine(question.spec)
    space = search_space(spec, model=question.model, platforms=platforms)
    maker = TableMaker(
        model=question.model, mix=question.demand.mix, space=space, engine=engine, profiles=question.policy.profiles
    )
    made = (
        maker.tables(platform, space.parallelisms, space.variants_on(platform, spec=spec, model=question.model))
        for platform in platforms
    )
    tables = tuple(table for found in made for table in found.values())
    if not tables:
        nothing = np.zeros((0, len(space.sequences), len(space.tokens)))
        empty = Screened(capacity_per_s=nothing, ttft_p95_s=nothing, tpot_p95_s=nothing, e2e_p95_s=nothing)
        return ScreenedSpace(space=space, tables=tables, screened=empty, steps=maker.steps)
    screened = screen(
        tables,
        steps=maker.steps,
        space=space,
        mix=question.demand.mix,
        limits=screened_limits(question),
        objectives=question.objectives,
        utilization=question.policy.utilization,
    )
    return ScreenedSpace(space=space, tables=tables, screened=of_all_ranks(screened, tables), steps=maker.steps)


def of_all_ranks(screened: Screened, tables: tuple[ScreenTable, ...]) -> Screened:
    """Capacity of whole replicas: every rank of data-parallel attention serves as many requests as the screened one."""
    ranks = np.array([table.parallelism.dp_size for table in tables], dtype=np.float64).reshape(-1, 1, 1)
    return replace(screened, capacity_per_s=screened.capacity_per_s * ranks)


def _per_table(found: ScreenedSpace, values: list[float]) -> Array:
    return np.array(values, dtype=np.float64).reshape(-1, 1, 1) * np.ones_like(found.screened.capacity_per_s)


def _fleet_axes(found: ScreenedSpace, question: Question) -> tuple[Array, Array]:
    """Cost per hour (infinite where no price is known) and power [W] of a fleet for each set-up, flat."""
    rule = plan_rule(question.spec)
    offers = [market_price(question.prices, hardware=item.platform.hardware.name, rule=rule) for item in found.tables]
    prices = [offer.per_hour if offer is not None else float("inf") for offer in offers]
    capacity = found.screened.capacity_per_s
    with np.errstate(divide="ignore"):
        replicas = np.ceil(question.demand.planned_rate_per_s / capacity)
    devices = replicas * _per_table(found, [float(item.parallelism.devices) for item in found.tables])
    power = devices * _per_table(found, [device_power_w(item.platform) for item in found.tables])
    cost = np.where(capacity > 0, devices * _per_table(found, prices), np.inf)
    # Without a price only the number of devices speaks, behind everything that has one.
    return cost.ravel(), np.where(capacity > 0, power, np.inf).ravel()


def _best_per_platform(
    found: ScreenedSpace,
    cost: Array,
    power: Array,
    *,
    per_platform: int = _PER_PLATFORM,
    among: Callable[[ScreenTable], bool] = lambda table: True,
) -> list[int]:
    """Places of the cheapest set-ups of every accelerator ``among`` the tables, one per parallelism and format."""
    shape = found.screened.capacity_per_s.shape
    flat_cost, flat_power = cost.reshape(shape[0], -1), power.reshape(shape[0], -1)
    score = np.where(np.isfinite(flat_cost), flat_cost, np.inf)
    within = np.where(np.isfinite(score).any(axis=1), score.argmin(axis=1), flat_power.argmin(axis=1))
    chosen: list[int] = []
    by_platform: dict[str, list[int]] = {}
    for index, table in enumerate(found.tables):
        if among(table):
            by_platform.setdefault(table.platform.hardware.name, []).append(index)
    for members in by_platform.values():
        serving = [item for item in members if np.isfinite(flat_power[item, within[item]])]
        serving.sort(key=lambda item: (flat_cost[item, within[item]], flat_power[item, within[item]]))
        chosen += [item * flat_cost.shape[1] + int(within[item]) for item in serving[:per_platform]]
    return chosen


def pareto_front(points: Array, *, limit: int | None = None) -> list[int]:
    """Rows of ``points`` [cases, axes] (all to be small) that no other row beats or equals on every axis.

    Found from the smallest first axis up; ``limit`` ends the search early. Infinite rows are never chosen.
    """
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
    cost, power = _fleet_axes(found, question)
    places = _best_per_platform(found, cost, power, per_platform=1, among=among)
    return tuple(found.candidate(place, question) for place in places)


def finalists(found: ScreenedSpace, question: Question) -> tuple[Candidate, ...]:
    """The cheapest set-ups of every accelerator; with ``pareto`` also those that no other beats on every axis of it."""
    if not found.tables:
        return ()
    cost, power = _fleet_axes(found, question)
    places = _best_per_platform(found, cost, power)
    if question.spec.pareto:
        loss = _per_table(found, [_loss(question, item) for item in found.tables]).ravel()
        axes = np.stack([cost, power, found.screened.e2e_p95_s.ravel(), loss], axis=1)
        front = pareto_front(axes)
        spread = np.unique(np.linspace(0, len(front) - 1, min(len(front), _PARETO_FINALISTS)).astype(int))
        places += [front[int(index)] for index in spread]
    return tuple(found.candidate(place, question) for place in dict.fromkeys(places))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedPools:
    """Requests/s of a prefill replica [tables, budgets] and of a decode replica [tables, sequences, budgets]."""

    prefill_per_s: Array
    decode_per_s: Array


def _objectives(question: Question, metric: LatencyMetric) -> tuple[Objective, ...]:
    return tuple(item for item in question.objectives if item.metric is metric)


def screened_prefill(tables: tuple[ScreenTable, ...], steps: ScreenedSteps, question: Question) -> Array:
    """Highest rate of a prefill replica within the objectives on TTFT [tables, budgets] [1/s].

    References
    ----------
    [Kleinrock1975] section 5.6, mean wait of M/G/1.
    """
    mix, limits = question.demand.mix, screened_limits(question)
    new = mix.new_prompt_tokens
    # Nobody decodes: the first node.
    full_s = np.stack([table.full_s[:, 0] for table in tables]) * new / steps.room[:, 0]
    own_s = np.maximum(np.stack([table.shared_s[:, 0] for table in tables]) * new / steps.shared[:, 0], full_s)
    host_s = limits.request_s + limits.prompt_token_s * mix.isl.mean_tokens
    capacity = np.zeros_like(full_s)
    for load in LOADS:
        rho = load * question.policy.utilization
        wait_s = gg1_wait_mean_s(
            arrival_rate_per_s=rho / full_s,
            service_mean_s=full_s,
            service_cv=mix.isl.cv,
            arrival_cv=mix.arrival_cv,
        )
        ttft = Moments(
            mean_s=host_s + own_s + wait_s,
            variance=(own_s * mix.isl.cv) ** 2 + delayed_wait_variance(mean_s=wait_s, probability=rho),
        )
        holds = np.ones_like(full_s, dtype=bool)
        for item in _objectives(question, LatencyMetric.TTFT):
            holds &= ttft.quantile_s(item.percentile) <= item.bound_s
        capacity = np.where((capacity == 0) & holds, rho / full_s, capacity)
    lanes = np.array([table.parallelism.pp_size * table.parallelism.dp_size for table in tables])
    of_replica: Array = capacity * lanes[:, None]
    return of_replica


def screened_decode(tables: tuple[ScreenTable, ...], found: ScreenedSpace, question: Question) -> Array:
    """Highest rate of a decode replica within the objectives on TPOT and E2E [tables, sequences, budgets] [1/s]."""
    alone = tuple(
        replace(
            table,
            shared_s=np.broadcast_to(table.decode_s, table.shared_s.shape),
            full_s=np.broadcast_to(table.decode_s, table.full_s.shape),
        )
        for table in tables
    )
    whole = tuple(
        replace(item, bound_s=DECODE_SHARE * item.bound_s) for item in _objectives(question, LatencyMetric.E2E)
    )
    screened = screen(
        alone,
        steps=found.steps,
        space=found.space,
        mix=decode_mix(question.demand.mix),
        limits=screened_limits(question),
        objectives=_objectives(question, LatencyMetric.TPOT) + whole,
        utilization=question.policy.utilization,
    )
    return of_all_ranks(screened, tables).capacity_per_s


def _guesses(found: ScreenedSpace) -> list[bool]:
    return [table.variant.techniques.speculation is not None for table in found.tables]


def screen_pools(found: ScreenedSpace, question: Question) -> ScreenedPools:
    """Both pools of every set-up that a search has priced; what cannot decode in a pool of its own gets 0."""
    prefill = screened_prefill(found.tables, found.steps, question)
    decode = screened_decode(found.tables, found, question)
    guessing = np.array(_guesses(found))
    return ScreenedPools(
        prefill_per_s=np.where(guessing[:, None], 0.0, prefill),
        decode_per_s=np.where(guessing[:, None, None], 0.0, decode),
    )


def _devices(rate: float, capacity: Array, tables: tuple[ScreenTable, ...]) -> Array:
    """Devices of the replicas that carry a rate, infinite where nothing is carried; one row for each table."""
    each = np.array([table.parallelism.devices for table in tables], dtype=np.float64)[:, None]
    flat = capacity.reshape(len(tables), -1)
    with np.errstate(divide="ignore"):
        return np.where(flat > 0, np.ceil(rate / flat) * each, np.inf)


def pool_finalists(
    found: ScreenedSpace, question: Question, *, per_platform: int = _PAIRS_PER_PLATFORM
) -> tuple[Candidate, ...]:
    """The pairs of every platform with the fewest devices, each on a number format of its own."""
    if not found.tables:
        return ()
    if question.spec.serving == ("disaggregated",) and all(_guesses(found)):
        raise RoofcastError(
            "a wide search screens pools that decode one token at a time",
            field=Option("speculation"),
            code="unsupported_option",
            hint="`search` usual",
        )
    pools, rate = screen_pools(found, question), question.demand.planned_rate_per_s
    ahead, after = (_devices(rate, capacity, found.tables) for capacity in (pools.prefill_per_s, pools.decode_per_s))
    alike: dict[tuple[str, object], list[int]] = {}
    for index, table in enumerate(found.tables):
        alike.setdefault((table.platform.hardware.name, table.variant), []).append(index)
    pairs: dict[str, list[tuple[float, int, int]]] = {}
    for (name, _), members in alike.items():
        first = min(members, key=lambda index: float(ahead[index].min()))
        second = min(members, key=lambda index: float(after[index].min()))
        devices = float(ahead[first].min() + after[second].min())
        if np.isfinite(devices):
            pairs.setdefault(name, []).append((devices, first, second))
    chosen = [pair for group in pairs.values() for pair in sorted(group)[:per_platform]]
    return tuple(_pair(found, question, ahead, after, places=(first, second)) for _, first, second in chosen)


def _pair(
    found: ScreenedSpace, question: Question, ahead: Array, after: Array, *, places: tuple[int, int]
) -> Candidate:
    """The tables at two places under the limits with the fewest devices; of equals, those nearest to the engine's."""
    space, engine = found.space, asked_engine(question.spec)
    first, second = (
        own_limits(engine, table.platform, table.parallelism, profiles=question.policy.profiles)
        for table in (found.tables[place] for place in places)
    )
    shape = (len(space.sequences), len(space.tokens))
    tokens = [
        (float(ahead[places[0]][index]), abs(np.log(budget / first[1])), budget)
        for index, budget in enumerate(space.tokens)
    ]
    limits = [
        (
            float(after[places[1]].reshape(shape)[row, column]),
            abs(np.log(sequences / second[0])) + abs(np.log(budget / second[1])),
            (sequences, budget),
        )
        for row, sequences in enumerate(space.sequences)
        for column, budget in enumerate(space.tokens)
    ]
    sequences = min(space.sequences, key=lambda value: abs(np.log(value / first[0])))
    prefill = candidate_of(question, found.tables[places[0]], limits=(sequences, min(tokens)[2]))
    decode = candidate_of(question, found.tables[places[1]], limits=min(limits)[2])
    return replace(decode, prefill=prefill)


def wide_search(question: Question, platforms: tuple[Platform, ...]) -> tuple[tuple[Candidate, ...], SearchSummary]:
    """Screen every set-up of the question's search space: the best, to be evaluated exactly, and how many it had."""
    found = screen_space(question, platforms)
    chosen = finalists(found, question) if "aggregated" in question.serving else ()
    if "disaggregated" in question.serving:
        chosen += pool_finalists(found, question)
    return chosen, found.space.summary(feasible=found.feasible, finalists=len(chosen), serving=question.serving)
