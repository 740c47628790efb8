"""What requests cost one replica as its batch grows: the few step times that steady state is made of.

One lane is one scheduler's batch. A replica with pipeline stages keeps as many lanes in flight as it has stages.

What a prompt adds to the steps that it is in, by its length and by the sequences that decode beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from simulator.engine.lanes.pricing import ASCENDING, SIZE_WEIGHTS, NodeSteps, PricedNodes, node_steps
from simulator.engine.lanes.pricing import StepTimes as StepTimes
from simulator.traffic.lengths import Array, RequestMix

Places = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCostsAt:
    """Prompt costs beside one number of decoding sequences a row: tokens, added_s [points, rows], growth_s [rows]."""

    tokens: Array
    added_s: Array
    growth_s: Array

    def added_by_s(self, tokens: Array) -> Array:
        """Time that one prompt of each length adds to the steps it is in, [rows, lengths] [s].

        Longer prompts than the budget leaves room for take several full steps, each with the earlier ones as context.
        """
        known, added_s, growth_s = self.tokens, self.added_s, self.growth_s
        room = known[-1][:, None]
        steps = np.floor(tokens / room)
        rest = tokens - steps * room
        spent_s: Array = steps * added_s[-1][:, None]
        # Between its points the time is linear: each stretch adds its time by the share of it that is passed.
        for point in range(len(known) - 1):
            width = (known[point + 1] - known[point])[:, None]
            beyond = rest - known[point][:, None]
            passed = np.maximum(beyond, 0.0)
            passed /= np.where(width > 0, width, 1.0)
            np.minimum(passed, 1.0, out=passed)
            if not (width > 0).all():
                passed = np.where(width > 0, passed, beyond > 0)
            passed *= (added_s[point + 1] - added_s[point])[:, None]
            spent_s += passed
        if np.max(tokens) <= room.min():
            return spent_s
        context_s: Array = tokens / room * growth_s[:, None] * np.maximum(tokens - room, 0.0) / 2
        return spent_s + context_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCosts:
    """What steps of a lane take longer for prompt tokens, at the nodes.

    tokens, added_s : prompt tokens of a step, ascending, and the time they add [points, nodes]
    growth_s : more time per step and token of context that a full step's pieces have before them [s]
    """

    nodes: Array
    tokens: Array
    added_s: Array
    growth_s: Array

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


_TINY = float(np.finfo(np.float64).tiny)


class SlotLimit(StrEnum):
    """What bounds the sequences that run at once."""

    KV_MEMORY = "kv_memory"
    BATCH_LIMIT = "batch_limit"
    TOKEN_BUDGET = "token_budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """Limits and host costs of one lane.

    sequences : max_num_seqs; batched_tokens : max_num_batched_tokens; kv_tokens : tokens its cache holds (may be inf)
    block_tokens : of a KV block; request_s, prompt_token_s : host time per request and per prompt token [s]
    graph_sequences : largest batch that CUDA graphs pad to their sizes, 0 without them
    """

    sequences: int
    batched_tokens: int
    kv_tokens: float
    block_tokens: int = 1
    request_s: float = 0.0
    prompt_token_s: float = 0.0
    graph_sequences: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurve:
    """Step times of a lane over the number of decoding sequences n = 0..slots (arrays of that length).

    decode_s : a step of n sequences that only decode; at n = 0 the least a step takes [s]
    prefill_s : what one request's prompt adds to steps of n sequences [s]
    prompt_step_tokens : prompt tokens of a step that has any
    size_variance : squared coefficient of variation of what the prompts of such a step add to it
    full_prompt_s : time per prompt while every step is filled to the token budget [s]
    costs : the same for prompts of any length
    nodes : the n that were priced; cases of the StepShape are those of ``lane_pricing``, node by node
    slots : sequences that run at once; limit : what bounds them
    """

    mix: RequestMix
    limits: LaneLimits
    slots: int
    limit: SlotLimit
    decode_s: Array
    prefill_s: Array
    prompt_step_tokens: Array
    size_variance: Array
    full_prompt_s: Array
    costs: PromptCosts
    nodes: Array

    @property
    def rates_per_s(self) -> Array:
        """Arrival rate that keeps n sequences decoding on average, for n = 1..slots [1/s].

        Little's law for the decode phase, n = lambda (O - 1) T, with steps stretched by the prompts they carry,
        T = S(n) / (1 - lambda W(n)): lambda = n / ((O - 1) S(n) + n W(n)).

        References
        ----------
        [Little1961]
        """
        sequences = np.arange(1, self.slots + 1)
        return sequences / (self.mix.decode_steps * self.decode_s[1:] + sequences * self.prefill_s[1:])


def held_tokens(mix: RequestMix, *, limits: LaneLimits) -> float:
    """Tokens of cache that a running sequence holds on average: half a block more than it fills, at least one block."""
    return max(mix.decode_context_tokens + limits.block_tokens / 2, float(limits.block_tokens))


def kv_slots(mix: RequestMix, *, limits: LaneLimits) -> float:
    """Sequences whose cached tokens fit with two standard deviations to spare, so that preemption stays rare.

    Solves n h + 2 s sqrt(n) = K for mean h (with half a block of rounding) and deviation s of a sequence's tokens.
    """
    if np.isinf(limits.kv_tokens):
        return float("inf")
    mean = held_tokens(mix, limits=limits)
    deviation = np.sqrt(mix.decode_context_variance)
    root = (np.sqrt(deviation**2 + mean * max(0.0, limits.kv_tokens)) - deviation) / mean
    return float(root**2)


def kv_tokens_for_one(mix: RequestMix, *, limits: LaneLimits) -> float:
    """The cache that `kv_slots` needs for its first sequence, h + 2 s [tokens]."""
    return float(held_tokens(mix, limits=limits) + 2 * np.sqrt(mix.decode_context_variance))


def _slots(mix: RequestMix, *, limits: LaneLimits) -> tuple[int, SlotLimit]:
    by_memory = kv_slots(mix, limits=limits)
    by_tokens = limits.batched_tokens - 1
    if min(limits.sequences, by_tokens) > by_memory:
        return int(by_memory), SlotLimit.KV_MEMORY
    if by_tokens < limits.sequences:
        return by_tokens, SlotLimit.TOKEN_BUDGET
    return limits.sequences, SlotLimit.BATCH_LIMIT


def _nodes(slots: int) -> Array:
    """Batch sizes that are priced; between them steps are interpolated: 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ... slots."""
    powers = 2.0 ** np.arange(0, int(np.log2(max(slots, 1))) + 1)
    between = powers * (1 + 1 / 2)
    # Not np.unique: its first call imports numpy.ma, and a plan's answer waits for that.
    nodes = np.array(sorted({0.0, *powers, *between[between == np.floor(between)], float(slots)}))
    return nodes[nodes <= slots]


def _prompt_costs(priced: PricedNodes) -> PromptCosts:
    nothing = np.zeros((1, len(priced.nodes)))
    sizes = list(ASCENDING)
    added_s = (nothing, priced.shared_s[sizes] - priced.plain_s, [priced.fresh_full_s - priced.plain_s])
    earlier = priced.earlier_tokens
    growth_s = (priced.full_s - priced.fresh_full_s) / np.maximum(earlier, 1.0)
    return PromptCosts(
        nodes=priced.nodes,
        tokens=np.concatenate((nothing, priced.size_tokens[sizes], [priced.room_tokens])),
        added_s=np.maximum.accumulate(np.concatenate(added_s)),
        growth_s=np.where(earlier > 0, np.maximum(growth_s, 0.0), 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSteps:
    """The steps that a lane's load curve is made of, before they are priced; ``slots`` is 0 where no request fits."""

    mix: RequestMix
    limits: LaneLimits
    slots: int
    limit: SlotLimit
    at: NodeSteps

    def curve(self, seconds: Array) -> LoadCurve:
        """The load curve from the times of the cases of ``at.step`` [s].

        Costs of prompts are expectations over the tokens that meet in a step, because a step's time is convex in them.
        """
        priced, new_tokens = self.at.priced(seconds), self.mix.new_prompt_tokens
        nodes, every = priced.nodes, np.arange(self.slots + 1)
        added_s = np.maximum(priced.shared_s - priced.plain_s, 0.0)
        mean_added_s, mean_tokens = SIZE_WEIGHTS @ added_s, SIZE_WEIGHTS @ priced.size_tokens
        size_variance = SIZE_WEIGHTS @ (added_s / np.maximum(mean_added_s, _TINY)) ** 2 - 1
        return LoadCurve(
            mix=self.mix,
            limits=self.limits,
            slots=self.slots,
            limit=self.limit,
            decode_s=np.interp(every, nodes, priced.plain_s),
            prefill_s=np.interp(every, nodes, mean_added_s * new_tokens / mean_tokens),
            prompt_step_tokens=np.interp(every, nodes, mean_tokens),
            size_variance=np.interp(every, nodes, np.maximum(size_variance, 0.0)),
            full_prompt_s=np.interp(every, nodes, priced.full_s * new_tokens / priced.room_tokens),
            costs=_prompt_costs(priced),
            nodes=nodes,
        )


