"""Reserved against paged KV memory: what is used, and the three ways to waste the rest ([Kwon2023], [Yu2022])."""

from __future__ import annotations

import heapq
from functools import lru_cache
from math import exp, inf
from typing import Literal, get_args

import numpy as np

from simulator.errors import RoofcastError
from simulator.operators.work import Array, decode_step
from simulator.phases.deployment import Deployment
from simulator.phases.memory import memory_plan, sequences_that_fit
from simulator.phases.step import estimate_step
from simulator.published.figures import deployed
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec

Allocation = Literal["max_length", "power_of_two", "oracle", "paged"]
SHAREGPT_PROMPT, SHAREGPT_OUTPUT = 161.31, 337.99
"""Mean tokens of ShareGPT's requests [Kwon2023]."""
RESERVED_TOKENS = 2048
OPT_13B_SLOTS = 15_700
"""Token slots beside OPT-13B on an A100 of 40 GB, table 1 of [Kwon2023]."""
WATERMARK = 0.01
"""Share of its blocks that vLLM leaves free when it admits a request: BlockSpaceManager of vLLM 0.2.0."""
SAMPLES, TURNS = 4000, 8
"""Requests of a run, and how often at least they fill the memory."""
ROUNDS = 20
"""Of a fixed point that gains a digit in each."""
ALLOCATIONS: tuple[Allocation, ...] = get_args(Allocation)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvWaste:
    """Shares of the KV memory of a replica whose queue never empties, averaged over time; they add up to 1.

    used : holds a token's keys and values
    reserved : will hold one later in the request's life
    internal : allocated to a request that never uses it
    external : lost between allocations, because sizes are powers of two or what is left is too small for the next
    requests : running at once, on average
    """

    used: float
    reserved: float
    internal: float
    external: float
    requests: float


def kv_waste(
    prompt_tokens: Array,
    *,
    output_tokens: Array,
    allocation: Allocation,
    max_model_len: int,
    kv_slots: int,
    block_size_tokens: int = 16,
) -> KvWaste:
    """Use of ``kv_slots`` tokens of KV memory by requests of these lengths (equal arrays), served first come first.

    A request runs for as many steps as it generates tokens. ``max_length`` allocates max_model_len tokens,
    ``power_of_two`` the prompt and the next power of two of the output, ``oracle`` just what will be needed, each as
    one contiguous piece from a buddy allocator; ``paged`` blocks as they fill. Leaves out prefix sharing.
    """
    if allocation not in ALLOCATIONS:
        raise RoofcastError(
            f"{allocation!r} is no way to allocate; allowed: {', '.join(ALLOCATIONS)}", field="allocation"
        )
    final = prompt_tokens + output_tokens
    if float(np.max(final)) > max_model_len:
        raise RoofcastError(
            f"a request of {int(np.max(final))} tokens exceeds max_model_len {max_model_len}", field="max_model_len"
        )
    if kv_slots < next_power_of_two(np.array([max_model_len]))[0]:
        raise RoofcastError(f"{kv_slots} tokens hold no request of {max_model_len}", field="kv_slots")
    if allocation == "paged":
        # The last block of a growing sequence is half full on average.
        held = float(output_tokens @ (prompt_tokens + output_tokens / 2.0) / output_tokens.sum())
        requests = (1.0 - WATERMARK) * kv_slots / (held + (block_size_tokens - 1) / 2.0)
        used, given = requests * held / kv_slots, 1.0 - WATERMARK
        return KvWaste(used=used, reserved=0.0, internal=given - used, external=WATERMARK, requests=requests)
    given_tokens = {
        "max_length": np.full_like(final, float(max_model_len)),
        "power_of_two": np.minimum(prompt_tokens + next_power_of_two(output_tokens), max_model_len),
        "oracle": final,
    }[allocation]
    starts = _starts(np.log2(next_power_of_two(given_tokens)).astype(int), steps=output_tokens, kv_slots=kv_slots)
    # Observed while the memory is full: after its first turn, and until the last request enters.
    since, until = float(output_tokens.max()), float(starts[-1])
    if until <= since:
        raise RoofcastError(f"{len(starts)} requests never fill {kv_slots} tokens twice", field="prompt_tokens")
    first, last = (np.clip(time - starts, 0.0, output_tokens) for time in (since, until))
    present, grown = last - first, (last**2 - first**2) / 2.0
    total = kv_slots * (until - since)
    used = float(present @ prompt_tokens + grown.sum()) / total
    reserved = float(present @ output_tokens - grown.sum()) / total
    internal = float(present @ (given_tokens - final)) / total
    return KvWaste(
        used=used,
        reserved=reserved,
        internal=internal,
        external=1.0 - used - reserved - internal,
        requests=float(present.sum()) / (until - since),
    )


def _starts(orders: Array, *, steps: Array, kv_slots: int) -> Array:
    """When each request enters, the next as soon as a piece of 2^order slots is free for it."""
    memory = _BuddyMemory(kv_slots)
    running: list[tuple[float, int, int]] = []
    now, starts = 0.0, []
    for order, length in zip(orders.tolist(), steps.tolist(), strict=True):
        while (place := memory.take(order)) is None:
            now, freed, size = heapq.heappop(running)
            memory.give(freed, size)
        starts.append(now)
        heapq.heappush(running, (now + length, place, order))
    return np.array(starts)


