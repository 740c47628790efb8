"""Runs of decode steps of the scheduler that walks over its sequences: what many steps do to all of them, in arrays.

Blocks are handed out in the order of steps and, within one, of admission, and drafts are accepted by the same draws, so
that the state is to the byte what walking from step to step leaves.

Reference: [Steele2014]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.engine.events import state as at
from simulator.engine.events.compilation import compiled

# Constants of the splitmix64 generator, which turns any number into an unrelated one [Steele2014].
_GAMMA, _MIX_A, _MIX_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_A, _B, _C, _TO_UNIT, _UNIT = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11), float(np.exp2(-53.0))


@compiled
def _mixed(value: Any) -> Any:
    """An unrelated number, of 64 bits as ``value`` [Steele2014]; of many at once in an array."""
    value = value + _GAMMA
    value = (value ^ (value >> _A)) * _MIX_A
    value = (value ^ (value >> _B)) * _MIX_B
    return value ^ (value >> _C)


@compiled
def accepted_tokens(reach: Any, seed: int, request: int, generated: int) -> int:
    """Draft tokens that a step accepts: a draw that depends on seed, request and position alone."""
    key = _mixed(_mixed(np.uint64(seed) ^ _mixed(np.uint64(request))) + np.uint64(generated))
    drawn = float(key >> _TO_UNIT) * _UNIT
    accepted = 0
    while accepted < len(reach) and drawn < reach[accepted]:
        accepted += 1
    return accepted


def _accepted(limits: Any, requests: Any, generated: Any) -> Any:
    """``accepted_tokens`` of many sequences at once."""
    keys = (requests * limits.groups + limits.group).astype(np.uint64)
    keys = _mixed(_mixed(np.uint64(limits.seed) ^ _mixed(keys)) + generated.astype(np.uint64))
    drawn = (keys >> _TO_UNIT).astype(np.float64) * _UNIT
    return (drawn[:, None] < limits.reach).sum(axis=1)


def _gained(rows: Any, limits: Any, most: int) -> Any:
    """Tokens that sequences have gained before each of the next steps, and after the last without an end."""
    left = rows[:, at.SLOT_ANSWER] - rows[:, at.SLOT_GENERATED]
    if limits.verify_tokens == 1:
        return np.repeat(np.arange(max(1, min(most + 1, int(left.min()))))[:, None], len(rows), axis=1)
    found = [np.zeros_like(left)]
    while len(found) <= most:
        more = found[-1] + 1 + _accepted(limits, rows[:, at.SLOT_REQUEST], rows[:, at.SLOT_GENERATED] + found[-1])
        if (more >= left).any():
            break
        found.append(more)
    return np.stack(found)


def coming_steps(
    state: Any, demand: Any, limits: Any, most: int, *, take_blocks: Callable[..., Any], publish: Callable[..., None]
) -> at.Coming | None:
    """The next steps, as walking over the sequences would make them; None where they do more than decode.

    take_blocks : hands out so many; publish : enters a slot's blocks that have become full into the prefix cache
    """
    slots, count, size = np.array(at.members_of(state.links, limits.max_seqs)), state.count, limits.block_size
    tokens = len(slots) * limits.verify_tokens
    if not 0 < tokens <= limits.max_tokens or (state.slots[slots, at.SLOT_STATUS] != at.DECODE).any():
        return None
    rows, count[at.DECODING] = state.slots[slots], len(slots)
    gained = _gained(rows, limits, most)
    if len(gained) == 1:
        return None
    computed, held = rows[:, at.SLOT_COMPUTED] + gained, rows[:, at.SLOT_BLOCKS]
    reached = computed[:-1] + limits.verify_tokens
    last = demand.prompt_tokens[rows[:, at.SLOT_REQUEST]] + rows[:, at.SLOT_ANSWER] - 1
    holds = np.maximum(held, -(-np.minimum(reached, last) // size))
    before = np.concatenate([held[None], holds[:-1]])
    crosses, taken = reached > before * size, (holds - before).sum(axis=1)
    asked = np.maximum(-(-reached // size) - before, 0).sum(axis=1)
    free = count[at.FREE_BLOCKS] - np.append(0, taken.cumsum())
    steps = int(np.append(asked > free[:-1], True).argmax())

    def extended(steps: int) -> Any:
        wanted = (holds - before)[:steps]
        owner = np.repeat(np.tile(np.arange(len(slots)), steps), wanted.ravel())
        blocks = take_blocks(state, len(owner))
        for place in np.unique(owner):
            own = blocks[owner == place]
            state.table[slots[place], held[place] : held[place] + len(own), at.BLOCK] = own
        state.slots[slots, at.SLOT_BLOCKS] = holds[steps - 1]
        if limits.prefix_caching:
            _publish_all(computed, crosses[:steps])
        return limits.blocks - free[1 : steps + 1]

    def _publish_all(computed: Any, crosses: Any) -> None:
        """Who crosses a border publishes what is full; where nobody shares anything the last time says it all."""
        last = crosses & (crosses[::-1].cumsum(axis=0)[::-1] == 1)
        told = crosses if len(demand.prefix) > 0 else last
        for step, place in np.argwhere(told):
            state.slots[slots[place], at.SLOT_COMPUTED] = computed[step, place]
            publish(state, demand, limits, slots[place])

    def settle(steps: int) -> None:
        state.slots[slots, at.SLOT_COMPUTED] = computed[steps]
        state.slots[slots, at.SLOT_GENERATED] += gained[steps]
        state.slots[slots, at.SLOT_LAST_STEP] = count[at.LAUNCHED] - 1
        for _ in range(steps if limits.retracts else 0):
            state.clock[at.RATIO] = max(state.clock[at.RATIO] - limits.ratio_decay, limits.ratio_least)

    return at.Coming(context=reached[:steps].sum(axis=1), extend=extended, settle=settle)
