"""The KV blocks of a replica: reference counts, an LRU queue of unreferenced blocks, the prefix cache, host memory.

An unreferenced block keeps its content and its place in the prefix cache until it is handed out again; the queue
hands out the block that was released longest ago, and of one sequence the last block first, as vLLM does
([Kwon2023], [VllmTeam2025]). Its stamp counts how often a block was handed out: a preempted sequence finds its own
blocks again by it.

Host memory: what the device evicts stays there for a while, and preempted sequences wait there. Blocks are copied out
in the background as they fill (write-through, as vLLM's offloading connector and SGLang's hierarchical cache do), so
that only the way back costs time. Every evicted block takes the place of the one that was least recently used, whether
anybody asks for it again or not; a preempted sequence holds its places until it returns.

Circular doubly linked lists in the first two columns of an array, with constant-time append and removal.
"""

from __future__ import annotations

from typing import Any

from simulator.engine.events import state as at
from simulator.engine.events.compilation import compiled


@compiled
def append(nodes: Any, head: int, node: int) -> None:
    """Put ``node`` at the end of the list of ``head``."""
    last = nodes[head, at.PREV]
    nodes[last, at.NEXT] = node
    nodes[node, at.PREV] = last
    nodes[node, at.NEXT] = head
    nodes[head, at.PREV] = node


@compiled
def unlink(nodes: Any, node: int) -> None:
    """Take ``node`` out of whatever list it is in; a node that is in none stays so."""
    left, right = nodes[node, at.PREV], nodes[node, at.NEXT]
    nodes[left, at.NEXT] = right
    nodes[right, at.PREV] = left
    nodes[node, at.NEXT] = node
    nodes[node, at.PREV] = node


@compiled
def prefix_of(demand: Any, request: int) -> int:
    """The list of blocks that a prompt starts with, -1 where it shares none."""
    return int(demand.prefix[request]) if len(demand.prefix) > 0 else -1


@compiled
def take_block(state: Any) -> int:
    """Hand out the least recently released block (there must be one) and forget what it held.

    Those that nobody has had yet come first, in order, and enter the queue when they are released: memory that is not
    used is not touched.
    """
    head = len(state.blocks) - 1
    block = int(state.count[at.NEVER_USED])
    if block < head:
        state.count[at.NEVER_USED] += 1
        state.blocks[block, at.NEXT] = block
        state.blocks[block, at.PREV] = block
    else:
        block = int(state.blocks[head, at.NEXT])
        unlink(state.blocks, block)
        content = state.blocks[block, at.BLOCK_CONTENT]
        if content >= 0 and state.holder[at.ON_DEVICE, content] == block:
            state.holder[at.ON_DEVICE, content] = -1
    state.blocks[block, at.BLOCK_CONTENT] = -1
    state.blocks[block, at.BLOCK_STAMP] += 1
    state.blocks[block, at.BLOCK_REFERENCES] = 1
    state.count[at.FREE_BLOCKS] -= 1
    return block


@compiled
def share_block(state: Any, block: int) -> None:
    """Add a reference to a block that holds what is needed."""
    if state.blocks[block, at.BLOCK_REFERENCES] == 0:
        unlink(state.blocks, block)
        state.count[at.FREE_BLOCKS] -= 1
    state.blocks[block, at.BLOCK_REFERENCES] += 1


@compiled
def seat(state: Any, limits: Any, slot: int, found: int) -> None:
    """Put an admitted sequence among the running ones, with the ``found`` cached blocks that stand in its table."""
    for place in range(found):
        share_block(state, int(state.table[slot, place, at.BLOCK]))
    state.slots[slot, at.SLOT_BLOCKS] = found
    state.slots[slot, at.SLOT_COMPUTED] = found * limits.block_size
    append(state.links, limits.max_seqs, slot)
    state.count[at.RUNNING] += 1


@compiled
def vacate(state: Any, slot: int) -> None:
    """Remove a sequence from the running ones and drop its references, last block first."""
    head = len(state.blocks) - 1
    for place in range(state.slots[slot, at.SLOT_BLOCKS] - 1, -1, -1):
        block = int(state.table[slot, place, at.BLOCK])
        state.blocks[block, at.BLOCK_REFERENCES] -= 1
        if state.blocks[block, at.BLOCK_REFERENCES] == 0:
            append(state.blocks, head, block)
            state.count[at.FREE_BLOCKS] += 1
    state.slots[slot, at.SLOT_BLOCKS] = 0
    unlink(state.links, slot)
    state.count[at.RUNNING] -= 1


@compiled
def grow_table(state: Any, slot: int, blocks: int) -> None:
    """Give a sequence new blocks until it holds ``blocks``; the pool must have them."""
    for place in range(state.slots[slot, at.SLOT_BLOCKS], blocks):
        state.table[slot, place, at.BLOCK] = take_block(state)
    if blocks > state.slots[slot, at.SLOT_BLOCKS]:
        state.slots[slot, at.SLOT_BLOCKS] = blocks


@compiled
def publish_blocks(state: Any, demand: Any, slot: int, first: int, last: int) -> None:
    """Enter the sequence's full blocks ``first``..``last - 1`` into the prefix cache where their content has an id."""
    prefix = prefix_of(demand, state.slots[slot, at.SLOT_REQUEST])
    if prefix < 0:
        return
    start = demand.list_start[prefix]
    last = min(last, demand.list_start[prefix + 1] - start)
    for place in range(first, last):
        content = demand.block_ids[start + place]
        block = int(state.table[slot, place, at.BLOCK])
        state.blocks[block, at.BLOCK_CONTENT] = content
        state.holder[at.ON_DEVICE, content] = block


