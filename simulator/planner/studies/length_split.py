"""Short and long prompts on fleets of their own, against one fleet for all."""

from __future__ import annotations

from dataclasses import replace
from math import inf, sqrt
from typing import ClassVar

from simulator.errors import InfeasibleError, Option, no_effect
from simulator.planner.capacity_plan import CapacityPlan, StudyContext
from simulator.planner.fleet.fleet import Sized
from simulator.planner.records import Demand, Platform, Study, total_of
from simulator.planner.search.candidates import platforms
from simulator.planner.search.question import Question
from simulator.planner.search.search import search
from simulator.planner.verification.fleet_check import check_fleet
from simulator.records import dataclass
from simulator.traffic.lengths import LengthDistribution, PartOfLengths


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFleet:
    """Requests of one range of prompt lengths and the fleet that serves them.

    isl_mean_tokens, rate_per_s : of the requests in [from_tokens, to_tokens) (None: no upper end)
    accelerators : of each pool in the order of a request's way, one where all are alike
    """

    from_tokens: float
    to_tokens: float | None
    rate_per_s: float
    isl_mean_tokens: float
    hardware: str
    accelerators: tuple[str, ...]
    label: str
    replicas: int
    spares: int
    devices: int
    cost_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedSplit:
    """One length at which the prompts were split: what both fleets take, None where one of them cannot serve.

    cost_per_hour : None also where a price is unknown
    """

    threshold_tokens: float
    devices: int | None
    cost_per_hour: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSplit(Study):
    """Two fleets by prompt length against one: what is saved is negative where splitting costs more.

    saved_per_hour : None where a price is unknown; splits : every length that was tried, before any was simulated
    """

    key: ClassVar[str] = "length_split"

    threshold_tokens: float
    fleets: tuple[SplitFleet, ...]
    saved_devices: int
    saved_per_hour: float | None = None
    splits: tuple[TriedSplit, ...] = ()

    @property
    def better(self) -> bool:
        """Whether two fleets are the better choice: cheaper, or with unknown prices smaller."""
        return self.saved_devices > 0 if self.saved_per_hour is None else self.saved_per_hour > 0


# Where the prompts are split: at the mean and octaves around it.
_THRESHOLDS = (1.0, 1 / 2, 2.0, 4.0)
# Accelerators that are tried again at every other length, for either fleet.
_ACCELERATORS = 6


def truncated_lengths(lengths: LengthDistribution, *, low: float, high: float) -> tuple[float, LengthDistribution]:
    """Share of lengths that vary in [low, high), and the lengths in it."""
    share, first, second = (
        lengths.partial_moment(order, below=high) - lengths.partial_moment(order, below=low) for order in (0, 1, 2)
    )
    mean = first / share
    cv = sqrt(max(second / share - mean**2, 0.0)) / mean
    part = PartOfLengths(
        mean_tokens=max(mean, 1.0),
        cv=cv,
        longest_tokens=min(high, lengths.longest_tokens),
        whole=lengths,
        low_tokens=low,
        high_tokens=high,
    )
    return share, part


def part_of(demand: Demand, *, low: float, high: float) -> Demand:
    """The requests with prompts in [low, high) tokens as a demand of their own; answers do not depend on them."""
    share, isl = truncated_lengths(demand.mix.isl, low=low, high=high)
    return replace(demand, mean_rate_per_s=demand.mean_rate_per_s * share, mix=replace(demand.mix, isl=isl))


def _ranked(question: Question, tried: tuple[Platform, ...]) -> list[Sized]:
    return sorted(search(question, tried).trial.sized, key=lambda item: item.rank)


def _shortlist(ranked: list[Sized]) -> tuple[Platform, ...]:
    """The accelerators of the best fleets, each once."""
    found: dict[str, Platform] = {}
    for item in ranked:
        platform = item.evaluated.candidate.platform
        if len(found) < _ACCELERATORS:
            found.setdefault(platform.hardware.name, platform)
    return tuple(found.values())


def _fleet(item: Sized, demand: Demand, *, low: float, high: float) -> SplitFleet:
    candidate = item.evaluated.candidate
    return SplitFleet(
        from_tokens=low,
        to_tokens=None if high == inf else high,
        rate_per_s=demand.planned_rate_per_s,
        isl_mean_tokens=demand.mix.isl.mean_tokens,
        hardware=candidate.hardware,
        accelerators=(*candidate.prefill_hardware, candidate.platform.hardware.name),
        label=candidate.label,
        replicas=sum(item.counts),
        spares=sum(item.spare),
        devices=item.devices,
        cost_per_hour=item.cost.per_hour,
    )


