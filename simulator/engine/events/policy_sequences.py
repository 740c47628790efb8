"""Life of a sequence in the loop that walks over its sequences: a step of it, preemption, completion, giving up."""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.engine.events.compilation import compiled
from simulator.engine.events.follow_ups import push_follow_up
from simulator.engine.events.host_cache import grow, pin_places, unpin_places
from simulator.engine.events.kv_cache import publish_blocks
from simulator.engine.events.policy_state import (
    ANSWER,
    BATCH_ENDS,
    BATCH_FIRSTS,
    LAST_STEP,
    LAUNCHED,
    LOADING,
    PUBLISHED,
    RETURNED,
)
from simulator.engine.events.sequences import free_slot, remember_blocks, vacate
from simulator.engine.events.state import (
    ABORTED,
    DECODE,
    DONE,
    FINISH_S,
    FIRST_TOKEN_S,
    FREE_BLOCKS,
    LIVE,
    NEXT,
    OUTCOME,
    OUTPUT,
    OUTSTANDING,
    PREEMPTED,
    PREEMPTED_SLOTS,
    PREEMPTED_STACK,
    PREEMPTED_TIMES,
    PREEMPTIONS,
    PREFILL,
    PREFILL_DONE,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
    PREFILL_WORK2,
    PREV,
    PROMPT,
    SLOT,
    SLOT_BLOCKS,
    SLOT_COMPUTED,
    SLOT_GENERATED,
    SLOT_REQUEST,
    SLOT_STATUS,
    SLOT_TARGET,
    STAGE,
)
from simulator.traffic.requests import Outcome

FINISHED = int(Outcome.FINISHED)
TIMED_OUT = int(Outcome.TIMED_OUT)
# Constants of the splitmix64 generator, which turns any number into an unrelated one [Steele2014].
_GAMMA, _MIX_A, _MIX_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_A, _B, _C, _TO_UNIT = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11)
_UNIT = float(np.exp2(-53.0))


@compiled
def _mixed(value: Any) -> Any:
    value = value + _GAMMA
    value = (value ^ (value >> _A)) * _MIX_A
    value = (value ^ (value >> _B)) * _MIX_B
    return value ^ (value >> _C)


@compiled
def accepted_tokens(reach: Any, seed: int, request: int, generated: int) -> int:
    """Draft tokens that a step accepts: a draw that depends on seed, request and position alone."""
    key = _mixed(_mixed(np.uint64(seed) ^ _mixed(np.uint64(request))) + np.uint64(generated))
    drawn = float(key >> _TO_UNIT) * _UNIT
    accepted = 0
    while accepted < len(reach) and drawn < reach[accepted]:
        accepted += 1
    return accepted


@compiled
def may_go(state: Any, limits: Any, slot: int) -> bool:
    """Whether a running sequence may be thrown out: it is not ending, and no step under way uses its blocks."""
    if state.slots[slot, SLOT_STATUS] == DONE:
        return False
    return not (limits.pipelined and state.slots[slot, LAST_STEP] >= state.count[RETURNED])


@compiled
def next_victim(state: Any, limits: Any) -> int:
    """Who is preempted: the last admitted; under a retracting policy who has the fewest tokens, longest prompt first.

    -1 when nobody may go.
    """
    best = -1
    node = state.links[limits.max_seqs, PREV]
    while node != limits.max_seqs:
        if may_go(state, limits, node):
            if not limits.retracts:
                return int(node)
            fewer = best < 0 or state.slots[node, SLOT_GENERATED] < state.slots[best, SLOT_GENERATED]
            same = best >= 0 and state.slots[node, SLOT_GENERATED] == state.slots[best, SLOT_GENERATED]
            if fewer or (same and state.slots[node, SLOT_TARGET] > state.slots[best, SLOT_TARGET]):
                best = int(node)
        node = state.links[node, PREV]
    return best


@compiled
def preempt(state: Any, fate: Any, limits: Any, slot: int) -> None:
    """Throw a sequence out; it returns with what host memory keeps or the device still has, and recomputes the rest."""
    request = state.slots[slot, SLOT_REQUEST]
    full = state.slots[slot, SLOT_COMPUTED] // limits.block_size
    if state.slots[slot, SLOT_STATUS] == DECODE:
        state.slots[slot, SLOT_TARGET] = state.slots[slot, SLOT_COMPUTED] + 1
    if limits.prefix_caching:
        remember_blocks(state, slot, full)
    if limits.host_blocks > 0:
        pin_places(state, limits, slot, full)
    vacate(state, slot)
    state.slots[slot, SLOT_STATUS] = PREEMPTED
    state.stacks[PREEMPTED_STACK, state.count[PREEMPTED_SLOTS]] = slot
    state.count[PREEMPTED_SLOTS] += 1
    state.usage[state.count[STAGE], PREEMPTIONS] += 1
    fate.notes[request, PREEMPTED_TIMES] += 1


@compiled
def _publish(state: Any, demand: Any, limits: Any, slot: int) -> None:
    """Enter blocks that have become full into the prefix cache."""
    full = state.slots[slot, SLOT_COMPUTED] // limits.block_size
    if limits.prefix_caching and full > state.slots[slot, PUBLISHED]:
        publish_blocks(state, demand, slot, state.slots[slot, PUBLISHED], full)
        state.slots[slot, PUBLISHED] = full


@compiled
def _make_room(state: Any, fate: Any, limits: Any, slot: int, blocks: int) -> bool:
    """Preempt until ``blocks`` more are free for ``slot``. False when it had to go itself, or nobody may go."""
    while blocks > state.count[FREE_BLOCKS]:
        victim = slot if limits.retracts else next_victim(state, limits)
        if victim < 0 or not may_go(state, limits, victim):
            return False
        preempt(state, fate, limits, victim)
        if victim == slot:
            return False
    return True


