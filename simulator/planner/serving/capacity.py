"""Up to which rate lanes hold their objectives, searched on their load curves side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.engine.lanes.pricing import Places
from simulator.engine.lanes.steady_state import Objective, SteadyState, rows_of
from simulator.traffic.lengths import Array

# An idle replica is asked at this share of its saturation rate: no queue, one request at a time.
UNLOADED_SHARE = 0.001
_SEARCH_POINTS = 16
_SEARCH_ROUNDS = 2


def excess_of(state: SteadyState, objectives: tuple[Objective, ...]) -> Array:
    """Measured over bound, per objective and rate [objectives, rates]; at most 1 where it holds."""
    return np.array([state.percentile_s(item.metric, item.percentile) / item.bound_s for item in objectives])


StatesOf = Callable[[Array], SteadyState]
"""A lane's steady state at each of several arrival rates."""

LaneStatesOf = Callable[[Places, Array], SteadyState]
"""Steady states of lanes, named by their places in ascending order, each at its arrival rate."""


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


@dataclass(slots=True, kw_only=True)
class _Range:
    """Between which rates a lane's capacity lies: the objectives hold at the first and do not at the second."""

    lane: int
    low: float
    high: float
    holds: tuple[SteadyState, int]
    excess: Array

    def narrow(self, rate: float, *, state: SteadyState, row: int, excess: Array) -> bool:
        """Move the end that a rate in between replaces; whether it is the first."""
        if (excess <= 1).all():
            self.low, self.holds = rate, (state, row)
            return True
        self.high, self.excess = rate, excess
        return False


def _narrow_all(states: LaneStatesOf, ranges: Sequence[_Range], *, objectives: tuple[Objective, ...]) -> None:
    """Bring every range down to two neighbours of _SEARCH_POINTS evenly spaced rates, by bisection side by side."""
    rates = [np.linspace(item.low, item.high, _SEARCH_POINTS) for item in ranges]
    places = [(0, _SEARCH_POINTS - 1)] * len(ranges)
    while True:
        open_ = [index for index, (low, high) in enumerate(places) if high - low > 1]
        if not open_:
            return
        middles = [sum(places[index]) // 2 for index in open_]
        asked = np.array([rates[index][middle] for index, middle in zip(open_, middles, strict=True)])
        state = states(np.array([ranges[index].lane for index in open_], dtype=np.intp), asked)
        excess = excess_of(state, objectives)
        for row, (index, middle) in enumerate(zip(open_, middles, strict=True)):
            low, high = places[index]
            held = ranges[index].narrow(float(asked[row]), state=state, row=row, excess=excess[:, row])
            places[index] = (middle, high) if held else (low, middle)


def capacities_within(
    states: LaneStatesOf, *, saturation_per_s: Array, objectives: tuple[Objective, ...], utilization: float
) -> list[Capacity | Missed]:
    """``capacity_within`` of several lanes, one for each of ``saturation_per_s``: looked for side by side."""
    ends = np.array([UNLOADED_SHARE, utilization]) * saturation_per_s[:, None]
    state = states(np.repeat(np.arange(len(ends)), 2), ends.ravel())
    found: list[Capacity | Missed] = []
    ranges: list[_Range] = []
    excess = excess_of(state, objectives) if objectives else np.zeros((0, ends.size))
    for lane, (idle, full) in enumerate(np.moveaxis(excess.reshape(-1, *ends.shape), 0, -1)):
        if (idle > 1).any():
            found.append(worst_of(idle, objectives))
            continue
        both = rows_of((state, 2 * lane), (state, 2 * lane + 1))
        found.append(Capacity(rate_per_s=float(ends[lane, 1]), binding=None, state=both))
        if (full > 1).any():
            low, high = ends[lane].tolist()
            ranges.append(_Range(lane=lane, low=low, high=high, holds=(state, 2 * lane), excess=full))
    for _ in range(_SEARCH_ROUNDS if ranges else 0):
        _narrow_all(states, ranges, objectives=objectives)
    for item in ranges:
        both = rows_of((state, 2 * item.lane), item.holds)
        found[item.lane] = Capacity(rate_per_s=item.low, binding=int(np.argmax(item.excess)), state=both)
    return found


def capacity_within(
    states: StatesOf, *, saturation_per_s: float, objectives: tuple[Objective, ...], utilization: float
) -> Capacity | Missed:
    """Rate of one lane within the objectives and the target utilisation, or the objective that even idling misses."""
    (found,) = capacities_within(
        lambda _, rates: states(rates),
        saturation_per_s=np.array([saturation_per_s]),
        objectives=objectives,
        utilization=utilization,
    )
    return found
