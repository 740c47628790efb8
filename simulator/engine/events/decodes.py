"""Sequences that decode: who is looked at in a step, and what many steps do to all of them, in arrays.

In an even batch each gains one token in every step that decodes, so that when it needs its next block and when it ends
are known in advance: it sleeps up to then, and its numbers are brought up to date when somebody asks for them. With
drafts, pipelines, and prompts that arrive computed, every sequence is awake in every step.

Runs of steps that only decode: blocks are handed out in the order of steps and, within one, of admission, and drafts
are accepted by the same draws, so that the state is to the byte what going from step to step leaves.

Reference: [Steele2014]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from simulator.engine.events import state as at
from simulator.engine.events.compilation import compiled, in_place_of
from simulator.engine.settings import CLIPPED_ANSWER_TOKENS

# Constants of the splitmix64 generator, which turns any number into an unrelated one [Steele2014].
_GAMMA, _MIX_A, _MIX_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_A, _B, _C, _TO_UNIT, _UNIT = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(11), float(np.exp2(-53.0))


@compiled
def catch_up(state: Any, limits: Any, slot: int) -> None:
    """Bring the numbers of a sequence that may have slept up to the last step that decoded."""
    if state.slots[slot, at.SLOT_STATUS] == at.DECODE and not limits.uneven:
        gained = state.count[at.DECODE_STEPS] - state.slots[slot, at.SLOT_SINCE]
        state.slots[slot, at.SLOT_COMPUTED] += gained
        state.slots[slot, at.SLOT_GENERATED] += gained
        state.slots[slot, at.SLOT_SINCE] += gained


@compiled
def sleep(state: Any, limits: Any, slot: int) -> None:
    """Let a sequence sleep, whose numbers are those of the step SINCE, until it needs a block or ends."""
    row = state.slots[slot]
    room = row[at.SLOT_BLOCKS] * limits.block_size - row[at.SLOT_COMPUTED]
    state.running[at.WAKE, slot] = row[at.SLOT_SINCE] + min(room + 1, row[at.SLOT_ANSWER] - row[at.SLOT_GENERATED])


@compiled
def join(state: Any, limits: Any, slot: int) -> None:
    """Let a sequence generate from the next step that decodes on."""
    state.slots[slot, at.SLOT_STATUS] = at.DECODE
    if limits.uneven:
        state.running[at.WAKE, slot] = 0
        return
    state.slots[slot, at.SLOT_SINCE] = state.count[at.DECODE_STEPS]
    state.count[at.BATCH] += 1
    state.count[at.BATCH_CONTEXT] += state.slots[slot, at.SLOT_COMPUTED]
    sleep(state, limits, slot)


@compiled
def part(state: Any, limits: Any, slot: int) -> None:
    """Let a sequence that has not ended generate no longer, if it does."""
    catch_up(state, limits, slot)
    if state.slots[slot, at.SLOT_STATUS] == at.DECODE and not limits.uneven:
        state.count[at.BATCH] -= 1
        state.count[at.BATCH_CONTEXT] -= state.slots[slot, at.SLOT_COMPUTED]


@compiled
def may_go(state: Any, limits: Any, slot: int) -> bool:
    """Whether a running sequence may be thrown out: it is not ending, and no step under way uses its blocks."""
    if state.slots[slot, at.SLOT_STATUS] == at.DONE:
        return False
    return not (limits.pipelined and state.slots[slot, at.SLOT_LAST_STEP] >= state.count[at.RETURNED])


@compiled
def next_victim(state: Any, limits: Any) -> int:
    """Who is preempted: the last admitted; under retraction fewest tokens, then longest prompt; -1 for nobody."""
    best = -1
    for place in range(state.count[at.RUNNING] - 1, -1, -1):
        slot = state.running[at.ORDER, place]
        if may_go(state, limits, slot):
            if not limits.retracts:
                return int(slot)
            catch_up(state, limits, slot)
            fewer = best < 0 or state.slots[slot, at.SLOT_GENERATED] < state.slots[best, at.SLOT_GENERATED]
            same = best >= 0 and state.slots[slot, at.SLOT_GENERATED] == state.slots[best, at.SLOT_GENERATED]
            if fewer or (same and state.slots[slot, at.SLOT_TARGET] > state.slots[best, at.SLOT_TARGET]):
                best = int(slot)
    return best


@compiled
def _tokens_still_claimed(state: Any, demand: Any, limits: Any) -> float:
    """What running sequences may still need: the rest of prompts, and the ratio's share of the rest of answers."""
    claimed = 0.0
    for place in range(state.count[at.RUNNING]):
        slot = state.running[at.ORDER, place]
        catch_up(state, limits, slot)
        left = demand.output_tokens[state.slots[slot, at.SLOT_REQUEST]] - state.slots[slot, at.SLOT_GENERATED]
        claimed += state.clock[at.RATIO] * min(left, CLIPPED_ANSWER_TOKENS)
        claimed += max(0, state.slots[slot, at.SLOT_TARGET] - state.slots[slot, at.SLOT_COMPUTED])
    return claimed


