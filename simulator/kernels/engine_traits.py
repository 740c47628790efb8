"""How an engine launches kernels, where that changes what they take: waiting at collectives, streams side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.kernels.timing import Timing, without_idle
from simulator.operators.work import AttentionShape, GemmShape, Work

SHARED_EXPERT = "shared_expert"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTraits:
    """Of the engine whose kernels are priced.

    collective_lag_s : mean lag of a host that issues a collective; its devices wait for the slowest of them [s]
    side_stream_tokens : up to that many tokens in a step, shared experts run beside the routed ones; 0 for never
    matrix_groups : query heads per KV head whose decode attention has a kernel for the matrix units; None for all
    vector_elements_per_s : keys' and values' numbers that the vector units of the device take in where there is none,
        once for every query head [1/s]
    """

    collective_lag_s: float = 0.0
    side_stream_tokens: int = 0
    matrix_groups: frozenset[int] | None = None
    vector_elements_per_s: float = float("inf")


NO_TRAITS = EngineTraits()


def slowest_lag(participants: int) -> float:
    """How far the slowest of several hosts is behind an average one, in units of the mean lag [-].

    Equation
    --------
    h = 1/2 + 1/3 + ... + 1/p

    Parameters
    ----------
    participants : hosts p that issue the same collective [-]

    Range of validity
    -----------------
    p >= 1, lags exponential and independent, so that the expected largest of p is the p-th harmonic number times the
    mean. Leaves out that a device which is far ahead of its host's queue hides a part.

    References
    ----------
    [David2003]

    Examples
    --------
    >>> round(slowest_lag(4), 4)
    1.0833
    """
    return sum(1 / place for place in range(2, participants + 1))


def with_wait(timing: Timing, *, traits: EngineTraits, participants: int) -> Timing:
    """A collective's price with the wait for the device whose host issued it last."""
    if not traits.collective_lag_s or participants == 1:
        return timing
    return replace(timing, seconds=timing.seconds + traits.collective_lag_s * slowest_lag(participants))


def _on_vector_units(timing: Timing, shape: AttentionShape, *, traits: EngineTraits) -> Timing:
    """Decode attention whose query heads each go through the keys and values of their group on their own.

    One block of threads a query head, products by the vector units, so that every number of the cache is converted and
    multiplied once per head; memory still reads it once. Valid for one query a sequence; leaves out short contexts,
    where a launch decides.

    References
    ----------
    [NVIDIA2024b]
    """
    group = round(shape.num_heads / shape.num_kv_heads)
    if traits.matrix_groups is None or group in traits.matrix_groups or not shape.is_decode:
        return timing
    keys = np.minimum(shape.context_tokens + shape.query_tokens, np.inf if shape.window is None else shape.window)
    elements = shape.sequences * keys * shape.num_heads * (shape.head_dim + shape.v_head_dim)
    vector_s = elements / traits.vector_elements_per_s
    return replace(
        timing, seconds=np.maximum(timing.seconds, vector_s), compute_s=np.maximum(timing.compute_s, vector_s)
    )


def in_step(timing: Timing, work: Work, *, traits: EngineTraits) -> Timing:
    """The price of a row among the others of its step: nothing where it has nothing to do, less on a side stream.

    A shared expert's product that runs beside the routed experts only takes its bandwidth, or its multiplications, away
    from them; launch, first bytes and last wave are hidden.
    """
    if traits.side_stream_tokens and work.role == SHARED_EXPERT and isinstance(work.shape, GemmShape):
        taken_s = np.minimum(timing.seconds, np.maximum(timing.compute_s, timing.memory_s))
        beside = np.asarray(work.shape.m) <= traits.side_stream_tokens
        timing = replace(timing, seconds=np.where(beside, taken_s, timing.seconds))
    if isinstance(work.shape, AttentionShape):
        timing = _on_vector_units(timing, work.shape, traits=traits)
    return without_idle(timing, work)
