"""One finalist in the event simulation: does it hold as planned, and in which size otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from simulator.errors import RoofcastError
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.constraints import fleet_limits, within
from simulator.planner.fleet.fleet import Sized, size
from simulator.planner.records import Latencies, Verdict, Verification
from simulator.planner.search.question import Question
from simulator.planner.verification.fleets import refused, steady_check
from simulator.planner.verification.traces import COARSE_STEPS, FINE_STEPS, trace_check

MOST_ADDED = 1.0
"""Fleets that would need more than this share of their replicas again are given up."""
# Steps of the search upwards, as shares of the planned replicas; the first adds one.
_STEPS = (0.0, 0.02, 0.06, 0.14, 0.3, 0.6, MOST_ADDED)
REPLAYS, SURE = 10, 0.95
"""Replays of which nine have to hold, and with which chance they should."""
UNDECIDED = (0.0001, 0.9999)
"""Chances between which short replays are followed by longer ones."""
HOLDING = (Verdict.HOLDS, Verdict.RESIZED)

CheckOf = Callable[[int], Verification]
"""Replicas -> how one of them fares."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A finalist after its checks: ``sized`` as it holds, or as it was planned where it does not."""

    sized: Sized
    planned: Verification
    found: Verification
    planned_replicas: int
    verdict: Verdict
    at: CheckOf | None


def steady_states(question: Question, sized: Sized) -> Callable[[int], Latencies]:
    """Steady state of one of so many replicas at the planned rate, by their number."""
    rate_per_s = question.demand.planned_rate_per_s

    def state(replicas: int) -> Latencies:
        if sized.prefill is not None:
            from simulator.planner.fleet.disaggregated_fleet import pool_counts
            from simulator.planner.serving.disaggregated import pool_latencies

            counts = pool_counts(sized.evaluated, rate_per_s=rate_per_s, replicas=replicas)
            each = [(rate_per_s / count,) for count in counts]
            return pool_latencies(
                sized.evaluated, each[1], each[0], objectives=question.objectives, prefill_replicas=counts[:1]
            )[0]
        return sized.evaluated.latencies(rate_per_s / replicas, objectives=question.objectives)[0]

    return state


def _pools_check(question: Question, sized: Sized, *, state: Callable[[int], Latencies]) -> CheckOf:
    """The same of two pools, by the replicas that decode."""
    from simulator.planner.fleet.disaggregated_fleet import pool_counts
    from simulator.planner.verification.pools import pool_check

    first, rate = sized.evaluated.prefill, question.demand.planned_rate_per_s
    if first is None or replays_trace(question.spec):
        raise RoofcastError("a trace is not replayed on two pools: roofcast serve does that")
    check = pool_check(
        first.replica.deployment,
        sized.evaluated.replica.deployment,
        server=sized.server,
        demand=question.demand,
        objectives=question.objectives,
    )

    def simulate(replicas: int) -> Verification:
        counts = pool_counts(sized.evaluated, rate_per_s=rate, replicas=replicas)
        return check.at(counts, state(replicas))

    return simulate


def _check_of(question: Question, sized: Sized, *, steps: int = COARSE_STEPS) -> CheckOf:
    """How this kind of replica fares in fleets of any size; a size is simulated once. ``steps`` of a trace's replay"""
    deployment, state = sized.evaluated.replica.deployment, steady_states(question, sized)
    seen: dict[int, Verification] = {}
    if sized.prefill is not None:
        simulate = _pools_check(question, sized, state=state)
    elif replays_trace(question.spec):
        replay = trace_check(question, sized.evaluated.replica, steps=steps)

        def simulate(replicas: int) -> Verification:
            return replay.at(replicas, steady=state(replicas))
    else:
        steady = steady_check(
            deployment, mix=question.demand.mix, objectives=question.objectives, busiest=state(sized.replicas)
        )

        def simulate(replicas: int) -> Verification:
            return steady.at(state(replicas))

    def at(replicas: int) -> Verification:
        if replicas not in seen:
            seen[replicas] = simulate(replicas)
        return seen[replicas]

    return at


