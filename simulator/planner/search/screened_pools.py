"""Pools for prompts and for answers, screened on the tables of a wide search: which pairs are worth working out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from simulator.engine.lanes.queueing import delayed_wait_variance, gg1_wait_mean_s
from simulator.engine.lanes.steady_state import LatencyMetric, Objective
from simulator.errors import Option, RoofcastError
from simulator.planner.candidate import Candidate
from simulator.planner.search.candidates import asked_engine, in_pools
from simulator.planner.search.question import Question
from simulator.planner.search.screen_tables import ScreenedSteps, ScreenTable
from simulator.planner.search.screening import LOADS, Moments, screen
from simulator.planner.search.search_space import own_limits
from simulator.planner.search.wide_search import (
    ScreenedSpace,
    alike,
    candidate_of,
    of_all_ranks,
    screened_limits,
    sizes_that_may_do,
)
from simulator.planner.serving.pool_states import decode_mix
from simulator.traffic.lengths import Array

DECODE_SHARE = 9 / 10
"""Of the bound of an objective on E2E, what the decode pool may take while it is screened."""
_PAIRS_PER_PLATFORM = 2
"""Number formats of a platform whose pairs are worked out in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedPools:
    """Requests/s of a prefill replica [tables, budgets] and of a decode replica [tables, sequences, budgets]."""

    prefill_per_s: Array
    decode_per_s: Array


def _objectives(question: Question, metric: LatencyMetric) -> tuple[Objective, ...]:
    return tuple(item for item in question.objectives if item.metric is metric)


def _holds_one(table: ScreenTable, question: Question) -> NDArray[np.bool_]:
    """Limits [sequences, budgets] whose buffers leave room for one request."""
    found: NDArray[np.bool_] = table.kv_tokens > question.demand.mix.decode_context_tokens
    return found


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
    fits = np.stack([_holds_one(table, question).any(axis=0) for table in tables])
    of_replica: Array = np.where(fits, capacity * lanes[:, None], 0.0)
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


def pool_finalists(
    found: ScreenedSpace, question: Question, *, per_platform: int = _PAIRS_PER_PLATFORM
) -> tuple[Candidate, ...]:
    """The pairs of every platform that may make the smallest fleet, of the formats that take least per request."""
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
    ahead, after = pools.prefill_per_s.max(axis=1), pools.decode_per_s.max(axis=(1, 2))
    devices = np.array([table.parallelism.devices for table in found.tables])
    formats: dict[tuple[str, object], list[int]] = {}
    for index, table in enumerate(found.tables):
        formats.setdefault((table.platform.hardware.name, table.variant), []).append(index)
    pairs: dict[str, list[tuple[float, list[tuple[int, int]]]]] = {}
    for (name, _), members in formats.items():
        first, second = (sizes_that_may_do(found, members, most, rate_per_s=rate) for most in (ahead, after))
        if first and second:
            with np.errstate(divide="ignore"):
                least = float(sum((devices[members] / most[members]).min() for most in (ahead, after)))
            pairs.setdefault(name, []).append((least, list(product(first, second))))
    chosen = [pair for group in pairs.values() for _, own in sorted(group)[:per_platform] for pair in own]
    return tuple(_pair(found, question, pools, *places) for places in chosen)


def _pair(found: ScreenedSpace, question: Question, pools: ScreenedPools, first: int, second: int) -> Candidate:
    """The tables at two places, each under the limits nearest to its engine's own among those that carry most."""
    space, made = found.space, []
    fits = _holds_one(found.tables[first], question)
    for index, good in (
        (first, fits & alike(pools.prefill_per_s[first])),
        (second, alike(pools.decode_per_s[second])),
    ):
        table = found.tables[index]
        own = own_limits(
            asked_engine(question.spec), table.platform, table.parallelism, profiles=question.policy.profiles
        )
        far = [
            np.abs(np.log(np.array(axis) / usual))
            for axis, usual in zip((space.sequences, space.tokens), own, strict=True)
        ]
        row, column = divmod(int(np.where(good, far[0][:, None] + far[1], np.inf).argmin()), len(space.tokens))
        limits = (space.sequences[row], space.tokens[column])
        made.append(in_pools(candidate_of(question, table, limits=limits), profiles=question.policy.profiles))
    return replace(made[1], prefill=made[0])
