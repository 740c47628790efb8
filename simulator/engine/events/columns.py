"""Requests as columns in the order of the queue: what nobody asks for is empty, so that ten million fit in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.engine.events import state as at
from simulator.engine.events.state import Fate, RequestColumns
from simulator.engine.settings import SchedulerPolicy, SchedulerSettings
from simulator.specs.engine.fits import host_tokens
from simulator.traffic.requests import NO_PREVIOUS, Floats, Ints, Outcome, RequestRecords, Requests, repeated

_NO_TIMES: Floats = np.zeros(0)
_NO_NUMBERS: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
_NO_REPLICAS: NDArray[np.int32] = np.zeros((0, 0, 0), dtype=np.int32)


def has_turns(requests: Requests) -> bool:
    """Whether any request waits for the answer to another one."""
    return bool((requests.previous != NO_PREVIOUS).any())


def _column(values: NDArray[Any], kind: Any) -> NDArray[Any]:
    """One entry after the other, as compiled code takes them."""
    return np.require(values, dtype=kind, requirements=["C", "W"])


def _delay_s(prompt_tokens: Ints, settings: SchedulerSettings) -> Floats:
    """From the arrival of each request to its place in the queue [s]."""
    return settings.request_delay_s + settings.prompt_token_delay_s * host_tokens(prompt_tokens)


def queue_order(requests: Requests, settings: SchedulerSettings) -> Ints | None:
    """Requests in the order in which they reach the scheduler's queue, None where they come as they are sent."""
    # Millions of zeros are not added.
    sent_on_s = requests.arrival_s + requests.ahead_s if requests.ahead_s.any() else requests.arrival_s
    ready_s = sent_on_s + _delay_s(requests.prompt_tokens, settings)
    if (ready_s[1:] >= ready_s[:-1]).all():
        return None
    return np.argsort(ready_s, kind="stable").astype(np.int32)


def queue_rows(order: Ints | None, *, group: int, groups: int, rows: slice = slice(None)) -> slice | Ints:
    """Which requests every ``groups``-th place of the queue from ``group`` on holds, or the ``rows`` of them."""
    first, last = rows.start or 0, rows.stop
    chosen = slice(group + first * groups, None if last is None else group + last * groups, groups)
    return chosen if order is None else order[chosen]


def make_demand(requests: Requests, settings: SchedulerSettings, *, rows: slice | Ints) -> RequestColumns:
    """The ``rows`` of ``requests`` in the order of the queue; nobody is being brought in yet."""
    place, requests = rows, requests.part(rows)
    turns = has_turns(requests)
    shared = len(requests.block_ids) > 0
    own = turns or bool(np.isfinite(requests.deadline_s).any())
    patience_s = np.inf if settings.timeout_s is None else settings.timeout_s
    deadline_s = np.minimum(requests.arrival_s + patience_s, requests.deadline_s) if own else _NO_TIMES
    delay_s = _delay_s(requests.prompt_tokens, settings) if turns else _NO_TIMES
    return RequestColumns(
        ready_s=_NO_TIMES,
        prompt_tokens=_column(requests.prompt_tokens, np.int32),
        output_tokens=_column(requests.output_tokens, np.int32),
        prefix=_column(requests.prefix_list, np.int32) if shared else _NO_NUMBERS,
        deadline_s=_column(deadline_s, np.float64),
        sent_s=_column(requests.arrival_s, np.float64) if turns or settings.timeout_s is not None else _NO_TIMES,
        think_s=_column(requests.think_s, np.float64) if turns else _NO_TIMES,
        delay_s=delay_s,
        follower=_followers(requests.previous, place) if turns else _NO_NUMBERS,
        list_start=_column(requests.list_start, np.int64),
        block_ids=_column(requests.block_ids, np.int32),
        stage_end_s=_column(requests.stage_end_s, np.float64),
        holders=_NO_REPLICAS,
        places=_NO_REPLICAS,
    )


def _followers(previous: Ints, rows: slice | Ints) -> Ints:
    """The place in the queue of the turn after each request, or -1; previous : requests by number, places hold ``rows``
    of them."""
    places = np.arange(len(previous), dtype=np.int32)
    place = np.empty_like(places)
    place[rows] = places
    later = previous != NO_PREVIOUS
    follower = np.full(len(previous), -1, dtype=np.int32)
    follower[place[previous[later]]] = places[later]
    return follower


