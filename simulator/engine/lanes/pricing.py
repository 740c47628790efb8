"""The steps of a lane that are priced, each kind at a few batch sizes in one call, and what prompts add to them.

The kinds, node by node: a plain step; one with the prompts that usually arrive; one filled to the token budget. At
every other node also: one with fewer and one with more prompt tokens than usual, and one filled with the beginnings of
prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import lru_cache
from itertools import pairwise
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from simulator.engine.lanes.queueing import arrivals_in_turns
from simulator.operators.work import StepShape, mixed_step
from simulator.phases.step import graph_tokens
from simulator.records import dataclass
from simulator.traffic.lengths import Array, RequestMix

Places = NDArray[np.intp]
StepTimes = Callable[[StepShape], Array]
"""Seconds of each case of a StepShape; positive, and not falling when work is added."""

# Gauss-Hermite rule of three points for a standard normal, the middle one first: expectations of polynomials up to the
# fifth degree are exact.
_DEVIATES = np.array([0.0, -sqrt(3), sqrt(3)])
SIZE_WEIGHTS = np.array([4.0, 1.0, 1.0]) / 6
_ASCENDING = (1, 0, 2)
"""Sizes of prompts from small to large, in the order of ``SIZE_WEIGHTS``."""
_TINY = float(np.finfo(np.float64).tiny)


def _prompt_sizes(mix: RequestMix, nodes: Array, *, apart: bool) -> tuple[Array, Array]:
    """Mean number of prompts of a step that has any, and new tokens of all of them in the order of SIZE_WEIGHTS. A step
    of n decoding sequences meets a = n / (O - 1) new prompts on average, by conservation of requests. Steps that have
    any have N with mean a / (1 - e^-a) and E[N^2] = (1 + a) E[N]; their tokens are taken as log-normal with the two
    moments of that sum."""
    arrivals = nodes / mix.decode_steps if mix.decode_steps > 0 else np.zeros_like(nodes)
    if apart:
        arrivals = arrivals_in_turns(arrivals)
    number = np.where(arrivals > 0, arrivals / -np.expm1(-np.maximum(arrivals, _TINY)), 1.0)
    square_cv = np.maximum((1 + arrivals) / number - 1, 0.0) + mix.isl.cv**2 / number
    log_variance = np.log1p(square_cv)
    factors = np.exp(np.sqrt(log_variance) * _DEVIATES[:, None] - log_variance / 2)
    return number, np.maximum(mix.new_prompt_tokens * number * factors, 1.0)


def computed_sequences(sequences: Array, *, largest: int) -> Array:
    """Sequences that CUDA graphs compute for a batch that fluctuates around ``sequences`` like a Poisson number."""
    around = sequences + np.sqrt(sequences) * np.linspace(-1.5, 1.5, 25)[:, None]
    around = np.maximum(np.rint(around), 1.0)
    padding: Array = (graph_tokens(around, largest=largest) - around).mean(axis=0)
    return sequences + padding


@lru_cache(maxsize=64)
def _captured_sizes(largest: int) -> Array:
    """Batch sizes that graphs were captured for, ascending."""
    return np.array(sorted({float(size) for size in graph_tokens(np.arange(1.0, largest + 1), largest=largest)}))


def _graph_sizes(sequences: Array, *, largest: int) -> tuple[Array, Array]:
    """The captured sizes below and above each mean number of computed sequences; itself where none are captured. Step
    times jump between sizes (tiles, collective algorithms), so that a mean size is none that is ever run."""
    sizes = _captured_sizes(largest)
    if not len(sizes):
        return sequences, sequences
    above = np.searchsorted(sizes, sequences).clip(1, len(sizes) - 1)
    captured = sequences <= sizes[-1]
    return np.where(captured, sizes[above - 1], sequences), np.where(captured, sizes[above], sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cases:
    """Steps of one kind: prompt tokens in all and of each piece, tokens before a piece, sequences and what they see."""

    tokens: Array
    piece: Array
    earlier: Array
    sequences: Array
    attended: Array


def _joined(cases: tuple[_Cases, ...]) -> StepShape:
    tokens, piece, earlier, sequences, attended = (
        np.concatenate([getattr(kind, item.name) for kind in cases]) for item in fields(_Cases)
    )
    return mixed_step(
        prefill_sequences=tokens / piece,
        prefill_tokens=piece,
        prefill_context=earlier,
        decode_sequences=sequences,
        decode_context=attended,
    )


def _plain_cases(mix: RequestMix, *, nodes: Array, piece: Array, sequences: Array) -> _Cases:
    """The bare step that prompts add to, with the tokens of the nodes' sequences. One sequence decodes where the lane
    is empty; requests without decode steps (encoders have none) prefill one token."""
    nothing, decodes = np.zeros_like(nodes), mix.decode_steps > 0
    bare = nothing if decodes else np.ones_like(nodes)
    attended = mix.decode_context_tokens * np.maximum(nodes, 1.0) / np.maximum(sequences, 1.0)
    return _Cases(
        tokens=bare,
        piece=piece if decodes else bare,
        earlier=nothing,
        sequences=sequences if decodes else nothing,
        attended=attended,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSteps:
    """The steps of a lane that have to be priced: ``step`` holds every kind at its nodes.

    few : nodes of the kinds that are priced at every other node only; computed : sequences that graphs compute, on
    average, between the captured sizes ``smaller`` and ``larger``
    size_tokens : prompt tokens of the shared steps, [sizes, nodes], in the order of SIZE_WEIGHTS
    cut_tokens : context that the earlier pieces of these prompts are in their shared steps, 0 where they fit the budget
    pieces : steps that so many tokens take, one where they fit the budget
    room_tokens : what the token budget leaves to prompts; earlier_tokens : context of an average piece
    own_tokens : context that one prompt as long as the room has beyond that of the beginnings
    cached_per_token : context from the prefix cache for each token that is computed
    apart : whether prompts have steps of their own, in which nobody decodes
    under_way : steps that run at once at each node, at most as many as a pipeline has stages
    """

    step: StepShape
    under_way: Array
    nodes: Array
    few: Places
    computed: Array
    smaller: Array
    larger: Array
    size_tokens: Array
    cut_tokens: Array
    pieces: Array
    room_tokens: Array
    earlier_tokens: Array
    own_tokens: Array
    cached_per_token: float
    apart: bool

    def priced(self, seconds: Array) -> PricedNodes:
        """Step times by kind, from those of the cases of ``step`` [s]."""
        whole, few = len(self.nodes), len(self.few)
        parts = np.split(seconds, np.cumsum([whole, whole, whole, few, few, few]))
        small_s, usual_s, full_s, *sparse, large_s = parts
        share = np.clip((self.computed - self.smaller) / np.maximum(self.larger - self.smaller, 1.0), 0.0, 1.0)
        plain_s = small_s + share * (large_s - small_s)
        at, beside_s = self.nodes[self.few], np.zeros_like(plain_s) if self.apart else plain_s
        low_s, high_s, fresh_full_s = (
            np.interp(self.nodes, at, some - beside_s[self.few]) + beside_s for some in sparse
        )
        return PricedNodes(
            steps=self,
            plain_s=plain_s,
            beside_s=beside_s,
            shared_s=np.stack((usual_s, low_s, high_s)),
            full_s=full_s,
            fresh_full_s=fresh_full_s,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedNodes:
    """Step times [s] over the nodes (batch sizes) of ``steps``.

    plain_s : decoding alone; beside_s : what of it goes on beside prompts
    shared_s : with prompts of ``size_tokens``, [sizes, nodes], in the order of SIZE_WEIGHTS
    full_s : filled with an average piece of a prompt; fresh_full_s : with the beginnings of prompts
    """

    steps: NodeSteps
    plain_s: Array
    beside_s: Array
    shared_s: Array
    full_s: Array
    fresh_full_s: Array


def node_steps(
    *, mix: RequestMix, nodes: Array, batched_tokens: Array, graph_sequences: int, apart: bool = False, stages: int = 1
) -> NodeSteps:
    """Every kind of step at every node.

    Decode steps are priced as CUDA graphs pad them, with the same tokens attended to. Prompts longer than the budget
    leaves room for are cut into pieces; tokens of long prompts see the pieces before theirs.

    Reference: [Agrawal2024] chunked prefill; [Yu2022] iteration-level batching; [Abramowitz1964] 25.4.46, the rule for
    sizes.
    """
    together = nodes if stages == 1 else np.maximum(nodes / stages, np.minimum(nodes, 1.0))
    beside_prompts = np.zeros_like(nodes) if apart else together
    room = np.maximum(batched_tokens - beside_prompts, 1.0)
    number, sizes = _prompt_sizes(mix, together, apart=apart)
    size_tokens = np.minimum(sizes, room)
    piece = np.minimum(mix.new_prompt_tokens, room)
    # Most tokens are in long prompts: a token's prompt has (1 + cv^2) times the mean length.
    earlier = np.maximum(mix.new_prompt_tokens * (1 + mix.isl.cv**2) - piece, 0.0) / 2
    cut = np.maximum(sizes - size_tokens, 0.0) / (2 * number)
    # A prompt finds its share of tokens in the prefix cache, a long one more of them.
    cached_per_token = max(mix.isl.mean_tokens / mix.new_prompt_tokens - 1, 0.0)
    cached = cached_per_token * sizes / number
    cached_piece = np.full_like(nodes, cached_per_token * mix.new_prompt_tokens * (1 + mix.isl.cv**2))
    computed = computed_sequences(np.maximum(together, 1.0), largest=graph_sequences)
    # No more sequences run than the last node's, however the batch fluctuates.
    computed = np.minimum(computed, graph_tokens(np.maximum(together[-1:], 1.0), largest=graph_sequences))
    smaller, larger = _graph_sizes(computed, largest=graph_sequences)
    few = np.array(sorted({*range(0, len(nodes), 2), len(nodes) - 1}))

    def beside(tokens: Array, each: Array, before: Array, *, at: Places | slice) -> _Cases:
        sequences = beside_prompts[at]
        attended = np.full(len(sequences), mix.decode_context_tokens)
        return _Cases(tokens=tokens[at], piece=each[at], earlier=before[at], sequences=sequences, attended=attended)

    cases = (
        _plain_cases(mix, nodes=together, piece=piece, sequences=smaller),
        beside(size_tokens[0], size_tokens[0] / number, (cut + cached)[0], at=slice(None)),
        beside(room, piece, earlier + cached_piece, at=slice(None)),
        *(beside(size_tokens[kind], size_tokens[kind] / number, (cut + cached)[kind], at=few) for kind in (1, 2)),
        beside(room, piece, cached_piece, at=few),
        _plain_cases(mix, nodes=together, piece=piece, sequences=larger),
    )
    return NodeSteps(
        step=_joined(cases),
        under_way=np.clip(nodes, 1.0, stages),
        nodes=nodes,
        few=few,
        computed=computed,
        smaller=smaller,
        larger=larger,
        size_tokens=size_tokens,
        cut_tokens=cut,
        pieces=sizes / size_tokens,
        room_tokens=room,
        earlier_tokens=earlier,
        own_tokens=(room - piece) / 2 + cached_per_token * room - cached_piece,
        cached_per_token=cached_per_token,
        apart=apart,
    )


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
    steps = priced.steps
    earlier, room = steps.earlier_tokens, steps.room_tokens
    growth_s = np.maximum(priced.full_s - priced.fresh_full_s, 0.0) / np.maximum(earlier, 1.0)
    growth_s = np.where(earlier > 0, growth_s, 0.0)
    slope = 1 / 2 + steps.cached_per_token

    def own_s(tokens: Array) -> Array:
        """More time of a prompt than of as many tokens of the full step."""
        return growth_s * tokens / room * (steps.own_tokens + slope * (tokens - room))

    low, usual, longest = steps.size_tokens[list(_ASCENDING)]
    # What earlier pieces cost as context is counted by the length of the prompt that was cut.
    bare_s = priced.shared_s - priced.beside_s - growth_s * steps.cut_tokens
    low_s, usual_s, longest_s = bare_s[list(_ASCENDING)]
    fresh_s = priced.fresh_full_s - priced.beside_s
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
        nodes=steps.nodes,
        tokens=np.stack((*tokens, room)),
        added_s=np.maximum.accumulate(np.stack((*alone_s, fresh_s + own_s(room)))),
        together_s=np.maximum.accumulate(np.stack((*among_s, fresh_s))),
        growth_s=2 * slope * growth_s,
    )
