"""The event loop for every policy: in order of time, requests come in and replicas reach the ends of their steps.

Steps pass through the pipeline stages one after another; a stage takes the next step when it is done with the one
before. As many steps are under way as the engine schedules at once: one, two with asynchronous scheduling, one per
stage in a pipeline (as vLLM's batch queue [VllmTeam2025]). In a pipeline a request that comes while fewer are under way
starts a step at once, so that sequences spread over the steps as they arrive.

Prepare the arrays of the loop that walks over its sequences, and run it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.engine.events.compilation import compiled, entry
from simulator.engine.events.follow_ups import pop_follow_up, push_follow_up
from simulator.engine.events.loop import choose_replica
from simulator.engine.events.policy_scheduler import compose_step
from simulator.engine.events.policy_sequences import abort, next_arrival_of_blocks, return_batch
from simulator.engine.events.policy_state import (
    BOUNDARY_S,
    BUSY_UNTIL_S,
    DISPATCHED,
    HEAP_SIZE,
    LAUNCHED,
    NUMBERS,
    RETURNED,
    PolicyDemand,
    PolicyFate,
    PolicyState,
    make_policy_limits,
    make_policy_state,
    make_verification,
)
from simulator.engine.events.scheduler import enqueue
from simulator.engine.events.state import (
    BLOCK_S,
    BUSY_S,
    CONTEXT,
    DEADLINE,
    DEADLINE_S,
    DECODING,
    FREE_BLOCKS,
    OUTCOME,
    OUTSTANDING,
    PREFILL_DONE,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
    PREFILL_WORK2,
    READY_S,
    REPLICA,
    RUNNING,
    SEQUENCE_S,
    STAGE,
    STALLED,
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
    Demand,
    Fate,
)
from simulator.engine.events.time_buckets import add_interval
from simulator.engine.settings import SchedulerSettings
from simulator.phases.compiled import StepTables, device_seconds
from simulator.traffic.requests import NO_PREVIOUS, Floats, Outcome, Requests

WAITING = int(Outcome.WAITING)
ADMITTED = int(Outcome.RUNNING)


@compiled
def replica_state(stack: Any, replica: int) -> Any:
    """One replica's rows of the state of all."""
    return PolicyState(
        stack.blocks[replica],
        stack.holder[replica],
        stack.slots[replica],
        stack.table[replica],
        stack.links[replica],
        stack.stacks[replica],
        stack.ready_s[replica],
        stack.firsts[replica],
        stack.ends[replica],
        stack.batch[replica],
        stack.end_s[replica],
        stack.stage_free_s[replica],
        stack.host[replica],
        stack.host_holder[replica],
        stack.pinned[replica],
        stack.count[replica],
        stack.clock[replica],
        stack.usage[replica],
        stack.trace[replica],
        stack.series[replica],
    )


@compiled
def stage_tables(tables: Any, stage: int) -> Any:
    """The tables of one pipeline stage out of those of all (arrays with one leading axis more)."""
    return StepTables(
        tables.token_s[stage],
        tables.logits_s[stage],
        tables.decode_s[stage],
        tables.prefill_s[stage],
        tables.decode_places,
        tables.sequence_places,
        tables.token_places,
        tables.step_s,
        tables.sequence_s,
        tables.issue_s[stage],
        tables.context_nodes,
    )


@compiled
def launch_step(state: Any, demand: Any, limits: Any, tables: Any, verification: Any, now_s: float) -> None:
    """Send the step that was composed through the stages, and account for it."""
    count = state.count
    sequences = count[PREFILL_SEQUENCES] + count[DECODING]
    tokens = count[PREFILL_TOKENS] + limits.verify_tokens * count[DECODING]
    host_s = tables.step_s + tables.sequence_s * sequences + verification.draft_s[count[DECODING]]
    start_s = end_s = max(now_s, state.stage_free_s[0])
    for stage in range(len(state.stage_free_s)):
        begin_s = max(end_s, state.stage_free_s[stage])
        device_s = device_seconds(
            stage_tables(tables, stage),
            count[PREFILL_SEQUENCES],
            count[PREFILL_TOKENS],
            count[PREFILL_WORK2],
            count[PREFILL_DONE],
            count[DECODING],
            limits.verify_tokens,
            count[CONTEXT],
        )
        # Every stage pays the host's time between steps, a step pays it once.
        state.stage_free_s[stage] = begin_s + (host_s + device_s)
        end_s = begin_s + (host_s + device_s) if stage == 0 else begin_s + device_s
    state.end_s[count[LAUNCHED] % limits.batches] = end_s
    count[LAUNCHED] += 1
    _account(state, demand, limits, start_s, end_s, sequences, tokens)


