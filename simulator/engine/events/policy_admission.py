"""Who is admitted next, and when there is room: by prompt, by full length, or by what running ones may still need.

By prompt: blocks for what is computed now, as vLLM and TensorRT-LLM's MAX_UTILIZATION do. By full length: blocks for
the whole answer, so that nobody is ever thrown out (TensorRT-LLM's GUARANTEED_NO_EVICT, TGI). By token ratio: the
answer of the newcomer and a share of what the running ones may still generate must fit; the share shrinks as steps
pass without a retraction (SGLang).

References
----------
[Kwon2023], [Zheng2024]
"""

from __future__ import annotations

from typing import Any

from simulator.engine.events.compilation import compiled
from simulator.engine.events.host_cache import blocks_on_host, grow, unpin_places
from simulator.engine.events.kv_cache import append, cached_prefix_blocks, find_prefix, share_block
from simulator.engine.events.policy_sequences import prefill_chunk
from simulator.engine.events.policy_state import (
    ANSWER,
    LAST_STEP,
    LINK_FREE_S,
    LOADED_BLOCKS,
    LOADING,
    PUBLISHED,
    RATIO,
)
from simulator.engine.events.scheduler import next_candidate, occupy
from simulator.engine.events.state import (
    BLOCK,
    DECODE,
    FREE,
    FREE_BLOCKS,
    NEXT,
    NEXT_WAITING,
    OUTCOME,
    OUTPUT,
    PREEMPTED_SLOTS,
    PREFILL,
    PROMPT,
    RUNNING,
    SLOT_BLOCKS,
    SLOT_COMPUTED,
    SLOT_GENERATED,
    SLOT_REQUEST,
    SLOT_STATUS,
    SLOT_TARGET,
    WAIT_HEAD,
    WAIT_TAIL,
)
from simulator.traffic.requests import Outcome

NOBODY = -1
WAITING = int(Outcome.WAITING)
# SGLang counts at most this much of an answer when it admits, and gives longest-prefix order up when more wait.
CLIPPED_ANSWER_TOKENS = 4096
ORDERED_REQUESTS = 128


@compiled
def _tokens_still_claimed(state: Any, demand: Any, limits: Any) -> float:
    """What running sequences may still need: the rest of prompts, and the ratio's share of the rest of answers."""
    claimed = 0.0
    node = state.links[limits.max_seqs, NEXT]
    while node != limits.max_seqs:
        request = state.slots[node, SLOT_REQUEST]
        left = min(demand.shape[request, OUTPUT] - state.slots[node, SLOT_GENERATED], CLIPPED_ANSWER_TOKENS)
        claimed += state.clock[RATIO] * left
        claimed += max(0, state.slots[node, SLOT_TARGET] - state.slots[node, SLOT_COMPUTED])
        node = state.links[node, NEXT]
    return claimed


@compiled
def _has_room(state: Any, demand: Any, limits: Any, request: int, slot: int, blocks: int, tokens: int) -> bool:
    """Whether ``blocks`` can leave the free queue for a newcomer that computes ``tokens`` tokens of its prompt."""
    if blocks > state.count[FREE_BLOCKS] - limits.watermark_blocks:
        return False
    if not limits.retracts or state.count[RUNNING] == 0:
        return True
    answer = min(demand.shape[request, OUTPUT] - state.slots[slot, SLOT_GENERATED], CLIPPED_ANSWER_TOKENS)
    free_tokens = state.count[FREE_BLOCKS] * limits.block_size
    return bool(tokens + answer < free_tokens - _tokens_still_claimed(state, demand, limits))


@compiled
def order_by_prefix(state: Any, demand: Any, fate: Any) -> None:
    """Bring the waiting request with the longest cached prefix to the head, if few enough wait."""
    previous, node = -1, state.count[WAIT_HEAD]
    best, before_best, most, seen = -1, -1, -1, 0
    while node >= 0 and seen <= ORDERED_REQUESTS:
        if fate.notes[node, OUTCOME] == WAITING:
            cached = cached_prefix_blocks(state.holder, demand, node)
            if cached > most:
                best, before_best, most = node, previous, cached
        previous, node = node, fate.notes[node, NEXT_WAITING]
        seen += 1
    if seen > ORDERED_REQUESTS or best < 0 or before_best < 0:
        return
    fate.notes[before_best, NEXT_WAITING] = fate.notes[best, NEXT_WAITING]
    if state.count[WAIT_TAIL] == best:
        state.count[WAIT_TAIL] = before_best
    fate.notes[best, NEXT_WAITING] = state.count[WAIT_HEAD]
    state.count[WAIT_HEAD] = best


