"""The KV block pool: reference counts, an LRU queue of unreferenced blocks, and the prefix cache over full blocks.

An unreferenced block keeps its content and its place in the prefix cache until it is handed out again; the queue
hands out the block that was released longest ago, and of one sequence the last block first, as vLLM does
([Kwon2023], [VllmTeam2025]). Its stamp counts how often a block was handed out: a preempted sequence finds its own
blocks again by it.

Circular doubly linked lists in the first two columns of an array, with constant-time append and removal.
"""

from __future__ import annotations

from typing import Any

from simulator.engine.events.compilation import compiled
from simulator.engine.events.state import (
    BLOCK,
    BLOCK_CONTENT,
    BLOCK_REFERENCES,
    BLOCK_STAMP,
    FREE_BLOCKS,
    NEXT,
    PREFIX,
    PREV,
    SLOT_BLOCKS,
    SLOT_REQUEST,
    SLOT_SAVED,
)


@compiled
def append(nodes: Any, head: int, node: int) -> None:
    """Put ``node`` at the end of the list of ``head``."""
    last = nodes[head, PREV]
    nodes[last, NEXT] = node
    nodes[node, PREV] = last
    nodes[node, NEXT] = head
    nodes[head, PREV] = node


@compiled
def unlink(nodes: Any, node: int) -> None:
    """Take ``node`` out of whatever list it is in; a node that is in none stays so."""
    left, right = nodes[node, PREV], nodes[node, NEXT]
    nodes[left, NEXT] = right
    nodes[right, PREV] = left
    nodes[node, NEXT] = node
    nodes[node, PREV] = node


@compiled
def take_block(state: Any) -> int:
    """Hand out the least recently released block (there must be one) and forget what it held."""
    head = len(state.blocks) - 1
    block = int(state.blocks[head, NEXT])
    unlink(state.blocks, block)
    content = state.blocks[block, BLOCK_CONTENT]
    if content >= 0:
        if state.holder[content] == block:
            state.holder[content] = -1
        state.blocks[block, BLOCK_CONTENT] = -1
    state.blocks[block, BLOCK_STAMP] += 1
    state.blocks[block, BLOCK_REFERENCES] = 1
    state.count[FREE_BLOCKS] -= 1
    return block


@compiled
def share_block(state: Any, block: int) -> None:
    """Add a reference to a block that holds what is needed."""
    if state.blocks[block, BLOCK_REFERENCES] == 0:
        unlink(state.blocks, block)
        state.count[FREE_BLOCKS] -= 1
    state.blocks[block, BLOCK_REFERENCES] += 1


@compiled
def release_blocks(state: Any, slot: int) -> None:
    """Drop the references of a sequence, last block first."""
    head = len(state.blocks) - 1
    for place in range(state.slots[slot, SLOT_BLOCKS] - 1, -1, -1):
        block = int(state.table[slot, place, BLOCK])
        state.blocks[block, BLOCK_REFERENCES] -= 1
        if state.blocks[block, BLOCK_REFERENCES] == 0:
            append(state.blocks, head, block)
            state.count[FREE_BLOCKS] += 1
    state.slots[slot, SLOT_BLOCKS] = 0


@compiled
def grow_table(state: Any, slot: int, blocks: int) -> None:
    """Give a sequence new blocks until it holds ``blocks``; the pool must have them."""
    for place in range(state.slots[slot, SLOT_BLOCKS], blocks):
        state.table[slot, place, BLOCK] = take_block(state)
    if blocks > state.slots[slot, SLOT_BLOCKS]:
        state.slots[slot, SLOT_BLOCKS] = blocks


@compiled
def publish_blocks(state: Any, demand: Any, slot: int, first: int, last: int) -> None:
    """Enter the sequence's full blocks ``first``..``last - 1`` into the prefix cache where their content has an id."""
    prefix = demand.shape[state.slots[slot, SLOT_REQUEST], PREFIX]
    if prefix < 0:
        return
    start = demand.list_start[prefix]
    last = min(last, demand.list_start[prefix + 1] - start)
    for place in range(first, last):
        content = demand.block_ids[start + place]
        block = int(state.table[slot, place, BLOCK])
        state.blocks[block, BLOCK_CONTENT] = content
        state.holder[content] = block


@compiled
def _unchanged(state: Any, slot: int, place: int) -> bool:
    """Whether a block still holds what the preempted sequence of ``slot`` left in it."""
    block, stamp = state.table[slot, place]
    return bool(state.blocks[block, BLOCK_STAMP] == stamp)


@compiled
def find_prefix(state: Any, demand: Any, request: int, slot: int, most: int) -> tuple[int, int]:
    """Write the cached blocks that ``request`` can start with into the table of ``slot``; take no reference yet.

    most : blocks that may be reused at most (at least one prompt token is always computed)

    Returns how many there are, and how many of them would leave the free queue.
    """
    saved = state.slots[slot, SLOT_SAVED]
    prefix = demand.shape[request, PREFIX]
    listed, start = 0, 0
    if prefix >= 0:
        start = demand.list_start[prefix]
        listed = demand.list_start[prefix + 1] - start
    found, idle = 0, 0
    while found < most:
        block = -1
        if found < saved and _unchanged(state, slot, found):
            block = int(state.table[slot, found, BLOCK])
        elif found < listed:
            block = int(state.holder[demand.block_ids[start + found]])
        if block < 0:
            break
        state.table[slot, found, BLOCK] = block
        if state.blocks[block, BLOCK_REFERENCES] == 0:
            idle += 1
        found += 1
    return found, idle


@compiled
def cached_prefix_blocks(holder: Any, demand: Any, request: int) -> int:
    """How many leading blocks of ``request`` a replica has in its prefix cache, given who holds what there."""
    prefix = demand.shape[request, PREFIX]
    if prefix < 0:
        return 0
    start = demand.list_start[prefix]
    for place in range(start, demand.list_start[prefix + 1]):
        if holder[demand.block_ids[place]] < 0:
            return int(place - start)
    return int(demand.list_start[prefix + 1] - start)
