"""Every other policy, walking over the running sequences in the order of admission in every step.

What goes into a step
- Mixed (vLLM, TensorRT-LLM, TGI, llama.cpp): decodes and prompts in progress, then new prompts, up to the token budget.
- Prompts first (SGLang without mixed chunks): a step of prompts alone while any can be admitted, else of decodes alone;
  in a pipeline of as many of the running sequences as a stage has its share of, for its micro-batches keep theirs.

Who has room
- By prompt: blocks for what is computed now, as vLLM and TensorRT-LLM's MAX_UTILIZATION do.
- By full length: blocks for the whole answer, nobody is ever thrown out (TensorRT-LLM's GUARANTEED_NO_EVICT, TGI).
- By token ratio: the answer of the newcomer and a share of what the running ones may still generate must fit; the share
  shrinks as steps pass without a retraction (SGLang).

Reference: [Kwon2023], [Agrawal2024], [Zheng2024], [VllmTeam2025]
"""

from __future__ import annotations

from functools import partial
from typing import Any

from simulator.engine.events import state as at
from simulator.engine.events.compilation import compiled, in_place_of, inlined
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
    has_room,
    next_candidate,
    order_by_prefix,
    route,
    stand_by,
    take_slot,
)
from simulator.engine.events.steps import add_chunk, add_first_token, begin_step, run_decodes, stay
from simulator.engine.events.walk_runs import accepted_tokens, coming_steps
from simulator.engine.settings import STEPS_AFTER_RETRACTION

NOBODY = -1


@compiled
def _may_go(state: Any, limits: Any, slot: int) -> bool:
    """Whether a running sequence may be thrown out: it is not ending, and no step under way uses its blocks."""
    if state.slots[slot, at.SLOT_STATUS] == at.DONE:
        return False
    return not (limits.pipelined and state.slots[slot, at.SLOT_LAST_STEP] >= state.count[at.RETURNED])


@compiled
def _next_victim(state: Any, limits: Any) -> int:
    """Who is preempted: the last admitted; under retraction fewest tokens, then longest prompt; -1 for nobody."""
    best = -1
    node = state.links[limits.max_seqs, at.PREV]
    while node != limits.max_seqs:
        if _may_go(state, limits, node):
            if not limits.retracts:
                return int(node)
            fewer = best < 0 or state.slots[node, at.SLOT_GENERATED] < state.slots[best, at.SLOT_GENERATED]
            same = best >= 0 and state.slots[node, at.SLOT_GENERATED] == state.slots[best, at.SLOT_GENERATED]
            if fewer or (same and state.slots[node, at.SLOT_TARGET] > state.slots[best, at.SLOT_TARGET]):
                best = int(node)
        node = state.links[node, at.PREV]
    return best


@compiled
def _preempt(state: Any, fate: Any, limits: Any, slot: int) -> None:
    """Throw a sequence out; it returns with what a tier keeps or the device still has, and recomputes the rest."""
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
    full = state.slots[slot, at.SLOT_COMPUTED] // limits.block_size
    if limits.prefix_caching and full > state.slots[slot, at.SLOT_PUBLISHED]:
        publish_blocks(state, demand, slot, state.slots[slot, at.SLOT_PUBLISHED], full)
        state.slots[slot, at.SLOT_PUBLISHED] = full


@compiled
def _make_room(state: Any, fate: Any, limits: Any, slot: int, blocks: int) -> bool:
    """Preempt until ``blocks`` more are free for ``slot``. False when it had to go itself, or nobody may go."""
    while blocks > state.count[at.FREE_BLOCKS]:
        victim = slot if limits.retracts else _next_victim(state, limits)
        if victim < 0 or not _may_go(state, limits, victim):
            return False
        _preempt(state, fate, limits, victim)
        if victim == slot:
            return False
    return True


@compiled
def _room_for_decode(state: Any, demand: Any, fate: Any, limits: Any, slot: int) -> bool:
    """Give a decoding sequence the blocks of its next step; False when it could not have them."""
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
        state.slots[slot, at.SLOT_STATUS] = at.DECODE
        state.slots[slot, at.SLOT_GENERATED] += 1
        if state.slots[slot, at.SLOT_GENERATED] == state.slots[slot, at.SLOT_ANSWER]:
            _end_sequence(state, limits, slot)
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
    state.slots[slot, at.SLOT_STATUS] = at.DECODE
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
    end = demand.prompt_tokens[request] + demand.output_tokens[request] - 1 if limits.full_length else hit + chunk
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


