"""What a step is made of, by the policies of the engines. Sequences run in the order of admission.

What goes into a step
- Mixed (vLLM, TensorRT-LLM, TGI, llama.cpp): decodes and prompts in progress, then new prompts, up to the token budget.
- Prompts first (SGLang without mixed chunks): a step of prompts alone while any can be admitted, else of decodes alone;
  in a pipeline of as many of the running sequences as a stage has its share of, for its micro-batches keep theirs.

Who has room
- By prompt: blocks for what is computed now, as vLLM and TensorRT-LLM's MAX_UTILIZATION do.
- By full length: blocks for the whole answer, nobody is ever thrown out (TensorRT-LLM's GUARANTEED_NO_EVICT, TGI).
- Static: the same, once the batch before is gone, which leaves as a whole.
- By token ratio: the answer of the newcomer and a share of what the running ones may still generate must fit; the share
  shrinks as steps pass without a retraction (SGLang).

Reference: [Kwon2023], [Agrawal2024], [Zheng2024], [VllmTeam2025]
"""

from __future__ import annotations

from functools import partial
from typing import Any

from simulator.engine.events import state as at
from simulator.engine.events.compilation import compiled, in_place_of, inlined
from simulator.engine.events.decodes import (
    accepted_tokens,
    catch_up,
    coming_steps,
    has_room,
    join,
    may_go,
    next_awake,
    next_victim,
    part,
    sleep,
)
from simulator.engine.events.kv_cache import (
    blocks_below,
    find_prefix,
    grow,
    load,
    pin_places,
    publish_blocks,
    remember_blocks,
    seat,
    take_blocks,
    unpin_places,
    vacate,
)
from simulator.engine.events.request_life import (
    finish_request,
    free_slot,
    next_candidate,
    order_by_prefix,
    route,
    stand_by,
    take_slot,
)
from simulator.engine.events.steps import add_chunk, add_first_token, begin_step, run_decodes, stay
from simulator.engine.settings import STEPS_AFTER_RETRACTION

NOBODY = -1


@compiled
def _preempt(state: Any, fate: Any, limits: Any, slot: int) -> None:
    """Throw a sequence out; it returns with what a tier keeps or the device still has, and recomputes the rest."""
    part(state, limits, slot)
    full = state.slots[slot, at.SLOT_COMPUTED] // limits.block_size
    if state.slots[slot, at.SLOT_STATUS] == at.DECODE:
        state.slots[slot, at.SLOT_TARGET] = state.slots[slot, at.SLOT_COMPUTED] + 1
    if limits.prefix_caching:
        remember_blocks(state, slot, full)
    if len(limits.tiers) > 0:
        pin_places(state, limits, slot, full)
    vacate(state, slot)
    stand_by(state, fate, slot)


@compiled
def _publish(state: Any, demand: Any, limits: Any, slot: int) -> None:
    """Enter blocks that have become full into the prefix cache."""
    if not limits.prefix_caching or len(demand.prefix) == 0:
        return
    full = state.slots[slot, at.SLOT_COMPUTED] // limits.block_size
    if full > state.slots[slot, at.SLOT_PUBLISHED]:
        publish_blocks(state, demand, slot, state.slots[slot, at.SLOT_PUBLISHED], full)
        state.slots[slot, at.SLOT_PUBLISHED] = full


@compiled
def _make_room(state: Any, fate: Any, limits: Any, slot: int, blocks: int) -> bool:
    """Preempt until ``blocks`` more are free for ``slot``. False when it had to go itself, or nobody may go."""
    while blocks > state.count[at.FREE_BLOCKS]:
        victim = slot if limits.retracts else next_victim(state, limits)
        if victim < 0 or not may_go(state, limits, victim):
            return False
        _preempt(state, fate, limits, victim)
        if victim == slot:
            return False
    return True


