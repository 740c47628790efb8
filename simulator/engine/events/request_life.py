"""How a request comes and goes: routed to a replica, waiting, admitted to a slot, thrown out, answered, and followed by
the next turn of its conversation.

Reference: [Zheng2024]
"""

from __future__ import annotations

from typing import Any

from simulator.engine.events import state as at
from simulator.engine.events.compilation import compiled, inlined
from simulator.engine.settings import Routing

LEAST_OUTSTANDING = int(Routing.LEAST_OUTSTANDING)
PREFIX_AWARE = int(Routing.PREFIX_AWARE)
# SGLang gives longest-prefix order up when more wait.
ORDERED_REQUESTS = 128


@compiled
def _cached_blocks(holder: Any, demand: Any, request: int) -> int:
    """How many leading blocks of ``request`` a replica has in its prefix cache, given who holds what there."""
    prefix = demand.prefix[request] if len(demand.prefix) > 0 else -1
    if prefix < 0:
        return 0
    start = demand.list_start[prefix]
    for place in range(start, demand.list_start[prefix + 1]):
        if holder[at.ON_DEVICE, demand.block_ids[place]] < 0:
            return int(place - start)
    return int(demand.list_start[prefix + 1] - start)


@compiled
def _choose_replica(stack: Any, demand: Any, limits: Any, request: int) -> int:
    """The replica for a request: in turn, the least busy, or the least busy of those with the longest cached prefix."""
    replicas = len(stack.count)
    if replicas == 1:
        return 0
    if limits.routing != LEAST_OUTSTANDING and limits.routing != PREFIX_AWARE:
        return int(request % replicas)
    best, most, fewest = 0, -1, 0
    for replica in range(replicas):
        cached = 0
        if limits.routing == PREFIX_AWARE:
            cached = _cached_blocks(stack.holder[replica], demand, request)
        outstanding = stack.count[replica, at.OUTSTANDING]
        if cached > most or (cached == most and outstanding < fewest):
            best, most, fewest = replica, cached, outstanding
    return best


@inlined
def route(stack: Any, demand: Any, fate: Any, limits: Any, request: int) -> int:
    """Put a request at the end of the waiting queue of a replica. Returns which."""
    replica = _choose_replica(stack, demand, limits, request)
    count = stack.count[replica]
    tail = count[at.WAIT_TAIL]
    fate.replica[request] = replica
    fate.next_waiting[request] = -1
    if tail < 0:
        count[at.WAIT_HEAD] = request
    else:
        fate.next_waiting[tail] = request
    count[at.WAIT_TAIL] = request
    count[at.OUTSTANDING] += 1
    return replica


@compiled
def _dequeue(state: Any, fate: Any) -> None:
    following = fate.next_waiting[state.count[at.WAIT_HEAD]]
    state.count[at.WAIT_HEAD] = following
    if following < 0:
        state.count[at.WAIT_TAIL] = -1


@compiled
def order_by_prefix(state: Any, demand: Any, fate: Any) -> None:
    """Bring the waiting request with the longest cached prefix to the head, if few enough wait."""
    previous, node = -1, state.count[at.WAIT_HEAD]
    best, before_best, most, seen = -1, -1, -1, 0
    while node >= 0 and seen <= ORDERED_REQUESTS:
        if fate.outcome[node] == at.WAITING:
            cached = _cached_blocks(state.holder, demand, node)
            if cached > most:
                best, before_best, most = node, previous, cached
        previous, node = node, fate.next_waiting[node]
        seen += 1
    if seen > ORDERED_REQUESTS or best < 0 or before_best < 0:
        return
    fate.next_waiting[before_best] = fate.next_waiting[best]
    if state.count[at.WAIT_TAIL] == best:
        state.count[at.WAIT_TAIL] = before_best
    fate.next_waiting[best] = state.count[at.WAIT_HEAD]
    state.count[at.WAIT_HEAD] = best


@compiled
def next_candidate(state: Any, fate: Any) -> tuple[int, int]:
    """(request, slot) of who is admitted next: the preempted first; (-1, -1) when nobody waits or no slot is free."""
    while state.count[at.PREEMPTED_SLOTS] > 0:
        slot = state.slots[state.count[at.PREEMPTED_SLOTS] - 1, at.PREEMPTED_STACK]
        if state.slots[slot, at.SLOT_STATUS] != at.ABORTED:
            return int(state.slots[slot, at.SLOT_REQUEST]), int(slot)
        state.count[at.PREEMPTED_SLOTS] -= 1
        free_slot(state, slot)
    while state.count[at.WAIT_HEAD] >= 0 and fate.outcome[state.count[at.WAIT_HEAD]] != at.WAITING:
        _dequeue(state, fate)
    if state.count[at.WAIT_HEAD] < 0 or state.count[at.FREE_SLOTS] == 0:
        return -1, -1
    return int(state.count[at.WAIT_HEAD]), int(state.slots[state.count[at.FREE_SLOTS] - 1, at.FREE_STACK])


