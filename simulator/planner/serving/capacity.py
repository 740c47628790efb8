"""What one replica carries within its objectives, from the load curve of its lanes, and what holds it back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from itertools import count
from math import inf, log
from typing import Literal

import numpy as np

from simulator.engine.lanes.limits import LaneLimits, SlotLimit, lane_limits
from simulator.engine.lanes.load_curve import LaneSteps, lane_step_s, lane_steps, lanes
from simulator.engine.lanes.pricing import Places
from simulator.engine.lanes.steady_state import SteadyState, rows_of
from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan, kept_bytes, token_cache_bytes
from simulator.phases.step import StepEstimate, estimate_steps
from simulator.records import dataclass
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.lengths import Array, RequestMix

Role = Literal["", "prefill", "decode"]
"""What the replicas of a pool do; empty where they do both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """Latencies of one replica at one arrival rate [s]; percentiles are of the objectives, in their order.

    rate_per_s, mean_sequences : of the whole replica, all its pipeline lanes and ranks of attention together
    """

    rate_per_s: float
    mean_sequences: float
    ttft_mean_s: float
    tpot_mean_s: float
    e2e_mean_s: float
    ttft_p95_s: float
    tpot_p95_s: float
    e2e_p95_s: float
    objectives_s: tuple[float, ...]
    kv_utilization: float
    prompt_share: float
    slot_wait_probability: float
    load: float


class Resource(StrEnum):
    """What a replica runs out of first."""

    TENSOR_CORE = "tensor cores"
    DEQUANTISATION = "dequantisation"
    OCCUPANCY = "occupancy"
    MEMORY = "memory bandwidth"
    LINK = "links"
    HOST = "host overhead"
    KV_MEMORY = "KV memory"
    BATCH_LIMIT = "batch limit"
    TOKEN_BUDGET = "token budget"
    QUEUEING = "queueing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What holds a replica back.

    objective : the one that binds, and is used up by ``resource`` at ``utilization``; None where none does
    sequences : at once, where slots are what is missing; of a step, where its time is
    utilization : of a replica that only computes prompts, the time it is busy
    step_margin : how many times as long as predicted steps take there
    random_moments : the objective is held for requests that arrive at random moments
    of_pools : of each pool by its role, where they have different ones; the rest is then of the last
    """

    resource: Resource
    objective: ObjectiveSpec | None = None
    sequences: float | None = None
    utilization: float = 0.0
    step_margin: float = 1.0
    random_moments: bool = False
    of_pools: tuple[tuple[str, Limit], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One copy of the model, what it sustains and what holds it back.

    saturation_per_s : highest rate it keeps up with; capacity_per_s : planned for, within objectives and utilisation
    step_margin : how many times as long as predicted steps may take for capacity_per_s to hold
    binding : index of the objective that holds capacity below the target utilisation, or None
    """

    deployment: Deployment
    memory: MemoryPlan
    slots: int
    slot_limit: SlotLimit
    saturated_sequences: float
    saturation_per_s: float
    capacity_per_s: float
    step_margin: float
    utilization: float
    binding: int | None
    unloaded: Latencies
    at_capacity: Latencies

    def needed_for(self, rate_per_s: float) -> float:
        """Replicas that carry a rate, before they are rounded up."""
        return rate_per_s / self.capacity_per_s

    @property
    def predicted_per_s(self) -> float:
        """About what it carries where steps take what was predicted [1/s]."""
        return self.capacity_per_s * self.step_margin

    @property
    def devices(self) -> int:
        """Accelerators of the replica."""
        return self.deployment.parallelism.devices

    @property
    def lane_sequences(self) -> float:
        """Mean batch of each of its lanes at its capacity."""
        return self.at_capacity.mean_sequences / lanes(self.deployment)


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownSteps:
    """What later questions need of priced steps, case by case: their rows take hundred times the memory.

    bound : what most of the time waits for, one of BOUNDS
    log_sigma : standard deviation of log(measured / predicted)
    provenance : Provenance value of what matters in it
    """

    bound: tuple[str, ...]
    log_sigma: Array
    provenance: Array

    @classmethod
    def of(cls, estimate: StepEstimate) -> KnownSteps:
        """What is known of a priced step."""
        return cls(bound=estimate.bound, log_sigma=estimate.log_sigma, provenance=estimate.provenance)


def kept_share(deployment: Deployment, *, mix: RequestMix) -> float:
    """Share of a running sequence's cache that a KV policy keeps, at the mean context; 1 without a policy."""
    if deployment.techniques.spec.kv_policy is None:
        return 1.0
    context = mix.decode_context_tokens
    empty, full = kept_bytes(deployment, tokens=np.array([0.0, context]))
    return float((full - empty) / (token_cache_bytes(deployment) * context))


def bounded_limits(deployment: Deployment, memory: MemoryPlan, *, mix: RequestMix) -> LaneLimits:
    """Limits of a lane; a policy that drops tokens lets the same memory hold more of them."""
    limits = lane_limits(deployment, memory, mix=mix)
    return replace(limits, kv_tokens=limits.kv_tokens / kept_share(deployment, mix=mix))


