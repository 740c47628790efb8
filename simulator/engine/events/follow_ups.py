"""Turns of conversations that are sent when the one before has been answered: a heap of requests by time."""

from __future__ import annotations

from typing import Any

from simulator.engine.events.compilation import compiled
from simulator.engine.events.policy_state import HEAP_SIZE
from simulator.engine.events.state import DEADLINE_S, READY_S


@compiled
def _earlier(fate: Any, left: int, right: int) -> bool:
    if fate.heap_s[left] != fate.heap_s[right]:
        return bool(fate.heap_s[left] < fate.heap_s[right])
    return bool(fate.heap_request[left] < fate.heap_request[right])


@compiled
def _swap(fate: Any, left: int, right: int) -> None:
    fate.heap_s[left], fate.heap_s[right] = fate.heap_s[right], fate.heap_s[left]
    fate.heap_request[left], fate.heap_request[right] = fate.heap_request[right], fate.heap_request[left]


@compiled
def push_follow_up(demand: Any, fate: Any, request: int, now_s: float) -> None:
    """Plan the turn after ``request``, whose answer (or the end of the client's patience) came at ``now_s``."""
    following = demand.follower[request]
    if following < 0:
        return
    sent_s = now_s + demand.think_s[following]
    fate.sent_s[following] = sent_s
    demand.times_s[following, READY_S] = sent_s + demand.delay_s[following]
    demand.times_s[following, DEADLINE_S] = sent_s + demand.patience_s
    place = fate.numbers[HEAP_SIZE]
    fate.heap_s[place] = demand.times_s[following, READY_S]
    fate.heap_request[place] = following
    fate.numbers[HEAP_SIZE] = place + 1
    while place > 0 and _earlier(fate, place, (place - 1) // 2):
        _swap(fate, place, (place - 1) // 2)
        place = (place - 1) // 2


@compiled
def pop_follow_up(fate: Any) -> int:
    """The planned turn that is sent first, taken off the heap."""
    request = int(fate.heap_request[0])
    size = fate.numbers[HEAP_SIZE] - 1
    fate.numbers[HEAP_SIZE] = size
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