class _BuddyMemory:
    """Pieces of 2^order slots; two free halves of a piece join again."""

    def __init__(self, slots: int) -> None:
        self.free: list[set[int]] = [set() for _ in range(slots.bit_length())]
        at = 0
        for order in reversed(range(slots.bit_length())):
            if slots >> order & 1:
                self.free[order].add(at)
                at += 1 << order

    def take(self, order: int) -> int | None:
        """The first slot of the lowest free piece of the smallest order that holds it, or None."""
        large = next((size for size in range(order, len(self.free)) if self.free[size]), None)
        if large is None:
            return None
        at = min(self.free[large])
        self.free[large].remove(at)
        for half in range(order, large):
            self.free[half].add(at + (1 << half))
        return at

    def give(self, at: int, order: int) -> None:
        """Free a piece."""
        while at ^ (1 << order) in self.free[order]:
            self.free[order].remove(at ^ (1 << order))
            at &= ~(1 << order)
            order += 1
        self.free[order].add(at)


def sharegpt_waste(allocation: Allocation, *, max_model_len: int, kv_slots: int = OPT_13B_SLOTS) -> KvWaste:
    """`kv_waste` of requests of ShareGPT's mean lengths, exponentially distributed and cut at half of the context."""
    most = max_model_len / 2
    samples = max(SAMPLES, int(TURNS * kv_slots / (SHAREGPT_PROMPT + SHAREGPT_OUTPUT)))
    return kv_waste(
        _exponential(SHAREGPT_PROMPT, most=most, seed=0, samples=samples),
        output_tokens=_exponential(SHAREGPT_OUTPUT, most=most, seed=1, samples=samples),
        allocation=allocation,
        max_model_len=max_model_len,
        kv_slots=kv_slots,
    )


def _exponential(mean: float, *, most: float, seed: int, samples: int) -> Array:
    """Whole quantiles of an exponential distribution cut at ``most``, in random order, with this mean after the cut."""
    scale = mean
    for _ in range(ROUNDS):
        scale = mean / (1.0 - exp(-most / scale))
    places = (np.arange(samples) + 0.5) / samples
    lengths = np.ceil(np.minimum(-scale * np.log1p(-places), most))
    return np.random.default_rng(seed).permutation(lengths)


def next_power_of_two(tokens: Array) -> Array:
    """The smallest power of two at or above each number [tokens]."""
    return np.exp2(np.ceil(np.log2(np.maximum(tokens, 1.0))))


GPTQ_MODEL, GPTQ_TOKENS = "opt-175b", 128
"""What GPTQ generates, one sequence at a time [Frantar2022]."""

BITNET_MODEL, BITNET_STAGES, BITNET_TOKENS = "llama-2-70b", 2, 512
BITNET_BATCHES = {"fp16": 16, "bitnet": 176}
"""Sequences of 512 tokens at which two A100 ran out of memory in the source [Ma2024]."""


def _stages(model: str, hardware: str, scheme: str, *, engine: str, stages: int) -> Deployment:
    degrees, precision = ParallelismSpec(pp_size=stages), PrecisionSpec(scheme=scheme)
    return deployed(model, hardware, engine=engine, degrees=degrees, precision=precision)


@lru_cache(maxsize=16)
def devices_needed(hardware: str, scheme: str) -> float:
    """Fewest devices, one pipeline stage each, that hold OPT-175B with its cache under eager PyTorch [-]."""
    for stages in range(1, load_model(GPTQ_MODEL).num_hidden_layers + 1):
        memory = memory_plan(_stages(GPTQ_MODEL, hardware, scheme, engine="torch-eager", stages=stages))
        if memory.fits and memory.kv_capacity_tokens >= GPTQ_TOKENS:
            return float(stages)
    return inf


def _bitnet(scheme: str) -> Deployment:
    return _stages(BITNET_MODEL, "a100-sxm-80gb", scheme, engine="torch", stages=BITNET_STAGES)


def bitnet_batch_ratio() -> float:
    """Sequences that fit beside 1.58-bit weights over those beside 16-bit ones [-]."""
    few, many = (
        float(sequences_that_fit(replica, memory_plan(replica), tokens=float(BITNET_TOKENS)))
        for replica in (_bitnet("fp16"), _bitnet("bitnet"))
    )
    return many / few


def bitnet_throughput_ratio() -> float:
    """Tokens a second of 1.58-bit weights over 16-bit ones, each at the source's batch [-]."""
    few, many = (_tokens_per_s(scheme, sequences) for scheme, sequences in BITNET_BATCHES.items())
    return many / few


def _tokens_per_s(scheme: str, sequences: int) -> float:
    step = estimate_step(_bitnet(scheme), decode_step(sequences=sequences, context=BITNET_TOKENS))
    return sequences / float(step.step_s[0])