@compiled
def _account(state: Any, demand: Any, limits: Any, start_s: float, end_s: float, sequences: int, tokens: int) -> None:
    """Add a step to the sums of its stage, to the series and to the trace. Overlapping steps are busy time once."""
    count = state.count
    busy_s = end_s - max(start_s, state.clock[BUSY_UNTIL_S])
    state.clock[BUSY_UNTIL_S] = end_s
    used = limits.blocks - count[FREE_BLOCKS]
    waiting = max(count[OUTSTANDING] - count[RUNNING], 0)
    stages = len(demand.stage_end_s)
    while count[STAGE] < stages and start_s >= demand.stage_end_s[count[STAGE]]:
        count[STAGE] += 1
    usage = state.usage[count[STAGE]]
    usage[BUSY_S] += busy_s
    usage[SEQUENCE_S] += (end_s - start_s) * sequences
    usage[BLOCK_S] += busy_s * used
    usage[WAITING_S] += busy_s * waiting
    usage[STEPS] += 1
    usage[TOKENS] += tokens
    add_interval(state.series, start_s, end_s, busy_s, sequences, waiting, used, tokens)
    if count[STEPS_TAKEN] < len(state.trace):
        row = state.trace[count[STEPS_TAKEN]]
        row[TRACE_START_S] = start_s
        row[TRACE_END_S] = end_s
        row[TRACE_DECODES] = count[DECODING]
        row[TRACE_PREFILLS] = count[PREFILL_SEQUENCES]
        row[TRACE_TOKENS] = tokens
        row[TRACE_USED] = used
        row[TRACE_FREE] = count[FREE_BLOCKS]
        row[TRACE_WAITING] = waiting
    count[STEPS_TAKEN] += 1


@compiled
def _expire(state: Any, demand: Any, fate: Any, limits: Any, replica: int, now_s: float) -> None:
    """Abort this replica's requests whose client has given up by now; requests come in the order of ``fate.log``."""
    place = state.count[DEADLINE]
    while place < fate.numbers[DISPATCHED] and demand.times_s[fate.log[place], DEADLINE_S] <= now_s:
        request = fate.log[place]
        pending = fate.notes[request, OUTCOME] == WAITING or fate.notes[request, OUTCOME] == ADMITTED
        if pending and fate.notes[request, REPLICA] == replica:
            abort(state, demand, fate, limits, request, now_s)
        place += 1
    state.count[DEADLINE] = place


@compiled
def cross_boundary(
    state: Any, demand: Any, fate: Any, limits: Any, tables: Any, verification: Any, ratio: Any, replica: int
) -> None:
    """What a replica does when its oldest step ends, or when it wakes: return tokens, form steps, set the next time."""
    count, now_s = state.count, state.clock[BOUNDARY_S]
    while count[RETURNED] < count[LAUNCHED] and state.end_s[count[RETURNED] % limits.batches] <= now_s:
        return_batch(state, demand, fate, limits, now_s)
    _expire(state, demand, fate, limits, replica, now_s)
    # A step without anything to compute may have thrown somebody out, so that the next attempt finds room.
    attempts = count[RUNNING]
    while count[LAUNCHED] - count[RETURNED] < limits.depth:
        if compose_step(state, demand, fate, limits, verification, ratio, now_s):
            launch_step(state, demand, limits, tables, verification, now_s)
        elif attempts > 0 and count[LAUNCHED] == count[RETURNED] and next_arrival_of_blocks(state, limits) == np.inf:
            attempts -= 1
        else:
            break
    if count[LAUNCHED] > count[RETURNED]:
        state.clock[BOUNDARY_S] = state.end_s[count[RETURNED] % limits.batches]
        return
    state.clock[BOUNDARY_S] = next_arrival_of_blocks(state, limits)
    if state.clock[BOUNDARY_S] == np.inf:
        # Whoever still waits would wait for ever: the caller refuses such demands beforehand.
        count[STALLED] = count[OUTSTANDING]


@compiled
def _bring_in(stack: Any, demand: Any, fate: Any, limits: Any, request: int) -> None:
    """Route a request to a replica, and wake that if it idles."""
    ready_s = demand.times_s[request, READY_S]
    if fate.notes[request, OUTCOME] != WAITING:
        push_follow_up(demand, fate, request, ready_s)
        return
    chosen = choose_replica(stack, demand, limits, request, request)
    fate.log[fate.numbers[DISPATCHED]] = request
    fate.numbers[DISPATCHED] += 1
    fate.notes[request, REPLICA] = chosen
    state = replica_state(stack, chosen)
    enqueue(state, fate, request)
    state.count[OUTSTANDING] += 1
    under_way = state.count[LAUNCHED] - state.count[RETURNED]
    if under_way == 0 or (limits.pipelined and under_way < limits.depth):
        state.clock[BOUNDARY_S] = min(state.clock[BOUNDARY_S], ready_s)


