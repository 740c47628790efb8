"""The KV blocks of a replica: reference counts, an LRU queue of free ones, the prefix cache, tiers below the device.

An unreferenced block keeps its content and its place in the prefix cache until it is handed out again; the queue
hands out the block that was released longest ago, and of one sequence the last block first, as vLLM does
([Kwon2023], [VllmTeam2025]). Its stamp counts how often a block was handed out: a preempted sequence finds its own
blocks again by it.

Tiers (host memory, NVMe, a remote store): what the device evicts goes into the first, what that evicts into the next,
until the last one forgets it; so all of them are one LRU stack, cut by their sizes [Qin2024]. A block that the device
evicts again moves back to the top. Blocks are copied out in the background as they fill (write-through, as vLLM's
offloading connector and SGLang's hierarchical cache do), so that only the way back costs time. Every evicted block
takes the place of the one that was least recently used, whether anybody asks for it again or not; a preempted sequence
holds its places in the first tier until it returns. The queues of all tiers are lists in one array, whose heads stand
behind the places. Of a shared tier every replica has a part for what it evicts itself; since blocks are copied there as
they fill, it finds whatever another one still has, on its device too.
Lists are circular and doubly linked, in the first two columns of an array. Python takes and gives back many at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from simulator.engine.events import state as at
from simulator.engine.events.compilation import compiled, in_place_of


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
def listed_blocks(demand: Any, request: int) -> tuple[int, int]:
    """Where the content ids of the blocks that a prompt starts with stand, and how many; none where it shares none."""
    prefix = demand.prefix[request] if len(demand.prefix) > 0 else -1
    if prefix < 0:
        return 0, 0
    return int(demand.list_start[prefix]), int(demand.list_start[prefix + 1] - demand.list_start[prefix])


@compiled
def take_block(state: Any) -> int:
    """Hand out the block released longest ago (there must be one), never used ones first, and forget what it held."""
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
def seat(state: Any, limits: Any, slot: int, found: int) -> None:
    """Put an admitted sequence among the running ones, with the ``found`` cached blocks that stand in its table."""
    for place in range(found):
        block = int(state.table[slot, place, at.BLOCK])
        if state.blocks[block, at.BLOCK_REFERENCES] == 0:
            unlink(state.blocks, block)
            state.count[at.FREE_BLOCKS] -= 1
        state.blocks[block, at.BLOCK_REFERENCES] += 1
    state.slots[slot, at.SLOT_BLOCKS] = found
    state.slots[slot, at.SLOT_COMPUTED] = found * limits.block_size
    state.running[at.ORDER, state.count[at.RUNNING]] = slot
    state.running[at.WAKE, slot] = at.NEVER
    state.count[at.RUNNING] += 1


@compiled
def _stand_up(state: Any, slot: int) -> None:
    state.slots[slot, at.SLOT_BLOCKS] = 0
    state.count[at.RUNNING] -= 1
    order, found = state.running[at.ORDER], False
    for place in range(state.count[at.RUNNING]):
        found = found or order[place] == slot
        if found:
            order[place] = order[place + 1]


def vacate(state: Any, slot: int) -> None:
    """Remove a sequence from the running ones and drop its references, last block first."""
    blocks, head, held = state.blocks, len(state.blocks) - 1, int(state.slots[slot, at.SLOT_BLOCKS])
    table = state.table[slot, :held, at.BLOCK]
    np.subtract.at(blocks[:, at.BLOCK_REFERENCES], table, 1)
    # What stands in the table twice is free with the first place, which is given back last.
    freed = list(dict.fromkeys(table[blocks[table, at.BLOCK_REFERENCES] == 0].tolist()))[::-1]
    chain = np.array([blocks[head, at.PREV], *freed, head])
    blocks[chain[:-1], at.NEXT], blocks[chain[1:], at.PREV] = chain[1:], chain[:-1]
    state.count[at.FREE_BLOCKS] += len(freed)
    _stand_up(state, slot)


@in_place_of(vacate)
def _vacate_one_by_one(state: Any, slot: int) -> None:
    head = len(state.blocks) - 1
    for place in range(state.slots[slot, at.SLOT_BLOCKS] - 1, -1, -1):
        block = int(state.table[slot, place, at.BLOCK])
        state.blocks[block, at.BLOCK_REFERENCES] -= 1
        if state.blocks[block, at.BLOCK_REFERENCES] == 0:
            append(state.blocks, head, block)
            state.count[at.FREE_BLOCKS] += 1
    _stand_up(state, slot)


_FEW_BLOCKS = 4  # so many are handed out faster one by one


def take_blocks(state: Any, wanted: int) -> Any:
    """What ``take_block`` hands out so many times, in one go."""
    blocks, head, first = state.blocks, len(state.blocks) - 1, int(state.count[at.NEVER_USED])
    fresh = min(wanted, head - first)
    state.count[at.NEVER_USED] += fresh
    taken, node, following = list(range(first, first + fresh)), head, blocks[:, at.NEXT].item
    for _ in range(wanted - fresh):
        node = following(node)
        taken.append(node)
    after, found = following(node) if wanted > fresh else following(head), np.array(taken, dtype=np.int64)
    blocks[head, at.NEXT], blocks[after, at.PREV] = after, head
    blocks[found, at.NEXT] = blocks[found, at.PREV] = found
    known, on_device = found[blocks[found, at.BLOCK_CONTENT] >= 0], state.holder[at.ON_DEVICE]
    contents = blocks[known, at.BLOCK_CONTENT]
    on_device[contents[on_device[contents] == known]] = -1
    blocks[found, at.BLOCK_CONTENT] = -1
    blocks[found, at.BLOCK_STAMP] += 1
    blocks[found, at.BLOCK_REFERENCES] = 1
    state.count[at.FREE_BLOCKS] -= wanted
    return found


def grow_table(state: Any, slot: int, blocks: int) -> None:
    """Give a sequence new blocks until it holds ``blocks``; the pool must have them."""
    held = int(state.slots[slot, at.SLOT_BLOCKS])
    if blocks <= held + _FEW_BLOCKS:
        return _grow_one_by_one(state, slot, blocks)
    state.table[slot, held:blocks, at.BLOCK] = take_blocks(state, int(blocks) - held)
    state.slots[slot, at.SLOT_BLOCKS] = blocks


@in_place_of(grow_table)
def _grow_one_by_one(state: Any, slot: int, blocks: int) -> None:
    for place in range(state.slots[slot, at.SLOT_BLOCKS], blocks):
        state.table[slot, place, at.BLOCK] = take_block(state)
        state.slots[slot, at.SLOT_BLOCKS] = place + 1


@compiled
def publish_blocks(state: Any, demand: Any, slot: int, first: int, last: int) -> None:
    """Enter the full blocks ``first``..``last - 1`` of ``slot`` into the prefix cache where their content has an id."""
    start, listed = listed_blocks(demand, state.slots[slot, at.SLOT_REQUEST])
    for place in range(first, min(last, listed)):
        content = demand.block_ids[start + place]
        block = int(state.table[slot, place, at.BLOCK])
        state.blocks[block, at.BLOCK_CONTENT] = content
        state.holder[at.ON_DEVICE, content] = block


@compiled
def remember_blocks(state: Any, slot: int, full: int) -> None:
    """Stamp a sequence's first ``full`` blocks, to be found again; later ones that it remembers stay remembered."""
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
    """Write the cached blocks that ``request`` can start with into the table of ``slot``; take no reference yet. most :
    blocks that may be reused (at least one prompt token is always computed). Returns how many there are, and how many
    of them would leave the free queue."""
    saved = state.slots[slot, at.SLOT_SAVED]
    start, listed = listed_blocks(demand, request)
    found = idle = 0
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
def _head(state: Any, limits: Any, tier: int) -> int:
    return len(state.places) - len(limits.tiers) + tier


