"""Both pools of every set-up of a wide search, screened on the tables that are there already.

A prefill replica is a lane of prompts alone, a decode replica a lane whose arrivals cost nothing: neither needs a step
that the search has not priced. Pools do not depend on each other but by objectives on E2E, of which a share is set
aside for the prompts; transfers are left to the exact evaluation of the best.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.engine.lanes.queueing import gg1_wait_mean_s
from simulator.engine.lanes.steady_state import LatencyMetric
from simulator.errors import RoofcastError
from simulator.planner.records import Objective
from simulator.planner.search.candidates import Candidate
from simulator.planner.search.question import Question
from simulator.planner.search.screen_tables import ScreenedSteps, ScreenTable
from simulator.planner.search.screening import LOADS, Moments, screen
from simulator.planner.search.wide_search import ScreenedSpace, candidate_of, of_all_ranks, screened_limits
from simulator.planner.serving.pool_states import decode_mix
from simulator.traffic.lengths import Array

DECODE_SHARE = 9 / 10
"""Of the bound of an objective on E2E, what the decode pool may take while it is screened."""
SHOWN_PAIRS = 2
"""Pairs of a platform that are worked out in full, each on a parallelism and format of its own."""


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
        ttft = Moments(mean_s=host_s + own_s + wait_s, variance=(own_s * mix.isl.cv) ** 2 + wait_s**2 * (2 / rho - 1))
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


def pool_finalists(found: ScreenedSpace, question: Question) -> tuple[Candidate, ...]:
    """The pairs of every platform with the fewest devices, each on a number format of its own."""
    if not found.tables:
        return ()
    if question.spec.serving == ("disaggregated",) and all(_guesses(found)):
        raise RoofcastError(
            "a wide search screens pools that decode one token at a time",
            field="--speculation",
            code="unsupported_option",
            hint="--search usual",
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
    chosen = [pair for group in pairs.values() for pair in sorted(group)[:SHOWN_PAIRS]]
    return tuple(_pair(found, question, ahead, after, places=(first, second)) for _, first, second in chosen)


def _pair(
    found: ScreenedSpace, question: Question, ahead: Array, after: Array, *, places: tuple[int, int]
) -> Candidate:
    """The tables at two places under the limits with the fewest devices; of equals, those nearest to the engine's."""
    space, profile = found.space, found.engine_limits(question)
    shape = (len(space.sequences), len(space.tokens))
    tokens = [
        (float(ahead[places[0]][index]), abs(np.log(budget / profile[1])), budget)
        for index, budget in enumerate(space.tokens)
    ]
    limits = [
        (
            float(after[places[1]].reshape(shape)[row, column]),
            abs(np.log(sequences / profile[0])) + abs(np.log(budget / profile[1])),
            (sequences, budget),
        )
        for row, sequences in enumerate(space.sequences)
        for column, budget in enumerate(space.tokens)
    ]
    sequences = min(space.sequences, key=lambda value: abs(np.log(value / profile[0])))
    prefill = candidate_of(question, found.tables[places[0]], limits=(sequences, min(tokens)[2]))
    decode = candidate_of(question, found.tables[places[1]], limits=min(limits)[2])
    return replace(decode, prefill=prefill)