class _Splitter:
    """Splits a question's prompts at one length after the other. The first split tries every accelerator for either
    fleet, the others those that came out best in it."""

    def __init__(self, question: Question) -> None:
        self._question = question
        every = platforms(question.spec)
        self._tried = [every, every]

    def split(self, threshold: float) -> tuple[SplitFleet, ...] | None:
        """The cheapest fleet of either fleet, or None where one of them cannot serve."""
        fleets = []
        for place, (low, high) in enumerate(((0.0, threshold), (threshold, inf))):
            demand = part_of(self._question.demand, low=low, high=high)
            ranked = _ranked(replace(self._question, demand=demand), self._tried[place])
            if not ranked:
                return None
            self._tried[place] = _shortlist(ranked)
            fleets.append(_fleet(ranked[0], demand, low=low, high=high))
        return tuple(fleets)


def _cost(fleets: tuple[SplitFleet, ...]) -> float | None:
    return total_of([fleet.cost_per_hour for fleet in fleets])


def _devices(fleets: tuple[SplitFleet, ...]) -> int:
    return sum(fleet.devices for fleet in fleets)


def _rank(fleets: tuple[SplitFleet, ...]) -> tuple[bool, float, int]:
    """As fleets are ranked: known prices by cost, then fewer devices."""
    cost = _cost(fleets)
    return cost is None, cost or 0.0, _devices(fleets)


def length_split_of(question: Question, *, devices: int, cost_per_hour: float | None = None) -> LengthSplit:
    """The best of a few splits of the prompts by length, against one fleet of ``devices`` at ``cost_per_hour``.

    Answers are taken as independent of prompts, each fleet keeps its own spares, its own set-up, and the objectives.

    Raises RoofcastError: all prompts have one length.
    Raises InfeasibleError: no split can be served.
    """
    isl = question.demand.mix.isl
    if isl.cv == 0:
        raise no_effect("all prompts have the same length: there is nothing to split", field=Option("pools"), hint="")
    splitter = _Splitter(question)
    # Beyond the longest prompt, or before the shortest, one of both fleets would get none.
    every = isl.partial_moment(0, below=inf)
    lengths = [factor * isl.mean_tokens for factor in _THRESHOLDS]
    dividing = [length for length in lengths if 0.0 < isl.partial_moment(0, below=length) < every]
    found = [(length, splitter.split(length)) for length in dividing]
    serving = [(threshold, fleets) for threshold, fleets in found if fleets is not None]
    if not serving:
        raise InfeasibleError(
            "no split of the prompts by length can be served", field=Option("pools"), hint="leave it out"
        )
    threshold, fleets = min(serving, key=lambda pair: _rank(pair[1]))
    cost = _cost(fleets)
    return LengthSplit(
        threshold_tokens=threshold,
        fleets=fleets,
        saved_devices=devices - _devices(fleets),
        saved_per_hour=None if cost is None or cost_per_hour is None else cost_per_hour - cost,
        splits=tuple(
            TriedSplit(
                threshold_tokens=length,
                devices=None if part is None else _devices(part),
                cost_per_hour=None if part is None else _cost(part),
            )
            for length, part in sorted(found, key=lambda pair: pair[0])
        ),
    )


def _held(question: Question, fleet: SplitFleet) -> SplitFleet:
    """A fleet with as many replicas as hold in the event simulation; as it was where up to twice as many do not."""
    high = inf if fleet.to_tokens is None else fleet.to_tokens
    *ahead, last = fleet.accelerators
    spec = question.spec.model_copy(update={"hardware": (last,), "prefill_hardware": tuple(ahead)})
    own = replace(question, spec=spec, demand=part_of(question.demand, low=fleet.from_tokens, high=high))
    kept = (fleet.hardware, fleet.label)
    named = ((item, item.evaluated.candidate) for item in _ranked(own, platforms(spec)))
    sized = next(item for item, candidate in named if (candidate.hardware, candidate.label) == kept)
    return _fleet(check_fleet(own, sized).sized, own.demand, low=fleet.from_tokens, high=high)


def with_held_fleets(plan: CapacityPlan) -> CapacityPlan:
    """``plan``, whose fleets by prompt length have as many replicas as hold in the event simulation."""
    split = plan.study(LengthSplit)
    if split is None:
        return plan
    fleets, best = tuple(_held(plan.basis.question, fleet) for fleet in split.fleets), plan.best
    cost, single = _cost(fleets), best.cost.per_hour
    held = replace(
        split,
        fleets=fleets,
        saved_devices=best.devices - _devices(fleets),
        saved_per_hour=None if cost is None or single is None else single - cost,
    )
    return replace(plan, studies=tuple(held if item is split else item for item in plan.studies))


def study(context: StudyContext) -> LengthSplit | None:
    """Two fleets by prompt length against the recommended one."""
    best = context.plan.best
    return length_split_of(context.question, devices=best.devices, cost_per_hour=best.cost.per_hour)
