"""Attention ranks that share experts: a step lasts as long as that of the rank with most work, and all wait for it.

What ranks share, experts and their all-to-all, has the mean load of all. Whoever decodes is therefore delayed by the
prompts of every rank, in steps of which the longest counts, and by ranks that hold more sequences than others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from simulator.kernels.step_rows import is_shared
from simulator.phases.step import StepEstimate
from simulator.records import dataclass
from simulator.traffic.lengths import Array, RequestMix, normal_points

_RUNS, _STEPS, _FIRST = 16, 64, 16
"""Runs side by side, steps of each, and those before anything is counted."""
_MEMORY = 1 / 16
"""What the last step counts in the usual time between two steps in which a sequence decodes."""
_LENGTHS = 512
"""Lengths of a step's prompts between which their time is linear."""
_LEAST = 0.03
"""Arrivals of a step at least: so few still come one by one, and enough to tell what they delay."""
_POINTS, _CROWDS = 24, 64
"""Numbers of prompts that ranks have together, and samples of each."""
_REQUESTS = 1 << 12
"""Requests that are drawn for each rank; who needs more begins anew."""


def shared_step_s(estimate: StepEstimate) -> Array:
    """What a step takes of rows that ranks share where all of them have as many tokens [s]."""
    return sum((row.seconds for row in estimate.rows if is_shared(row.work)), np.zeros_like(estimate.host_s))