def lane_steps(mix: RequestMix, *, limits: LaneLimits) -> LaneSteps:
    """What has to be priced of a lane under ``limits``."""
    slots, limit = _slots(mix, limits=limits)
    return LaneSteps(
        mix=mix,
        limits=limits,
        slots=slots,
        limit=limit,
        at=node_steps(
            mix=mix,
            nodes=_nodes(slots) if mix.decode_steps > 0 else np.zeros(1),
            batched_tokens=limits.batched_tokens,
            graph_sequences=limits.graph_sequences,
        ),
    )


def load_curve(step_times: StepTimes, *, mix: RequestMix, limits: LaneLimits) -> LoadCurve:
    """Price a lane's steps for every batch size in one call of ``step_times``."""
    steps = lane_steps(mix, limits=limits)
    return steps.curve(step_times(steps.at.step))


@dataclass(frozen=True, slots=True, kw_only=True)
class Saturation:
    """Where a lane stops keeping up: its rate [1/s], the batch there, and which limit the batch met."""

    rate_per_s: float
    sequences: float
    limit: SlotLimit


def saturation(curve: LoadCurve) -> Saturation:
    """Highest arrival rate a lane sustains.

    Either all slots are taken, or before that every step is filled to the token budget with prompts:
    n = B (O - 1) / (I + O - 1).
    """
    mix, budget = curve.mix, curve.limits.batched_tokens
    if curve.slots == 0:
        return Saturation(rate_per_s=0.0, sequences=0.0, limit=curve.limit)
    if mix.decode_steps == 0:
        return Saturation(rate_per_s=float(1 / curve.full_prompt_s[0]), sequences=0.0, limit=SlotLimit.TOKEN_BUDGET)
    filled = budget * mix.decode_steps / (mix.new_prompt_tokens + mix.decode_steps)
    sequences = min(float(curve.slots), filled)
    by_slots = float(np.interp(sequences, np.arange(1, curve.slots + 1), curve.rates_per_s))
    by_budget = float(1 / np.interp(sequences, np.arange(curve.slots + 1), curve.full_prompt_s))
    rate = min(by_slots, by_budget)
    limit = SlotLimit.TOKEN_BUDGET if filled < curve.slots else curve.limit
    return Saturation(rate_per_s=rate, sequences=sequences, limit=limit)