@compiled
def take_slot(state: Any, fate: Any, slot: int, request: int, target: int, hit: int, now_s: float) -> None:
    """Let the next candidate have its slot: a preempted sequence the one that it kept, a request a free one."""
    if state.slots[slot, at.SLOT_STATUS] != at.FREE:
        state.count[at.PREEMPTED_SLOTS] -= 1
        return
    _dequeue(state, fate)
    state.count[at.FREE_SLOTS] -= 1
    if state.count[at.FREE_SLOTS] == 0:
        state.count[at.FULL] = 1
    state.count[at.LIVE] += 1
    state.slots[slot, at.SLOT_REQUEST] = request
    state.slots[slot, at.SLOT_TARGET] = target
    fate.outcome[request] = at.ADMITTED
    if len(fate.cached_tokens) > 0:
        fate.cached_tokens[request] = hit
    fate.admitted_s[request] = now_s


@compiled
def free_slot(state: Any, slot: int) -> None:
    """Make a slot available."""
    state.slots[slot, at.SLOT_STATUS] = at.FREE
    state.slots[slot, at.SLOT_SAVED] = 0
    state.slots[slot, at.SLOT_GENERATED] = 0
    state.slots[state.count[at.FREE_SLOTS], at.FREE_STACK] = slot
    state.count[at.FREE_SLOTS] += 1


@compiled
def slot_of(state: Any, request: int) -> int:
    """The slot of a request that was admitted and has not ended."""
    for slot in range(len(state.slots)):
        status = state.slots[slot, at.SLOT_STATUS]
        if state.slots[slot, at.SLOT_REQUEST] == request and status != at.FREE and status != at.ABORTED:
            return slot
    return -1


@compiled
def stand_by(state: Any, fate: Any, slot: int) -> None:
    """Note that a sequence has been thrown out: it keeps its slot and is the first to be admitted again."""
    state.slots[slot, at.SLOT_STATUS] = at.PREEMPTED
    state.slots[state.count[at.PREEMPTED_SLOTS], at.PREEMPTED_STACK] = slot
    state.count[at.PREEMPTED_SLOTS] += 1
    state.usage[state.count[at.STAGE], at.PREEMPTIONS] += 1
    fate.preemptions[state.slots[slot, at.SLOT_REQUEST]] += 1


@compiled
def _earlier(fate: Any, left: int, right: int) -> bool:
    if fate.heap_s[left] != fate.heap_s[right]:
        return bool(fate.heap_s[left] < fate.heap_s[right])
    return bool(fate.heap[left] < fate.heap[right])


@compiled
def _swap(fate: Any, left: int, right: int) -> None:
    fate.heap_s[left], fate.heap_s[right] = (fate.heap_s[right], fate.heap_s[left])
    fate.heap[left], fate.heap[right] = fate.heap[right], fate.heap[left]


@compiled
def push_follow_up(demand: Any, fate: Any, limits: Any, request: int, now_s: float) -> None:
    """Plan the turn after ``request``, whose answer (or the end of the client's patience) came at ``now_s``."""
    following = demand.follower[request] if limits.conversations else -1
    if following < 0:
        return
    sent_s = now_s + demand.think_s[following]
    fate.sent_s[following] = sent_s
    if len(demand.deadline_s) > 0:
        demand.deadline_s[following] = sent_s + limits.patience_s
    place = fate.numbers[at.HEAP_SIZE]
    fate.heap_s[place] = sent_s + demand.delay_s[following]
    fate.heap[place] = following
    fate.numbers[at.HEAP_SIZE] = place + 1
    while place > 0 and _earlier(fate, place, (place - 1) // 2):
        _swap(fate, place, (place - 1) // 2)
        place = (place - 1) // 2


@compiled
def pop_follow_up(fate: Any) -> int:
    """The planned turn that is sent first, taken off the heap."""
    request = int(fate.heap[0])
    size = fate.numbers[at.HEAP_SIZE] - 1
    fate.numbers[at.HEAP_SIZE] = size
    _swap(fate, 0, size)
    place = 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and _earlier(fate, child + 1, child):
            child += 1
        if not _earlier(fate, child, place):
            break
        _swap(fate, place, child)
        place = child
    return request


@compiled
def finish_request(state: Any, demand: Any, fate: Any, limits: Any, slot: int, now_s: float) -> None:
    """Record that the request in ``slot`` has its whole answer."""
    request = state.slots[slot, at.SLOT_REQUEST]
    fate.finish_s[request] = now_s
    fate.outcome[request] = at.FINISHED
    state.count[at.OUTSTANDING] -= 1
    state.count[at.LIVE] -= 1
    push_follow_up(demand, fate, limits, request, now_s)
