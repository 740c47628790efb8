"""One fleet in the event simulation: whether it holds as planned, and the smallest size of it that surely does."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from simulator.errors import RoofcastError
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized, size
from simulator.planner.gap.limits import fleet_limits, within
from simulator.planner.search.question import Question
from simulator.planner.verification import traces
from simulator.planner.verification.records import FleetVerification, Verdict, Verification
from simulator.planner.verification.simulation import SURE, beside, hold_chance, refused
from simulator.records import dataclass

MOST_ADDED = 1.0
"""Fleets that would need more than this share of their replicas again are given up."""
TOLD_APART = 512
"""Replicas up to which one more is told apart; of more, one in so many, as replays scatter by more than that."""
# Steps of the search upwards, as shares of the planned replicas; the first adds one.
_STEPS = (0.0, 0.02, 0.06, 0.14, 0.3, 0.6, MOST_ADDED)
UNDECIDED = (0.0001, 0.9999)
"""Chances between which short replays are followed by longer ones."""
HOLDING = (Verdict.HOLDS, Verdict.RESIZED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A finalist after its checks: ``sized`` as it holds, or as it was planned where it does not."""

    sized: Sized
    planned: Verification
    found: Verification
    planned_replicas: int
    verdict: Verdict
    at: traces.CheckOf | None

    @property
    def is_grown(self) -> bool:
        """Whether it takes more replicas than planned."""
        return self.sized.replicas > self.planned_replicas


