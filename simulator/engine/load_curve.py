"""What requests cost one replica as its batch grows: the few step times that steady state is made of.

One lane is one scheduler's batch. A replica with pipeline stages keeps as many lanes in flight as it has stages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from simulator.engine.lengths import Array, RequestMix
from simulator.operators.step_shape import StepShape, mixed_step

StepTimes = Callable[[StepShape], Array]
"""Seconds of each case of a StepShape; positive, and not falling when work is added."""


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
    """

    sequences: int
    batched_tokens: int
    kv_tokens: float
    block_tokens: int = 1
    request_s: float = 0.0
    prompt_token_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCurve:
    """Step times of a lane over the number of decoding sequences n = 0..slots (arrays of that length).

    decode_s : a step of n sequences that only decode; at n = 0 the least a step takes [s]
    prefill_s : what one request's prompt adds to steps of n sequences [s]
    prompt_step_tokens : prompt tokens of a step that has any
    full_prompt_s : time per prompt while every step is filled to the token budget [s]
    nodes : the n that were priced; cases of the StepShape are plain, prompt-carrying and full steps, node by node
    slots : sequences that run at once; limit : what bounds them
    """

    mix: RequestMix
    limits: LaneLimits
    slots: int
    limit: SlotLimit
    decode_s: Array
    prefill_s: Array
    prompt_step_tokens: Array
    full_prompt_s: Array
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


def kv_slots(mix: RequestMix, *, limits: LaneLimits) -> float:
    """Sequences whose cached tokens fit with two standard deviations to spare, so that preemption stays rare.

    Solves n h + 2 s sqrt(n) = K for mean h (with half a block of rounding) and deviation s of a sequence's tokens.
    """
    if np.isinf(limits.kv_tokens):
        return float("inf")
    mean = mix.decode_context_tokens + limits.block_tokens / 2
    deviation = np.sqrt(mix.decode_context_variance)
    root = (np.sqrt(deviation**2 + mean * max(0.0, limits.kv_tokens)) - deviation) / mean
    return float(root**2)


def kv_tokens_for_one(mix: RequestMix, *, limits: LaneLimits) -> float:
    """The cache that `kv_slots` needs for its first sequence, h + 2 s [tokens]."""
    return float(mix.decode_context_tokens + limits.block_tokens / 2 + 2 * np.sqrt(mix.decode_context_variance))


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _PricedNodes:
    """Seconds at the nodes: decoding alone, with the prompts that arrive, and filled to the token budget."""

    decode_s: Array
    shared_s: Array
    full_s: Array


def _price(
    step_times: StepTimes, *, mix: RequestMix, nodes: Array, chunk: Array, shared: Array, room: Array
) -> _PricedNodes:
    cached = mix.isl.mean_tokens - mix.new_prompt_tokens
    earlier_chunks = (mix.new_prompt_tokens - chunk) / 2
    # The bare step that prompts add to: one sequence decoding where the lane is empty, and for requests without
    # decode steps (encoders have none) a prompt of a single token.
    decodes = mix.decode_steps > 0
    bare = np.zeros_like(nodes) if decodes else np.ones_like(nodes)
    decoding = np.maximum(nodes, 1.0) if decodes else np.zeros_like(nodes)
    tokens = np.concatenate((bare, shared, room))
    chunks = np.concatenate((chunk if decodes else bare, chunk, chunk))
    seconds = step_times(
        mixed_step(
            prefill_sequences=tokens / chunks,
            prefill_tokens=chunks,
            prefill_context=np.tile(np.maximum(cached + earlier_chunks, 0.0), 2 + 1),
            decode_sequences=np.concatenate((decoding, nodes, nodes)),
            decode_context=mix.decode_context_tokens,
        )
    )
    decode_s, shared_s, full_s = np.split(seconds, 2 + 1)
    return _PricedNodes(decode_s=decode_s, shared_s=shared_s, full_s=full_s)


def load_curve(step_times: StepTimes, *, mix: RequestMix, limits: LaneLimits) -> LoadCurve:
    """Price a lane's steps for every batch size in one call of ``step_times``.

    A step of n decoding sequences meets a = n / (O - 1) new prompts on average; steps that carry prompts carry
    a / (1 - e^-a) of them (Poisson, given at least one), as far as the token budget has room (chunked prefill,
    decoding first). ``slots`` is 0 where the cache cannot hold one mean request.

    References
    ----------
    [Agrawal2024] chunked prefill; [Yu2022] iteration-level batching.
    """
    slots, limit = _slots(mix, limits=limits)
    nodes = _nodes(slots) if mix.decode_steps > 0 else np.zeros(1)
    room = np.maximum(limits.batched_tokens - nodes, 1.0)
    chunk = np.minimum(mix.new_prompt_tokens, room)
    arrivals = nodes / mix.decode_steps if mix.decode_steps > 0 else np.zeros_like(nodes)
    together = np.where(arrivals > 0, arrivals / -np.expm1(-np.maximum(arrivals, np.finfo(float).tiny)), 1.0)
    shared = np.minimum(room, mix.new_prompt_tokens * together)
    priced = _price(step_times, mix=mix, nodes=nodes, chunk=chunk, shared=shared, room=room)
    every = np.arange(slots + 1)
    prefill_s = (priced.shared_s - priced.decode_s) * mix.new_prompt_tokens / shared
    return LoadCurve(
        mix=mix,
        limits=limits,
        slots=slots,
        limit=limit,
        decode_s=np.interp(every, nodes, priced.decode_s),
        prefill_s=np.interp(every, nodes, np.maximum(prefill_s, 0.0)),
        prompt_step_tokens=np.interp(every, nodes, shared),
        full_prompt_s=np.interp(every, nodes, priced.full_s * mix.new_prompt_tokens / room),
        nodes=nodes,
    )


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
