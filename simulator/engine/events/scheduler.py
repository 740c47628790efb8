"""What goes into a step: running sequences first, then the prompt in progress, then who waits, first come first served.

The order, the token budget, the block accounting and the preemption of the last admitted follow vLLM's V1 scheduler
([Kwon2023], [Agrawal2024], [VllmTeam2025]). Everything here runs compiled, at constant cost per step, admission and
block.
"""

from __future__ import annotations

from typing import Any

from simulator.engine.events.compilation import compiled
from simulator.engine.events.kv_cache import append, find_prefix, grow_table, publish_blocks, share_block
from simulator.engine.events.sequences import end_prefill, extend_decodes, free_slot, join_decode, leave_decode, preempt
from simulator.engine.events.state import (
    ABORTED,
    ADMITTED_S,
    BLOCK,
    CACHED,
    CONTEXT,
    DECODE,
    DECODING,
    DONE,
    FREE,
    FREE_BLOCKS,
    FREE_SLOTS,
    FREE_STACK,
    JOINING,
    LIVE,
    NEXT,
    NEXT_WAITING,
    OUTCOME,
    OUTPUT,
    PARTIAL,
    PLAN_BLOCKS,
    PLAN_DECODES,
    PLAN_FIRSTS,
    PLAN_PREFILLS,
    PLAN_TOKENS,
    PREEMPTED_SLOTS,
    PREEMPTED_STACK,
    PREFILL,
    PREFILL_DONE,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
    PREFILL_WORK2,
    PROMPT,
    RUNNING,
    SLOT,
    SLOT_BLOCKS,
    SLOT_COMPUTED,
    SLOT_GENERATED,
    SLOT_REQUEST,
    SLOT_STATUS,
    SLOT_TARGET,
    STEP,
    WAIT_HEAD,
    WAIT_TAIL,
)
from simulator.phases.compiled import step_seconds
from simulator.traffic.requests import Outcome

WAITING = int(Outcome.WAITING)
ADMITTED = int(Outcome.RUNNING)


@compiled
def enqueue(state: Any, fate: Any, request: int) -> None:
    """Put a request at the end of a replica's waiting queue."""
    tail = state.count[WAIT_TAIL]
    fate.notes[request, NEXT_WAITING] = -1
    if tail < 0:
        state.count[WAIT_HEAD] = request
    else:
        fate.notes[tail, NEXT_WAITING] = request
    state.count[WAIT_TAIL] = request


@compiled
def dequeue(state: Any, fate: Any) -> None:
    """Drop the head of the waiting queue."""
    following = fate.notes[state.count[WAIT_HEAD], NEXT_WAITING]
    state.count[WAIT_HEAD] = following
    if following < 0:
        state.count[WAIT_TAIL] = -1


@compiled
def update_decodes(state: Any, limits: Any, step: int) -> None:
    """Bring the decode batch from step - 1 to ``step``: those that ended leave, those whose prompt is done join."""
    if not limits.static:
        head = limits.finish_lists + limits.max_seqs + (step - 1) % limits.ring
        node = state.links[head, NEXT]
        while node != head:
            slot = node - limits.finish_lists
            if state.slots[slot, SLOT_STATUS] == DECODE:
                leave_decode(state, limits, slot, step)
                state.slots[slot, SLOT_STATUS] = DONE
            node = state.links[node, NEXT]
    earlier = (step + 1) & 1
    for place in range(state.plan[earlier, PLAN_FIRSTS]):
        slot = state.firsts[earlier, place, 1]
        same = state.slots[slot, SLOT_REQUEST] == state.firsts[earlier, place, 0]
        if same and state.slots[slot, SLOT_STATUS] == JOINING:
            join_decode(state, limits, slot, step)


