"""What prompts add to the steps of a lane that they are in, by their length and by what decodes beside them.

It follows from the steps that are priced at the nodes (``pricing``), of one lane or of many side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from simulator.engine.lanes.pricing import PricedNodes
from simulator.records import dataclass
from simulator.traffic.lengths import Array

Places = NDArray[np.intp]

_ASCENDING = (1, 0, 2)
"""Sizes of prompts from small to large, in the order of ``SIZE_WEIGHTS``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCostsAt:
    """Prompt costs beside one number of decoding sequences a row: tokens, added_s [points, rows], growth_s [rows]."""

    tokens: Array
    added_s: Array
    growth_s: Array

    def added_by_s(self, tokens: Array) -> Array:
        """Time that one prompt of each length adds to the steps it is in, [rows, lengths] [s]. Longer prompts than the
        budget leaves room for take several full steps, each with the earlier ones as context."""
        known, added_s, growth_s = self.tokens, self.added_s, self.growth_s
        room = known[-1][:, None]
        steps = np.floor(tokens / room)
        rest = tokens - steps * room
        spent_s: Array = steps * added_s[-1][:, None]
        # From the longest down, so that two times of one length are a jump behind it.
        for row, (lengths, points, times_s) in enumerate(zip(-rest, -known[::-1].T, added_s[::-1].T, strict=True)):
            spent_s[row] += np.interp(lengths, points, times_s)
        if np.max(tokens) <= room.min():
            return spent_s
        context_s: Array = tokens / room * growth_s[:, None] * np.maximum(tokens - room, 0.0) / 2
        return spent_s + context_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCosts:
    """What steps of a lane take longer for prompt tokens, at the nodes.

    tokens, added_s : prompt tokens of a step, ascending, and the time they add as one prompt [points, nodes]
    together_s : the time they add as several prompts, which do not have each other as context [points, nodes]
    growth_s : more time of a full step per token and half of the context that its prompt's length brings it [s]
    """

    nodes: Array
    tokens: Array
    added_s: Array
    together_s: Array
    growth_s: Array

    def scaled(self, factor: float) -> PromptCosts:
        """All times ``factor`` times as long."""
        return replace(
            self, added_s=factor * self.added_s, together_s=factor * self.together_s, growth_s=factor * self.growth_s
        )

    def of_several(self) -> PromptCosts:
        """What several prompts add that have so many tokens together."""
        return replace(self, added_s=self.together_s)

    def added_by_s(self, tokens: Array, *, sequences: Array) -> Array:
        """``PromptCostsAt.added_by_s`` beside each number of decoding sequences, [len(sequences), lengths] [s]."""
        return stack_costs((self,)).at(np.zeros(len(sequences), dtype=np.intp), sequences).added_by_s(tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneCosts:
    """Prompt costs of several lanes: arrays as in ``PromptCosts``, with lanes as a first axis.

    nodes : infinite beyond each lane's last, which ``last`` counts from 0
    """

    nodes: Array
    last: Places
    tokens: Array
    added_s: Array
    growth_s: Array

    def at(self, of: Places, sequences: Array) -> PromptCostsAt:
        """Costs beside one number of decoding sequences in each row; ``of`` is the row's lane."""
        nodes, last = self.nodes[of], self.last[of]
        below = (nodes < sequences[:, None]).sum(axis=1)
        high = np.minimum(np.maximum(below, np.minimum(1, last)), last)
        low = np.maximum(high - 1, 0)
        rows = np.arange(len(of))
        left = nodes[rows, low]
        share = (sequences - left) / np.maximum(nodes[rows, high] - left, 1.0)

        def between(values: Array) -> Array:
            at_low, at_high = values[of, ..., low].T, values[of, ..., high].T
            mixed: Array = at_low + share * (at_high - at_low)
            return mixed

        return PromptCostsAt(
            tokens=between(self.tokens), added_s=between(self.added_s), growth_s=between(self.growth_s)
        )


def padded(arrays: Sequence[Array], *, fill: float | None = None) -> Array:
    """Arrays of several lengths on top of each other; beyond its end each repeats its last number or holds ``fill``."""
    longest = max(array.shape[-1] for array in arrays)
    whole = np.empty((len(arrays), *arrays[0].shape[:-1], longest))
    for place, array in enumerate(arrays):
        whole[place, ..., : array.shape[-1]] = array
        whole[place, ..., array.shape[-1] :] = array[..., -1:] if fill is None else fill
    return whole


def stack_costs(costs: Sequence[PromptCosts]) -> LaneCosts:
    """Prompt costs of lanes side by side."""
    return LaneCosts(
        nodes=padded([cost.nodes for cost in costs], fill=float("inf")),
        last=np.array([len(cost.nodes) - 1 for cost in costs], dtype=np.intp),
        tokens=padded([cost.tokens for cost in costs]),
        added_s=padded([cost.added_s for cost in costs]),
        growth_s=padded([cost.growth_s for cost in costs]),
    )


def prompt_costs(priced: PricedNodes) -> PromptCosts:
    """What one prompt adds at the nodes, from nothing to a full step of its own.

    A step full of several prompts has less context than one that a long prompt fills: the difference is priced by what
    context costs between the steps that are full of beginnings and of average pieces. It grows with the square of the
    length, which takes points between those that are priced.
    """
    earlier, room = priced.earlier_tokens, priced.room_tokens
    growth_s = np.maximum(priced.full_s - priced.fresh_full_s, 0.0) / np.maximum(earlier, 1.0)
    growth_s = np.where(earlier > 0, growth_s, 0.0)
    slope = 1 / 2 + priced.cached_per_token

    def own_s(tokens: Array) -> Array:
        """More time of a prompt than of as many tokens of the full step."""
        priced_s: Array = growth_s * tokens / room * (priced.own_tokens + slope * (tokens - room))
        return priced_s

    low, usual, longest = priced.size_tokens[list(_ASCENDING)]
    # What earlier pieces cost as context is counted by the length of the prompt that was cut.
    bare_s = priced.shared_s - priced.plain_s - growth_s * priced.cut_tokens
    low_s, usual_s, longest_s = bare_s[list(_ASCENDING)]
    fresh_s = priced.fresh_full_s - priced.plain_s
    tokens, alone_s, among_s = [np.zeros_like(room), low], [np.zeros_like(room), low_s], [np.zeros_like(room), low_s]
    ends = (
        (usual, usual_s, usual_s - own_s(usual)),
        (longest, longest_s, longest_s - own_s(longest)),
        (room, fresh_s, fresh_s),
    )
    for (left, left_s, left_bare_s), (right, right_s, right_bare_s) in pairwise(ends):
        middle = np.sqrt(left * right)
        share = (middle - left) / np.maximum(right - left, 1.0)
        tokens += [left, middle]
        alone_s += [left_s, left_bare_s + share * (right_bare_s - left_bare_s) + own_s(middle)]
        among_s += [left_s, left_s + share * (right_s - left_s)]
    return PromptCosts(
        nodes=priced.nodes,
        tokens=np.stack((*tokens, room)),
        added_s=np.maximum.accumulate(np.stack((*alone_s, fresh_s + own_s(room)))),
        together_s=np.maximum.accumulate(np.stack((*among_s, fresh_s))),
        growth_s=2 * slope * growth_s,
    )
