"""Requests as columns in the order of the queue: what nobody asks for is empty, so that ten million fit in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.engine.events import state as at
from simulator.engine.events.state import Fate, RequestColumns
from simulator.engine.settings import SchedulerPolicy, SchedulerSettings
from simulator.traffic.requests import NO_PREVIOUS, Floats, Ints, Outcome, RequestRecords, Requests

_NO_TIMES: Floats = np.zeros(0)
_NO_NUMBERS: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
_NO_REPLICAS: NDArray[np.int32] = np.zeros((0, 0, 0), dtype=np.int32)


def has_turns(requests: Requests) -> bool:
    """Whether any request waits for the answer to another one."""
    return bool((requests.previous != NO_PREVIOUS).any())


def _column(values: NDArray[Any], kind: Any) -> NDArray[Any]:
    """One entry after the other, as compiled code takes them."""
    return np.require(values, dtype=kind, requirements=["C", "W"])


def _queued(values: NDArray[Any], order: Ints | None) -> NDArray[Any]:
    return values if order is None else values[order]


def _ready_s(arrival_s: Floats, prompt_tokens: Ints, settings: SchedulerSettings) -> Floats:
    return arrival_s + settings.request_delay_s + settings.prompt_token_delay_s * prompt_tokens


def queue_order(requests: Requests, settings: SchedulerSettings) -> Ints | None:
    """Requests in the order in which they reach the scheduler's queue, None where they come as they are sent."""
    # Millions of zeros are not added.
    sent_on_s = requests.arrival_s + requests.ahead_s if requests.ahead_s.any() else requests.arrival_s
    ready_s = _ready_s(sent_on_s, requests.prompt_tokens, settings)
    if (ready_s[1:] >= ready_s[:-1]).all():
        return None
    return np.argsort(ready_s, kind="stable").astype(np.int32)


def make_demand(requests: Requests, settings: SchedulerSettings, *, order: Ints | None) -> RequestColumns:
    """``requests`` in the order of the queue; nobody is being brought in yet."""
    turns = has_turns(requests)
    shared = len(requests.block_ids) > 0
    own = turns or bool(np.isfinite(requests.deadline_s).any())
    patience_s = np.inf if settings.timeout_s is None else settings.timeout_s
    deadline_s = np.minimum(requests.arrival_s + patience_s, requests.deadline_s) if own else _NO_TIMES
    delay_s = settings.request_delay_s + settings.prompt_token_delay_s * requests.prompt_tokens if turns else _NO_TIMES
    return RequestColumns(
        ready_s=_NO_TIMES,
        prompt_tokens=_column(_queued(requests.prompt_tokens, order), np.int32),
        output_tokens=_column(_queued(requests.output_tokens, order), np.int32),
        prefix=_column(_queued(requests.prefix_list, order), np.int32) if shared else _NO_NUMBERS,
        deadline_s=_column(_queued(deadline_s, order), np.float64) if own else _NO_TIMES,
        sent_s=_column(requests.arrival_s, np.float64),
        order=_NO_NUMBERS if order is None else _column(order, np.int32),
        think_s=_column(_queued(requests.think_s, order), np.float64) if turns else _NO_TIMES,
        delay_s=_column(_queued(delay_s, order), np.float64) if turns else _NO_TIMES,
        follower=_followers(requests, order) if turns else _NO_NUMBERS,
        list_start=_column(requests.list_start, np.int64),
        block_ids=_column(requests.block_ids, np.int32),
        stage_end_s=_column(requests.stage_end_s, np.float64),
        holders=_NO_REPLICAS,
        places=_NO_REPLICAS,
    )


def _followers(requests: Requests, order: Ints | None) -> Ints:
    """The place in the queue of the turn after each request, or -1, in the order of the queue."""
    count = len(requests)
    place = np.arange(count, dtype=np.int32)
    if order is not None:
        place[order] = np.arange(count, dtype=np.int32)
    later = requests.previous != NO_PREVIOUS
    follower = np.full(count, -1, dtype=np.int32)
    follower[requests.previous[later]] = place[later]
    return _queued(follower, order)