@compiled
def compute_chunk(state: Any, demand: Any, limits: Any, slot: int, chunk: int, step: int) -> None:
    """Add ``chunk`` prompt tokens of ``slot`` to ``step``; its blocks must be in its table already."""
    done = state.slots[slot, SLOT_COMPUTED]
    state.slots[slot, SLOT_COMPUTED] = done + chunk
    if limits.prefix_caching:
        publish_blocks(state, demand, slot, done // limits.block_size, (done + chunk) // limits.block_size)
    state.count[PREFILL_SEQUENCES] += 1
    state.count[PREFILL_TOKENS] += chunk
    state.count[PREFILL_WORK2] += chunk * (2 * done + chunk)
    if done + chunk == state.slots[slot, SLOT_TARGET]:
        state.count[PREFILL_DONE] += 1
        end_prefill(state, demand, limits, slot, step)
    else:
        state.slots[slot, SLOT_STATUS] = PREFILL
        state.count[PARTIAL] = slot


@compiled
def continue_prefill(state: Any, demand: Any, fate: Any, limits: Any, step: int, budget: int) -> tuple[int, bool]:
    """Compute the next chunk of the prompt in progress. Returns the budget left and whether it had to be preempted."""
    slot = state.count[PARTIAL]
    if slot < 0 or budget <= 0:
        return budget, False
    chunk = min(state.slots[slot, SLOT_TARGET] - state.slots[slot, SLOT_COMPUTED], budget)
    needed = -(-(state.slots[slot, SLOT_COMPUTED] + chunk) // limits.block_size)
    if needed - state.slots[slot, SLOT_BLOCKS] > state.count[FREE_BLOCKS]:
        # It was admitted last, so that it is the one to go.
        preempt(state, demand, fate, limits, slot, step)
        return budget, True
    state.count[PARTIAL] = -1
    grow_table(state, slot, needed)
    compute_chunk(state, demand, limits, slot, chunk, step)
    return budget - chunk, False


@compiled
def next_candidate(state: Any, fate: Any) -> tuple[int, int]:
    """(request, slot) of who is admitted next: the preempted first; (-1, -1) when nobody waits or no slot is free."""
    while state.count[PREEMPTED_SLOTS] > 0:
        slot = state.stacks[PREEMPTED_STACK, state.count[PREEMPTED_SLOTS] - 1]
        if state.slots[slot, SLOT_STATUS] != ABORTED:
            return int(state.slots[slot, SLOT_REQUEST]), int(slot)
        state.count[PREEMPTED_SLOTS] -= 1
        free_slot(state, slot)
    while state.count[WAIT_HEAD] >= 0 and fate.notes[state.count[WAIT_HEAD], OUTCOME] != WAITING:
        dequeue(state, fate)
    if state.count[WAIT_HEAD] < 0 or state.count[FREE_SLOTS] == 0:
        return -1, -1
    return int(state.count[WAIT_HEAD]), int(state.stacks[FREE_STACK, state.count[FREE_SLOTS] - 1])


@compiled
def admit(state: Any, demand: Any, fate: Any, limits: Any, step: int, budget: int, now_s: float) -> int:
    """Admit the next candidate if blocks and budget allow. Returns the tokens it takes, 0 when nobody is admitted."""
    request, slot = next_candidate(state, fate)
    if request < 0:
        return 0
    resumed = state.slots[slot, SLOT_STATUS] != FREE
    target = state.slots[slot, SLOT_TARGET] if resumed else demand.shape[request, PROMPT]
    found, idle = 0, 0
    if limits.prefix_caching:
        found, idle = find_prefix(state, demand, request, slot, (target - 1) // limits.block_size)
    hit = found * limits.block_size
    chunk = min(target - hit, budget)
    if chunk < target - hit and not limits.chunked:
        return 0
    end = target + demand.shape[request, OUTPUT] if limits.static else hit + chunk
    needed = -(-end // limits.block_size)
    if needed - found + idle > state.count[FREE_BLOCKS] - limits.watermark_blocks:
        return 0
    if resumed:
        state.count[PREEMPTED_SLOTS] -= 1
    else:
        occupy(state, fate, slot, request, target, hit, now_s)
    for place in range(found):
        share_block(state, int(state.table[slot, place, BLOCK]))
    state.slots[slot, SLOT_BLOCKS] = found
    state.slots[slot, SLOT_COMPUTED] = hit
    grow_table(state, slot, needed)
    append(state.links, limits.max_seqs, slot)
    state.count[RUNNING] += 1
    compute_chunk(state, demand, limits, slot, chunk, step)
    return int(chunk)


@compiled
def occupy(state: Any, fate: Any, slot: int, request: int, target: int, hit: int, now_s: float) -> None:
    """Give a waiting request a slot."""
    dequeue(state, fate)
    state.count[FREE_SLOTS] -= 1
    state.count[LIVE] += 1
    state.slots[slot, SLOT_REQUEST] = request
    state.slots[slot, SLOT_TARGET] = target
    state.slots[slot, SLOT_GENERATED] = 0
    fate.notes[request, SLOT] = slot
    fate.notes[request, OUTCOME] = ADMITTED
    fate.times_s[request, ADMITTED_S] = now_s
    fate.notes[request, CACHED] = hit


@compiled
def form_step(state: Any, demand: Any, fate: Any, limits: Any, tables: Any, now_s: float) -> bool:
    """Put the next step together, reserve its blocks and price it; False when there is nothing to compute."""
    count = state.count
    step = count[STEP]
    update_decodes(state, limits, step)
    count[PREFILL_SEQUENCES] = count[PREFILL_TOKENS] = count[PREFILL_WORK2] = count[PREFILL_DONE] = 0
    state.plan[step & 1, PLAN_FIRSTS] = 0
    preempted = extend_decodes(state, demand, fate, limits, step)
    budget, gave_up = continue_prefill(state, demand, fate, limits, step, limits.max_tokens - count[DECODING])
    closed = preempted or gave_up or (limits.static and count[RUNNING] > 0)
    while not closed and budget > 0 and count[RUNNING] < limits.max_seqs:
        taken = admit(state, demand, fate, limits, step, budget, now_s)
        budget -= taken
        closed = taken == 0
    if count[DECODING] + count[PREFILL_TOKENS] == 0:
        return False
    plan = state.plan[step & 1]
    plan[PLAN_DECODES] = count[DECODING]
    plan[PLAN_PREFILLS] = count[PREFILL_SEQUENCES]
    plan[PLAN_TOKENS] = count[DECODING] + count[PREFILL_TOKENS]
    plan[PLAN_BLOCKS] = limits.blocks - count[FREE_BLOCKS]
    state.clock[step & 1] = step_seconds(
        tables,
        count[PREFILL_SEQUENCES],
        count[PREFILL_TOKENS],
        count[PREFILL_WORK2],
        count[PREFILL_DONE],
        count[DECODING],
        count[CONTEXT],
    )
    count[STEP] = step + 1
    count[CONTEXT] += count[DECODING]
    return True