@compiled
def has_room(state: Any, demand: Any, limits: Any, request: int, slot: int, blocks: int, tokens: int) -> bool:
    """Whether ``blocks`` can leave the free queue for a newcomer that computes ``tokens`` tokens of its prompt."""
    if blocks > state.count[at.FREE_BLOCKS] - limits.watermark_blocks:
        return False
    if not limits.retracts or state.count[at.RUNNING] == 0:
        return True
    answer = min(demand.output_tokens[request] - state.slots[slot, at.SLOT_GENERATED], CLIPPED_ANSWER_TOKENS)
    free_tokens = state.count[at.FREE_BLOCKS] * limits.block_size
    return bool(tokens + answer < free_tokens - _tokens_still_claimed(state, demand, limits))


def next_awake(state: Any, place: int, step: int) -> int:
    """The place of who is looked at next in the decode step ``step``, in the order of admission from ``place`` on; that
    behind the last where all others sleep."""
    running = int(state.count[at.RUNNING])
    if place >= running or state.running[at.WAKE, state.running[at.ORDER, place]] <= step:
        return place
    awake = state.running[at.WAKE, state.running[at.ORDER, place:running]] <= step
    first = int(awake.argmax())
    return place + first if awake[first] else running


@in_place_of(next_awake)
def _next_awake_one_by_one(state: Any, place: int, step: int) -> int:
    running, wake, order = state.count[at.RUNNING], state.running[at.WAKE], state.running[at.ORDER]
    while place < running and wake[order[place]] > step:
        place += 1
    return place


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
    """The next steps, as going from one to the next would make them; None where they do more than decode.

    take_blocks : hands out so many; publish : enters a slot's blocks that have become full into the prefix cache
    """
    count, size = state.count, limits.block_size
    slots = state.running[at.ORDER, : count[at.RUNNING]].copy()
    tokens = len(slots) * limits.verify_tokens
    if not 0 < tokens <= limits.max_tokens or (state.slots[slots, at.SLOT_STATUS] != at.DECODE).any():
        return None
    for slot in slots:
        catch_up(state, limits, slot)
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
        for step, place in np.argwhere(crosses[:steps]) if len(demand.prefix) > 0 else ():
            state.slots[slots[place], at.SLOT_COMPUTED] = computed[step, place]
            publish(state, demand, limits, slots[place])
        return limits.blocks - free[1 : steps + 1]

    def settle(steps: int) -> None:
        state.slots[slots, at.SLOT_COMPUTED] = computed[steps]
        state.slots[slots, at.SLOT_GENERATED] += gained[steps]
        state.slots[slots, at.SLOT_LAST_STEP] = count[at.LAUNCHED] - 1
        if not limits.uneven:
            count[at.DECODE_STEPS] += steps
            count[at.BATCH_CONTEXT] += len(slots) * steps
            state.slots[slots, at.SLOT_SINCE] += steps
            for slot in slots:
                sleep(state, limits, slot)
        for _ in range(steps if limits.retracts else 0):
            state.clock[at.RATIO] = max(state.clock[at.RATIO] - limits.ratio_decay, limits.ratio_least)

    return at.Coming(context=reached[:steps].sum(axis=1), extend=extended, settle=settle)