@compiled
def remember_blocks(state: Any, slot: int, full: int) -> None:
    """Stamp the first ``full`` blocks of a sequence, so that it finds again what nobody overwrites meanwhile.

    Blocks further on that it remembers from an earlier preemption and has not reached again stay remembered.
    """
    for place in range(state.slots[slot, at.SLOT_BLOCKS]):
        block = state.table[slot, place, at.BLOCK]
        state.table[slot, place, at.STAMP] = state.blocks[block, at.BLOCK_STAMP] if place < full else -1
    state.slots[slot, at.SLOT_SAVED] = max(full, state.slots[slot, at.SLOT_SAVED])


@compiled
def _unchanged(state: Any, slot: int, place: int) -> bool:
    """Whether a block still holds what the preempted sequence of ``slot`` left in it."""
    block, stamp = state.table[slot, place]
    return bool(state.blocks[block, at.BLOCK_STAMP] == stamp)


@compiled
def find_prefix(state: Any, demand: Any, request: int, slot: int, most: int) -> tuple[int, int]:
    """Write the cached blocks that ``request`` can start with into the table of ``slot``; take no reference yet.

    most : blocks that may be reused at most (at least one prompt token is always computed)

    Returns how many there are, and how many of them would leave the free queue.
    """
    saved = state.slots[slot, at.SLOT_SAVED]
    prefix = prefix_of(demand, request)
    listed, start = 0, 0
    if prefix >= 0:
        start = demand.list_start[prefix]
        listed = demand.list_start[prefix + 1] - start
    found, idle = 0, 0
    while found < most:
        block = -1
        if found < saved and _unchanged(state, slot, found):
            block = int(state.table[slot, found, at.BLOCK])
        elif found < listed:
            block = int(state.holder[at.ON_DEVICE, demand.block_ids[start + found]])
        if block < 0:
            break
        state.table[slot, found, at.BLOCK] = block
        if state.blocks[block, at.BLOCK_REFERENCES] == 0:
            idle += 1
        found += 1
    return found, idle


@compiled
def _empty_place(state: Any) -> int:
    """The least recently used place, out of the queue, its content forgotten; -1 when all are pinned."""
    head = len(state.host) - 1
    place = int(state.host[head, at.NEXT])
    if place == head:
        return -1
    unlink(state.host, place)
    content = state.host[place, at.HOST_CONTENT]
    if content >= 0:
        state.holder[at.ON_HOST, content] = -1
        state.host[place, at.HOST_CONTENT] = -1
    return place


@compiled
def _keep_on_host(state: Any, content: int) -> None:
    """Note that a block which the device gives up is in host memory. content : its id, -1 where nobody knows it"""
    if content >= 0 and state.holder[at.ON_HOST, content] >= 0:
        place = int(state.holder[at.ON_HOST, content])
        unlink(state.host, place)
    else:
        place = _empty_place(state)
        if place < 0:
            return
        state.host[place, at.HOST_CONTENT] = content
        if content >= 0:
            state.holder[at.ON_HOST, content] = place
    append(state.host, len(state.host) - 1, place)


@compiled
def pin_places(state: Any, limits: Any, slot: int, blocks: int) -> None:
    """Keep ``blocks`` blocks of a preempted sequence in host memory if there is room for all of them."""
    if blocks <= limits.host_blocks - state.count[at.PINNED]:
        for _ in range(blocks):
            state.host[state.count[at.PINNED], at.HOST_PINNED] = _empty_place(state)
            state.count[at.PINNED] += 1
        state.slots[slot, at.SLOT_ON_HOST] = blocks


@compiled
def unpin_places(state: Any, slot: int) -> None:
    """Give the places of a sequence back; they are the first to be used again."""
    for _ in range(state.slots[slot, at.SLOT_ON_HOST]):
        state.count[at.PINNED] -= 1
        first = state.host[len(state.host) - 1, at.NEXT]
        append(state.host, int(first), int(state.host[state.count[at.PINNED], at.HOST_PINNED]))
    state.slots[slot, at.SLOT_ON_HOST] = 0


@compiled
def blocks_on_host(state: Any, demand: Any, request: int, slot: int, found: int, most: int) -> int:
    """How many blocks after the first ``found`` can come from the host, so that ``most`` are there at most."""
    kept = min(state.slots[slot, at.SLOT_ON_HOST], most)
    place = max(found, kept)
    prefix = prefix_of(demand, request)
    if prefix >= 0:
        start = demand.list_start[prefix]
        most = min(most, demand.list_start[prefix + 1] - start)
        while place < most and state.holder[at.ON_HOST, demand.block_ids[start + place]] >= 0:
            touched = int(state.holder[at.ON_HOST, demand.block_ids[start + place]])
            unlink(state.host, touched)
            append(state.host, len(state.host) - 1, touched)
            place += 1
    return int(place - found)


@compiled
def grow(state: Any, limits: Any, slot: int, blocks: int) -> None:
    """Give a sequence new blocks until it holds ``blocks``; what they held moves to the host."""
    oldest = len(state.blocks) - 1
    unused = oldest - state.count[at.NEVER_USED]
    for _ in range(state.slots[slot, at.SLOT_BLOCKS] + unused, blocks if limits.host_blocks > 0 else 0):
        oldest = state.blocks[oldest, at.NEXT]
        _keep_on_host(state, int(state.blocks[oldest, at.BLOCK_CONTENT]))
    grow_table(state, slot, blocks)