def smallest_that_holds(at: traces.CheckOf, *, planned: int, fewer: bool, step: int | None = None) -> int | None:
    """Fewest replicas that hold, from ``planned`` up to twice as many, and with ``fewer`` also below it.

    step : the first one downwards where the answer is known to be near, otherwise an eighth of the replicas
    Growing steps, then bisection: what holds is taken to hold with more replicas as well.
    """
    apart = max(planned // TOLD_APART, 1)
    if at(planned).holds:
        low, high, step = 0 if fewer else planned - 1, planned, step or max(planned // 8, 1)
        while fewer and high - step > low:
            if not at(high - step).holds:
                low = high - step
                break
            high, step = high - step, 2 * step
    else:
        low = planned
        for share in _STEPS:
            high = planned + max(ceil(share * planned), 1)
            if at(high).holds:
                break
            low = high
        else:
            return None
    while high - low > apart:
        middle = (low + high) // 2
        low, high = (low, middle) if at(middle).holds else (middle, high)
    return high


def decided(chance: float | None) -> bool:
    """Whether longer replays would hardly change the answer."""
    return chance is not None and not UNDECIDED[0] <= chance <= UNDECIDED[1]


def surer(at: traces.CheckOf, *, smallest: int) -> int:
    """``smallest``, or up to two more where it is unsure to hold in nine of ten replays and more pay.

    The number is sought that holds in nine of ten replays while two fewer do not, as far as the chances of single
    replays tell; a promise that breaks counts twice as much as a replica too many. Where replicas hardly move the
    percentile, more would not make it surer, but too many.
    """

    def holds(replicas: int) -> float:
        return hold_chance(at(replicas)) if replicas > 0 else 0.0

    if holds(smallest) >= SURE:
        return smallest
    return max(range(smallest, smallest + 3), key=lambda count: holds(count) - holds(count - 2) / 2)


def sized_again(question: Question, sized: Sized, *, replicas: int | None = None) -> Sized:
    """Replicas of a sized kind, in the given number or as many as the demand needs. Where the number is more than the
    steady state asks for, or fewer than for the mean, the capacity of a replica is what the simulation says."""
    shape, rate_per_s = sized.evaluated, question.demand.planned_rate_per_s
    counts = shape.counts(rate_per_s, replicas=replicas)
    if replicas is not None:
        carried_per_s, mean_per_s = replicas * shape.replica.capacity_per_s, rate_per_s / question.demand.peak_to_mean
        if carried_per_s < mean_per_s or (carried_per_s > rate_per_s and replicas > sized.replicas):
            shape = shape.confirmed(min(rate_per_s, max(carried_per_s, mean_per_s)), counts)
    again = size(shape, demand=question.demand, spec=question.spec, prices=question.prices, counts=counts)
    return replace(again, doubt=sized.doubt)


def _replayed(question: Question, sized: Sized, at: traces.CheckOf) -> tuple[int | None, traces.CheckOf]:
    """Fewest replicas under the replayed trace: by ``at``, then by longer replays, which are handed back too."""
    about = smallest_that_holds(at, planned=sized.replicas, fewer=True)
    if about is None:
        return None, at
    fine = traces.once_each(traces.simulation(question, sized, steps=traces.FINE_STEPS))

    def unsure(replicas: int) -> Verification:
        short = at(replicas)
        return short if decided(short.chance) else fine(replicas)

    longer = traces.surest_simulation(question, sized, unsure)

    def careful(replicas: int) -> Verification:
        # More replicas hold at least as surely: where the next size does worse, both were drawn luckily.
        found, more = longer(replicas), longer(replicas + 1)
        return replace(found, holds=found.holds and more.holds, chance=min(found.chance or 0.0, more.chance or 0.0))

    needed = smallest_that_holds(careful, planned=about, fewer=True, step=max(about // TOLD_APART, 1))
    return None if needed is None else surer(careful, smallest=needed), longer


def _steady(question: Question, sized: Sized, at: traces.CheckOf) -> tuple[int | None, traces.CheckOf]:
    """Fewest replicas, as many as planned at least, under a steady demand: by ``at``, then by more runs where those do
    not tell, which are handed back too."""
    about = smallest_that_holds(at, planned=sized.replicas, fewer=False)
    if about is None:
        return None, at
    longer = traces.surest_simulation(question, sized, at)
    needed = smallest_that_holds(longer, planned=about, fewer=False)
    return None if needed is None else surer(longer, smallest=needed), longer


def check_fleet(question: Question, sized: Sized) -> Checked:
    """Simulate a fleet as planned, and look for the fewest replicas that hold."""
    planned = sized.replicas
    try:
        at = traces.sure_simulation(question, sized)
        first = at(planned)
    except RoofcastError as error:
        nothing = refused(str(error), steady=traces.steady_states(question, sized)(planned))
        return Checked(
            sized=sized,
            planned=nothing,
            found=nothing,
            planned_replicas=planned,
            verdict=Verdict.NOT_SIMULATED,
            at=None,
        )
    if replays_trace(question.spec):
        needed, at = _replayed(question, sized, at)
        # Replayed as predicted: the margin for slower steps comes on top, in the same proportion.
        needed = None if needed is None else ceil(needed * sized.evaluated.replica.step_margin)
    else:
        needed, at = _steady(question, sized, at)
    verdict, kept = Verdict.MISSES, sized
    if needed is not None:
        kept = sized_again(question, sized, replicas=needed)
        verdict = Verdict.HOLDS if needed == planned else Verdict.RESIZED
        if needed > planned and not question.spec.stock and not within(fleet_limits(question), [kept]):
            kept, verdict = sized, Verdict.BEYOND_LIMITS
    return Checked(sized=kept, planned=first, found=at(kept.replicas), planned_replicas=planned, verdict=verdict, at=at)


def full_verification(question: Question, item: Checked) -> FleetVerification:
    """The fleet simulated with all replicas and with the spares down, beside the steady states of the final demand."""
    sized, state = item.sized, traces.steady_states(question, item.sized)
    whole = sized.replicas + sized.spares
    up = refused(item.found.reason, steady=state(whole)) if item.at is None else item.at(whole)
    return FleetVerification(at_peak=beside(up, state(whole)), degraded=beside(item.found, state(sized.replicas)))
