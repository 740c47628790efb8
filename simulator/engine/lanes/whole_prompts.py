"""Engines that split no prompt: what their steps hold, and how long a prompt waits for sequences to end to fit in.

Prompts are taken in the order in which they came. The first one that does not fit ends the step, so that the rest of
its token budget stays empty; one longer than what decoding sequences leave of the budget waits until enough have ended,
and everybody behind waits with it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from simulator.engine.lanes.limits import LaneLimits
from simulator.records import dataclass
from simulator.traffic.lengths import Array, RequestMix, normal_points

_IN_LINE, _LENGTHS, _DEVIATES = 512, 2048, 4.5
_TINY = float(np.finfo(np.float64).tiny)


@lru_cache(maxsize=64)
def _tail(mix: RequestMix) -> tuple[Array, Array]:
    """New tokens of prompts and the shares of all that have them, fine where they are rare."""
    deviates = np.linspace(-_DEVIATES, _DEVIATES, _LENGTHS)
    shares = np.exp(-(deviates**2) / 2)
    return _scaled(mix, deviates), shares / shares.sum()


def _scaled(mix: RequestMix, deviates: Array) -> Array:
    return mix.isl.at(deviates) * (mix.new_prompt_tokens / mix.isl.mean_tokens)


def packed_tokens(lengths: Array, room: Array) -> Array:
    """Tokens of a step that is filled with whole prompts in the order in which they came, on average [tokens].

    Equation
    --------
    sum(L) / steps, where each step takes prompts until the next one is more than is left of R (next fit).

    Parameters
    ----------
    lengths : L, of prompts in the order in which they come [tokens]
    room : R, of a step for prompts [tokens]

    Range of validity
    -----------------
    Someone always waits. Prompts longer than R count as alone in a step. For R far beyond L it tends to
    R - E[L^2] / 2 E[L], renewal theory's mean age. Left out: that R changes from step to step.

    References
    ----------
    [Coffman1984] next fit; [Cox1962] section 5.4, the age.

    Examples
    --------
    Two of four tokens into ten; one of six.

    >>> packed_tokens(np.array([4.0, 4.0]), np.array([10.0])).tolist()
    [8.0]
    >>> packed_tokens(np.array([6.0, 6.0, 6.0]), np.array([10.0])).tolist()
    [6.0]
    """
    ends, age = np.cumsum(lengths), (lengths**2).mean() / (2 * lengths.mean())
    found = []
    for held in room:
        following = np.searchsorted(ends, ends - lengths + held * (1 + np.finfo(np.float64).eps), side="right").tolist()
        place, steps = 0, 0
        while (after := max(following[place], place + 1)) < len(lengths):
            place, steps = after, steps + 1
        found.append(ends[place - 1] / steps if steps else max(held - age, lengths[0]))
    return np.array(found)


def steps_until(mix: RequestMix, left: Array) -> Array:
    """How many steps until only this share of the sequences that decode now still does, if nobody joins [-].

    Equation
    --------
    t with E[max(D - t, 0)] / E[D] = x: what is left of an answer that is met at a random moment.

    Parameters
    ----------
    mix : D, tokens of its answers after the first
    left : x, share that still decodes, 0 to 1 [-]

    Range of validity
    -----------------
    Any distribution of answers, of which 256 are taken. Left out: that those who decode may have started together.

    References
    ----------
    [Cox1962] section 5.4, residual life.

    Examples
    --------
    Of equal answers of 101 tokens half are left after 50 of their 100 steps.

    >>> from simulator.traffic.lengths import LengthDistribution as Lengths
    >>> mix = RequestMix(isl=Lengths(mean_tokens=9), osl=Lengths(mean_tokens=101))
    >>> float(steps_until(mix, np.array(0.5)))
    50.0
    """
    answers = np.sort(np.maximum(mix.osl.at(normal_points(256)[0]) - 1, 0.0))
    answers = np.concatenate(([0.0], answers * (mix.decode_steps / max(float(answers.mean()), 1.0))))
    beyond = np.cumsum(answers[::-1])[::-1] - answers * np.arange(len(answers), 0, -1)
    share = beyond / beyond[0]
    steps: Array = np.interp(left, share[::-1], answers[::-1])
    return steps


def waiting_steps(mix: RequestMix, *, new_tokens: Array, room: Array, most: Array | float) -> Array:
    """Steps that prompts wait at the head of the line for sequences to end, beside which a step has ``room`` and alone
    ``most`` tokens; who is longer is refused."""
    if mix.decode_steps <= 0 or np.max(new_tokens) <= np.min(room):
        return np.zeros(np.broadcast_shapes(new_tokens.shape, np.shape(room)))
    waits = (new_tokens > room) & (new_tokens <= most)
    left = np.maximum(most - new_tokens, 0.0) / np.maximum(most - room, 1.0)
    return np.where(waits, steps_until(mix, np.minimum(left, 1.0)), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadWaits:
    """How often and how long prompts wait at the head of the line, for each room of a step.

    share : of prompts that wait; mean, square : of ``waiting_steps`` over all prompts, and of its square
    lost : share of the decoding sequences that ends less meanwhile than if others took their places
    """

    share: Array
    mean: Array
    square: Array
    lost: Array


def head_waits(mix: RequestMix, *, room: Array, most: Array | float) -> HeadWaits:
    """Waits at the head of the line beside the sequences that leave each room."""
    alone = np.broadcast_to(most, room.shape)[:, None]
    lengths, shares = _tail(mix)
    steps = waiting_steps(mix, new_tokens=lengths, room=room[:, None], most=alone)
    ended = np.where(steps > 0, 1 - (alone - lengths) / np.maximum(alone - room[:, None], 1.0), 0.0)
    lost = np.maximum(steps / max(mix.decode_steps, 1.0) - ended, 0.0)
    share, mean, square, lost = (values @ shares for values in (steps > 0, steps, steps**2, lost))
    return HeadWaits(share=share, mean=mean, square=square, lost=lost)


@lru_cache(maxsize=64)
def _line(mix: RequestMix, most: float) -> Array:
    order = np.random.default_rng(0).permutation(_IN_LINE)
    lengths = _scaled(mix, np.sort(normal_points(_IN_LINE)[0])[order])
    answered = lengths[lengths <= most]
    return answered if len(answered) else lengths[:1]


def _rooms(limits: LaneLimits, nodes: Array) -> tuple[Array, float]:
    """Tokens of a step for prompts beside the sequences of each node, and beside none."""
    return limits.round_steps * limits.room_tokens(nodes), limits.round_steps * limits.batched_tokens


def step_tokens(mix: RequestMix, *, limits: LaneLimits, nodes: Array, batched_tokens: Array) -> Array:
    """``batched_tokens`` less what whole prompts leave empty of the steps that are as full as they make them; those
    that no step holds are refused."""
    room, most = _rooms(limits, nodes)
    return batched_tokens - room + packed_tokens(_line(mix, most), np.maximum(room, 1.0))


def in_line(
    mix: RequestMix, nodes: Array, *, limits: LaneLimits, slots: int, room_tokens: Array
) -> tuple[Array, Array, float]:
    """Steps that a prompt waits at the head of the line and those that it takes in all, at the nodes of a lane's steps,
    and the share of full slots that decodes meanwhile."""
    room, most = _rooms(limits, nodes)
    waits = head_waits(mix, room=room, most=most)
    taken = limits.round_steps * mix.new_prompt_tokens / room_tokens + waits.mean
    # Where the budget is short before slots are, it is what waiting takes of it that counts.
    by_slots = slots * taken[-1] <= limits.stages * mix.decode_steps
    return waits.mean, taken, float(1 / (1 + slots * waits.lost[-1])) if by_slots else 1.0


def behind_those_that_wait(
    rows: Any, decoding: Array, step_s: Array, *, load: Array, waits: Array, conditional_s: Array
) -> tuple[Array, Array]:
    """How many wait for the budget, and how long then [s], where a prompt at the head of the line may wait for others
    to end: part of its service, which everybody behind it meets (M/G/1).

    Reference: [Kleinrock1975] section 5.6.
    """
    most = rows.lanes.whole_tokens[rows.of]
    taken = rows.lanes.sequence_tokens[rows.of] * rows.beside(decoding) / rows.stages
    found = head_waits(rows.mix, room=most * (1 - taken / rows.batched_tokens), most=most)
    closed = np.minimum(rows.rates_per_s * found.mean * step_s, 1.0)
    all_wait = 1 - (1 - waits) * (1 - closed) * (1 - found.share)
    more_s = found.mean * step_s + rows.rates_per_s * found.square * step_s**2 / 2 / (1 - load)
    return all_wait, (waits * conditional_s + more_s) / np.maximum(all_wait, _TINY)