@compiled
def _start_arrived(state: Any, demand: Any, fate: Any, limits: Any, now_s: float) -> int:
    """Admit a request whose prompt another pool has computed: its blocks came with it, it decodes at once."""
    request, slot = next_candidate(state, fate)
    prompt = demand.shape[request, PROMPT]
    needed = -(-prompt // limits.block_size)
    if needed > state.count[FREE_BLOCKS] - limits.watermark_blocks:
        return NOBODY
    occupy(state, fate, slot, request, prompt, 0, now_s)
    state.slots[slot, SLOT_BLOCKS] = 0
    grow(state, limits, slot, needed)
    append(state.links, limits.max_seqs, slot)
    state.count[RUNNING] += 1
    state.slots[slot, SLOT_COMPUTED] = prompt
    state.slots[slot, PUBLISHED] = prompt // limits.block_size
    state.slots[slot, LAST_STEP] = -1
    state.slots[slot, SLOT_GENERATED] = 1
    state.slots[slot, ANSWER] = demand.shape[request, OUTPUT]
    state.slots[slot, SLOT_STATUS] = DECODE
    return 0


@compiled
def admit(state: Any, demand: Any, fate: Any, limits: Any, budget: int, now_s: float) -> int:
    """Admit the next candidate if blocks and budget allow. Returns the tokens it takes, NOBODY when nobody came."""
    request, slot = next_candidate(state, fate)
    if request < 0:
        return NOBODY
    resumed = state.slots[slot, SLOT_STATUS] != FREE
    if limits.computed_on_arrival and not resumed:
        return _start_arrived(state, demand, fate, limits, now_s)
    if not resumed:
        state.slots[slot, SLOT_GENERATED] = 0
    target = state.slots[slot, SLOT_TARGET] if resumed else demand.shape[request, PROMPT]
    most = (target - 1) // limits.block_size
    found, idle, loaded = 0, 0, 0
    if limits.prefix_caching:
        found, idle = find_prefix(state, demand, request, slot, most)
    if limits.host_blocks > 0:
        loaded = blocks_on_host(state, demand, request, slot, found, most)
    hit = (found + loaded) * limits.block_size
    chunk = min(target - hit, budget)
    if chunk < target - hit and not limits.chunked:
        return NOBODY
    end = hit + chunk
    if limits.full_length:
        end = demand.shape[request, PROMPT] + demand.shape[request, OUTPUT] - 1
    blocks = -(-end // limits.block_size) - found + idle
    if not _has_room(state, demand, limits, request, slot, blocks, target - hit):
        return NOBODY
    if resumed:
        state.count[PREEMPTED_SLOTS] -= 1
    else:
        occupy(state, fate, slot, request, target, hit, now_s)
        state.slots[slot, ANSWER] = demand.shape[request, OUTPUT]
    for place in range(found):
        share_block(state, int(state.table[slot, place, BLOCK]))
    state.slots[slot, SLOT_BLOCKS] = found
    state.slots[slot, SLOT_COMPUTED] = hit
    state.slots[slot, PUBLISHED] = found
    state.slots[slot, LAST_STEP] = -1
    grow(state, limits, slot, found + loaded if not limits.full_length else -(-end // limits.block_size))
    unpin_places(state, slot)
    append(state.links, limits.max_seqs, slot)
    state.count[RUNNING] += 1
    if loaded > 0:
        _load(state, limits, slot, loaded, now_s)
        return 0
    state.slots[slot, SLOT_STATUS] = PREFILL
    return prefill_chunk(state, demand, fate, limits, slot, budget)


@compiled
def _load(state: Any, limits: Any, slot: int, blocks: int, now_s: float) -> None:
    """Fetch blocks from the host, behind what is on its way already."""
    ready_s = max(now_s, state.clock[LINK_FREE_S]) + blocks * limits.block_load_s
    state.clock[LINK_FREE_S] = ready_s
    state.ready_s[slot] = ready_s
    state.slots[slot, SLOT_STATUS] = LOADING
    state.count[LOADED_BLOCKS] += blocks