def refusals(requests: Requests | RequestColumns, settings: SchedulerSettings) -> NDArray[np.int8]:
    """The outcome of whom the engine will not take at all; everybody else waits."""
    total = requests.prompt_tokens + requests.output_tokens
    room = settings.kv_blocks - settings.watermark_blocks
    too_long = total > settings.max_model_len
    if not settings.chunked_prefill:
        # A sequence that may be preempted is recomputed with its output in one piece.
        evicted = settings.policy is not SchedulerPolicy.GUARANTEED_NO_EVICT
        too_long |= (total if evicted else requests.prompt_tokens) > settings.max_num_batched_tokens
    outcome = np.full(len(total), at.WAITING, dtype=np.int8)
    outcome[total > room * settings.block_size_tokens] = int(Outcome.TOO_LARGE)
    outcome[too_long] = int(Outcome.TOO_LONG)
    return outcome


def make_fate(requests: Requests, settings: SchedulerSettings) -> Fate:
    """Where the fate of ``requests`` is entered. The groups of the queue lie one behind the other, so that a column is
    one piece of memory, whoever serves them."""
    count, turns = len(requests), has_turns(requests)

    def times(needed: bool = True) -> Floats:
        return np.empty(count if needed else 0)

    def numbers(needed: bool = True) -> NDArray[np.int32]:
        return np.empty(count if needed else 0, dtype=np.int32)

    return Fate(
        outcome=np.empty(count, dtype=np.int8),
        admitted_s=times(),
        first_token_s=times(),
        finish_s=times(),
        preemptions=numbers(),
        replica=numbers(),
        next_waiting=numbers(),
        cached_tokens=numbers(len(requests.block_ids) > 0),
        log=numbers(turns),
        sent_s=times(turns),
        heap_s=times(turns),
        heap=numbers(turns),
        loaded_s=times(len(settings.tiers) > 0),
        numbers=np.zeros(at.NUMBERS, dtype=np.int64),
    )


def fate_of_group(fate: Fate, demand: RequestColumns, settings: SchedulerSettings, *, group: int, groups: int) -> Fate:
    """The part of ``fate`` that is of a group with ``demand``: everybody waits, except for whom the engine will not
    take at all."""
    places = _places(len(fate.outcome), group, groups)
    part = Fate._make([*(column[places] for column in fate[:-1]), np.zeros_like(fate.numbers)])
    for column in part[:-1]:
        column.fill(np.nan if column.dtype.kind == "f" else -1)
    part.outcome[:] = refusals(demand, settings)
    part.preemptions.fill(0)
    part.cached_tokens.fill(0)
    if len(part.sent_s):
        part.sent_s[:] = demand.sent_s
        part.sent_s[demand.follower[demand.follower >= 0]] = np.nan
    return part


def _places(count: int, group: int, groups: int) -> slice:
    """Where a group lies when they lie one behind the other."""
    each, more = divmod(count, groups)
    first = group * each + min(group, more)
    return slice(first, first + each + (group < more))


def ready_s(requests: Requests, settings: SchedulerSettings) -> Floats:
    """When requests reach the queue, NaN for later turns, whose time is not known [s]."""
    found = requests.arrival_s + requests.ahead_s + _delay_s(requests.prompt_tokens, settings)
    found[requests.previous != NO_PREVIOUS] = np.nan
    return found


def records_of(
    requests: Requests, columns: dict[str, NDArray[Any]], *, order: Ints | None, groups: int
) -> RequestRecords:
    """What became of each request, in the order in which they came; ``columns`` of its fate are taken one by one,
    because there is no room for all twice."""

    def sent(name: str, nobody: NDArray[Any] = _NO_TIMES) -> NDArray[Any]:
        column = columns.pop(name)
        if not len(column):
            return nobody
        if order is None and groups == 1:
            return column
        whole = np.empty_like(column)
        for group in range(groups):
            whole[queue_rows(order, group=group, groups=groups)] = column[_places(len(column), group, groups)]
        return whole

    return RequestRecords(
        outcome=sent("outcome"),
        admitted_s=sent("admitted_s"),
        first_token_s=sent("first_token_s"),
        finish_s=sent("finish_s"),
        cached_tokens=sent("cached_tokens", repeated(np.int32(0), len(requests))),
        preemptions=sent("preemptions"),
        replica=sent("replica"),
        sent_s=sent("sent_s", requests.arrival_s),
    )