def smallest_that_holds(at: CheckOf, *, planned: int, fewer: bool, step: int | None = None) -> int | None:
    """Fewest replicas that hold, from ``planned`` up to twice as many, and with ``fewer`` also below it.

    step : the first one downwards where the answer is known to be near, otherwise an eighth of the replicas
    Growing steps, then bisection: what holds is taken to hold with more replicas as well.
    """
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
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if at(middle).holds else (middle, high)
    return high


def bar_chance(chance: float) -> float:
    """That at least nine of ten replays hold, each with that chance."""
    return chance**REPLAYS + REPLAYS * chance ** (REPLAYS - 1) * (1 - chance)


def decided(chance: float | None) -> bool:
    """Whether longer replays would hardly change the answer."""
    return chance is not None and not UNDECIDED[0] <= chance <= UNDECIDED[1]


def surer(at: CheckOf, *, smallest: int) -> int:
    """``smallest``, or one more where it is unsure to hold in nine of ten replays and one more pays.

    The number is sought that holds in nine of ten replays while two fewer do not, as far as the chances of single
    replays tell. Where replicas hardly move the percentile, one more would not make it surer, but two too many.
    """

    def holds(replicas: int) -> float:
        return bar_chance(at(replicas).chance or 0.0) if replicas > 0 else 0.0

    if holds(smallest) >= SURE:
        return smallest
    scores = [holds(count) * (1 - holds(count - 2)) for count in (smallest, smallest + 1)]
    return smallest + (scores[1] > scores[0])


def sized_again(question: Question, sized: Sized, *, replicas: int | None = None) -> Sized:
    """The same kind of replica, in the given number or as many as the demand needs.

    Where the number is more than the steady state asks for, the capacity of a replica is what the simulation says.
    """
    evaluated, rate_per_s = sized.evaluated, question.demand.planned_rate_per_s
    if replicas is not None and replicas * evaluated.replica.capacity_per_s > rate_per_s and replicas > sized.replicas:
        confirmed_per_s = rate_per_s / replicas
        replica = replace(
            evaluated.replica,
            capacity_per_s=confirmed_per_s,
            utilization=confirmed_per_s / evaluated.replica.saturation_per_s,
        )
        evaluated = replace(evaluated, replica=replica)
    return size(evaluated, demand=question.demand, spec=question.spec, prices=question.prices, replicas=replicas)


def _replayed(question: Question, sized: Sized, at: CheckOf) -> tuple[int | None, CheckOf]:
    """Fewest replicas under the replayed trace: by ``at``, then by longer replays, which are handed back too."""
    about = smallest_that_holds(at, planned=sized.replicas, fewer=True)
    if about is None:
        return None, at
    fine = _check_of(question, sized, steps=FINE_STEPS)

    def longer(replicas: int) -> Verification:
        short = at(replicas)
        return short if decided(short.chance) else fine(replicas)

    needed = smallest_that_holds(longer, planned=about, fewer=True, step=1)
    return None if needed is None else surer(longer, smallest=needed), longer


def check_fleet(question: Question, sized: Sized) -> Checked:
    """Simulate a fleet as planned, and look for the fewest replicas that hold."""
    planned = sized.replicas
    try:
        at = _check_of(question, sized)
        first = at(planned)
    except RoofcastError as error:
        nothing = refused(str(error), steady=steady_states(question, sized)(planned))
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
    else:
        needed = smallest_that_holds(at, planned=planned, fewer=False)
    verdict, kept = Verdict.MISSES, sized
    if needed is not None:
        kept = sized_again(question, sized, replicas=needed)
        verdict = Verdict.HOLDS if needed == planned else Verdict.RESIZED
        if needed > planned and not question.spec.stock and not within(fleet_limits(question), [kept]):
            kept, verdict = sized, Verdict.BEYOND_LIMITS
    return Checked(
        sized=kept,
        planned=first,
        found=at(kept.replicas),
        planned_replicas=planned,
        verdict=verdict,
        at=at,
    )