@inlined
def _retract(state: Any, demand: Any, fate: Any, limits: Any) -> None:
    """Throw sequences out until every decoding one can have its next tokens; adapt the new-token ratio."""
    retracted = False
    while True:
        needed, generated, asked, running = 0, 0, 0, 0
        node = state.links[limits.max_seqs, at.NEXT]
        while node != limits.max_seqs:
            if state.slots[node, at.SLOT_STATUS] == at.DECODE:
                end = state.slots[node, at.SLOT_COMPUTED] + limits.verify_tokens
                needed += max(0, -(-end // limits.block_size) - state.slots[node, at.SLOT_BLOCKS])
                generated += state.slots[node, at.SLOT_GENERATED]
                asked += demand.output_tokens[state.slots[node, at.SLOT_REQUEST]]
                running += 1
            node = state.links[node, at.NEXT]
        victim = (
            _next_victim(state, limits) if needed > state.count[at.FREE_BLOCKS] and state.count[at.RUNNING] > 1 else -1
        )
        if victim < 0:
            break
        _preempt(state, fate, limits, victim)
        retracted = True
    if retracted:
        state.clock[at.RATIO] = min(1.0, (generated + STEPS_AFTER_RETRACTION * running) / max(asked, 1))
    else:
        state.clock[at.RATIO] = max(state.clock[at.RATIO] - limits.ratio_decay, limits.ratio_least)


@compiled
def _walk_decodes(state: Any, demand: Any, fate: Any, limits: Any, budget: int) -> int:
    """Take the decoding sequences in that are not in the step yet. Returns the budget that is left."""
    slots, links, count = state.slots, state.links, state.count
    launched, returned, verified, head = count[at.LAUNCHED], count[at.RETURNED], limits.verify_tokens, limits.max_seqs
    reach = limits.reach
    decoding, context = 0, 0
    node = links[head, at.NEXT]
    while node != head and budget >= verified:
        row = slots[node]
        ready = row[at.SLOT_STATUS] == at.DECODE and row[at.SLOT_LAST_STEP] < (
            returned if limits.pipelined else launched
        )
        computed = row[at.SLOT_COMPUTED]
        if ready and computed + verified > row[at.SLOT_BLOCKS] * limits.block_size:
            ready = _room_for_decode(state, demand, fate, limits, node)
            if row[at.SLOT_STATUS] == at.PREEMPTED:
                # Whoever stands behind is ending or under way.
                break
        if ready:
            left = row[at.SLOT_ANSWER] - row[at.SLOT_GENERATED]
            gained = 1
            if verified > 1:
                gained += accepted_tokens(
                    reach, limits.seed, row[at.SLOT_REQUEST] * limits.groups + limits.group, row[at.SLOT_GENERATED]
                )
            row[at.SLOT_COMPUTED] = computed + min(gained, left)
            row[at.SLOT_GENERATED] += min(gained, left)
            row[at.SLOT_LAST_STEP] = launched
            decoding += 1
            context += computed + verified
            budget -= verified
            if gained >= left:
                _end_sequence(state, limits, node)
        node = links[node, at.NEXT]
    count[at.DECODING] += decoding
    count[at.CONTEXT] += context
    return budget


@inlined
def _walk_prompts(state: Any, demand: Any, fate: Any, limits: Any, budget: int, now_s: float) -> int:
    """Go on with the prompts in progress, and with those whose blocks have arrived. Returns the budget that is left."""
    slots, links = state.slots, state.links
    node = links[limits.max_seqs, at.NEXT]
    while node != limits.max_seqs and budget > 0:
        if slots[node, at.SLOT_STATUS] == at.LOADING and fate.loaded_s[slots[node, at.SLOT_REQUEST]] <= now_s:
            _publish(state, demand, limits, node)
            slots[node, at.SLOT_STATUS] = at.PREFILL
        if slots[node, at.SLOT_STATUS] == at.PREFILL:
            budget -= _prefill_chunk(state, demand, fate, limits, node, budget)
            if slots[node, at.SLOT_STATUS] == at.PREEMPTED:
                break
        node = links[node, at.NEXT]
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
    count[at.DECODING] = count[at.CONTEXT] = 0
    if count[at.RUNNING] == 0:
        state.clock[at.RATIO] = limits.ratio_first
    thrown_out = state.usage[count[at.STAGE], at.PREEMPTIONS]
    if limits.prompts_first:
        left = _walk_prompts(state, demand, fate, limits, limits.max_tokens, now_s)
        if state.usage[count[at.STAGE], at.PREEMPTIONS] == thrown_out:
            _admit_all(state, demand, fate, limits, left, now_s)
        if count[at.PREFILL_TOKENS] == 0:
            _retract(state, demand, fate, limits)
            budget = limits.max_tokens
            if limits.pipelined:
                # Prompts have held decodes of every stage up: together they would leave all stages but one idle.
                budget = min(budget, -(-count[at.RUNNING] // limits.depth) * limits.verify_tokens)
            _walk_decodes(state, demand, fate, limits, budget)
    else:
        if limits.retracts:
            _retract(state, demand, fate, limits)
        left = _walk_decodes(state, demand, fate, limits, limits.max_tokens)
        left = _walk_prompts(state, demand, fate, limits, left, now_s)
        if state.usage[count[at.STAGE], at.PREEMPTIONS] == thrown_out:
            left = _admit_all(state, demand, fate, limits, left, now_s)
            if limits.computed_on_arrival:
                # Who comes with its prompt computed decodes in the step that admits it.
                _walk_decodes(state, demand, fate, limits, left)
    return bool(count[at.DECODING] + count[at.PREFILL_TOKENS] > 0)


@inlined
def end_step(state: Any, demand: Any, fate: Any, limits: Any, step: int, now_s: float) -> None:
    """Record what ended with ``step`` at ``now_s`` and free it."""
    row = step & limits.step_mask
    for place in range(state.plan[row, at.PLAN_ENDS]):
        slot = state.marked[row, place, at.END_SLOT]
        finish_request(state, demand, fate, limits, slot, now_s)
        vacate(state, slot)
        free_slot(state, slot)


@inlined
def leave(state: Any, limits: Any, slot: int) -> None:
    """Let a sequence go whose client has given up."""
    if state.slots[slot, at.SLOT_STATUS] == at.PREEMPTED:
        # It stays in the stack of preempted ones, where admission discards it.
        unpin_places(state, limits, slot)
        state.slots[slot, at.SLOT_STATUS] = at.ABORTED
        return
    vacate(state, slot)
    free_slot(state, slot)


def skip(state: Any, demand: Any, fate: Any, limits: Any, tables: Any, until_s: float) -> None:
    """Go through a run of steps that only decode at once."""
    coming_of = partial(coming_steps, take_blocks=take_blocks, publish=_publish)
    run_decodes(state, demand, fate, limits, tables, until_s, coming_of)


in_place_of(skip)(stay)
SCHEDULER = at.Scheduler(route=route, form=form, end_step=end_step, leave=leave, skip=skip)
