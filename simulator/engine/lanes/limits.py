"""What bounds a lane: the limits of its scheduler, and how many sequences its cache holds."""

from __future__ import annotations

from enum import StrEnum
from math import ceil, sqrt

import numpy as np
from numpy.typing import ArrayLike

from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan
from simulator.records import dataclass
from simulator.specs.engine.engine import PROMPTS_APART
from simulator.specs.engine.fits import host_tokens
from simulator.traffic.lengths import Array, RequestMix

_SPREADS = 3
"""Standard deviations of the sequences that a budget keeps going, beyond which no lane is found."""


class SlotLimit(StrEnum):
    """What bounds the sequences that run at once."""

    KV_MEMORY = "kv_memory"
    BATCH_LIMIT = "batch_limit"
    TOKEN_BUDGET = "token_budget"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    """Limits and host costs of one lane.

    sequences : max_num_seqs; batched_tokens : max_num_batched_tokens; kv_tokens : tokens its cache holds (may be inf)
    sequence_tokens : of the budget that a decoding sequence takes
    round_steps : tokens that a sequence gets in a round of speculation. A step is the part of it for one of them, and
        has that part of the budget, though prompts come in pieces as large as a round takes
    block_tokens : of a KV block; request_s, prompt_token_s : host time per request and per prompt token [s]
    graph_sequences : largest batch that CUDA graphs pad to their sizes, 0 without them
    prompts_apart : prompts have steps of their own, in which nobody decodes; whole_prompts : none is split over steps
    full_length : the cache has room set aside for a sequence's whole answer
    stages : of a pipeline, whose steps under way share the sequences; ranks : that share experts and step together
    steps_ahead : that are formed before a sequence's last one ends
    """

    sequences: int
    batched_tokens: float
    kv_tokens: float
    sequence_tokens: float = 1.0
    round_steps: float = 1.0
    block_tokens: int = 1
    request_s: float = 0.0
    prompt_token_s: float = 0.0
    graph_sequences: int = 0
    prompts_apart: bool = False
    whole_prompts: bool = False
    full_length: bool = False
    stages: int = 1
    ranks: int = 1
    steps_ahead: int = 0

    def room_tokens(self, decoding: Array) -> Array:
        """What a step leaves to prompts beside so many sequences."""
        taken = (0.0 if self.prompts_apart else self.sequence_tokens / self.stages) * decoding
        return np.maximum(self.batched_tokens - taken, 1.0)

    def host_s(self, prompt_tokens: ArrayLike) -> Array:
        """From the arrival of a request with such a prompt to its place in the queue [s]."""
        found: Array = self.request_s + self.prompt_token_s * host_tokens(prompt_tokens)
        return found


def held_tokens(mix: RequestMix, *, limits: LaneLimits) -> float:
    """Tokens of cache that a running sequence holds on average: half a block more than it fills, at least one block. Of
    a whole answer that is set aside, E[O^2] / E[O], half is filled."""
    ahead = mix.decode_context_tokens - mix.isl.mean_tokens if limits.full_length else 0.0
    filled = mix.decode_context_tokens + ahead
    return max(filled + limits.block_tokens / 2, float(limits.block_tokens))


def _to_spare(mix: RequestMix, *, limits: LaneLimits) -> float:
    """Standard deviation of what a sequence holds; nobody is thrown out whose whole answer has room set aside."""
    return 0.0 if limits.full_length else float(np.sqrt(mix.decode_context_variance))


def kv_slots(mix: RequestMix, *, limits: LaneLimits, kv_tokens: Array | float | None = None) -> Array:
    """Sequences whose cached tokens fit with two standard deviations to spare, so that preemption stays rare.

    Solves n h + 2 s sqrt(n) = K for mean h (with half a block of rounding) and deviation s of a sequence's tokens.
    kv_tokens : K of several lanes, where it is not that of ``limits``; infinite where nothing is kept
    """
    held = np.asarray(limits.kv_tokens if kv_tokens is None else kv_tokens, dtype=np.float64)
    mean, deviation = held_tokens(mix, limits=limits), _to_spare(mix, limits=limits)
    return ((np.sqrt(deviation**2 + mean * np.maximum(held, 0.0)) - deviation) / mean) ** 2


