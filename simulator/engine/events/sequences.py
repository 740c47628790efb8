"""Life of a sequence in its slot: joining and leaving the decode batch, preemption, completion.

A decoding sequence gains one token a step, so that when it ends and when it needs its next block are known in
advance: it waits in the list of its last step and in that of its phase within a block, and a step costs nothing per
sequence.
"""

from __future__ import annotations

from typing import Any

from simulator.engine.events.compilation import compiled
from simulator.engine.events.kv_cache import append, publish_blocks, release_blocks, take_block, unlink
from simulator.engine.events.state import (
    ABORTED,
    BLOCK,
    BLOCK_STAMP,
    CONTEXT,
    DECODE,
    DECODING,
    DONE,
    FINISH_S,
    FREE,
    FREE_BLOCKS,
    FREE_SLOTS,
    FREE_STACK,
    JOINING,
    LIVE,
    NEXT,
    OUTCOME,
    OUTPUT,
    OUTSTANDING,
    PARTIAL,
    PLAN_FIRSTS,
    PREEMPTED,
    PREEMPTED_SLOTS,
    PREEMPTED_STACK,
    PREEMPTED_TIMES,
    PREEMPTIONS,
    PREV,
    PROMPT,
    RUNNING,
    SLOT,
    SLOT_BLOCKS,
    SLOT_COMPUTED,
    SLOT_EXTENDED,
    SLOT_GENERATED,
    SLOT_OFFSET,
    SLOT_REQUEST,
    SLOT_SAVED,
    SLOT_STATUS,
    SLOT_TARGET,
    STAGE,
    STAMP,
    STEP,
)
from simulator.traffic.requests import Outcome

FINISHED = int(Outcome.FINISHED)
TIMED_OUT = int(Outcome.TIMED_OUT)


@compiled
def leave_decode(state: Any, limits: Any, slot: int, step: int) -> None:
    """Take a sequence out of the batch of ``step``, which is being formed."""
    state.count[DECODING] -= 1
    state.count[CONTEXT] -= state.slots[slot, SLOT_OFFSET] + step + 1
    unlink(state.links, limits.phase_lists + slot)


@compiled
def join_decode(state: Any, limits: Any, slot: int, step: int) -> None:
    """Let a sequence whose prompt was computed in step - 1 generate from ``step`` on."""
    target = state.slots[slot, SLOT_TARGET]
    state.slots[slot, SLOT_STATUS] = DECODE
    state.slots[slot, SLOT_OFFSET] = target - step
    state.slots[slot, SLOT_EXTENDED] = -1
    state.count[DECODING] += 1
    state.count[CONTEXT] += target + 1
    if not limits.static:
        head = limits.phase_lists + limits.max_seqs + (step - target) % limits.block_size
        append(state.links, head, limits.phase_lists + slot)


@compiled
def end_prefill(state: Any, demand: Any, limits: Any, slot: int, step: int) -> None:
    """Note that ``step`` completes the prompt of ``slot`` and yields a token; put it in the list of its last step."""
    request = state.slots[slot, SLOT_REQUEST]
    place = state.plan[step & 1, PLAN_FIRSTS]
    state.firsts[step & 1, place, 0] = request
    state.firsts[step & 1, place, 1] = slot
    state.plan[step & 1, PLAN_FIRSTS] += 1
    left = demand.shape[request, OUTPUT] - state.slots[slot, SLOT_GENERATED]
    state.slots[slot, SLOT_STATUS] = JOINING if left > 1 else DONE
    head = limits.finish_lists + limits.max_seqs + (step + left - 1) % limits.ring
    append(state.links, head, limits.finish_lists + slot)


@compiled
def vacate(state: Any, slot: int) -> None:
    """Remove a sequence from the running ones and give back its blocks."""
    release_blocks(state, slot)
    unlink(state.links, slot)
    state.count[RUNNING] -= 1


@compiled
def free_slot(state: Any, slot: int) -> None:
    """Make a slot available."""
    state.slots[slot, SLOT_STATUS] = FREE
    state.slots[slot, SLOT_SAVED] = 0
    state.stacks[FREE_STACK, state.count[FREE_SLOTS]] = slot
    state.count[FREE_SLOTS] += 1


@compiled
def remember_blocks(state: Any, slot: int, full: int) -> None:
    """Stamp the first ``full`` blocks of a sequence, so that it finds again what nobody overwrites meanwhile.

    Blocks further on that it remembers from an earlier preemption and has not reached again stay remembered.
    """
    for place in range(state.slots[slot, SLOT_BLOCKS]):
        block = state.table[slot, place, BLOCK]
        state.table[slot, place, STAMP] = state.blocks[block, BLOCK_STAMP] if place < full else -1
    state.slots[slot, SLOT_SAVED] = max(full, state.slots[slot, SLOT_SAVED])


