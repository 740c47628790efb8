"""What goes into a step under each engine's policy, walking over the running sequences in the order of admission.

- Mixed (vLLM, TensorRT-LLM, TGI, llama.cpp): decodes and prompts in progress, then new prompts, up to the token budget.
- Prompts first (SGLang without mixed chunks): a step of prompts alone while any can be admitted, else of decodes alone.

References
----------
[Kwon2023], [Agrawal2024], [Zheng2024], [VllmTeam2025]
"""

from __future__ import annotations

from typing import Any

from simulator.engine.events.compilation import compiled
from simulator.engine.events.policy_admission import NOBODY, admit, order_by_prefix
from simulator.engine.events.policy_sequences import (
    accepted_tokens,
    end_sequence,
    next_victim,
    preempt,
    prefill_chunk,
    room_for_decode,
    wake,
)
from simulator.engine.events.policy_state import (
    ANSWER,
    BATCH_ENDS,
    BATCH_FIRSTS,
    LAST_STEP,
    LAUNCHED,
    LOADING,
    RATIO,
    RETURNED,
)
from simulator.engine.events.state import (
    CONTEXT,
    DECODE,
    DECODING,
    FREE_BLOCKS,
    NEXT,
    OUTPUT,
    PREEMPTED,
    PREEMPTIONS,
    PREFILL,
    PREFILL_DONE,
    PREFILL_SEQUENCES,
    PREFILL_TOKENS,
    PREFILL_WORK2,
    RUNNING,
    SLOT_BLOCKS,
    SLOT_COMPUTED,
    SLOT_GENERATED,
    SLOT_REQUEST,
    SLOT_STATUS,
    STAGE,
)

# SGLang's new-token ratio after a retraction assumes that every sequence generates this many more (its
# retract_decode_steps), and counts what has been generated so far.
STEPS_AFTER_RETRACTION = 20


