"""One kind of replica: can it serve at all, and how much within its memory, its context length and its objectives.

Up to which rate a lane holds its objectives is searched on its load curve; a refusal says by how much it misses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from simulator.engine.lanes.load_curve import (
    LoadCurve,
    Saturation,
    SlotLimit,
    kv_tokens_for_one,
    lanes,
)
from simulator.engine.lanes.pricing import Places
from simulator.engine.lanes.steady_state import LatencyMetric, SteadyState, rows_of
from simulator.errors import Option, RoofcastError
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import MemoryPlan, memory_plan
from simulator.phases.step import StepEstimate
from simulator.planner.fleet.records import Latencies, Replica, Role
from simulator.planner.reasons import (
    BudgetTooSmall,
    CacheTooSmall,
    ObjectiveMissed,
    QualityLost,
    Rejection,
    WeightsTooLarge,
    not_deployable,
    refuse,
)
from simulator.planner.records import Objective
from simulator.planner.search.candidates import Candidate
from simulator.planner.serving.replica_curve import replica_curves
from simulator.specs.model.architecture import ModelSpec
from simulator.traffic.lengths import Array, RequestMix


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How far a replica may be loaded."""

    utilization: float
    profiles: str | None = None
    max_quality_loss: float | None = None


def check_context(model: ModelSpec, *, mix: RequestMix, max_model_len: int | None) -> None:
    """Refuse requests that the model cannot take on any hardware."""
    positions = model.max_position_embeddings
    if max_model_len is not None and positions is not None and max_model_len > positions:
        raise RoofcastError(
            f"{max_model_len} is more than {model.name} has positions; allowed: 1 to {positions}",
            field=Option("max_model_len"),
            code="context_too_long",
        )
    tokens = mix.isl.mean_tokens + mix.osl.mean_tokens
    limit = max_model_len or positions
    if limit is not None and tokens > limit:
        raise RoofcastError(
            f"a mean request of {tokens:.0f} tokens is longer than the {limit} positions of {model.name}",
            field=Option("isl_tokens"),
            code="context_too_long",
            hint="shorten `isl_tokens` and `osl_tokens`, or plan for a model with a longer context",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind of replica of a fleet: of the only one, or of one of two pools; with what later questions need.

    curve, steps : of one lane, and the priced steps that it was made of; role : the pool's, empty for the only kind
    """

    candidate: Candidate
    replica: Replica
    curve: LoadCurve
    steps: StepEstimate
    role: Role = ""

    def confirmed(self, capacity_per_s: float) -> Part:
        """The same with another capacity, and that share of the rate that saturates it."""
        share = capacity_per_s / self.replica.saturation_per_s
        return replace(self, replica=replace(self.replica, capacity_per_s=capacity_per_s, utilization=share))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A candidate that fits, with what one lane of it costs for a mix of requests."""

    candidate: Candidate
    deployment: Deployment
    memory: MemoryPlan
    curve: LoadCurve
    steps: StepEstimate


def prepare(candidate: Candidate, *, model: ModelSpec, mix: RequestMix, policy: Policy) -> Prepared | Rejection:
    """Deploy a candidate and price its steps, or say why it cannot hold one request."""
    (found,) = prepare_all((candidate,), model=model, mix=mix, policy=policy)
    return found


def prepare_all(
    tried: Sequence[Candidate], *, model: ModelSpec, mix: RequestMix, policy: Policy
) -> list[Prepared | Rejection]:
    """``prepare`` of several candidates: the steps of those on one platform are priced together."""
    found: list[Prepared | Rejection] = []
    for _, same in groupby(tried, key=lambda candidate: id(candidate.platform.hardware)):
        found += _prepared(tuple(same), model=model, mix=mix, policy=policy)
    return found


def _prepared(
    tried: tuple[Candidate, ...], *, model: ModelSpec, mix: RequestMix, policy: Policy
) -> list[Prepared | Rejection]:
    found = [_deployed(candidate, model=model, policy=policy) for candidate in tried]
    try:
        curves = iter(replica_curves([item for item in found if not isinstance(item, Rejection)], mix=mix))
    except RoofcastError as error:
        if len(tried) == 1:
            return [not_deployable(tried[0], error)]
        # Which of them has no price, each says alone.
        return [one for candidate in tried for one in _prepared((candidate,), model=model, mix=mix, policy=policy)]
    return [
        item if isinstance(item, Rejection) else _with_slots(candidate, item, *next(curves))
        for candidate, item in zip(tried, found, strict=True)
    ]


def deployed(candidate: Candidate, *, model: ModelSpec, policy: Policy) -> Deployment:
    """A candidate's deployment. Raises RoofcastError for what the engine or the hardware cannot do."""
    return deploy(
        model=model,
        hardware=candidate.platform.hardware,
        parallelism=candidate.parallelism,
        precision=candidate.precision,
        techniques=candidate.techniques,
        engine=candidate.engine,
        profiles=policy.profiles,
    )


def _deployed(candidate: Candidate, *, model: ModelSpec, policy: Policy) -> tuple[Deployment, MemoryPlan] | Rejection:
    """A candidate's deployment and what its memory holds, or why it is none."""
    if policy.max_quality_loss is not None:
        below = quality_refusal(candidate, model=model, allowed=policy.max_quality_loss)
        if below:
            return below
    try:
        deployment = deployed(candidate, model=model, policy=policy)
    except RoofcastError as error:
        return not_deployable(candidate, error)
    memory = memory_plan(deployment)
    return memory_refusal(candidate, memory) or (deployment, memory)


def _with_slots(
    candidate: Candidate, found: tuple[Deployment, MemoryPlan], curve: LoadCurve, steps: StepEstimate
) -> Prepared | Rejection:
    deployment, memory = found
    refusal = slot_refusal(candidate, memory, curve=curve)
    return refusal or Prepared(candidate=candidate, deployment=deployment, memory=memory, curve=curve, steps=steps)


def part_of(
    found: Prepared,
    *,
    limit: Saturation,
    capacity: Capacity,
    objectives: tuple[Objective, ...],
    role: Role = "",
) -> Part:
    """The replica of a prepared candidate; ``capacity.state`` is what its requests see idle and at capacity."""
    count = lanes(found.deployment)
    unloaded, at_capacity = lane_latencies(
        capacity.state, objectives=objectives, saturation_per_s=limit.rate_per_s, count=count
    )
    replica = Replica(
        deployment=found.deployment,
        memory=found.memory,
        slots=found.curve.slots * count,
        slot_limit=limit.limit,
        saturated_sequences=limit.sequences * count,
        saturation_per_s=limit.rate_per_s * count,
        capacity_per_s=capacity.rate_per_s * count,
        utilization=capacity.rate_per_s / limit.rate_per_s,
        binding=capacity.binding,
        unloaded=unloaded,
        at_capacity=at_capacity,
    )
    return Part(candidate=found.candidate, replica=replica, curve=found.curve, steps=found.steps, role=role)


# An idle replica is asked at this share of its saturation rate: no queue, one request at a time.
UNLOADED_SHARE = 0.001
_SEARCH_POINTS = 16
_SEARCH_ROUNDS = 2


def _latencies(
    state: SteadyState, *, objectives: tuple[Objective, ...], saturation_per_s: float, count: int
) -> Iterator[Latencies]:
    ttft_s, tpot_s, e2e_s = (state.percentile_s(metric, 95.0) for metric in LatencyMetric)
    asked_s = [state.percentile_s(item.metric, item.percentile) for item in objectives]
    for index, rate in enumerate(state.rates_per_s):
        yield Latencies(
            rate_per_s=float(rate) * count,
            mean_sequences=float(state.mean_sequences[index]) * count,
            ttft_mean_s=float(state.ttft_mean_s[index]),
            tpot_mean_s=float(state.tpot_mean_s[index]),
            e2e_mean_s=float(state.e2e_mean_s[index]),
            ttft_p95_s=float(ttft_s[index]),
            tpot_p95_s=float(tpot_s[index]),
            e2e_p95_s=float(e2e_s[index]),
            objectives_s=tuple(float(values[index]) for values in asked_s),
            kv_utilization=float(state.kv_utilization[index]),
            prompt_share=float(state.prompt_share[index]),
            slot_wait_probability=float(state.slot_wait_probability[index]),
            load=float(rate / saturation_per_s),
        )


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


def lane_latencies(
    state: SteadyState, *, objectives: tuple[Objective, ...], saturation_per_s: float, count: int = 1
) -> tuple[Latencies, ...]:
    """Latencies of ``count`` equal lanes at each rate of one lane's state; rates and sequences are of all of them."""
    return tuple(_latencies(state, objectives=objectives, saturation_per_s=saturation_per_s, count=count))


def quality_refusal(candidate: Candidate, *, model: ModelSpec, allowed: float) -> Rejection | None:
    """Answers that lose more than is allowed, as far as is published."""
    # Published figures are read only where a floor asks for them.
    from simulator.planner.search.format_quality import answer_quality

    quality = answer_quality(model, candidate.precision, candidate.techniques)
    if quality.within(allowed):
        return None
    reason = QualityLost(loss=quality.loss, allowed=allowed, note=quality.note)
    excess = float("inf") if quality.loss is None else quality.loss - allowed
    return refuse(candidate, code="quality", reason=reason, excess=excess)


def memory_refusal(candidate: Candidate, memory: MemoryPlan) -> Rejection | None:
    """Weights that do not fit."""
    if memory.shortfall_bytes > 0:
        reason = WeightsTooLarge(
            shortfall_bytes=memory.shortfall_bytes,
            weights_bytes=memory.weights_bytes,
            budget_bytes=memory.budget_bytes,
        )
        excess = memory.shortfall_bytes / memory.budget_bytes
        return refuse(candidate, code="memory", reason=reason, excess=excess)
    return None


def slot_refusal(candidate: Candidate, memory: MemoryPlan, *, curve: LoadCurve) -> Rejection | None:
    """A lane that cannot run one sequence: its token budget or its share of the cache is too small."""
    if curve.slots > 0:
        return None
    limits, stages = curve.limits, candidate.parallelism.pp_size
    if curve.limit is SlotLimit.TOKEN_BUDGET:
        reason = BudgetTooSmall(batched_tokens=limits.batched_tokens)
        return refuse(candidate, code="token_budget", reason=reason, excess=1 / limits.batched_tokens)
    needed = kv_tokens_for_one(curve.mix, limits=limits)
    short_bytes = (needed - limits.kv_tokens) * stages * memory.kv_bytes_per_token
    short = CacheTooSmall(
        capacity_tokens=memory.kv_capacity_tokens,
        stages=stages,
        lane_tokens=limits.kv_tokens,
        mean_tokens=curve.mix.decode_context_tokens,
        needed_tokens=needed,
        short_bytes=short_bytes,
    )
    return refuse(candidate, code="slots", reason=short, excess=short_bytes / memory.budget_bytes)


def missed_objective(candidate: Candidate, missed: Missed) -> Rejection:
    """The refusal of a candidate that misses an objective even without load."""
    item, excess = missed.objective, missed.excess
    reason = ObjectiveMissed(objective=item.name, bound_s=item.bound_s, idle_s=excess * item.bound_s)
    return refuse(candidate, code="objective", reason=reason, excess=excess - 1)
