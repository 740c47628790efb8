"""Reserved against paged KV memory: what is used, and the three ways to waste the rest ([Kwon2023], [Yu2022])."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from simulator.errors import RoofcastError
from simulator.operators.step_shape import Array

Allocation = Literal["max_length", "power_of_two", "oracle", "paged"]
SHAREGPT_PROMPT, SHAREGPT_OUTPUT = 161.31, 337.99
"""Mean tokens of ShareGPT's requests [Kwon2023]."""
RESERVED_TOKENS = 2048
SAMPLES = 4000
ALLOCATIONS: tuple[Allocation, ...] = ("max_length", "power_of_two", "oracle", "paged")


@dataclass(frozen=True, slots=True, kw_only=True)
class KvWaste:
    """Shares of allocated KV memory, averaged over time; they add up to 1.

    used : holds a token's keys and values
    reserved : will hold one later in the request's life
    internal : allocated to a request that never uses it
    external : lost between allocations of the buddy allocator, because sizes are powers of two
    slots_per_request : mean allocated tokens of a running request, external losses included
    """

    used: float
    reserved: float
    internal: float
    external: float
    slots_per_request: float


def kv_waste(
    prompt_tokens: Array,
    *,
    output_tokens: Array,
    allocation: Allocation,
    max_model_len: int,
    block_size_tokens: int = 16,
) -> KvWaste:
    """Use of KV memory by requests of these lengths (equal arrays), each weighted by its time in the batch.

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
    held = prompt_tokens + output_tokens / 2.0
    weights = output_tokens / output_tokens.sum()
    if allocation == "paged":
        # The last block of a growing sequence is half full on average.
        internal = np.full_like(held, (block_size_tokens - 1) / 2.0)
        return _shares(weights, held=held, later=0.0 * held, never=internal, lost=0.0 * held)
    given = {
        "max_length": np.full_like(final, float(max_model_len)),
        "power_of_two": np.minimum(prompt_tokens + next_power_of_two(output_tokens), max_model_len),
        "oracle": final,
    }[allocation]
    lost = next_power_of_two(given) - given
    return _shares(weights, held=held, later=final - held, never=given - final, lost=lost)


def sharegpt_waste(allocation: Allocation, *, max_model_len: int) -> KvWaste:
    """`kv_waste` of requests of ShareGPT's mean lengths, exponentially distributed."""
    return kv_waste(
        _exponential(SHAREGPT_PROMPT, most=max_model_len / 2, seed=0),
        output_tokens=_exponential(SHAREGPT_OUTPUT, most=max_model_len / 2, seed=1),
        allocation=allocation,
        max_model_len=max_model_len,
    )


def _exponential(mean: float, *, most: float, seed: int) -> Array:
    """Quantiles of an exponential distribution in random order, of at least one token and at most ``most``."""
    places = (np.arange(SAMPLES) + 0.5) / SAMPLES
    lengths = np.clip(-mean * np.log1p(-places), 1.0, most)
    return np.random.default_rng(seed).permutation(lengths)


def next_power_of_two(tokens: Array) -> Array:
    """The smallest power of two at or above each number [tokens]."""
    powers: Array = np.exp2(np.ceil(np.log2(np.maximum(tokens, 1.0))))
    return powers


def concurrency(waste: KvWaste, *, kv_capacity_tokens: float) -> float:
    """Requests that run at once in a cache of so many token slots [-]."""
    return kv_capacity_tokens / waste.slots_per_request


def _shares(weights: Array, *, held: Array, later: Array, never: Array, lost: Array) -> KvWaste:
    used, reserved, internal, external = (float(weights @ part) for part in (held, later, never, lost))
    total = used + reserved + internal + external
    return KvWaste(
        used=used / total,
        reserved=reserved / total,
        internal=internal / total,
        external=external / total,
        slots_per_request=total,
    )