@compiled
def _retract(state: Any, demand: Any, fate: Any, limits: Any, ratio: Any) -> None:
    """Throw sequences out until every decoding one can have its next tokens; adapt the new-token ratio."""
    retracted = False
    while True:
        needed, generated, asked, running = 0, 0, 0, 0
        node = state.links[limits.max_seqs, NEXT]
        while node != limits.max_seqs:
            if state.slots[node, SLOT_STATUS] == DECODE:
                end = state.slots[node, SLOT_COMPUTED] + limits.verify_tokens
                needed += max(0, -(-end // limits.block_size) - state.slots[node, SLOT_BLOCKS])
                generated += state.slots[node, SLOT_GENERATED]
                asked += demand.shape[state.slots[node, SLOT_REQUEST], OUTPUT]
                running += 1
            node = state.links[node, NEXT]
        victim = next_victim(state, limits) if needed > state.count[FREE_BLOCKS] and state.count[RUNNING] > 1 else -1
        if victim < 0:
            break
        preempt(state, fate, limits, victim)
        retracted = True
    if retracted:
        state.clock[RATIO] = min(1.0, (generated + STEPS_AFTER_RETRACTION * running) / max(asked, 1))
    else:
        state.clock[RATIO] = max(state.clock[RATIO] - ratio[1], ratio[2])


@compiled
def _walk_decodes(state: Any, demand: Any, fate: Any, limits: Any, verification: Any, budget: int) -> int:
    """Take the decoding sequences in that are not in the step yet. Returns the budget that is left."""
    slots, links, count = state.slots, state.links, state.count
    launched, returned, verified, head = count[LAUNCHED], count[RETURNED], limits.verify_tokens, limits.max_seqs
    drafts = len(verification.reach) > 0
    decoding, context = 0, 0
    node = links[head, NEXT]
    while node != head and budget >= verified:
        row = slots[node]
        ready = row[SLOT_STATUS] == DECODE and row[LAST_STEP] < (returned if limits.pipelined else launched)
        computed = row[SLOT_COMPUTED]
        if ready and computed + verified > row[SLOT_BLOCKS] * limits.block_size:
            ready = room_for_decode(state, demand, fate, limits, node)
            if row[SLOT_STATUS] == PREEMPTED:
                # Whoever stands behind is ending or under way.
                break
        if ready:
            left = row[ANSWER] - row[SLOT_GENERATED]
            gained = 1
            if drafts:
                gained += accepted_tokens(verification.reach, verification.seed, row[SLOT_REQUEST], row[SLOT_GENERATED])
            row[SLOT_COMPUTED] = computed + min(gained, left)
            row[SLOT_GENERATED] += min(gained, left)
            row[LAST_STEP] = launched
            decoding += 1
            context += computed + verified
            budget -= verified
            if gained >= left:
                end_sequence(state, limits, node)
        node = links[node, NEXT]
    count[DECODING] += decoding
    count[CONTEXT] += context
    return budget


@compiled
def _walk_prompts(state: Any, demand: Any, fate: Any, limits: Any, budget: int, now_s: float) -> int:
    """Go on with the prompts in progress, and with those whose blocks have arrived. Returns the budget that is left."""
    slots, links = state.slots, state.links
    node = links[limits.max_seqs, NEXT]
    while node != limits.max_seqs and budget > 0:
        if slots[node, SLOT_STATUS] == LOADING and state.ready_s[node] <= now_s:
            wake(state, demand, limits, node)
        if slots[node, SLOT_STATUS] == PREFILL:
            budget -= prefill_chunk(state, demand, fate, limits, node, budget)
            if slots[node, SLOT_STATUS] == PREEMPTED:
                break
        node = links[node, NEXT]
    return budget


@compiled
def _admit_all(state: Any, demand: Any, fate: Any, limits: Any, budget: int, now_s: float) -> int:
    """Admit as many as budget, seats and blocks allow. Returns the budget that is left."""
    while budget > 0 and state.count[RUNNING] < limits.max_seqs:
        if limits.longest_prefix_first:
            order_by_prefix(state, demand, fate)
        taken = admit(state, demand, fate, limits, budget, now_s)
        if taken == NOBODY:
            break
        budget -= taken
    return budget


@compiled
def compose_step(state: Any, demand: Any, fate: Any, limits: Any, verification: Any, ratio: Any, now_s: float) -> bool:
    """Choose what the next step computes and reserve its blocks; False when there is nothing.

    ratio : SGLang's new-token ratio: initial, by how much it sinks per step, least
    """
    count = state.count
    batch = count[LAUNCHED] % limits.batches
    state.batch[batch, BATCH_FIRSTS] = state.batch[batch, BATCH_ENDS] = 0
    count[PREFILL_SEQUENCES] = count[PREFILL_TOKENS] = count[PREFILL_WORK2] = count[PREFILL_DONE] = 0
    count[DECODING] = count[CONTEXT] = 0
    if count[RUNNING] == 0:
        state.clock[RATIO] = ratio[0]
    thrown_out = state.usage[count[STAGE], PREEMPTIONS]
    if limits.prompts_first:
        left = _walk_prompts(state, demand, fate, limits, limits.max_tokens, now_s)
        if state.usage[count[STAGE], PREEMPTIONS] == thrown_out:
            _admit_all(state, demand, fate, limits, left, now_s)
        if count[PREFILL_TOKENS] == 0:
            _retract(state, demand, fate, limits, ratio)
            _walk_decodes(state, demand, fate, limits, verification, limits.max_tokens)
    else:
        if limits.retracts:
            _retract(state, demand, fate, limits, ratio)
        left = _walk_decodes(state, demand, fate, limits, verification, limits.max_tokens)
        left = _walk_prompts(state, demand, fate, limits, left, now_s)
        if state.usage[count[STAGE], PREEMPTIONS] == thrown_out:
            left = _admit_all(state, demand, fate, limits, left, now_s)
            if limits.computed_on_arrival:
                # Who comes with its prompt computed decodes in the step that admits it.
                _walk_decodes(state, demand, fate, limits, verification, left)
    return bool(count[DECODING] + count[PREFILL_TOKENS] > 0)
