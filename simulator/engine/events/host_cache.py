"""KV blocks in host memory: what the device evicts stays there for a while, and preempted sequences wait there.

Blocks are copied out in the background as they fill (write-through, as vLLM's offloading connector and SGLang's
hierarchical cache do), so that only the way back costs time. Every evicted block takes the place of the one that was
least recently used, whether anybody asks for it again or not; a preempted sequence holds its places until it returns.
"""

from __future__ import annotations

from typing import Any

from simulator.engine.events.compilation import compiled
from simulator.engine.events.kv_cache import append, take_block, unlink
from simulator.engine.events.policy_state import HOST_CONTENT, KEPT_ON_HOST, PINNED
from simulator.engine.events.state import BLOCK, BLOCK_CONTENT, BLOCK_STAMP, NEXT, PREFIX, SLOT_BLOCKS


@compiled
def _empty_place(state: Any) -> int:
    """The least recently used place, out of the queue, its content forgotten; -1 when all are pinned."""
    head = len(state.host) - 1
    place = int(state.host[head, NEXT])
    if place == head:
        return -1
    unlink(state.host, place)
    content = state.host[place, HOST_CONTENT]
    if content >= 0:
        state.host_holder[content] = -1
        state.host[place, HOST_CONTENT] = -1
    return place


@compiled
def keep_on_host(state: Any, content: int) -> None:
    """Note that a block which the device gives up is in host memory. content : its id, -1 where nobody knows it"""
    if content >= 0 and state.host_holder[content] >= 0:
        place = int(state.host_holder[content])
        unlink(state.host, place)
    else:
        place = _empty_place(state)
        if place < 0:
            return
        state.host[place, HOST_CONTENT] = content
        if content >= 0:
            state.host_holder[content] = place
    append(state.host, len(state.host) - 1, place)


@compiled
def pin_places(state: Any, limits: Any, slot: int, blocks: int) -> None:
    """Keep ``blocks`` blocks of a preempted sequence in host memory if there is room for all of them."""
    if blocks <= limits.host_blocks - state.count[PINNED]:
        for _ in range(blocks):
            state.pinned[state.count[PINNED]] = _empty_place(state)
            state.count[PINNED] += 1
        state.slots[slot, KEPT_ON_HOST] = blocks


@compiled
def unpin_places(state: Any, slot: int) -> None:
    """Give the places of a sequence back; they are the first to be used again."""
    for _ in range(state.slots[slot, KEPT_ON_HOST]):
        state.count[PINNED] -= 1
        first = state.host[len(state.host) - 1, NEXT]
        append(state.host, int(first), int(state.pinned[state.count[PINNED]]))
    state.slots[slot, KEPT_ON_HOST] = 0


@compiled
def blocks_on_host(state: Any, demand: Any, request: int, slot: int, found: int, most: int) -> int:
    """How many blocks after the first ``found`` can come from the host, so that ``most`` are there at most."""
    kept = min(state.slots[slot, KEPT_ON_HOST], most)
    place = max(found, kept)
    prefix = demand.shape[request, PREFIX]
    if prefix >= 0:
        start = demand.list_start[prefix]
        most = min(most, demand.list_start[prefix + 1] - start)
        while place < most and state.host_holder[demand.block_ids[start + place]] >= 0:
            touched = int(state.host_holder[demand.block_ids[start + place]])
            unlink(state.host, touched)
            append(state.host, len(state.host) - 1, touched)
            place += 1
    return int(place - found)


@compiled
def grow(state: Any, limits: Any, slot: int, blocks: int) -> None:
    """Give a sequence new blocks until it holds ``blocks``; what they held moves to the host."""
    for place in range(state.slots[slot, SLOT_BLOCKS], blocks):
        if limits.host_blocks > 0:
            oldest = state.blocks[len(state.blocks) - 1, NEXT]
            if state.blocks[oldest, BLOCK_STAMP] > 0:
                keep_on_host(state, int(state.blocks[oldest, BLOCK_CONTENT]))
        state.table[slot, place, BLOCK] = take_block(state)
    if blocks > state.slots[slot, SLOT_BLOCKS]:
        state.slots[slot, SLOT_BLOCKS] = blocks
