"""vLLM's scheduler at constant cost per step, admission and block, however many sequences run; static batches too.

Running sequences come first, then the prompt in progress, then who waits, first come first served. The order, the
token budget, the block accounting and the preemption of the last admitted follow vLLM's V1 scheduler ([Kwon2023],
[Agrawal2024], [VllmTeam2025]).

A decoding sequence gains one token a step, so that when it ends and when it needs its next block are known in
advance: it waits in the list of its last step and in that of its phase within a block, and a step costs nothing per
sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.engine.events import state as at
from simulator.engine.events.compilation import compiled, in_place_of, inlined
from simulator.engine.events.kv_cache import (
    append,
    find_prefix,
    grow_table,
    publish_blocks,
    remember_blocks,
    seat,
    take_block,
    unlink,
    vacate,
)
from simulator.engine.events.request_life import finish_request, free_slot, next_candidate, route, stand_by, take_slot
from simulator.engine.events.steps import FEWEST_STEPS, STEPS, add_chunk, add_first_token, begin_step, run_decodes, stay


@compiled
def _leave_decode(state: Any, limits: Any, slot: int) -> None:
    """Take a sequence out of the decode batch of the step being formed."""
    state.count[at.DECODING] -= 1
    state.count[at.NEXT_CONTEXT] -= state.slots[slot, at.SLOT_OFFSET] + state.count[at.LAUNCHED] + 1
    unlink(state.links, limits.phase_lists + slot)


@compiled
def _join_decode(state: Any, limits: Any, slot: int, step: int) -> None:
    """Let a sequence whose prompt was computed in step - 1 generate from ``step`` on."""
    target = state.slots[slot, at.SLOT_TARGET]
    state.slots[slot, at.SLOT_STATUS] = at.DECODE
    state.slots[slot, at.SLOT_OFFSET] = target - step
    state.slots[slot, at.SLOT_EXTENDED] = -1
    state.count[at.DECODING] += 1
    state.count[at.NEXT_CONTEXT] += target + 1
    if not limits.static:
        head = limits.phase_lists + limits.max_seqs + (step - target) % limits.block_size
        append(state.links, head, limits.phase_lists + slot)


@inlined
def _update_decodes(state: Any, limits: Any, step: int) -> None:
    """Bring the decode batch from step - 1 to ``step``: those that ended leave, those whose prompt is done join."""
    if not limits.static:
        head = limits.finish_lists + limits.max_seqs + (step - 1) % limits.ring
        node = state.links[head, at.NEXT]
        while node != head:
            slot = node - limits.finish_lists
            if state.slots[slot, at.SLOT_STATUS] == at.DECODE:
                _leave_decode(state, limits, slot)
                state.slots[slot, at.SLOT_STATUS] = at.DONE
            node = state.links[node, at.NEXT]
    earlier = (step - 1) & limits.step_mask
    for place in range(state.plan[earlier, at.PLAN_FIRSTS]):
        slot = state.marked[earlier, place, at.FIRST_SLOT]
        same = state.slots[slot, at.SLOT_REQUEST] == state.marked[earlier, place, at.FIRST_REQUEST]
        if same and state.slots[slot, at.SLOT_STATUS] == at.JOINING:
            _join_decode(state, limits, slot, step)


@compiled
def _preempt(state: Any, demand: Any, fate: Any, limits: Any, slot: int, step: int) -> None:
    """Throw a sequence out while ``step`` is formed; it will recompute prompt and output so far when it returns."""
    full = state.slots[slot, at.SLOT_COMPUTED] // limits.block_size
    if state.slots[slot, at.SLOT_STATUS] == at.DECODE:
        cached = state.slots[slot, at.SLOT_OFFSET] + step
        _leave_decode(state, limits, slot)
        unlink(state.links, limits.finish_lists + slot)
        full = cached // limits.block_size
        state.slots[slot, at.SLOT_TARGET] = cached + 1
        state.slots[slot, at.SLOT_GENERATED] = cached + 1 - demand.prompt_tokens[state.slots[slot, at.SLOT_REQUEST]]
    else:
        state.count[at.PARTIAL] = -1
    if limits.prefix_caching:
        remember_blocks(state, slot, full)
    vacate(state, slot)
    stand_by(state, fate, slot)


@compiled
def _last_admitted(state: Any, limits: Any) -> int:
    """The running sequence that was admitted last and still has something to compute, or -1."""
    node = state.links[limits.max_seqs, at.PREV]
    while node != limits.max_seqs and state.slots[node, at.SLOT_STATUS] == at.DONE:
        node = state.links[node, at.PREV]
    return int(node) if node != limits.max_seqs else -1


@compiled
def _extend(state: Any, demand: Any, limits: Any, slot: int, step: int) -> None:
    """Give a decoding sequence the block that it needs in ``step``."""
    held = state.slots[slot, at.SLOT_BLOCKS]
    if limits.prefix_caching and held * limits.block_size > state.slots[slot, at.SLOT_TARGET]:
        # The block before was filled by decoding: a later turn of the conversation may ask for it.
        publish_blocks(state, demand, slot, held - 1, held)
    state.table[slot, held, at.BLOCK] = take_block(state)
    state.slots[slot, at.SLOT_BLOCKS] = held + 1
    state.slots[slot, at.SLOT_EXTENDED] = step


@inlined
def _extend_decodes(state: Any, demand: Any, fate: Any, limits: Any, step: int) -> bool:
    """Give a block to every decoding sequence that crosses a block border in ``step``. When none is free the last
    admitted is preempted until one is. Returns whether that happened."""
    head = limits.phase_lists + limits.max_seqs + step % limits.block_size
    preempted = False
    node = state.links[head, at.NEXT]
    while node != head:
        following = state.links[node, at.NEXT]
        slot = node - limits.phase_lists
        if state.slots[slot, at.SLOT_EXTENDED] != step:
            victim = -1
            while victim != slot and state.count[at.FREE_BLOCKS] == 0:
                victim = _last_admitted(state, limits)
                _preempt(state, demand, fate, limits, victim, step)
            if victim != slot:
                _extend(state, demand, limits, slot, step)
            if victim >= 0:
                # The list may have lost any of its members; those that were served already are skipped.
                preempted = True
                following = state.links[head, at.NEXT]
        node = following
    return preempted


@compiled
def _compute_chunk(state: Any, demand: Any, limits: Any, slot: int, chunk: int, step: int) -> None:
    """Add ``chunk`` prompt tokens of ``slot`` to ``step`` (blocks in its table); who completes joins its last step."""
    done = state.slots[slot, at.SLOT_COMPUTED]
    add_chunk(state, slot, chunk)
    if limits.prefix_caching:
        publish_blocks(state, demand, slot, done // limits.block_size, (done + chunk) // limits.block_size)
    if done + chunk < state.slots[slot, at.SLOT_TARGET]:
        state.slots[slot, at.SLOT_STATUS] = at.PREFILL
        state.count[at.PARTIAL] = slot
        return
    add_first_token(state, limits, slot)
    left = demand.output_tokens[state.slots[slot, at.SLOT_REQUEST]] - state.slots[slot, at.SLOT_GENERATED]
    state.slots[slot, at.SLOT_STATUS] = at.JOINING if left > 1 else at.DONE
    head = limits.finish_lists + limits.max_seqs + (step + left - 1) % limits.ring
    append(state.links, head, limits.finish_lists + slot)


@inlined
def _continue_prefill(state: Any, demand: Any, fate: Any, limits: Any, step: int, budget: int) -> tuple[int, bool]:
    """Compute the next chunk of the prompt in progress. Returns the budget left and whether it had to be preempted."""
    slot = state.count[at.PARTIAL]
    if slot < 0 or budget <= 0:
        return budget, False
    chunk = min(state.slots[slot, at.SLOT_TARGET] - state.slots[slot, at.SLOT_COMPUTED], budget)
    needed = -(-(state.slots[slot, at.SLOT_COMPUTED] + chunk) // limits.block_size)
    if needed - state.slots[slot, at.SLOT_BLOCKS] > state.count[at.FREE_BLOCKS]:
        # It was admitted last, so that it is the one to go.
        _preempt(state, demand, fate, limits, slot, step)
        return budget, True
    state.count[at.PARTIAL] = -1
    grow_table(state, slot, needed)
    _compute_chunk(state, demand, limits, slot, chunk, step)
    return budget - chunk, False


@inlined
def _admit(state: Any, demand: Any, fate: Any, limits: Any, step: int, budget: int, now_s: float) -> int:
    """Admit the next candidate if blocks and budget allow. Returns the tokens it takes, 0 when nobody is admitted."""
    request, slot = next_candidate(state, fate)
    if request < 0:
        return 0
    resumed = state.slots[slot, at.SLOT_STATUS] != at.FREE
    target = state.slots[slot, at.SLOT_TARGET] if resumed else demand.prompt_tokens[request]
    found, idle = 0, 0
    if limits.prefix_caching:
        found, idle = find_prefix(state, demand, request, slot, (target - 1) // limits.block_size)
    hit = found * limits.block_size
    chunk = min(target - hit, budget)
    if chunk < target - hit and not limits.chunked:
        return 0
    end = target + demand.output_tokens[request] if limits.static else hit + chunk
    needed = -(-end // limits.block_size)
    if needed - found + idle > state.count[at.FREE_BLOCKS] - limits.watermark_blocks:
        return 0
    take_slot(state, fate, slot, request, target, hit, now_s)
    seat(state, limits, slot, found)
    grow_table(state, slot, needed)
    _compute_chunk(state, demand, limits, slot, chunk, step)
    return int(chunk)


@inlined
def form(state: Any, demand: Any, fate: Any, limits: Any, now_s: float) -> bool:
    """Put the next step together and reserve its blocks; False when there is nothing to compute."""
    count = state.count
    step = begin_step(state, limits)
    _update_decodes(state, limits, step)
    preempted = _extend_decodes(state, demand, fate, limits, step)
    budget, gave_up = _continue_prefill(state, demand, fate, limits, step, limits.max_tokens - count[at.DECODING])
    closed = preempted or gave_up or (limits.static and count[at.RUNNING] > 0)
    while not closed and budget > 0 and count[at.RUNNING] < limits.max_seqs:
        taken = _admit(state, demand, fate, limits, step, budget, now_s)
        budget -= taken
        closed = taken == 0
    if count[at.DECODING] + count[at.PREFILL_TOKENS] == 0:
        return False
    # Every decoding sequence attends to one token more in the step after this one.
    count[at.CONTEXT] = count[at.NEXT_CONTEXT]
    count[at.NEXT_CONTEXT] += count[at.DECODING]
    return True


@compiled
def _release_slot(state: Any, limits: Any, slot: int) -> None:
    """Remove a sequence from everything that it is in and free its slot."""
    if state.slots[slot, at.SLOT_STATUS] == at.DECODE:
        _leave_decode(state, limits, slot)
    if state.count[at.PARTIAL] == slot:
        state.count[at.PARTIAL] = -1
    unlink(state.links, limits.finish_lists + slot)
    vacate(state, slot)
    free_slot(state, slot)


@compiled
def _end_static_batch(state: Any, limits: Any) -> None:
    """Free a static batch as a whole once none of its sequences has anything left to generate."""
    if state.count[at.LIVE] > 0:
        return
    while state.links[limits.max_seqs, at.NEXT] != limits.max_seqs:
        _release_slot(state, limits, state.links[limits.max_seqs, at.NEXT])


@inlined
def end_step(state: Any, demand: Any, fate: Any, limits: Any, step: int, now_s: float) -> None:
    """Record what ended with ``step`` at ``now_s`` and free it. A static batch is freed as a whole."""
    head = limits.finish_lists + limits.max_seqs + step % limits.ring
    while state.links[head, at.NEXT] != head:
        node = state.links[head, at.NEXT]
        unlink(state.links, node)
        slot = node - limits.finish_lists
        finish_request(state, demand, fate, limits, slot, now_s)
        if not limits.static:
            _release_slot(state, limits, slot)
    if limits.static:
        _end_static_batch(state, limits)


@inlined
def leave(state: Any, limits: Any, slot: int) -> None:
    """Let a sequence go whose client has given up."""
    if state.slots[slot, at.SLOT_STATUS] == at.PREEMPTED:
        # It stays in the stack of preempted ones, where admission discards it.
        state.slots[slot, at.SLOT_STATUS] = at.ABORTED
        return
    _release_slot(state, limits, slot)
    if limits.static:
        _end_static_batch(state, limits)


def _coming(state: Any, demand: Any, limits: Any, most: int) -> at.Coming | None:
    """The steps that come next, as the lists say."""
    count, most = state.count, min(most, limits.ring)
    heads = limits.finish_lists + limits.max_seqs + (count[at.RETURNED] + STEPS[:most]) % limits.ring
    ends = (state.links[heads, at.NEXT] != heads).nonzero()[0]
    steps, decodes = int((ends[0] if len(ends) else most) - limits.depth + 1), int(count[at.DECODING])
    if steps < FEWEST_STEPS or count[at.FREE_BLOCKS] < decodes * (steps // limits.block_size + 1):
        return None

    def extended(steps: int) -> Any:
        first, launched, free = limits.phase_lists + limits.max_seqs, int(count[at.LAUNCHED]), []
        members = [at.members_of(state.links, head) for head in range(first, first + limits.block_size)]
        for step in range(launched, launched + steps):
            for node in members[step % limits.block_size]:
                _extend(state, demand, limits, node - limits.phase_lists, step)
            free.append(int(count[at.FREE_BLOCKS]))
        return limits.blocks - np.array(free)

    def settle(steps: int) -> None:
        count[at.NEXT_CONTEXT] += decodes * steps
        count[at.CONTEXT] = count[at.NEXT_CONTEXT] - decodes

    return at.Coming(context=count[at.NEXT_CONTEXT] + decodes * STEPS[:steps], extend=extended, settle=settle)


def skip(state: Any, demand: Any, fate: Any, limits: Any, tables: Any, until_s: float) -> None:
    """Go through a run of steps that only decode at once."""
    run_decodes(state, demand, fate, limits, tables, until_s, _coming)


in_place_of(skip)(stay)
SCHEDULER = at.Scheduler(route=route, form=form, end_step=end_step, leave=leave, skip=skip)