@compiled
def _put_first(state: Any, limits: Any, place: int) -> None:
    """Make an empty place the first of its tier to be used."""
    state.places[place, at.PLACE_CONTENT] = at.EMPTY
    unlink(state.places, place)
    append(state.places, int(state.places[_head(state, limits, state.places[place, at.PLACE_TIER]), at.NEXT]), place)


@compiled
def _put(state: Any, limits: Any, content: int, tier: int) -> None:
    """Put ``content`` into a tier, what makes room for it there into the next one, and so on."""
    while tier < len(limits.tiers) and content != at.EMPTY:
        head = _head(state, limits, tier)
        place = int(state.places[head, at.NEXT])
        if place != head:  # else all of them are pinned
            unlink(state.places, place)
            moved = state.places[place, at.PLACE_CONTENT]
            state.places[place, at.PLACE_CONTENT] = content
            if content >= 0:
                state.holder[at.BELOW, content] = place
            append(state.places, head, place)
            content = moved
        tier += 1
    if content >= 0:
        state.holder[at.BELOW, content] = -1


@compiled
def _keep(state: Any, limits: Any, content: int) -> None:
    """Move a block that the device evicts into the tiers. content : its id, -1 where it has none"""
    if content >= 0 and state.holder[at.BELOW, content] >= 0:
        _put_first(state, limits, int(state.holder[at.BELOW, content]))
    _put(state, limits, content, 0)


