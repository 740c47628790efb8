"""How an engine launches kernels, where that changes what they take: waiting at collectives, streams side by side."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from simulator.kernels.idle import without_idle
from simulator.kernels.timing import Timing
from simulator.operators.work import GemmShape, Work

SHARED_EXPERT = "shared_expert"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTraits:
    """Of the engine whose kernels are priced.

    collective_lag_s : mean lag of a host that issues a collective; its devices wait for the slowest of them [s]
    side_stream_tokens : up to that many tokens in a step, shared experts run beside the routed ones; 0 for never
    """

    collective_lag_s: float = 0.0
    side_stream_tokens: int = 0


NO_TRAITS = EngineTraits()


def slowest_lag(participants: int) -> float:
    """How far the slowest of ``participants`` hosts is behind an average one, in units of the mean lag.

    Lags are exponential and independent, so that the expected largest of p is the p-th harmonic number times the mean.
    Valid for participants >= 1; leaves out that a device which is far ahead of its host's queue hides a part.

    References
    ----------
    [David2003]
    """
    return sum(1 / place for place in range(2, participants + 1))


def with_wait(timing: Timing, *, traits: EngineTraits, participants: int) -> Timing:
    """A collective's price with the wait for the device whose host issued it last."""
    if not traits.collective_lag_s or participants == 1:
        return timing
    return replace(timing, seconds=timing.seconds + traits.collective_lag_s * slowest_lag(participants))


def in_step(timing: Timing, work: Work, *, traits: EngineTraits) -> Timing:
    """The price of a row among the others of its step: nothing where it has nothing to do, less on a side stream.

    A shared expert's product that runs beside the routed experts only takes its bandwidth, or its multiplications, away
    from them; launch, first bytes and last wave are hidden.
    """
    if traits.side_stream_tokens and work.role == SHARED_EXPERT and isinstance(work.shape, GemmShape):
        taken_s = np.minimum(timing.seconds, np.maximum(timing.compute_s, timing.memory_s))
        beside = np.asarray(work.shape.m) <= traits.side_stream_tokens
        timing = replace(timing, seconds=np.where(beside, taken_s, timing.seconds))
    return without_idle(timing, work)
