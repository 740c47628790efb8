"""Which of the screened set-ups are worked out exactly: the best of an accelerator, pairs of pools, a Pareto front."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import inf

import numpy as np
from numpy.typing import NDArray

from simulator.errors import Option, RoofcastError
from simulator.planner.candidate import Candidate, Platform, Variant
from simulator.planner.money.market import market_price, plan_rule
from simulator.planner.search.candidates import asked_engine, in_pools
from simulator.planner.search.question import Question, own_limits
from simulator.planner.search.screen_tables import ScreenTable
from simulator.planner.search.screened_space import (
    ScreenedSpace,
    candidate_of,
    fleet_axes,
    of_all_ranks,
    per_table,
    screened_limits,
)
from simulator.planner.search.screening import holds_one, screen_decode, screen_prefill
from simulator.records import dataclass
from simulator.techniques.quality import answer_quality
from simulator.traffic.lengths import Array

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
    """Of the tables the best of every size of a replica that may need the fewest devices at a rate or any above it.

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
    places = _best_per_platform(found, question, among=among)
    return tuple(found.candidate(place, question) for place in places)


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


_PAIRS_PER_PLATFORM = 2
"""Number formats of a platform whose pairs are worked out in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenedPools:
    """Requests/s of a prefill replica [tables, budgets] and of a decode replica [tables, sequences, budgets]."""

    prefill_per_s: Array
    decode_per_s: Array


def screen_pools(found: ScreenedSpace, question: Question) -> ScreenedPools:
    """Both pools of every set-up that a search has priced; what cannot decode in a pool of its own gets 0."""
    limits, mix, objectives = screened_limits(question), question.demand.mix, question.objectives
    utilization = question.policy.utilization
    prefill = screen_prefill(
        found.tables, steps=found.steps, mix=mix, limits=limits, objectives=objectives, utilization=utilization
    )
    decode = screen_decode(
        found.tables,
        steps=found.steps,
        space=found.space,
        mix=mix,
        limits=limits,
        objectives=objectives,
        utilization=utilization,
    )
    guessing = np.array(found.speculates)
    return ScreenedPools(
        prefill_per_s=np.where(guessing[:, None], 0.0, prefill),
        decode_per_s=np.where(guessing[:, None, None], 0.0, of_all_ranks(decode, found.tables).capacity_per_s),
    )


def pool_finalists(
    found: ScreenedSpace,
    question: Question,
    *,
    per_platform: int = _PAIRS_PER_PLATFORM,
    unlike: Sequence[tuple[Platform, Platform]] = (),
    below: float = inf,
) -> tuple[Candidate, ...]:
    """The pairs of every platform that may make the smallest fleet, of the formats that take least per request.

    unlike : accelerators for prompts and for answers to be paired instead, where that may cost less than ``below``
    """
    if not found.tables:
        return ()
    if question.spec.serving == ("disaggregated",) and all(found.speculates):
        raise RoofcastError(
            "a wide search screens pools that decode one token at a time",
            field=Option("speculation"),
            code="unsupported_option",
            hint="`search` usual",
        )
    pools, rate = screen_pools(found, question), question.demand.planned_rate_per_s
    ahead, after = pools.prefill_per_s.max(axis=1), pools.decode_per_s.max(axis=(1, 2))
    devices = np.array([table.parallelism.devices for table in found.tables])
    formats: dict[tuple[str, Variant], list[int]] = {}
    for index, table in enumerate(found.tables):
        formats.setdefault((table.platform.hardware.name, table.variant), []).append(index)
    pairs: dict[tuple[str, str], list[tuple[float, list[tuple[int, int]]]]] = {}
    for names, members in _paired(formats, unlike):
        first, second = (
            sizes_that_may_do(found, own, most, rate_per_s=rate)
            for own, most in zip(members, (ahead, after), strict=True)
        )
        if first and second:
            with np.errstate(divide="ignore"):
                each = [
                    float((devices[own] / most[own]).min()) for own, most in zip(members, (ahead, after), strict=True)
                ]
            least = _least(question, names, each)
            if not unlike or rate * least * (1 - SCREEN_ERROR) < below:
                pairs.setdefault(names, []).append((least, list(product(first, second))))
    chosen = [pair for group in pairs.values() for _, own in sorted(group)[:per_platform] for pair in own]
    return tuple(_pair(found, question, pools, *places) for places in chosen)


def _paired(
    formats: Mapping[tuple[str, Variant], list[int]], unlike: Sequence[tuple[Platform, Platform]]
) -> Iterator[tuple[tuple[str, str], tuple[list[int], list[int]]]]:
    """Accelerators for prompts and for answers, with the tables of each in a format that both have."""
    names = [(prefill.hardware.name, decode.hardware.name) for prefill, decode in unlike]
    for (decode, variant), members in formats.items():
        for ahead, after in names or [(decode, decode)]:
            if after == decode and (ahead, variant) in formats:
                yield (ahead, after), (formats[ahead, variant], members)


def _least(question: Question, names: tuple[str, str], devices: Sequence[float]) -> float:
    """Accelerators of both pools for a request a second; of two kinds what they cost an hour."""
    if names[0] == names[1]:
        return sum(devices)
    rule = plan_rule(question.spec)
    prices = [market_price(question.prices, hardware=name, rule=rule) for name in names]
    return sum(count * (inf if price is None else price.per_hour) for count, price in zip(devices, prices, strict=True))


def _pair(found: ScreenedSpace, question: Question, pools: ScreenedPools, first: int, second: int) -> Candidate:
    """The tables at two places, each under the limits nearest to its engine's own among those that carry most."""
    space, made = found.space, []
    fits = holds_one(found.tables[first], question.demand.mix)
    for index, good in ((first, fits & alike(pools.prefill_per_s[first])), (second, alike(pools.decode_per_s[second]))):
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