@compiled
def preempt(state: Any, demand: Any, fate: Any, limits: Any, slot: int, step: int) -> None:
    """Throw a sequence out while ``step`` is formed; it will recompute prompt and output so far when it returns."""
    request = state.slots[slot, SLOT_REQUEST]
    full = state.slots[slot, SLOT_COMPUTED] // limits.block_size
    if state.slots[slot, SLOT_STATUS] == DECODE:
        cached = state.slots[slot, SLOT_OFFSET] + step
        leave_decode(state, limits, slot, step)
        unlink(state.links, limits.finish_lists + slot)
        full = cached // limits.block_size
        state.slots[slot, SLOT_TARGET] = cached + 1
        state.slots[slot, SLOT_GENERATED] = cached + 1 - demand.shape[request, PROMPT]
    else:
        state.count[PARTIAL] = -1
    if limits.prefix_caching:
        remember_blocks(state, slot, full)
    vacate(state, slot)
    state.slots[slot, SLOT_STATUS] = PREEMPTED
    state.stacks[PREEMPTED_STACK, state.count[PREEMPTED_SLOTS]] = slot
    state.count[PREEMPTED_SLOTS] += 1
    state.usage[state.count[STAGE], PREEMPTIONS] += 1
    fate.notes[request, PREEMPTED_TIMES] += 1


@compiled
def last_admitted(state: Any, limits: Any) -> int:
    """The running sequence that was admitted last and still has something to compute, or -1."""
    node = state.links[limits.max_seqs, PREV]
    while node != limits.max_seqs and state.slots[node, SLOT_STATUS] == DONE:
        node = state.links[node, PREV]
    return int(node) if node != limits.max_seqs else -1


@compiled
def extend_decodes(state: Any, demand: Any, fate: Any, limits: Any, step: int) -> bool:
    """Give a block to every decoding sequence that crosses a block border in ``step``.

    When none is free the last admitted is preempted until one is. Returns whether that happened.
    """
    head = limits.phase_lists + limits.max_seqs + step % limits.block_size
    preempted = False
    node = state.links[head, NEXT]
    while node != head:
        following = state.links[node, NEXT]
        slot = node - limits.phase_lists
        if state.slots[slot, SLOT_EXTENDED] != step:
            victim = -1
            while victim != slot and state.count[FREE_BLOCKS] == 0:
                victim = last_admitted(state, limits)
                preempt(state, demand, fate, limits, victim, step)
            if victim != slot:
                _extend(state, demand, limits, slot, step)
            if victim >= 0:
                # The list may have lost any of its members; those that were served already are skipped.
                preempted = True
                following = state.links[head, NEXT]
        node = following
    return preempted


@compiled
def _extend(state: Any, demand: Any, limits: Any, slot: int, step: int) -> None:
    held = state.slots[slot, SLOT_BLOCKS]
    if limits.prefix_caching and held * limits.block_size > state.slots[slot, SLOT_TARGET]:
        # The block before was filled by decoding: a later turn of the conversation may ask for it.
        publish_blocks(state, demand, slot, held - 1, held)
    state.table[slot, held, BLOCK] = take_block(state)
    state.slots[slot, SLOT_BLOCKS] = held + 1
    state.slots[slot, SLOT_EXTENDED] = step


@compiled
def finish_sequences(state: Any, fate: Any, limits: Any, executed: int, forming: int, now_s: float) -> None:
    """Record what ended with step ``executed`` at ``now_s`` and free it. A static batch is freed as a whole."""
    head = limits.finish_lists + limits.max_seqs + executed % limits.ring
    while state.links[head, NEXT] != head:
        node = state.links[head, NEXT]
        unlink(state.links, node)
        slot = node - limits.finish_lists
        request = state.slots[slot, SLOT_REQUEST]
        fate.times_s[request, FINISH_S] = now_s
        fate.notes[request, OUTCOME] = FINISHED
        state.count[OUTSTANDING] -= 1
        state.count[LIVE] -= 1
        if not limits.static:
            release_slot(state, limits, slot, forming)
    if limits.static:
        end_static_batch(state, limits, forming)


@compiled
def release_slot(state: Any, limits: Any, slot: int, forming: int) -> None:
    """Remove a sequence from everything it is in while step ``forming`` is next, and free its slot."""
    if state.slots[slot, SLOT_STATUS] == DECODE:
        leave_decode(state, limits, slot, forming)
    if state.count[PARTIAL] == slot:
        state.count[PARTIAL] = -1
    unlink(state.links, limits.finish_lists + slot)
    vacate(state, slot)
    free_slot(state, slot)


@compiled
def end_static_batch(state: Any, limits: Any, forming: int) -> None:
    """Free a static batch as a whole once none of its sequences has anything left to generate."""
    if state.count[LIVE] > 0:
        return
    while state.links[limits.max_seqs, NEXT] != limits.max_seqs:
        release_slot(state, limits, state.links[limits.max_seqs, NEXT], forming)


@compiled
def abort(state: Any, fate: Any, limits: Any, request: int) -> None:
    """Give up a request whose client has gone; a sequence whose last token is on its way is left to end."""
    slot = fate.notes[request, SLOT]
    status = state.slots[slot, SLOT_STATUS] if slot >= 0 else FREE
    if status == DONE:
        return
    fate.notes[request, OUTCOME] = TIMED_OUT
    state.count[OUTSTANDING] -= 1
    if slot < 0:
        return
    state.count[LIVE] -= 1
    if status == PREEMPTED:
        # It stays in the stack of preempted ones, where the scheduler discards it.
        state.slots[slot, SLOT_STATUS] = ABORTED
        return
    release_slot(state, limits, slot, state.count[STEP])
    if limits.static:
        end_static_batch(state, limits, state.count[STEP])