@compiled
def _empty_place(state: Any, limits: Any) -> int:
    """The oldest place of the first tier, out of its queue, its content moved on; -1 where all are pinned."""
    place = int(state.places[_head(state, limits, 0), at.NEXT])
    if place == _head(state, limits, 0):
        return -1
    unlink(state.places, place)
    content = int(state.places[place, at.PLACE_CONTENT])
    state.places[place, at.PLACE_CONTENT] = at.EMPTY
    _put(state, limits, content, 1)
    return place


@compiled
def pin_places(state: Any, limits: Any, slot: int, blocks: int) -> None:
    """Keep ``blocks`` blocks of a preempted sequence in the first tier if there is room for all of them."""
    if blocks <= limits.tiers[0, at.TIER_PLACES] - state.count[at.PINNED]:
        for _ in range(blocks):
            state.places[state.count[at.PINNED], at.PLACE_PINNED] = _empty_place(state, limits)
            state.count[at.PINNED] += 1
        state.slots[slot, at.SLOT_PINNED] = blocks


@compiled
def unpin_places(state: Any, limits: Any, slot: int) -> None:
    """Give the places of a sequence back; they are the first to be used again."""
    for _ in range(state.slots[slot, at.SLOT_PINNED]):
        state.count[at.PINNED] -= 1
        _put_first(state, limits, int(state.places[state.count[at.PINNED], at.PLACE_PINNED]))
    state.slots[slot, at.SLOT_PINNED] = 0


@compiled
def _ready_s(state: Any, limits: Any, tier: int, now_s: float) -> float:
    """When the blocks counted in COMING_BLOCKS of a tier have arrived, after those already on its link."""
    tiers = limits.tiers[tier]
    free_s = max(now_s, state.tiers[tier, at.LINK_FREE_S])
    return float(free_s + tiers[at.TIER_LATENCY_S] + state.tiers[tier, at.COMING_BLOCKS] * tiers[at.TIER_LOAD_S])


@compiled
def _sharer(demand: Any, limits: Any, content: int) -> int:
    """A replica that has left a block in the shared tier and still has it anywhere; -1 where none does."""
    for replica in range(len(demand.holders) if limits.shared_tier >= 0 else 0):
        holder = demand.holders[replica]
        if holder[at.BELOW, content] >= 0 or holder[at.ON_DEVICE, content] >= 0:
            return int(replica)
    return -1


@compiled
def _tier_of(state: Any, demand: Any, limits: Any, content: int) -> int:
    """The tier that a block can be loaded from, -1 where it is in none."""
    place = state.holder[at.BELOW, content]
    if place >= 0:
        return int(state.places[place, at.PLACE_TIER])
    return int(limits.shared_tier) if _sharer(demand, limits, content) >= 0 else -1


