"""The event loop: step after step of every replica, in compiled code.

Time moves from step end to step end. At each the tokens of the ended step are returned, then the next step is formed.
With asynchronous scheduling the step formed at a boundary is the one after the step that starts there: a request that
arrives during a step waits for its rest, for the whole next one, and gets its first token out of the one after that.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.engine.events.compilation import compiled, entry
from simulator.engine.events.kv_cache import cached_prefix_blocks
from simulator.engine.events.scheduler import enqueue, form_step
from simulator.engine.events.sequences import abort, finish_sequences
from simulator.engine.events.state import (
    BLOCK_S,
    BUSY_S,
    DEADLINE,
    DEADLINE_S,
    EXECUTING,
    FIRST_TOKEN_S,
    FREE_BLOCKS,
    NEXT_IS_FORMED,
    NOW,
    OUTCOME,
    OUTSTANDING,
    PLAN_BLOCKS,
    PLAN_DECODES,
    PLAN_FIRSTS,
    PLAN_PREFILLS,
    PLAN_TOKENS,
    READY_S,
    REPLICA,
    RUNNING,
    SEQUENCE_S,
    STAGE,
    STALLED,
    STEP,
    STEPS,
    STEPS_TAKEN,
    TOKENS,
    TRACE_DECODES,
    TRACE_END_S,
    TRACE_FREE,
    TRACE_PREFILLS,
    TRACE_START_S,
    TRACE_TOKENS,
    TRACE_USED,
    TRACE_WAITING,
    WAITING_S,
    EngineState,
)
from simulator.engine.events.time_buckets import add_interval
from simulator.engine.settings import Routing
from simulator.traffic.requests import Outcome

WAITING = int(Outcome.WAITING)
ADMITTED = int(Outcome.RUNNING)
LEAST_OUTSTANDING = int(Routing.LEAST_OUTSTANDING)
PREFIX_AWARE = int(Routing.PREFIX_AWARE)


@compiled
def replica_state(stack: Any, replica: int) -> Any:
    """One replica's rows of the state of all."""
    return EngineState(
        stack.blocks[replica],
        stack.holder[replica],
        stack.slots[replica],
        stack.table[replica],
        stack.links[replica],
        stack.stacks[replica],
        stack.firsts[replica],
        stack.plan[replica],
        stack.count[replica],
        stack.clock[replica],
        stack.usage[replica],
        stack.trace[replica],
        stack.series[replica],
    )


@compiled
def return_tokens(state: Any, fate: Any, limits: Any, now_s: float) -> None:
    """End the step that was running: first tokens, then completions."""
    executed = state.count[EXECUTING] - 1
    parity = executed & 1
    for place in range(state.plan[parity, PLAN_FIRSTS]):
        request = state.firsts[parity, place, 0]
        if np.isnan(fate.times_s[request, FIRST_TOKEN_S]):
            fate.times_s[request, FIRST_TOKEN_S] = now_s
    finish_sequences(state, fate, limits, executed, state.count[STEP], now_s)
    state.count[EXECUTING] = 0


@compiled
def expire(state: Any, demand: Any, fate: Any, limits: Any, replica: int, now_s: float) -> None:
    """Abort this replica's requests whose client has given up by now."""
    request = state.count[DEADLINE]
    while request < len(demand.times_s) and demand.times_s[request, DEADLINE_S] <= now_s:
        pending = fate.notes[request, OUTCOME] == WAITING or fate.notes[request, OUTCOME] == ADMITTED
        if pending and fate.notes[request, REPLICA] == replica:
            abort(state, fate, limits, request)
        request += 1
    state.count[DEADLINE] = request