def priced_lanes(
    replicas: Sequence[tuple[Deployment, MemoryPlan]], *, mix: RequestMix
) -> list[tuple[LaneSteps, Array, KnownSteps]]:
    """A lane of each replica with the times of its steps [s], per token at the pace of speculation's rounds, and what
    is known of them: one call prices the replicas that share kernels, and do not speculate."""
    asked = [
        (deployment, lane_steps(mix, limits=bounded_limits(deployment, memory, mix=mix)))
        for deployment, memory in replicas
    ]
    together = iter(
        estimate_steps([(deployment, lane.at.step) for deployment, lane in asked if deployment.speculation is None])
    )
    found: list[tuple[LaneSteps, Array, KnownSteps]] = []
    for deployment, lane in asked:
        if deployment.speculation is None:
            estimate = next(together)
            found.append((lane, lane_step_s(estimate), KnownSteps.of(estimate)))
            continue
        # Needs the methods of speculation, which a plan without any does not import.
        from simulator.phases.draft_cost import per_token_step

        estimates: list[StepEstimate] = []

        def seconds(estimate: StepEstimate, into: list[StepEstimate] = estimates) -> Array:
            into.append(estimate)
            return lane_step_s(estimate)

        step_s = per_token_step(deployment, lane.at.step, seconds=seconds)
        # Speculation prices the verify steps alone first, then with the prompts that ride along.
        found.append((lane, step_s, KnownSteps.of(estimates[1])))
    return found


# An idle replica is asked at this share of its saturation rate: no queue, one request at a time.
UNLOADED_SHARE = 0.001
_SEARCH_POINTS = 16
_SEARCH_ROUNDS = 2
_GUESSES = 4
_TOGETHER = 60
"""Rates of all lanes that are left to try which are asked for at once: one more takes a fortieth of what one alone
takes."""
_CAUTION = 0.1
"""How far towards the middle a guess is moved: it then leaves less where it is wrong."""


def excess_of(state: SteadyState, objectives: tuple[ObjectiveSpec, ...]) -> Array:
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

    objective: ObjectiveSpec
    excess: float


def worst_of(excess: Array, objectives: tuple[ObjectiveSpec, ...]) -> Missed:
    """The objective with the largest of ``excess`` [objectives]."""
    worst = int(np.argmax(excess))
    return Missed(objective=objectives[worst], excess=float(excess[worst]))


@dataclasses.dataclass(slots=True, kw_only=True)
class _Range:
    """Between which rates a lane's capacity lies: the objectives hold at the first and do not at the second.

    holds : the steady state of the first rate and its row in it; margin, excess : measured over bound at either,
        the largest and of each objective
    """

    lane: int
    low: float
    high: float
    holds: tuple[SteadyState, int]
    margin: float
    excess: Array

    def narrow(self, rate: float, *, state: SteadyState, row: int, excess: Array) -> bool:
        """Move the end that a rate in between replaces; whether it is the first."""
        if (excess <= 1).all():
            self.low, self.holds, self.margin = rate, (state, row), float(excess.max())
            return True
        self.high, self.excess = rate, excess
        return False

    def between(self, low: int, high: int, *, tried: int) -> int:
        """The place to try next of those between two.

        Near where the line between the logarithms of what was measured crosses the bound; after a few such guesses the
        middle, which ends the search wherever the bound is crossed.
        """
        beyond = float(self.excess.max())
        if tried >= _GUESSES or not 0 < self.margin < beyond < inf:
            return (low + high) // 2
        share = -log(self.margin) / (log(beyond) - log(self.margin))
        guess = round(low + (share + _CAUTION * (1 / 2 - share)) * (high - low))
        return min(max(guess, low + 1), high - 1)


def _narrow_all(states: LaneStatesOf, ranges: Sequence[_Range], *, objectives: tuple[ObjectiveSpec, ...]) -> None:
    """Bring every range down to two neighbours of _SEARCH_POINTS evenly spaced rates, side by side."""
    rates = [np.linspace(item.low, item.high, _SEARCH_POINTS) for item in ranges]
    places = [(0, _SEARCH_POINTS - 1)] * len(ranges)
    known: dict[tuple[int, int], tuple[SteadyState, int, Array]] = {}
    for tried in count():
        open_ = {index: (low, high) for index, (low, high) in enumerate(places) if high - low > 1}
        if not open_:
            return
        chosen = {index: ranges[index].between(low, high, tried=tried) for index, (low, high) in open_.items()}
        asked = [item for item in chosen.items() if item not in known]
        if asked and sum(high - low - 1 for low, high in open_.values()) <= _TOGETHER:
            asked = [(index, place) for index, (low, high) in open_.items() for place in range(low + 1, high)]
        if asked:
            lanes_asked = np.array([ranges[index].lane for index, _ in asked], dtype=np.intp)
            state = states(lanes_asked, np.array([rates[index][place] for index, place in asked]))
            excess = excess_of(state, objectives)
            known.update({item: (state, row, excess[:, row]) for row, item in enumerate(asked)})
        for index, place in chosen.items():
            (low, high), (found, row, measured) = places[index], known[index, place]
            held = ranges[index].narrow(float(rates[index][place]), state=found, row=row, excess=measured)
            places[index] = (place, high) if held else (low, place)


def capacities_within(
    states: LaneStatesOf, *, saturation_per_s: Array, objectives: tuple[ObjectiveSpec, ...], utilization: float
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
            known = (state, 2 * lane)
            ranges.append(_Range(lane=lane, low=low, high=high, holds=known, margin=float(idle.max()), excess=full))
    for _ in range(_SEARCH_ROUNDS if ranges else 0):
        _narrow_all(states, ranges, objectives=objectives)
    for item in ranges:
        both = rows_of((state, 2 * item.lane), item.holds)
        found[item.lane] = Capacity(rate_per_s=item.low, binding=int(np.argmax(item.excess)), state=both)
    return found


def capacity_within(
    states: StatesOf, *, saturation_per_s: float, objectives: tuple[ObjectiveSpec, ...], utilization: float
) -> Capacity | Missed:
    """Rate of one lane within the objectives and the target utilisation, or the objective that even idling misses."""
    (found,) = capacities_within(
        lambda _, rates: states(rates),
        saturation_per_s=np.array([saturation_per_s]),
        objectives=objectives,
        utilization=utilization,
    )
    return found
