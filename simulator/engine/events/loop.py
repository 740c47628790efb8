"""The event loop: in order of time, requests come in and replicas reach the ends of their steps.

At the end of a step its tokens are returned, then the next steps are formed. Steps pass through the pipeline stages one
after another; a stage takes the next step when it is done with the one before. As many steps are under way as the
engine schedules at once: one, two with asynchronous scheduling (a request that arrives during a step waits for its
rest, for the whole next one, and gets its first token out of the one after that), one per stage in a pipeline (as
vLLM's batch queue [VllmTeam2025]). In a pipeline a request that comes while fewer are under way starts a step at once,
so that sequences spread over the steps as they arrive. Ranks that step together form a step each, an empty one where
only others have something to compute; the clock of the first is that of all.

There is one loop for all engines; what a step is made of is up to the functions of a ``Scheduler``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from simulator.engine.events import state as at
from simulator.engine.events.compilation import Loop, compiled, in_place_of, inlined
from simulator.engine.events.request_life import pop_follow_up, push_follow_up, slot_of
from simulator.engine.events.state import Scheduler
from simulator.engine.events.steps import account, deadline_s, keep_pace, launch


@inlined
def replica_state(stack: Any, replica: int) -> Any:
    """One replica's rows of the state of all."""
    return at.EngineState(
        stack.blocks[replica],
        stack.holder[replica],
        stack.slots[replica],
        stack.table[replica],
        stack.running[replica],
        stack.marked[replica],
        stack.plan[replica],
        stack.span_s[replica],
        stack.places[replica],
        stack.tiers[replica],
        stack.count[replica],
        stack.clock[replica],
        stack.usage[replica],
        stack.trace[replica],
        stack.series[replica],
    )


def _state_of(stack: Any, head: Any, first: int, rank: int) -> Any:
    """The state of a rank of those that step together, of which that of the first is at hand."""
    return head if rank == first else replica_state(stack, rank)


@in_place_of(_state_of, inline=True)
def _state_read_anew(stack: Any, head: Any, first: int, rank: int) -> Any:
    # One of two states lies in memory, one of an array in registers.
    return replica_state(stack, rank)


@inlined
def _expire(scheduler: Any, state: Any, demand: Any, fate: Any, limits: Any, replica: int, now_s: float) -> None:
    """Drop this replica's requests whose client has given up by now, in order of their coming; last tokens still go."""
    if len(demand.deadline_s) == 0 and limits.patience_s == np.inf:
        return
    place = state.count[at.DEADLINE]
    while place < fate.numbers[at.DISPATCHED]:
        request: Any = np.int64(fate.log[place]) if len(fate.log) > 0 else np.int64(place)
        refused = fate.outcome[request] > at.TIMED_OUT
        if not refused and deadline_s(demand, limits, request) > now_s:
            break
        pending = fate.outcome[request] == at.WAITING or fate.outcome[request] == at.ADMITTED
        own = pending and fate.replica[request] == replica
        slot = slot_of(state, request) if own and fate.outcome[request] == at.ADMITTED else -1
        ending = slot >= 0 and state.slots[slot, at.SLOT_STATUS] == at.DONE
        if own and not ending:
            fate.outcome[request] = at.TIMED_OUT
            state.count[at.OUTSTANDING] -= 1
            push_follow_up(demand, fate, limits, request, now_s)
            if slot >= 0:
                state.count[at.LIVE] -= 1
                scheduler.leave(state, limits, slot)
        place += 1
    state.count[at.DEADLINE] = place


@inlined
def _return_step(scheduler: Any, state: Any, demand: Any, fate: Any, limits: Any, now_s: float) -> None:
    """End the oldest step under way: first tokens, then completions."""
    step = state.count[at.RETURNED]
    row = step & limits.step_mask
    for place in range(state.plan[row, at.PLAN_FIRSTS]):
        request = state.marked[row, place, at.FIRST_REQUEST]
        if np.isnan(fate.first_token_s[request]):
            fate.first_token_s[request] = now_s
    scheduler.end_step(state, demand, fate, limits, step, now_s)
    state.count[at.RETURNED] = step + 1


@compiled
def _next_arrival_of_blocks(state: Any, fate: Any, limits: Any) -> float:
    """When the first loading sequence has its blocks; infinite when none is loading [s]."""
    earliest_s = np.inf
    for place in range(state.count[at.RUNNING] if len(limits.tiers) > 0 else 0):
        slot = state.running[at.ORDER, place]
        if state.slots[slot, at.SLOT_STATUS] == at.LOADING:
            earliest_s = min(earliest_s, fate.loaded_s[state.slots[slot, at.SLOT_REQUEST]])
    return earliest_s