@entry
def run_policies(
    stack: Any,
    demand: Any,
    fate: Any,
    limits: Any,
    tables: Any,
    verification: Any,
    ratio: Any,
    first: int,
    last: int,
) -> None:
    """Bring requests ``first``..``last - 1`` in, with the turns that follow; after the last run to the end."""
    requests = len(demand.times_s)
    request = first
    while True:
        while request < last and demand.is_follower[request]:
            request += 1
        if request == last and last < requests:
            return
        arrival_s = demand.times_s[request, READY_S] if request < last else np.inf
        planned = fate.numbers[HEAP_SIZE] > 0 and fate.heap_s[0] < arrival_s
        if planned:
            arrival_s = fate.heap_s[0]
        replica = 0
        for other in range(1, len(stack.clock)):
            if stack.clock[other, BOUNDARY_S] < stack.clock[replica, BOUNDARY_S]:
                replica = other
        if stack.clock[replica, BOUNDARY_S] < arrival_s:
            state = replica_state(stack, replica)
            cross_boundary(state, demand, fate, limits, tables, verification, ratio, replica)
        elif arrival_s == np.inf:
            return
        elif planned:
            _bring_in(stack, demand, fate, limits, pop_follow_up(fate))
        else:
            _bring_in(stack, demand, fate, limits, request)
            request += 1


RunSlices = Callable[[Callable[[int, int], None]], None]


def _stacked(stages: tuple[StepTables, ...]) -> Any:
    """One set of arrays with a leading axis of stages, so that any pipeline runs through the same compiled code.

    A ``StepTables`` whose arrays, and ``issue_s``, have one entry per stage.
    """
    first = stages[0]
    issue_s: Any = np.array([tables.issue_s for tables in stages], dtype=np.float64)
    return first._replace(
        token_s=np.stack([tables.token_s for tables in stages]),
        logits_s=np.stack([tables.logits_s for tables in stages]),
        decode_s=np.stack([tables.decode_s for tables in stages]),
        prefill_s=np.stack([tables.prefill_s for tables in stages]),
        issue_s=issue_s,
    )


def _followers(requests: Requests, order: np.ndarray) -> np.ndarray:
    """For each request, in the order of the queue, the turn that follows it, or -1."""
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    follower = np.full(len(order), -1, dtype=np.int64)
    turns = np.flatnonzero(requests.previous != NO_PREVIOUS)
    follower[place[requests.previous[turns]]] = place[turns]
    return follower


def _policy_demand(demand: Demand, requests: Requests, settings: SchedulerSettings, order: np.ndarray) -> PolicyDemand:
    delay_s = settings.request_delay_s + settings.prompt_token_delay_s * requests.prompt_tokens
    return PolicyDemand(
        times_s=demand.times_s,
        shape=demand.shape,
        list_start=demand.list_start,
        block_ids=demand.block_ids,
        stage_end_s=demand.stage_end_s,
        follower=_followers(requests, order),
        is_follower=(requests.previous != NO_PREVIOUS)[order],
        think_s=requests.think_s[order],
        delay_s=delay_s[order],
        patience_s=np.inf if settings.timeout_s is None else float(settings.timeout_s),
    )


def run_with_policy(
    stages: tuple[StepTables, ...],
    *,
    requests: Requests,
    settings: SchedulerSettings,
    demand: Demand,
    fate: Fate,
    order: np.ndarray,
    longest_tokens: int,
    trace_steps: int,
    run_slices: RunSlices,
) -> tuple[PolicyState, Floats]:
    """Fill ``fate`` in. Returns the final state, and when each request was sent, in the order of the queue [s].

    demand, fate : in the order of the queue, ``order``; stages : step tables of each pipeline stage
    """
    limits = make_policy_limits(settings, stages=len(stages))
    state = make_policy_state(
        settings, requests, limits=limits, stages=len(stages), longest_tokens=longest_tokens, trace_steps=trace_steps
    )
    conversations = _policy_demand(demand, requests, settings, order)
    turns = int(conversations.is_follower.sum())
    fates = PolicyFate(
        times_s=fate.times_s,
        notes=fate.notes,
        sent_s=np.where(conversations.is_follower, np.nan, requests.arrival_s[order]),
        log=np.zeros(len(order), dtype=np.int64),
        heap_s=np.zeros(turns + 1),
        heap_request=np.zeros(turns + 1, dtype=np.int64),
        numbers=np.zeros(NUMBERS, dtype=np.int64),
    )
    tables = _stacked(stages)
    verification = make_verification(settings)
    chosen = settings.token_ratio
    ratio = np.array([chosen.initial, (chosen.initial - chosen.least) / chosen.decay_steps, chosen.least])
    run_slices(
        lambda first, last: run_policies(state, conversations, fates, limits, tables, verification, ratio, first, last)
    )
    return state, fates.sent_s
