"""How a fleet serves: what every shape can be asked, and the usual one, whose replicas compute prompts and answers.

Sizing, failures, growth, cost and checks ask a shape and never which one it is: they go through its parts. What holds
a replica back, and how well that is known.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil
from sys import float_info

import numpy as np

from simulator.engine.lanes.limits import SlotLimit
from simulator.engine.lanes.load_curve import LoadCurve, lanes, saturation, stack
from simulator.engine.lanes.occupancy import lane_rows
from simulator.engine.lanes.steady_state import SteadyState, rows_of, steady_state, steady_states
from simulator.kernels.roofline import DEQUANTISATION, HOST, LINK, MEMORY, OCCUPANCY, TENSOR_CORE
from simulator.kernels.timing import Provenance
from simulator.planner.records import Candidate, Rejection
from simulator.planner.serving.capacity import Capacity, Latencies, Limit, Missed, Replica, Resource, capacities_within
from simulator.planner.serving.pool_states import Transfer
from simulator.planner.serving.replica import (
    LoadPolicy,
    Part,
    Prepared,
    lane_latencies,
    missed_objective,
    nearest_steps,
    part_of,
    prepare,
    step_margin,
)
from simulator.records import dataclass
from simulator.specs.model.architecture import ModelSpec
from simulator.specs.question.plan_values import LatencyMetric, ObjectiveSpec
from simulator.specs.question.techniques import SpeculationSpec
from simulator.traffic.lengths import Array, RequestMix

Counts = tuple[int, ...]
"""Replicas of each part of a shape, in the order of a request's way."""
# Ceilings are taken a hair lower, so that a demand of exactly n capacities does not need n + 1 replicas.
ROUNDING: float = float_info.epsilon ** (1 / 2)


def replicas_for(rate_per_s: float, *, capacity_per_s: float) -> int:
    """Replicas that carry a rate, at least one."""
    return max(1, ceil(rate_per_s / capacity_per_s * (1 - ROUNDING)))