def make_fate(requests: Requests, demand: RequestColumns, settings: SchedulerSettings, *, order: Ints | None) -> Fate:
    """Everybody waits, except for whom the engine will not take at all."""
    total = demand.prompt_tokens + demand.output_tokens
    room = settings.kv_blocks - settings.watermark_blocks
    too_long = total > settings.max_model_len
    if not settings.chunked_prefill:
        # A sequence that may be preempted is recomputed with its output in one piece.
        evicted = settings.policy is not SchedulerPolicy.GUARANTEED_NO_EVICT
        too_long |= (total if evicted else demand.prompt_tokens) > settings.max_num_batched_tokens
    outcome = np.full(len(total), at.WAITING, dtype=np.int8)
    outcome[-(-total // settings.block_size_tokens) > room] = int(Outcome.TOO_LARGE)
    outcome[too_long] = int(Outcome.TOO_LONG)

    def times(needed: bool = True) -> Floats:
        return np.full(len(total), np.nan) if needed else _NO_TIMES

    def numbers(fill: int, *, needed: bool = True) -> NDArray[np.int32]:
        return np.full(len(total), fill, dtype=np.int32) if needed else _NO_NUMBERS

    turns = len(demand.follower) > 0
    sent_s = _NO_TIMES
    if turns:
        sent_s = _queued(np.where(requests.previous != NO_PREVIOUS, np.nan, requests.arrival_s), order)
    return Fate(
        outcome=outcome,
        admitted_s=times(),
        first_token_s=times(),
        finish_s=times(),
        preemptions=numbers(0),
        replica=numbers(-1),
        next_waiting=numbers(-1),
        cached_tokens=numbers(0, needed=len(demand.prefix) > 0),
        log=numbers(-1, needed=turns),
        sent_s=sent_s,
        heap_s=times(turns),
        heap=numbers(-1, needed=turns),
        loaded_s=times(len(settings.tiers) > 0),
        numbers=np.zeros(at.NUMBERS, dtype=np.int64),
    )


def part_of_demand(demand: RequestColumns, *, group: int, groups: int) -> RequestColumns:
    """Every ``groups``-th request from ``group`` on; the demand itself where there is one group."""
    if groups == 1:
        return demand
    names = ("prompt_tokens", "output_tokens", "prefix", "deadline_s")
    columns = {name: np.ascontiguousarray(getattr(demand, name)[group::groups]) for name in names}
    order = demand.order[group::groups]
    sent_s = demand.sent_s[order] if len(order) else np.ascontiguousarray(demand.sent_s[group::groups])
    return demand._replace(**columns, sent_s=sent_s, order=_NO_NUMBERS)


def part_of_fate(fate: Fate, *, group: int, groups: int) -> Fate:
    """The same of what becomes of them."""
    if groups == 1:
        return fate
    columns = (np.ascontiguousarray(column[group::groups]) for column in fate[:-1])
    return Fate._make((*columns, np.zeros_like(fate.numbers)))


def join_part(fate: Fate, part: Fate, *, group: int, groups: int) -> None:
    """Enter what became of a group, which is a replica, into the whole."""
    if groups == 1:
        return
    part.replica[part.replica >= 0] = group
    for column, own in zip(fate[:-1], part[:-1], strict=True):
        column[group::groups] = own


def ready_s(
    requests: Requests, settings: SchedulerSettings, *, order: Ints | None, group: int, groups: int, rows: slice
) -> Floats:
    """When the ``rows`` of a group reach the queue, NaN for later turns, whose time is not known [s]."""
    chosen = slice(group, None, groups)

    def queued(values: NDArray[Any]) -> NDArray[Any]:
        return values[chosen][rows] if order is None else values[order[chosen][rows]]

    sent_on_s = queued(requests.arrival_s) + queued(requests.ahead_s)
    found = _ready_s(sent_on_s, queued(requests.prompt_tokens), settings)
    found[queued(requests.previous) != NO_PREVIOUS] = np.nan
    return found


def records_of(requests: Requests, fate: Fate, order: Ints | None) -> RequestRecords:
    """What became of each request, in the order in which they came; the columns of ``fate`` are given up for it."""

    def sent(column: NDArray[Any]) -> NDArray[Any]:
        if order is not None:
            column[order] = column.copy()
        return column

    cached = sent(fate.cached_tokens) if len(fate.cached_tokens) else np.broadcast_to(np.int32(0), len(requests))
    return RequestRecords(
        outcome=sent(fate.outcome),
        admitted_s=sent(fate.admitted_s),
        first_token_s=sent(fate.first_token_s),
        finish_s=sent(fate.finish_s),
        cached_tokens=cached,
        preemptions=sent(fate.preemptions),
        replica=sent(fate.replica),
        sent_s=sent(fate.sent_s) if len(fate.sent_s) else requests.arrival_s,
    )