@compiled
def start_step(state: Any, demand: Any, step: int, now_s: float) -> float:
    """Account for step ``step``, which starts now, and return when it ends [s]."""
    seconds = state.clock[step & 1]
    plan = state.plan[step & 1]
    stages = len(demand.stage_end_s)
    while state.count[STAGE] < stages and now_s >= demand.stage_end_s[state.count[STAGE]]:
        state.count[STAGE] += 1
    sequences = plan[PLAN_DECODES] + plan[PLAN_PREFILLS]
    waiting = max(state.count[OUTSTANDING] - state.count[RUNNING], 0)
    usage = state.usage[state.count[STAGE]]
    usage[BUSY_S] += seconds
    usage[SEQUENCE_S] += seconds * sequences
    usage[BLOCK_S] += seconds * plan[PLAN_BLOCKS]
    usage[WAITING_S] += seconds * waiting
    usage[STEPS] += 1
    usage[TOKENS] += plan[PLAN_TOKENS]
    tokens, blocks = plan[PLAN_TOKENS], plan[PLAN_BLOCKS]
    add_interval(state.series, now_s, now_s + seconds, seconds, sequences, waiting, blocks, tokens)
    taken = state.count[STEPS_TAKEN]
    if taken < len(state.trace):
        row = state.trace[taken]
        row[TRACE_START_S] = now_s
        row[TRACE_END_S] = now_s + seconds
        row[TRACE_DECODES] = plan[PLAN_DECODES]
        row[TRACE_PREFILLS] = plan[PLAN_PREFILLS]
        row[TRACE_TOKENS] = plan[PLAN_TOKENS]
        row[TRACE_USED] = plan[PLAN_BLOCKS]
        row[TRACE_FREE] = state.count[FREE_BLOCKS]
        row[TRACE_WAITING] = waiting
    state.count[STEPS_TAKEN] = taken + 1
    state.count[EXECUTING] = step + 1
    return float(now_s + seconds)


@compiled
def advance(state: Any, demand: Any, fate: Any, limits: Any, tables: Any, replica: int, until_s: float) -> None:
    """Run a replica through all its step boundaries before ``until_s``; an idle one sleeps at infinity."""
    count = state.count
    while state.clock[NOW] < until_s:
        now_s = state.clock[NOW]
        if count[EXECUTING] > 0:
            return_tokens(state, fate, limits, now_s)
        expire(state, demand, fate, limits, replica, now_s)
        ready = count[NEXT_IS_FORMED] > 0
        count[NEXT_IS_FORMED] = 0
        if not ready:
            ready = form_step(state, demand, fate, limits, tables, now_s)
        if not ready:
            # Whoever still waits would wait for ever: the caller refuses such demands beforehand.
            count[STALLED] = count[OUTSTANDING]
            state.clock[NOW] = np.inf
            break
        state.clock[NOW] = start_step(state, demand, count[STEP] - 1, now_s)
        if limits.asynchronous and form_step(state, demand, fate, limits, tables, now_s):
            count[NEXT_IS_FORMED] = 1


@compiled
def choose_replica(stack: Any, demand: Any, limits: Any, request: int, arrival: int) -> int:
    """The replica for a request: in turn, the least busy, or the least busy of those with the longest cached prefix."""
    replicas = len(stack.count)
    if replicas == 1:
        return 0
    if limits.routing != LEAST_OUTSTANDING and limits.routing != PREFIX_AWARE:
        return int(arrival % replicas)
    best, most, fewest = 0, -1, 0
    for replica in range(replicas):
        cached = 0
        if limits.routing == PREFIX_AWARE:
            cached = cached_prefix_blocks(stack.holder[replica], demand, request)
        outstanding = stack.count[replica, OUTSTANDING]
        if cached > most or (cached == most and outstanding < fewest):
            best, most, fewest = replica, cached, outstanding
    return best


@entry
def run_requests(stack: Any, demand: Any, fate: Any, limits: Any, tables: Any, first: int, last: int) -> None:
    """Bring requests ``first``..``last - 1`` in, running all replicas up to each arrival; after the last to the end.

    One entry for both, because each would be compiled with the whole loop in it.
    """
    replicas = len(stack.count)
    requests = len(demand.times_s)
    for request in range(first, last + 1 if last == requests else last):
        if request < requests and fate.notes[request, OUTCOME] != WAITING:
            continue
        ready_s = demand.times_s[request, READY_S] if request < requests else np.inf
        for replica in range(replicas):
            if stack.clock[replica, NOW] < ready_s:
                advance(replica_state(stack, replica), demand, fate, limits, tables, replica, ready_s)
        if request == requests:
            break
        chosen = choose_replica(stack, demand, limits, request, request)
        fate.notes[request, REPLICA] = chosen
        state = replica_state(stack, chosen)
        enqueue(state, fate, request)
        state.count[OUTSTANDING] += 1
        if np.isinf(state.clock[NOW]):
            state.clock[NOW] = ready_s