@lru_cache(maxsize=16)
def _draws(ranks: int) -> tuple[Array, Array, Array]:
    """Poisson arrivals of unit rate, in ascending order, standard normal deviates of their prompts [ranks, requests]
    and of what ranks hold [ranks, runs, 1], about their mean."""
    order = np.random.default_rng(0)
    held = order.standard_normal((ranks, _RUNS, 1))
    gaps = order.standard_exponential(ranks * _REQUESTS)
    return np.cumsum(gaps / gaps.mean()), order.standard_normal((ranks, _REQUESTS)), held - held.mean(axis=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSteps:
    """Steps of ranks at several batches of each; times are arrays as in ``PromptCosts`` and ``PricedNodes``.

    own, own_costs : plain steps and what prompts add, of what each rank does for itself
    shared : tokens of the mean rank, and what ranks share in a step that has as many [s]
    sequence_tokens : of a sequence; apart : whether a rank does not decode in a step in which it has prompts
    """

    mix: RequestMix
    ranks: int
    own: Any
    own_costs: Any
    shared: tuple[Array, Array]
    sequence_tokens: float
    apart: bool

    @property
    def nodes(self) -> Array:
        """Sequences that decode on each rank."""
        found: Array = self.own.steps.nodes
        return found

    def own_plain_s(self) -> Array:
        """What each rank does for itself in a step without prompts, [ranks, runs, batches] [s].

        Beyond the first, ranks hold more and less than the mean: each gets every so-manyth of random arrivals,
        so that the variance of its sequences over their mean is 1 - (1 - 1 / ranks) / (1 + c^2) for answers of
        variation c (exact for equal and for exponential ones), and what they see varies as well.
        """
        mix, nodes = self.mix, self.nodes
        number = 1 - (1 - 1 / self.ranks) / (1 + mix.osl.cv**2)
        seen = mix.decode_context_variance / max(mix.decode_context_tokens, 1.0) ** 2
        held = nodes + np.sqrt(np.maximum(nodes - 1, 0.0) * (number + seen)) * _draws(self.ranks)[2]
        found: Array = np.interp(held, nodes, self.own.plain_s)
        return found

    def plain_s(self, own_plain_s: Array) -> Array:
        """A step without prompts [s]: the rank with most to do by itself [ranks, ...], and what all share."""
        found: Array = own_plain_s.max(axis=0) + self.shared_s(self.decoding_tokens(1.0))
        return found

    def shared_s(self, tokens: Array) -> Array:
        """What ranks share at so many tokens of the mean rank, whatever these belong to [s]."""
        return np.interp(tokens, *self.shared)

    def decoding_tokens(self, share: Array | float) -> Array:
        """Tokens on the mean rank of the sequences of a share of ranks."""
        return self.nodes * self.sequence_tokens * share

    def costs(self) -> Any:
        """What prompts of one rank add to the steps of all: the others share its experts, and decode meanwhile."""
        costs, plain_s = self.own_costs, self.own.plain_s + self.shared_s(self.decoding_tokens(1.0))
        share = 1 - 1 / self.ranks if self.apart else 1.0
        shared_s = self.shared_s(costs.tokens / self.ranks + self.decoding_tokens(share))

        def beyond(own_s: Array) -> Array:
            least_s = own_s if self.apart else own_s + self.own.plain_s
            added_s: Array = np.maximum(np.maximum(least_s, self.own.plain_s) + shared_s - plain_s, 0.0)
            return added_s

        return replace(costs, added_s=beyond(costs.added_s), together_s=beyond(costs.together_s))

    def _own_added_s(self) -> Callable[[Array], Array]:
        """What prompts add to a rank's own part by their tokens, [ranks, runs, batches]: a table of even lengths."""
        costs, batches = self.own_costs, np.arange(len(self.nodes))
        even = np.linspace(0.0, costs.tokens[-1], _LENGTHS + 1)
        columns = zip(even.T, costs.tokens.T, costs.together_s.T, strict=True)
        table_s = np.stack([np.interp(*each) for each in columns], axis=-1)
        rises_s = np.diff(table_s, axis=0)

        def added_s(tokens: Array) -> Array:
            place = tokens * (_LENGTHS / costs.tokens[-1])
            low = np.minimum(place.astype(np.intp), _LENGTHS - 1)
            at = low * len(batches) + batches
            found: Array = table_s.take(at) + (place - low) * rises_s.take(at)
            return found

        return added_s

    def taken_together(self) -> TakenTogether:
        """Steps, one after the other, of ranks that take turns at random arrivals: each takes what came since the last
        one began, as far as it has room. Requests come as often as sequences end.

        Reference: [Agrawal2024] chunked prefill.
        """
        mix, ranks, nodes, room = self.mix, self.ranks, self.nodes, self.own_costs.tokens[-1]
        added_s = self._own_added_s()
        arrivals, deviates, _ = _draws(ranks)
        own_plain_s, every = self.own_plain_s(), np.arange(ranks)[:, None, None]
        plain_s = self.plain_s(own_plain_s)
        sizes = mix.isl.at(deviates)
        sizes = np.cumsum(sizes * (mix.new_prompt_tokens / sizes.mean()), axis=1)
        sizes = np.concatenate((np.zeros((ranks, 1)), sizes), axis=1)

        def brought(clock: Array) -> Array:
            """Tokens that came to each rank until a number of mean gaps, [ranks, runs, batches]."""
            times, rest = np.divmod(clock, arrivals[-1])
            count = np.searchsorted(arrivals, rest)
            nth = (count - every + ranks - 1) // ranks
            tokens: Array = times * sizes[:, -1][:, None, None] + sizes.take(every * sizes.shape[1] + nth)
            return tokens

        clock = np.arange(_RUNS)[:, None] * arrivals[-1] / _RUNS + np.zeros_like(nodes)
        done, usual_s, length_s = brought(clock), plain_s, plain_s
        counted = {name: np.zeros_like(plain_s) for name in ("steps", "longer_s", "square_s2", "delay_s", "tokens")}
        for step in range(_STEPS):
            clock = clock + np.maximum(ranks * nodes / mix.decode_steps, _LEAST) * length_s / usual_s
            taken = np.minimum(brought(clock) - done, room)
            done = done + taken
            has = taken > 0
            own_s = added_s(taken) + (own_plain_s * ~has if self.apart else own_plain_s)
            decoding = 1 - has.mean(axis=0) if self.apart else 1.0
            mean = taken.mean(axis=0)
            length_s = own_s.max(axis=0) + self.shared_s(mean + self.decoding_tokens(decoding))
            usual_s = usual_s + _MEMORY * (length_s - decoding * usual_s)
            if step >= _FIRST:
                some = has.any(axis=0)
                longer_s = np.maximum(length_s - plain_s, 0.0) * some
                counted["steps"] += some
                counted["longer_s"] += longer_s
                counted["square_s2"] += longer_s**2
                counted["delay_s"] += length_s - decoding * plain_s
                counted["tokens"] += mean
        sums = {name: values.sum(axis=0) for name, values in counted.items()}
        steps, tokens = np.maximum(sums["steps"], 1.0), np.maximum(sums["tokens"], 1.0)
        square_s2 = np.maximum((sums["longer_s"] / steps) ** 2, np.finfo(np.float64).tiny)
        return TakenTogether(
            plain_s=plain_s.mean(axis=0),
            delay_s=np.maximum(sums["delay_s"], 0.0) / tokens * mix.new_prompt_tokens,
            step_tokens=tokens / steps,
            size_variance=np.maximum(sums["square_s2"] / steps / square_s2 - 1, 0.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenTogether:
    """What comes of steps that ranks take together, at each batch of a rank.

    plain_s : a step in which nobody has a prompt; delay_s : what prompts of all ranks delay each, per prompt of one [s]
    step_tokens : of prompts a rank in a step in which any has some; size_variance : of what they add, over its square
    """

    plain_s: Array
    delay_s: Array
    step_tokens: Array
    size_variance: Array


def shared_by_tokens(shared: Any, costs: Any, *, sequence_tokens: float) -> tuple[Array, Array]:
    """Tokens of a rank and the time of what all share, which does not ask whose they are: from steps of sequences
    alone, and of prompts beside the fewest."""
    held = np.maximum(shared.steps.nodes, 1.0) * sequence_tokens
    beside = 0.0 if shared.steps.apart else held[0]
    tokens = np.concatenate((held, beside + costs.tokens[1:, 0]))
    seconds = np.concatenate((shared.plain_s, shared.beside_s[0] + costs.together_s[1:, 0]))
    order = np.argsort(tokens, kind="stable")
    return tokens[order], np.maximum.accumulate(seconds[order])


@lru_cache(maxsize=64)
def _crowd(mix: RequestMix, ranks: int, budget: float) -> tuple[Array, Array]:
    """Numbers of prompts of all ranks, from one to a full step of each [points], and new tokens of as many prompts as
    the most of them, in their order, ranks taking turns [samples, prompts of a rank, ranks]."""
    lengths = np.maximum(mix.isl.at(normal_points(_CROWDS)[0]) * (mix.new_prompt_tokens / mix.isl.mean_tokens), 1.0)
    prompts = np.geomspace(1.0, max(float(budget / lengths.mean()), 1.0) * ranks, _POINTS)
    each = -(-int(prompts[-1] + 1) // ranks)
    return prompts, np.random.default_rng(0).choice(lengths, (_CROWDS, each, ranks))


def prompts_in_step(group: RankSteps, *, budget: float) -> tuple[Array, Array]:
    """Prompts of all ranks [points] and times of sampled steps of so many, or of the several steps of the rank that has
    more than one holds [points, samples] [s]."""
    prompts, sizes = _crowd(group.mix, group.ranks, budget)
    several, one = group.own_costs.of_several(), group.own_costs

    def added_s(costs: Any, tokens: Array) -> Array:
        found: Array = costs.added_by_s(tokens.reshape(1, -1), sequences=np.zeros(1)).reshape(tokens.shape)
        return found

    # A prompt has itself as context, which several of as many tokens have not.
    context_s = added_s(one, sizes) - added_s(several, sizes)
    first = np.zeros((2, _CROWDS, 1, group.ranks))
    sums = np.concatenate((first, np.cumsum((sizes, context_s), axis=2)), axis=2)
    rounding, times = (np.arange(_CROWDS)[:, None] + 1 / 2) / _CROWDS, np.empty((len(prompts), _CROWDS))
    for point, number in enumerate(prompts):
        each = (np.floor(number + rounding) + group.ranks - 1 - np.arange(group.ranks)) // group.ranks
        held, own_s = np.take_along_axis(sums, each.astype(np.intp)[None, :, None], axis=2)[:, :, 0]
        own_s = own_s + added_s(several, held)
        own_s = own_s + group.own.plain_s[0] * np.maximum(held / budget, 1.0)
        times[point] = own_s.max(axis=1) + group.shared_s(held.mean(axis=1))
    return prompts, times