class Shape(ABC):
    """What serves: one kind of replica, or two in a row."""

    __slots__ = ()

    @property
    @abstractmethod
    def parts(self) -> tuple[Part, ...]:
        """Kinds of replicas in the order of a request's way; the last one generates."""

    @abstractmethod
    def states(self, rates_per_s: Sequence[Array], *, replicas: Sequence[Array]) -> SteadyState:
        """What requests see, and how full the last part is, at arrival rates of one replica of every part [1/s].

        replicas : of every part, which take turns at the arrivals; 1 for requests at random moments
        """

    @abstractmethod
    def prompt_share(self, money: Sequence[float]) -> float:
        """Share of a fleet's money that prompts take; ``money`` goes to each part."""

    @abstractmethod
    def transfer_at(self, rate_per_s: float, counts: Counts) -> Transfer | None:
        """How KV caches move between the parts of a fleet; None where they stay."""

    @abstractmethod
    def confirmed(self, rate_per_s: float, counts: Counts) -> Shape:
        """This shape where so many replicas of each part, and no fewer, carry a rate."""

    @property
    @abstractmethod
    def candidate(self) -> Candidate:
        """The whole set-up."""

    @property
    def replica(self) -> Replica:
        """A replica of the last part: its sequences, its cache, and what requests see at its capacity."""
        return self.parts[-1].replica

    def counts(self, rate_per_s: float, *, replicas: int | None = None) -> Counts:
        """Replicas that carry a rate; with ``replicas`` of the last part, as many times more of the others."""
        needed = [replicas_for(rate_per_s, capacity_per_s=part.replica.capacity_per_s) for part in self.parts]
        if replicas is None:
            return tuple(needed)
        return (*(ceil(count * replicas / needed[-1]) for count in needed[:-1]), replicas)

    def capacity_per_s(self, counts: Counts) -> float:
        """Rate that so many replicas carry, whichever part is full first [1/s]."""
        return min(count * part.replica.capacity_per_s for count, part in zip(counts, self.parts, strict=True))

    def devices(self, counts: Counts) -> int:
        """Accelerators of so many replicas."""
        return sum(count * part.replica.devices for count, part in zip(counts, self.parts, strict=True))

    def most(self, devices: int) -> Counts | None:
        """The replicas of every part that carry most on so many accelerators; None where not one of each fits."""
        # Some part is full: as many of it as the others keep pace with.
        most_per_s = 0.0
        for replica in (part.replica for part in self.parts):
            tried, each = range(1, devices // replica.devices + 1), replica.capacity_per_s
            count = bisect_right(tried, devices, key=lambda count: self.devices(self.counts(count * each)))
            most_per_s = max(most_per_s, count * each)
        if most_per_s == 0:
            return None
        others = self.counts(most_per_s)[:-1]
        left = devices - sum(count * part.replica.devices for count, part in zip(others, self.parts[:-1], strict=True))
        return (*others, left // self.replica.devices)

    def within(self, devices: int, *, rate_per_s: float, spare: Counts) -> tuple[Counts, Counts]:
        """Replicas and spares on so many accelerators, enough for a rate or the most; no spares before replicas.
        ``devices`` hold at least one replica of every part."""
        for_spares = devices - sum(part.replica.devices for part in self.parts)

        def at_most(each: int) -> Counts:
            return tuple(min(count, each) for count in spare)

        kept = at_most(bisect_right(range(1, max(spare) + 1), for_spares, key=lambda each: self.devices(at_most(each))))
        room = self.most(devices - self.devices(kept))
        assert room is not None, "one replica of every part fits"
        needed = self.counts(rate_per_s)
        fits = self.devices(needed) <= devices - self.devices(kept)
        return (needed if fits else room), kept

    def load(self, rate_per_s: float, counts: Counts) -> float:
        """Share of its saturation rate at which the fullest part runs; infinite where one has no replicas."""
        each = (count * part.replica.saturation_per_s for count, part in zip(counts, self.parts, strict=True))
        return max(rate_per_s / most if most else float("inf") for most in each)

    def latencies(self, *rates_per_s: float, objectives: tuple[ObjectiveSpec, ...]) -> tuple[Latencies, ...]:
        """Latencies at arrival rates of one replica of the last part [1/s], the other parts as loaded as it."""
        rates, own = np.array(rates_per_s), self.replica.capacity_per_s
        each = [rates * (part.replica.capacity_per_s / own) for part in self.parts]
        return self.at_rates(each, replicas=[np.ones(1)] * len(each), objectives=objectives)

    def at_counts(
        self, rate_per_s: float, *counts: Counts, objectives: tuple[ObjectiveSpec, ...]
    ) -> tuple[Latencies, ...]:
        """Latencies that a rate [1/s] meets on each of several numbers of replicas."""
        replicas = list(np.array(counts, dtype=np.float64).T)
        return self.at_rates([rate_per_s / count for count in replicas], replicas=replicas, objectives=objectives)

    def sweep(self, rates_per_s: Array, *, counts: Counts) -> SteadyState:
        """States of a fleet of ``counts`` at arrival rates of one of the last part's replicas [1/s]."""
        each = [rates_per_s * counts[-1] / count for count in counts]
        return self.states(each, replicas=[np.array([float(count)]) for count in counts])

    def saturation_per_s(self, counts: Counts) -> float:
        """Rate of one of the last part's replicas that saturates the first part of a fleet to be full [1/s]."""
        each = zip(counts, self.parts, strict=True)
        return min(part.replica.saturation_per_s * count / counts[-1] for count, part in each)

    def at_rates(
        self, rates_per_s: Sequence[Array], *, replicas: Sequence[Array], objectives: tuple[ObjectiveSpec, ...]
    ) -> tuple[Latencies, ...]:
        """Latencies at arrival rates of one replica of every part [1/s]; so many take turns, see ``states``."""
        return self.seen(self.states(rates_per_s, replicas=replicas), objectives=objectives)

    def seen(self, state: SteadyState, *, objectives: tuple[ObjectiveSpec, ...]) -> tuple[Latencies, ...]:
        """What requests see at each rate of a ``state`` of this shape."""
        count = lanes(self.replica.deployment)
        return lane_latencies(
            state, objectives=objectives, saturation_per_s=self.replica.saturation_per_s / count, count=count
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregated(Shape):
    """Replicas that compute prompts and answers together."""

    part: Part

    @property
    def parts(self) -> tuple[Part, ...]:
        """The only kind."""
        return (self.part,)

    @property
    def candidate(self) -> Candidate:
        """The candidate of the only kind of replica."""
        return self.part.candidate

    def states(self, rates_per_s: Sequence[Array], *, replicas: Sequence[Array]) -> SteadyState:
        """See ``Shape``; requests come at random moments, however many replicas there are."""
        return steady_state(self.part.curve, rates_per_s=rates_per_s[0] / lanes(self.replica.deployment))

    def prompt_share(self, money: Sequence[float]) -> float:
        """The share of the time of a replica at its capacity."""
        return self.replica.at_capacity.prompt_share

    def transfer_at(self, rate_per_s: float, counts: Counts) -> Transfer | None:
        """Nothing moves."""
        return None

    def confirmed(self, rate_per_s: float, counts: Counts) -> Shape:
        """See ``Shape``."""
        return replace(self, part=self.part.confirmed(rate_per_s / counts[0]))


def evaluate(
    candidate: Candidate,
    *,
    model: ModelSpec,
    mix: RequestMix,
    objectives: tuple[ObjectiveSpec, ...],
    policy: LoadPolicy,
) -> Aggregated | Rejection:
    """What one replica that does both sustains, or why it cannot serve."""
    found = prepare(candidate, model=model, mix=mix, policy=policy)
    return evaluate_prepared((found,), objectives=objectives, policy=policy)[0]


def evaluate_prepared(
    tried: Sequence[Prepared | Rejection], *, objectives: tuple[ObjectiveSpec, ...], policy: LoadPolicy
) -> list[Aggregated | Rejection]:
    """What each of the prepared candidates of one mix sustains, looked for side by side; refusals as they are."""
    # Lanes with about as many slots stand together: each part of the rows is as wide as the widest lane in it.
    fitting = [(place, item) for place, item in enumerate(tried) if isinstance(item, Prepared)]
    fitting.sort(key=lambda each: each[1].curve.slots)
    outcomes = _evaluated([item for _, item in fitting], objectives=objectives, policy=policy) if fitting else ()
    found = dict(zip((place for place, _ in fitting), outcomes, strict=True))
    return [item if isinstance(item, Rejection) else found[place] for place, item in enumerate(tried)]


def _evaluated(
    found: Sequence[Prepared], *, objectives: tuple[ObjectiveSpec, ...], policy: LoadPolicy
) -> Iterator[Aggregated | Rejection]:
    limits = [saturation(item.curve) for item in found]
    slow = [item.slowed(step_margin(item, limit, policy)) for item, limit in zip(found, limits, strict=True)]
    lanes_of = stack([item.curve for item in slow])
    capacities = capacities_within(
        lambda of, rates: steady_states(lane_rows(lanes_of, of=of, rates_per_s=rates)),
        saturation_per_s=np.array(
            [limit.rate_per_s / item.step_margin for item, limit in zip(slow, limits, strict=True)]
        ),
        objectives=objectives,
        utilization=policy.utilization,
    )
    pairs = zip(found, capacities, strict=True)
    # What requests see while steps take what was predicted, idle and at the capacity.
    states = _states_of(
        [(item.curve, capacity.state.rates_per_s) for item, capacity in pairs if isinstance(capacity, Capacity)]
    )
    for item, limit, slowed, capacity in zip(found, limits, slow, capacities, strict=True):
        if isinstance(capacity, Missed):
            yield missed_objective(item.candidate, capacity, margin=slowed.step_margin)
            continue
        seen = replace(capacity, state=next(states))
        part = part_of(item, limit=limit, capacity=seen, objectives=objectives, step_margin=slowed.step_margin)
        yield Aggregated(part=part)


def _states_of(found: Sequence[tuple[LoadCurve, Array]]) -> Iterator[SteadyState]:
    """Of every lane its state at its arrival rates, all of them worked out side by side."""
    if not found:
        return
    rates = np.concatenate([at for _, at in found])
    of = np.repeat(np.arange(len(found)), [len(at) for _, at in found])
    state = steady_states(lane_rows(stack([curve for curve, _ in found]), of=of, rates_per_s=rates))
    end = 0
    for _, at in found:
        start, end = end, end + len(at)
        yield rows_of(*((state, row) for row in range(start, end)))


def at_counts_of_all(
    asked: Sequence[tuple[Shape, Sequence[Counts]]], rate_per_s: float, *, objectives: tuple[ObjectiveSpec, ...]
) -> list[tuple[Latencies, ...]]:
    """``Shape.at_counts`` of several shapes that serve one mix: those of one kind of replica are asked together."""
    alone = [
        (shape, rate_per_s / np.array(counts, dtype=np.float64)[:, 0])
        for shape, counts in asked
        if isinstance(shape, Aggregated)
    ]
    states = _states_of([(shape.part.curve, rates / lanes(shape.replica.deployment)) for shape, rates in alone])
    return [
        shape.seen(next(states), objectives=objectives)
        if isinstance(shape, Aggregated)
        else shape.at_counts(rate_per_s, *counts, objectives=objectives)
        for shape, counts in asked
    ]


_RESOURCES = {
    MEMORY: Resource.MEMORY,
    TENSOR_CORE: Resource.TENSOR_CORE,
    DEQUANTISATION: Resource.DEQUANTISATION,
    OCCUPANCY: Resource.OCCUPANCY,
    LINK: Resource.LINK,
    HOST: Resource.HOST,
}


# More slots are what is missing where ten percent of them move the saturation rate by at least a third of that.
_SLOTS_TRIED = 0.9


_SLOTS_MATTER = 1 / 3


# Normal deviate that leaves 10 % on either side.
DEVIATE_80 = 1.2816


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingSteps:
    """The plain and the prompt-carrying step of a replica near its planned capacity.

    bound : what most of the time waits for, one of BOUNDS
    log_sigma : standard deviation of log(measured / predicted) of the mean step, errors of both taken as common, with
        that of the guesses which speculation has accepted where nobody gave it
    provenance : the word for how well the worse of the two is known, of one alone where the other takes no time
    """

    bound: str
    log_sigma: float
    provenance: str


def _known_pace(speculation: SpeculationSpec | None) -> Provenance:
    """How well the tokens of a step are known: an acceptance that nobody gave is assumed."""
    given = speculation is None or speculation.acceptance is not None or speculation.accepted_tokens is not None
    return Provenance.MEASURED if given else Provenance.ASSUMED


def operating_steps(part: Part) -> OperatingSteps:
    """Look up a replica's two kinds of step at the priced batch nearest to its planned one."""
    steps, at, speculation = part.steps, part.replica.at_capacity, part.candidate.techniques.speculation
    near = nearest_steps(
        part.curve, sequences=part.replica.lane_sequences, prompt_share=at.prompt_share, limit=part.replica.slot_limit
    )
    worst = max(near.known(steps), _known_pace(speculation))
    return OperatingSteps(
        bound=steps.bound[near.prompts if at.prompt_share >= 1 / 2 else near.plain],
        log_sigma=near.log_sigma(steps, speculation),
        provenance=worst.label,
    )


def _slots_matter(part: Part) -> bool:
    rates = part.curve.rates_per_s
    slots = len(rates)
    fewer = max(1, int(_SLOTS_TRIED * slots))
    if fewer == slots:
        return True
    elasticity = np.log(rates[-1] / rates[fewer - 1]) / np.log(slots / fewer)
    return bool(elasticity >= _SLOTS_MATTER)


def _behind(replica: Replica, objective: ObjectiveSpec, *, bound: Resource) -> Resource:
    """What uses up an objective: waiting for a slot, waiting for the running steps, or the steps themselves."""
    if objective.metric is not LatencyMetric.TTFT or replica.binding is None:
        return bound
    # The percentile's own request waits for a slot where at least the share above the percentile does.
    if replica.at_capacity.slot_wait_probability >= 1 - objective.percentile / 100:
        return Resource[replica.slot_limit.name]
    idle_s = replica.unloaded.objectives_s[replica.binding]
    return Resource.QUEUEING if idle_s < objective.bound_s / 2 else bound


def limiting_resource(part: Part, steps: OperatingSteps, *, objectives: tuple[ObjectiveSpec, ...]) -> Limit:
    """The resource, and how it is met; what prompts alone are held back by where they have a pool.

    Where an objective holds capacity below the target utilisation it is named with what its time goes to; otherwise
    the slots where more of them would raise the rate, or else what the steps wait for.
    """
    replica = part.replica
    resource = _RESOURCES[steps.bound]
    if replica.binding is not None:
        objective = objectives[replica.binding]
        return Limit(
            resource=_behind(replica, objective, bound=resource),
            objective=objective,
            utilization=replica.utilization,
            step_margin=replica.step_margin,
            random_moments=part.role == "prefill",
        )
    if part.role == "prefill":
        return Limit(resource=resource, utilization=replica.utilization)
    if replica.slot_limit is not SlotLimit.TOKEN_BUDGET and _slots_matter(part):
        return Limit(resource=Resource[replica.slot_limit.name], sequences=replica.slots)
    return Limit(resource=resource, sequences=replica.lane_sequences)