@inlined
def _cross_boundary(
    scheduler: Any, stack: Any, head: Any, demand: Any, fate: Any, limits: Any, tables: Any, first: int
) -> None:
    """Let ranks that step together pass the boundary that their clock shows, at which a step ends or one wakes: they
    return tokens, form and launch as many steps as may be under way, account for those that start, set the clock."""
    clock, count, last, now_s = head.clock, head.count, first + limits.ranks, head.clock[at.NOW_S]
    # A step without anything to compute may have thrown somebody out, so that the next attempt finds room.
    attempts = 0
    for rank in range(first, last):
        state = _state_of(stack, head, first, rank)
        own, ends_s = state.count, state.span_s[:, at.STEP_END_S]
        while own[at.RETURNED] < own[at.LAUNCHED] and ends_s[own[at.RETURNED] & limits.step_mask] <= now_s:
            _return_step(scheduler, state, demand, fate, limits, now_s)
        _expire(scheduler, state, demand, fate, limits, rank, now_s)
        attempts += own[at.RUNNING]
    loaded_s = np.inf
    while True:
        formed = False
        more = count[at.LAUNCHED] - count[at.RETURNED] < limits.depth
        for rank in range(first, last):
            state = _state_of(stack, head, first, rank)
            own, start_s = state.count, state.span_s[:, at.STEP_START_S]
            while own[at.ACCOUNTED] < own[at.LAUNCHED] and (
                limits.counted_ahead or start_s[own[at.ACCOUNTED] & limits.step_mask] <= now_s
            ):
                account(state, demand, limits)
            if more and scheduler.form(state, demand, fate, limits, now_s):
                formed = True
        if formed:
            for rank in range(first, last):
                launch(_state_of(stack, head, first, rank), limits, tables, now_s)
            if limits.ranks > 1:
                keep_pace(stack, limits, tables, first)
            continue
        if count[at.LAUNCHED] > count[at.RETURNED]:
            clock[at.NOW_S] = head.span_s[count[at.RETURNED] & limits.step_mask, at.STEP_END_S]
            return
        for rank in range(first, last):
            loaded_s = min(loaded_s, _next_arrival_of_blocks(_state_of(stack, head, first, rank), fate, limits))
        if attempts == 0 or loaded_s < np.inf:
            break
        attempts -= 1
    clock[at.NOW_S] = loaded_s
    for rank in range(first, last):
        # Whoever still waits would wait for ever: the caller refuses such demands beforehand.
        stack.count[rank, at.STALLED] = stack.count[rank, at.OUTSTANDING] if loaded_s == np.inf else 0


@compiled
def _earliest(stack: Any) -> int:
    """The replica whose next boundary comes first."""
    first = 0
    for replica in range(1, len(stack.count)):
        if stack.clock[replica, at.NOW_S] < stack.clock[first, at.NOW_S]:
            first = replica
    return first


@inlined
def _bring_in(scheduler: Any, stack: Any, demand: Any, fate: Any, limits: Any, request: int, ready_s: float) -> None:
    """Route a request to a replica, and wake that if it idles."""
    if len(fate.log) == 0:
        fate.numbers[at.DISPATCHED] += 1
    if fate.outcome[request] != at.WAITING:
        push_follow_up(demand, fate, limits, request, ready_s)
        return
    replica = scheduler.route(stack, demand, fate, limits, request)
    if len(fate.log) > 0:
        fate.log[fate.numbers[at.DISPATCHED]] = request
        fate.numbers[at.DISPATCHED] += 1
    under_way = stack.count[replica, at.LAUNCHED] - stack.count[replica, at.RETURNED]
    if under_way == 0 or (limits.pipelined and under_way < limits.depth):
        clock = stack.clock[replica - replica % limits.ranks]
        clock[at.NOW_S] = min(clock[at.NOW_S], ready_s)


def _entry(route: Any, form: Any, end_step: Any, leave: Any, skip: Any) -> Callable[..., None]:
    """The function of a loop. What it calls is compiled and made better once more in every function around it, so that
    little stands between this one and what a step is made of."""

    def run_requests(stack: Any, demand: Any, fate: Any, limits: Any, tables: Any, first: int, last: int) -> None:
        scheduler = Scheduler(route, form, end_step, leave, skip)
        each, requests, request = limits.ranks, len(demand.prompt_tokens), first
        while True:
            while request < last and np.isnan(demand.ready_s[request - first]):
                request += 1
            if request == last and last < requests:
                return
            arrival_s = demand.ready_s[request - first] if request < last else np.inf
            planned = limits.conversations and fate.numbers[at.HEAP_SIZE] > 0 and fate.heap_s[0] < arrival_s
            if planned:
                arrival_s = fate.heap_s[0]
            # All replicas come to this time. They meet in conversations alone, whose next turn may go anywhere: there
            # only the first boundary is crossed before it is asked again who comes next.
            place = _earliest(stack) if limits.conversations else 0
            end = place + 1 if limits.conversations else len(stack.count)
            crossed = False
            while place < end:
                head = replica_state(stack, place)
                while head.clock[at.NOW_S] < arrival_s and not crossed:
                    _cross_boundary(scheduler, stack, head, demand, fate, limits, tables, place)
                    crossed = limits.conversations
                    scheduler.skip(head, demand, fate, limits, tables, arrival_s)
                place += each
            if crossed:
                continue
            if arrival_s == np.inf:
                return
            coming = request
            if planned:
                coming = pop_follow_up(fate)
            else:
                request += 1
            _bring_in(scheduler, stack, demand, fate, limits, coming, arrival_s)

    return run_requests


@lru_cache
def loop_of(scheduler: Scheduler) -> Loop:
    """The loop with these functions, called with (stack, demand, fate, limits, tables, first, last).

    It brings requests ``first``..``last - 1`` in one by one, with the turns that follow, and after the last runs to the
    end: one function for both, because each would be compiled with the whole loop in it.
    """
    return Loop(function=_entry(*scheduler), name="loop")
