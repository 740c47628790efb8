"""A plan's promise, replayed: the fleet that was signed, request by request, with other seeds than its plan saw.

The promise is that every objective holds at the planned rate with all replicas up, and with the spares down. Burstier
arrivals and an empty prefix cache were not promised; they say what is left when the demand is another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from enum import StrEnum

from simulator.errors import Option, RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized
from simulator.planner.search.question import Question
from simulator.planner.verification.fleet_check import smallest_that_holds
from simulator.planner.verification.records import Verification
from simulator.planner.verification.simulation import ENOUGH, refused
from simulator.planner.verification.traces import FINE_STEPS, CheckOf, once_each, simulation, steady_states
from simulator.records import dataclass
from simulator.specs.question.plan_values import PROMISE_SEEDS
from simulator.traffic.lengths import RequestMix

OTHER_SEEDS = 1000
"""First seed of the replays: no plan was checked with it or with those after."""
BURSTS = 2.0
"""Factor on the coefficient of variation of arrivals of the burstier case: an illustration."""


class PromiseCase(StrEnum):
    """What a replay changes about the plan."""

    ALL_UP = "all replicas up"
    SPARES_DOWN = "spares down"
    BURSTIER = "burstier arrivals"
    EMPTY_CACHE = "empty prefix cache"


PROMISED = (PromiseCase.ALL_UP, PromiseCase.SPARES_DOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedFleet:
    """What was signed, as a plan's document states it; of two pools ``replicas`` decode."""

    hardware: str
    label: str
    replicas: int
    spares: int
    prefill_replicas: int = 0
    prefill_spares: int = 0

    def as_signed(self, sized: Sized) -> Sized:
        """A set-up with the numbers of replicas that were signed."""
        if len(sized.counts) == 1:
            return replace(sized, counts=(self.replicas,), spare=(self.spares,))
        return replace(
            sized,
            counts=(self.prefill_replicas or sized.counts[0], self.replicas),
            spare=(self.prefill_spares if self.prefill_replicas else sized.spare[0], self.spares),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedCase:
    """One case with so many replicas up, of two pools ``replicas`` that decode; ``found`` over all of its replays."""

    case: PromiseCase
    replicas: int
    found: Verification
    prefill_replicas: int = 0

    @property
    def holds(self) -> bool:
        """Nine replays in ten meet every objective; those of a trace are judged by their scatter."""
        return not self.found.reason and self.found.holds

    @property
    def margin(self) -> float | None:
        """Smallest distance of a percentile from its bound, as a share of the bound; None without a simulation."""
        return min((1 - item.simulated_s / item.bound_s for item in self.found.objectives), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A fleet and its cases; ``least_replicas`` is the smallest number that holds with the spares down, if any does."""

    fleet: SignedFleet
    cases: tuple[ReplayedCase, ...]
    least_replicas: int | None

    @property
    def kept(self) -> bool:
        """Every case that was promised holds."""
        return all(item.holds for item in self.cases if item.case in PROMISED)

    @property
    def short_replicas(self) -> int | None:
        """Replicas that the planned fleet lacks to hold, below zero what it has to spare; None where nothing holds."""
        return None if self.least_replicas is None else self.least_replicas - self.fleet.replicas

    @property
    def reason(self) -> str:
        """Why nothing could be simulated, or nothing."""
        return self.cases[0].found.reason


def replayed_promise(plan: CapacityPlan, fleet: SignedFleet, *, seeds: int = PROMISE_SEEDS) -> Promise:
    """Replay ``fleet``, one of those that ``plan`` compared, under the plan's demand.

    seeds : replays of each case; a trace decides itself how many it takes

    Raises RoofcastError: the plan has no such set-up any more.
    """
    question, sized = plan.basis.question, fleet.as_signed(_set_up(plan, fleet))
    rate_per_s = question.demand.planned_rate_per_s
    cases, least = [], None
    for case, replicas, changed in _cases(question, fleet):
        try:
            at = _judged(
                once_each(simulation(changed, sized, steps=FINE_STEPS, seeds=seeds, first_seed=OTHER_SEEDS)), question
            )
            found = at(replicas)
        except RoofcastError as error:
            found = refused(str(error), steady=steady_states(changed, sized)(replicas))
        else:
            if case is PROMISED[-1] or (fleet.spares == 0 and case is PROMISED[0]):
                least = smallest_that_holds(at, planned=replicas, fewer=True)
        before = sized.counts_with(replicas, rate_per_s=rate_per_s)[:-1]
        cases.append(ReplayedCase(case=case, replicas=replicas, found=found, prefill_replicas=sum(before)))
    return Promise(fleet=fleet, cases=tuple(cases), least_replicas=least)


def _set_up(plan: CapacityPlan, fleet: SignedFleet) -> Sized:
    for sized in plan.basis.shown:
        candidate = sized.evaluated.candidate
        if (candidate.hardware, candidate.label) == (fleet.hardware, fleet.label):
            return sized
    raise RoofcastError(
        f"{fleet.hardware} {fleet.label} no longer serves this question",
        field=Option("hardware"),
        code="plan_changed",
        hint="roofcast or a profile has changed since: make the plan anew",
    )


def _cases(question: Question, fleet: SignedFleet) -> Iterator[tuple[PromiseCase, int, Question]]:
    """Each case with its replicas and its question. A trace is replayed as it is."""
    mix = question.demand.mix
    yield PromiseCase.ALL_UP, fleet.replicas + fleet.spares, question
    if fleet.spares:
        yield PromiseCase.SPARES_DOWN, fleet.replicas, question
    if replays_trace(question.spec):
        return
    burstier = replace(mix, arrival_cv=BURSTS * mix.arrival_cv)
    yield PromiseCase.BURSTIER, fleet.replicas, _with_mix(question, burstier)
    if mix.prefix_hit_fraction:
        yield PromiseCase.EMPTY_CACHE, fleet.replicas, _with_mix(question, replace(mix, prefix_hit_fraction=0.0))


def _with_mix(question: Question, mix: RequestMix) -> Question:
    return replace(question, demand=replace(question.demand, mix=mix))


def _judged(at: CheckOf, question: Question) -> CheckOf:
    """The same check, which holds where enough replays do; a trace's own rule counts its replays."""
    if replays_trace(question.spec):
        return at

    def judged(replicas: int) -> Verification:
        found = at(replicas)
        return replace(found, holds=found.held_fraction >= ENOUGH)

    return judged