@compiled
def _room_for_decode(state: Any, demand: Any, fate: Any, limits: Any, slot: int) -> bool:
    """Give a decoding sequence the blocks of its next step; False when it could not have them."""
    needed = state.slots[slot, at.SLOT_BLOCKS] + 1
    if limits.uneven:
        request = state.slots[slot, at.SLOT_REQUEST]
        last = demand.prompt_tokens[request] + state.slots[slot, at.SLOT_ANSWER] - 1
        needed = -(-min(state.slots[slot, at.SLOT_COMPUTED] + limits.verify_tokens, last) // limits.block_size)
    if not _make_room(state, fate, limits, slot, needed - state.slots[slot, at.SLOT_BLOCKS]):
        return False
    _publish(state, demand, limits, slot)
    grow(state, limits, slot, needed)
    return True


@compiled
def _end_sequence(state: Any, limits: Any, slot: int) -> None:
    state.slots[slot, at.SLOT_STATUS] = at.DONE
    state.running[at.WAKE, slot] = at.NEVER
    row = state.count[at.LAUNCHED] & limits.step_mask
    state.marked[row, state.plan[row, at.PLAN_ENDS], at.END_SLOT] = slot
    state.plan[row, at.PLAN_ENDS] += 1


@compiled
def _prefill_chunk(state: Any, demand: Any, fate: Any, limits: Any, slot: int, budget: int) -> int:
    """Take the next part of a prompt into the step being formed. Returns its tokens."""
    left = state.slots[slot, at.SLOT_TARGET] - state.slots[slot, at.SLOT_COMPUTED]
    chunk = min(left, budget)
    if chunk <= 0 or (chunk < left and not limits.chunked):
        return 0
    needed = -(-(state.slots[slot, at.SLOT_COMPUTED] + chunk) // limits.block_size)
    if not _make_room(state, fate, limits, slot, needed - state.slots[slot, at.SLOT_BLOCKS]):
        return 0
    grow(state, limits, slot, needed)
    add_chunk(state, slot, chunk)
    state.slots[slot, at.SLOT_LAST_STEP] = state.count[at.LAUNCHED]
    _publish(state, demand, limits, slot)
    if chunk == left:
        # The step being formed yields a token of the answer.
        add_first_token(state, limits, slot)
        state.slots[slot, at.SLOT_GENERATED] += 1
        if state.slots[slot, at.SLOT_GENERATED] == state.slots[slot, at.SLOT_ANSWER]:
            _end_sequence(state, limits, slot)
        else:
            join(state, limits, slot)
    return int(chunk)


@compiled
def _start_arrived(state: Any, demand: Any, fate: Any, limits: Any, request: int, slot: int, now_s: float) -> int:
    """Admit a request whose prompt another pool has computed: its blocks came with it, it decodes at once."""
    prompt = demand.prompt_tokens[request]
    needed = -(-prompt // limits.block_size)
    if needed > state.count[at.FREE_BLOCKS] - limits.watermark_blocks:
        return NOBODY
    take_slot(state, fate, slot, request, prompt, 0, now_s)
    seat(state, limits, slot, 0)
    grow(state, limits, slot, needed)
    state.slots[slot, at.SLOT_COMPUTED] = prompt
    state.slots[slot, at.SLOT_PUBLISHED] = prompt // limits.block_size
    state.slots[slot, at.SLOT_LAST_STEP] = -1
    state.slots[slot, at.SLOT_GENERATED] = 1
    state.slots[slot, at.SLOT_ANSWER] = demand.output_tokens[request]
    join(state, limits, slot)
    return 0


@inlined
def _admit(state: Any, demand: Any, fate: Any, limits: Any, budget: int, now_s: float) -> int:
    """Admit the next candidate if blocks and budget allow. Returns the tokens it takes, NOBODY when nobody came."""
    request, slot = next_candidate(state, fate)
    if request < 0:
        return NOBODY
    resumed = state.slots[slot, at.SLOT_STATUS] != at.FREE
    if limits.computed_on_arrival and not resumed:
        return _start_arrived(state, demand, fate, limits, request, slot, now_s)
    target = state.slots[slot, at.SLOT_TARGET] if resumed else demand.prompt_tokens[request]
    most = (target - 1) // limits.block_size
    found, idle, loaded = 0, 0, 0
    if limits.prefix_caching:
        found, idle = find_prefix(state, demand, request, slot, most)
    if len(limits.tiers) > 0:
        loaded = blocks_below(state, demand, limits, request, slot, found, most, now_s)
    hit = (found + loaded) * limits.block_size
    chunk = min(target - hit, budget)
    if chunk < target - hit and not limits.chunked:
        return NOBODY
    end = hit + chunk
    if limits.full_length:
        # A static batch has room for its last tokens too, which nobody computes on.
        end = demand.prompt_tokens[request] + demand.output_tokens[request] - (0 if limits.static else 1)
    needed = -(-end // limits.block_size)
    if not has_room(state, demand, limits, request, slot, needed - found + idle, target - hit):
        return NOBODY
    take_slot(state, fate, slot, request, target, hit, now_s)
    seat(state, limits, slot, found)
    state.slots[slot, at.SLOT_COMPUTED] = hit
    state.slots[slot, at.SLOT_PUBLISHED] = found
    state.slots[slot, at.SLOT_LAST_STEP] = -1
    state.slots[slot, at.SLOT_ANSWER] = demand.output_tokens[request]
    grow(state, limits, slot, needed if limits.full_length else found + loaded)
    unpin_places(state, limits, slot)
    if loaded == 0:
        state.slots[slot, at.SLOT_STATUS] = at.PREFILL
        return _prefill_chunk(state, demand, fate, limits, slot, budget)
    fate.loaded_s[request] = load(state, limits, now_s, not resumed)
    state.slots[slot, at.SLOT_STATUS] = at.LOADING
    return 0


@compiled
def _retract(state: Any, demand: Any, fate: Any, limits: Any) -> None:
    """Throw sequences out until every decoding one can have its next tokens; adapt the new-token ratio."""
    retracted, count, verified = False, state.count, limits.verify_tokens
    # Nobody needs more blocks than its next tokens fill.
    while count[at.RUNNING] * -(-verified // limits.block_size) > count[at.FREE_BLOCKS] or retracted:
        needed, generated, asked, running = 0, 0, 0, 0
        for place in range(count[at.RUNNING]):
            slot = state.running[at.ORDER, place]
            if state.slots[slot, at.SLOT_STATUS] == at.DECODE:
                catch_up(state, limits, slot)
                end = state.slots[slot, at.SLOT_COMPUTED] + verified
                needed += max(0, -(-end // limits.block_size) - state.slots[slot, at.SLOT_BLOCKS])
                generated += state.slots[slot, at.SLOT_GENERATED]
                asked += demand.output_tokens[state.slots[slot, at.SLOT_REQUEST]]
                running += 1
        victim = next_victim(state, limits) if needed > count[at.FREE_BLOCKS] and count[at.RUNNING] > 1 else -1
        if victim < 0:
            if retracted:
                state.clock[at.RATIO] = min(1.0, (generated + STEPS_AFTER_RETRACTION * running) / max(asked, 1))
            break
        _preempt(state, fate, limits, victim)
        retracted = True
    if not retracted:
        state.clock[at.RATIO] = max(state.clock[at.RATIO] - limits.ratio_decay, limits.ratio_least)


@compiled
def _walk_decodes(state: Any, demand: Any, fate: Any, limits: Any, budget: int) -> int:
    """Take the decoding sequences in that are not in the step yet. Returns the budget that is left."""
    slots, count, verified = state.slots, state.count, limits.verify_tokens
    step, before = count[at.DECODE_STEPS] + 1, count[at.RETURNED] if limits.pipelined else count[at.LAUNCHED]
    decoding, context, ended, ended_context = 0, 0, 0, 0
    place = next_awake(state, 0, step)
    while place < count[at.RUNNING] and budget >= verified:
        slot = state.running[at.ORDER, place]
        catch_up(state, limits, slot)
        row = slots[slot]
        ready, computed = row[at.SLOT_LAST_STEP] < before, row[at.SLOT_COMPUTED]
        if ready and computed + verified > row[at.SLOT_BLOCKS] * limits.block_size:
            ready = _room_for_decode(state, demand, fate, limits, slot)
            if row[at.SLOT_STATUS] == at.PREEMPTED:
                # Whoever stands behind is ending or under way.
                break
        if ready:
            left, gained = row[at.SLOT_ANSWER] - row[at.SLOT_GENERATED], 1
            if verified > 1:
                drawn = row[at.SLOT_REQUEST] * limits.groups + limits.group
                gained += accepted_tokens(limits.reach, limits.seed, drawn, row[at.SLOT_GENERATED])
            gained = min(gained, left)
            row[at.SLOT_COMPUTED] = computed + gained
            row[at.SLOT_GENERATED] += gained
            row[at.SLOT_LAST_STEP] = count[at.LAUNCHED]
            row[at.SLOT_SINCE] = step
            decoding += 1
            context += computed + verified
            budget -= verified
            if gained == left:
                _end_sequence(state, limits, slot)
                ended += 1
                ended_context += computed + 1
            elif not limits.uneven:
                sleep(state, limits, slot)
        place = next_awake(state, place + 1, step)
    count[at.DECODING] += decoding
    count[at.CONTEXT] += context
    if limits.uneven:
        return budget
    # Those that sleep gain a token as well.
    budget -= count[at.BATCH] - decoding
    count[at.DECODING], count[at.DECODE_STEPS] = count[at.BATCH], step
    count[at.BATCH_CONTEXT] += count[at.BATCH]
    count[at.CONTEXT] = count[at.BATCH_CONTEXT]
    if not limits.static:
        count[at.BATCH] -= ended
        count[at.BATCH_CONTEXT] -= ended_context
    return budget


@inlined
def _walk_prompts(state: Any, demand: Any, fate: Any, limits: Any, budget: int, now_s: float) -> int:
    """Go on with the prompts in progress, and with those whose blocks have arrived. Returns the budget that is left."""
    slots, place = state.slots, 0
    while place < state.count[at.RUNNING] and budget > 0:
        slot = state.running[at.ORDER, place]
        if slots[slot, at.SLOT_STATUS] == at.LOADING and fate.loaded_s[slots[slot, at.SLOT_REQUEST]] <= now_s:
            _publish(state, demand, limits, slot)
            slots[slot, at.SLOT_STATUS] = at.PREFILL
        if slots[slot, at.SLOT_STATUS] == at.PREFILL:
            budget -= _prefill_chunk(state, demand, fate, limits, slot, budget)
            if slots[slot, at.SLOT_STATUS] == at.PREEMPTED:
                break
        place += 1
    return budget


@inlined
def _admit_all(state: Any, demand: Any, fate: Any, limits: Any, budget: int, now_s: float) -> int:
    """Admit as many as budget, seats and blocks allow. Returns the budget that is left."""
    while budget > 0 and state.count[at.RUNNING] < limits.max_seqs:
        if limits.longest_prefix_first:
            order_by_prefix(state, demand, fate)
        taken = _admit(state, demand, fate, limits, budget, now_s)
        if taken == NOBODY:
            break
        budget -= taken
    return budget


@inlined
def form(state: Any, demand: Any, fate: Any, limits: Any, now_s: float) -> bool:
    """Put the next step together and reserve its blocks; False when there is nothing to compute."""
    count = state.count
    begin_step(state, limits)
    if count[at.RUNNING] == 0:
        state.clock[at.RATIO] = limits.ratio_first
    thrown_out, budget = state.usage[count[at.STAGE], at.PREEMPTIONS], limits.max_tokens
    closed = limits.static and count[at.RUNNING] > 0
    if not limits.prompts_first:
        if limits.retracts:
            _retract(state, demand, fate, limits)
        budget = _walk_decodes(state, demand, fate, limits, budget)
    budget = _walk_prompts(state, demand, fate, limits, budget, now_s)
    if state.usage[count[at.STAGE], at.PREEMPTIONS] == thrown_out and not closed:
        budget = _admit_all(state, demand, fate, limits, budget, now_s)
    decodes = limits.computed_on_arrival  # Who comes with its prompt computed decodes in the step that admits it.
    if limits.prompts_first:
        decodes, budget = count[at.PREFILL_TOKENS] == 0, limits.max_tokens
        if limits.pipelined:
            # Prompts have held decodes of every stage up: together they would leave all stages but one idle.
            budget = min(budget, -(-count[at.RUNNING] // limits.depth) * limits.verify_tokens)
        if decodes:
            _retract(state, demand, fate, limits)
    if decodes:
        _walk_decodes(state, demand, fate, limits, budget)
    return bool(count[at.DECODING] + count[at.PREFILL_TOKENS] > 0)


@compiled
def _let_go(state: Any, slot: int) -> None:
    vacate(state, slot)
    free_slot(state, slot)


@compiled
def _end_static_batch(state: Any, limits: Any) -> None:
    """Free a static batch as a whole, which all its sequences fill until none has anything left to generate."""
    if limits.static and state.count[at.LIVE] == 0:
        state.count[at.BATCH] = state.count[at.BATCH_CONTEXT] = 0
        while state.count[at.RUNNING] > 0:
            _let_go(state, state.running[at.ORDER, 0])


@inlined
def end_step(state: Any, demand: Any, fate: Any, limits: Any, step: int, now_s: float) -> None:
    """Record what ended with ``step`` at ``now_s`` and free it. A static batch is freed as a whole."""
    row = step & limits.step_mask
    for place in range(state.plan[row, at.PLAN_ENDS]):
        slot = state.marked[row, place, at.END_SLOT]
        finish_request(state, demand, fate, limits, slot, now_s)
        if not limits.static:
            _let_go(state, slot)
    _end_static_batch(state, limits)


@inlined
def leave(state: Any, limits: Any, slot: int) -> None:
    """Let a sequence go whose client has given up."""
    if state.slots[slot, at.SLOT_STATUS] == at.PREEMPTED:
        # It stays in the stack of preempted ones, where admission discards it.
        unpin_places(state, limits, slot)
        state.slots[slot, at.SLOT_STATUS] = at.ABORTED
        return
    part(state, limits, slot)
    _let_go(state, slot)
    _end_static_batch(state, limits)


def skip(state: Any, demand: Any, fate: Any, limits: Any, tables: Any, until_s: float) -> None:
    """Go through a run of steps that only decode at once, which suits Python better."""
    coming_of = partial(coming_steps, take_blocks=take_blocks, publish=_publish)
    run_decodes(state, demand, fate, limits, tables, until_s, coming_of)


in_place_of(skip)(stay)
SCHEDULER = at.Scheduler(route=route, form=form, end_step=end_step, leave=leave, skip=skip)