@compiled
def room_for_decode(state: Any, demand: Any, fate: Any, limits: Any, slot: int) -> bool:
    """Give a decoding sequence the blocks of its next step; False when it could not have them."""
    request = state.slots[slot, SLOT_REQUEST]
    last = demand.shape[request, PROMPT] + state.slots[slot, ANSWER] - 1
    needed = -(-min(state.slots[slot, SLOT_COMPUTED] + limits.verify_tokens, last) // limits.block_size)
    if not _make_room(state, fate, limits, slot, needed - state.slots[slot, SLOT_BLOCKS]):
        return False
    _publish(state, demand, limits, slot)
    grow(state, limits, slot, needed)
    return True


@compiled
def end_sequence(state: Any, limits: Any, slot: int) -> None:
    """Note that the step being formed yields the last token of ``slot``."""
    state.slots[slot, SLOT_STATUS] = DONE
    batch = state.count[LAUNCHED] % limits.batches
    state.ends[batch, state.batch[batch, BATCH_ENDS]] = slot
    state.batch[batch, BATCH_ENDS] += 1


@compiled
def prefill_chunk(state: Any, demand: Any, fate: Any, limits: Any, slot: int, budget: int) -> int:
    """Take the next part of a prompt into the step being formed. Returns its tokens."""
    done = state.slots[slot, SLOT_COMPUTED]
    left = state.slots[slot, SLOT_TARGET] - done
    chunk = min(left, budget)
    if chunk <= 0 or (chunk < left and not limits.chunked):
        return 0
    needed = -(-(done + chunk) // limits.block_size)
    if not _make_room(state, fate, limits, slot, needed - state.slots[slot, SLOT_BLOCKS]):
        return 0
    grow(state, limits, slot, needed)
    state.slots[slot, SLOT_COMPUTED] = done + chunk
    state.slots[slot, LAST_STEP] = state.count[LAUNCHED]
    _publish(state, demand, limits, slot)
    state.count[PREFILL_SEQUENCES] += 1
    state.count[PREFILL_TOKENS] += chunk
    state.count[PREFILL_WORK2] += chunk * (2 * done + chunk)
    if chunk == left:
        _end_prefill(state, demand, limits, slot)
    return int(chunk)


@compiled
def _end_prefill(state: Any, demand: Any, limits: Any, slot: int) -> None:
    """The step being formed completes a prompt and yields a token."""
    request = state.slots[slot, SLOT_REQUEST]
    batch = state.count[LAUNCHED] % limits.batches
    place = state.batch[batch, BATCH_FIRSTS]
    state.firsts[batch, place, 0] = request
    state.firsts[batch, place, 1] = slot
    state.batch[batch, BATCH_FIRSTS] += 1
    state.count[PREFILL_DONE] += 1
    state.slots[slot, SLOT_STATUS] = DECODE
    state.slots[slot, SLOT_GENERATED] += 1
    if state.slots[slot, SLOT_GENERATED] == demand.shape[request, OUTPUT]:
        end_sequence(state, limits, slot)


@compiled
def wake(state: Any, demand: Any, limits: Any, slot: int) -> None:
    """The blocks of a loading sequence have arrived."""
    _publish(state, demand, limits, slot)
    state.slots[slot, SLOT_STATUS] = PREFILL


@compiled
def return_batch(state: Any, demand: Any, fate: Any, limits: Any, now_s: float) -> None:
    """End the oldest step under way: first tokens, then completions."""
    batch = state.count[RETURNED] % limits.batches
    for place in range(state.batch[batch, BATCH_FIRSTS]):
        request = state.firsts[batch, place, 0]
        if np.isnan(fate.times_s[request, FIRST_TOKEN_S]):
            fate.times_s[request, FIRST_TOKEN_S] = now_s
    for place in range(state.batch[batch, BATCH_ENDS]):
        slot = state.ends[batch, place]
        request = state.slots[slot, SLOT_REQUEST]
        fate.times_s[request, FINISH_S] = now_s
        fate.notes[request, OUTCOME] = FINISHED
        state.count[OUTSTANDING] -= 1
        state.count[LIVE] -= 1
        vacate(state, slot)
        free_slot(state, slot)
        push_follow_up(demand, fate, request, now_s)
    state.count[RETURNED] += 1


@compiled
def abort(state: Any, demand: Any, fate: Any, limits: Any, request: int, now_s: float) -> None:
    """Give up a request whose client has gone; a sequence whose last token is on its way is left to end."""
    slot = fate.notes[request, SLOT]
    if slot >= 0 and state.slots[slot, SLOT_STATUS] == DONE:
        return
    fate.notes[request, OUTCOME] = TIMED_OUT
    state.count[OUTSTANDING] -= 1
    push_follow_up(demand, fate, request, now_s)
    if slot < 0:
        return
    state.count[LIVE] -= 1
    if state.slots[slot, SLOT_STATUS] == PREEMPTED:
        # It stays in the stack of preempted ones, where the scheduler discards it.
        unpin_places(state, slot)
        state.slots[slot, SLOT_STATUS] = ABORTED
        return
    vacate(state, slot)
    free_slot(state, slot)


@compiled
def next_arrival_of_blocks(state: Any, limits: Any) -> float:
    """When the first loading sequence has its blocks; infinite when none is loading [s]."""
    earliest_s = np.inf
    node = state.links[limits.max_seqs, NEXT]
    while node != limits.max_seqs:
        if state.slots[node, SLOT_STATUS] == LOADING:
            earliest_s = min(earliest_s, state.ready_s[node])
        node = state.links[node, NEXT]
    return earliest_s