def kv_tokens_for_one(mix: RequestMix, *, limits: LaneLimits) -> float:
    """The cache that `kv_slots` needs for its first sequence, h + 2 s [tokens]."""
    return held_tokens(mix, limits=limits) + 2 * _to_spare(mix, limits=limits)


def decoding_share(
    mix: RequestMix, *, limits: LaneLimits, batched_tokens: Array | float, steps_ahead: Array | int
) -> Array:
    """Share of the time in which a running sequence decodes: it is taken in with the first piece of its prompt, and who
    takes its place joins no step that was formed before its last one ended. Steps of prompts alone delay nobody who
    decodes beside them, and those whose prompts came with them compute none. Reference: [Little1961]"""
    pieces = np.maximum(mix.new_prompt_tokens / (limits.round_steps * np.asarray(batched_tokens)), 1.0)
    beside = limits.round_steps * (pieces * (mix.prefix_hit_fraction < 1) + steps_ahead)
    share: Array = mix.decode_steps / np.maximum(mix.decode_steps + beside, 1.0)
    return np.ones_like(share) if limits.prompts_apart or mix.decode_steps == 0 else share


def slots_of(mix: RequestMix, *, limits: LaneLimits) -> tuple[int, SlotLimit]:
    """Sequences that run at once, and what bounds them. A budget B keeps n = O B / (P + O) going by prompts of P and
    answers of O tokens, give or take the root of n (1 - n / B): starts are to ends as O (B - n) to P n.
    """
    by_memory = float(kv_slots(mix, limits=limits))
    by_tokens = int((limits.batched_tokens - 1) / limits.sequence_tokens) * limits.stages
    if not (limits.prompts_apart or limits.whole_prompts) and mix.decode_steps > 0:
        share = mix.decode_steps / (mix.decode_steps + mix.new_prompt_tokens / limits.sequence_tokens)
        kept = share * limits.batched_tokens / limits.sequence_tokens * limits.stages
        by_tokens = min(by_tokens, ceil(kept + _SPREADS * sqrt(kept * (1 - share))))
    if min(limits.sequences, by_tokens) > by_memory:
        return int(by_memory), SlotLimit.KV_MEMORY
    if by_tokens < limits.sequences:
        return by_tokens, SlotLimit.TOKEN_BUDGET
    return limits.sequences, SlotLimit.BATCH_LIMIT


def lane_limits(deployment: Deployment, memory: MemoryPlan, *, mix: RequestMix) -> LaneLimits:
    """Limits of a scheduler of ``deployment``."""
    engine, guesses = deployment.engine, deployment.speculation
    apart = engine.scheduler == PROMPTS_APART
    # Adaptive rounds end where one token at a time is faster.
    rounds = guesses is not None and mix.decode_steps > 0 and not (apart or guesses.spec.adaptive)
    gained, verified = (guesses.plan.mean_tokens, guesses.plan.verify_tokens) if guesses and rounds else (1.0, 1)
    return LaneLimits(
        sequences=memory.running_sequences,
        batched_tokens=engine.max_num_batched_tokens / gained,
        sequence_tokens=verified / gained,
        round_steps=gained,
        kv_tokens=memory.kv_capacity_tokens if memory.kv_bytes_per_token else float("inf"),
        block_tokens=engine.block_size_tokens,
        request_s=engine.overheads.request_s,
        prompt_token_s=engine.overheads.prompt_token_s,
        graph_sequences=0 if engine.eager else min(engine.cuda_graph_max_sequences, 2 * engine.max_num_seqs),
        prompts_apart=apart,
        whole_prompts=not engine.chunked_prefill,
        full_length=engine.reserves_full_length,
        stages=deployment.parallelism.pp_size,
        ranks=deployment.parallelism.ranks_in_step if deployment.parallelism.pp_size == 1 else 1,
        steps_ahead=int(engine.async_scheduling and deployment.parallelism.pp_size == 1),
    )


def priced_nodes(slots: int) -> Array:
    """Batch sizes that are priced; between them steps are interpolated: 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ... slots."""
    powers = 2.0 ** np.arange(0, int(np.log2(max(slots, 1))) + 1)
    between = powers * (1 + 1 / 2)
    # Not np.unique: its first call imports numpy.ma, and a plan's answer waits for that.
    nodes = np.array(sorted({0.0, *powers, *between[between == np.floor(between)], float(slots)}))
    return nodes[nodes <= slots]