@compiled
def _touch(state: Any, demand: Any, limits: Any, content: int) -> None:
    """Make a block the most recently used of its tier, if a tier holds it."""
    places, place = state.places, int(state.holder[at.BELOW, content])
    if place < 0:
        replica = _sharer(demand, limits, content)
        places, place = demand.places[replica], int(demand.holders[replica, at.BELOW, content])
    if place >= 0:
        unlink(places, place)
        append(places, _head(state, limits, places[place, at.PLACE_TIER]), place)


@compiled
def _worth_loading(
    state: Any, demand: Any, limits: Any, ids: Any, first: int, last: int, kept: int, now_s: float
) -> int:
    """Up to which block of ``first``..``last`` loading, and computing the rest, is fastest. All tiers load at once;
    without times of computing (``limits.prompt_s``) everything is loaded."""
    if len(limits.prompt_s) == 0:
        return last
    best, best_s, ready_s = first, -limits.prompt_s[first], now_s
    for place in range(first, last):
        tier = 0 if place < kept else _tier_of(state, demand, limits, ids[place])
        state.tiers[tier, at.COMING_BLOCKS] += 1
        ready_s = max(ready_s, _ready_s(state, limits, tier, now_s))
        if ready_s - now_s - limits.prompt_s[place + 1] <= best_s:
            best, best_s = place + 1, ready_s - now_s - limits.prompt_s[place + 1]
    for tier in range(len(limits.tiers)):
        state.tiers[tier, at.COMING_BLOCKS] = 0
    return best


@compiled
def blocks_below(
    state: Any, demand: Any, limits: Any, request: int, slot: int, found: int, most: int, now_s: float
) -> int:
    """Blocks after the first ``found`` that come from the tiers, up to ``most`` in all; by tier in COMING_BLOCKS."""
    for tier in range(len(limits.tiers)):
        state.tiers[tier, at.COMING_BLOCKS] = 0
    kept = min(state.slots[slot, at.SLOT_PINNED], most)
    start, listed = listed_blocks(demand, request)
    ids, last = demand.block_ids[start:], max(found, kept)
    while last < min(most, listed) and _tier_of(state, demand, limits, ids[last]) >= 0:
        last += 1
    last = _worth_loading(state, demand, limits, ids, found, last, kept, now_s)
    for place in range(found, last):
        tier = 0
        if place >= kept:
            tier = _tier_of(state, demand, limits, ids[place])
            _touch(state, demand, limits, ids[place])
        state.tiers[tier, at.COMING_BLOCKS] += 1
    return int(last - found)


@compiled
def load(state: Any, limits: Any, now_s: float, counted: bool) -> float:
    """Occupy the links for the blocks in COMING_BLOCKS; returns when all have arrived. counted : as hits of tiers"""
    ready_s = now_s
    for tier in range(len(limits.tiers)):
        blocks = state.tiers[tier, at.COMING_BLOCKS]
        if blocks > 0:
            tier_ready_s = _ready_s(state, limits, tier, now_s)
            ready_s = max(ready_s, tier_ready_s)
            state.tiers[tier, at.LINK_FREE_S] = tier_ready_s - limits.tiers[tier, at.TIER_LATENCY_S]
            if counted:
                state.usage[state.count[at.STAGE], at.TIER_BLOCKS + tier] += blocks
    return float(ready_s)


@compiled
def grow(state: Any, limits: Any, slot: int, blocks: int) -> None:
    """Give a sequence new blocks until it holds ``blocks``; what they held moves down."""
    if len(limits.tiers) > 0:
        oldest = len(state.blocks) - 1
        unused = oldest - state.count[at.NEVER_USED]
        for _ in range(state.slots[slot, at.SLOT_BLOCKS] + unused, blocks):
            oldest = state.blocks[oldest, at.NEXT]
            _keep(state, limits, int(state.blocks[oldest, at.BLOCK_CONTENT]))
    grow_table(state, slot, blocks)
