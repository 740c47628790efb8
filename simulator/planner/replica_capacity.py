"""Up to which rate a lane holds its objectives, and its latencies there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.engine.lengths import Array
from simulator.engine.steady_state import LatencyMetric, SteadyState, rows_of
from simulator.planner.records import Latencies, Objective

# An idle replica is asked at this share of its saturation rate: no queue, one request at a time.
UNLOADED_SHARE = 0.001
_SEARCH_POINTS = 16
_SEARCH_ROUNDS = 2


def _latencies(
    state: SteadyState, index: int, *, objectives: tuple[Objective, ...], saturation_per_s: float, count: int
) -> Latencies:
    def at(metric: LatencyMetric, percentile: float) -> float:
        return float(state.percentile_s(metric, percentile)[index])

    return Latencies(
        rate_per_s=float(state.rates_per_s[index]) * count,
        mean_sequences=float(state.mean_sequences[index]) * count,
        ttft_mean_s=float(state.ttft_mean_s[index]),
        tpot_mean_s=float(state.tpot_mean_s[index]),
        e2e_mean_s=float(state.e2e_mean_s[index]),
        ttft_p95_s=at(LatencyMetric.TTFT, 95.0),
        tpot_p95_s=at(LatencyMetric.TPOT, 95.0),
        e2e_p95_s=at(LatencyMetric.E2E, 95.0),
        objectives_s=tuple(at(item.metric, item.percentile) for item in objectives),
        kv_utilization=float(state.kv_utilization[index]),
        prompt_share=float(state.prompt_share[index]),
        slot_wait_probability=float(state.slot_wait_probability[index]),
        load=float(state.rates_per_s[index] / saturation_per_s),
    )


def excess_of(state: SteadyState, objectives: tuple[Objective, ...]) -> Array:
    """Measured over bound, per objective and rate [objectives, rates]; at most 1 where it holds."""
    return np.array([state.percentile_s(item.metric, item.percentile) / item.bound_s for item in objectives])


StatesOf = Callable[[Array], SteadyState]
"""A lane's steady state at each of several arrival rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Highest rate of a lane [1/s], the objective that fails next; ``state`` holds two rates: idle and the capacity."""

    rate_per_s: float
    binding: int | None
    state: SteadyState


@dataclass(frozen=True, slots=True, kw_only=True)
class Missed:
    """The objective that even an idle lane misses, and its measured value over its bound."""

    objective: Objective
    excess: float


def worst_of(excess: Array, objectives: tuple[Objective, ...]) -> Missed:
    """The objective with the largest of ``excess`` [objectives]."""
    worst = int(np.argmax(excess))
    return Missed(objective=objectives[worst], excess=float(excess[worst]))


def _highest_rate(states: StatesOf, ends: SteadyState, *, objectives: tuple[Objective, ...]) -> Capacity:
    """Largest rate between two ends up to which every objective holds, and the one that fails next.

    The first end holds and the second does not. Two rounds of evenly spaced rates; the answer was seen to hold.
    """
    low, high = (float(rate) for rate in ends.rates_per_s)
    binding, holds = 0, (ends, 0)
    for _ in range(_SEARCH_ROUNDS):
        rates = np.linspace(low, high, _SEARCH_POINTS)
        state = states(rates)
        excess = excess_of(state, objectives)
        first = max(1, int(np.argmax((excess > 1).any(axis=0))))
        binding, holds = int(np.argmax(excess[:, first])), (state, first - 1)
        low, high = float(rates[first - 1]), float(rates[first])
    return Capacity(rate_per_s=low, binding=binding, state=rows_of((ends, 0), holds))


def capacity_within(
    states: StatesOf, *, saturation_per_s: float, objectives: tuple[Objective, ...], utilization: float
) -> Capacity | Missed:
    """Rate of one lane within the objectives and the target utilisation, or the objective that even idling misses."""
    ends = np.array([UNLOADED_SHARE, utilization]) * saturation_per_s
    state = states(ends)
    if not objectives:
        return Capacity(rate_per_s=float(ends[1]), binding=None, state=state)
    excess = excess_of(state, objectives)
    if (excess[:, 0] > 1).any():
        return worst_of(excess[:, 0], objectives)
    if (excess[:, 1] <= 1).all():
        return Capacity(rate_per_s=float(ends[1]), binding=None, state=state)
    return _highest_rate(states, state, objectives=objectives)


def lane_latencies(
    state: SteadyState, *, objectives: tuple[Objective, ...], saturation_per_s: float, count: int = 1
) -> tuple[Latencies, ...]:
    """Latencies of ``count`` equal lanes at each rate of one lane's state; rates and sequences are of all of them."""
    return tuple(
        _latencies(state, index, objectives=objectives, saturation_per_s=saturation_per_s, count=count)
        for index in range(len(state.rates_per_s))
    )
