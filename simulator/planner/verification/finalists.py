"""The best fleets of a search in the event simulation, before one of them is recommended.

A fleet that misses there gets replicas until it holds; the cheapest that holds wins. A fleet for a trace is checked by
replaying it, and may lose replicas too: its busiest minute, for which it was sized, is a small part of its requests.
The recommended fleet is simulated without being asked wherever that takes a second and no compiler: one that misses is
said to, and planned again with a size that holds (see ``checked``).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import ceil, isclose

import numpy as np

from simulator.engine.events.compilation import loops_on_disk
from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized, fleet_power, size
from simulator.planner.gap.limits import fleet_limits, within
from simulator.planner.records import BusiestMinute, NotConfirmed
from simulator.planner.search.question import Question
from simulator.planner.search.wide_search import pareto_front
from simulator.planner.verification.simulation import SURE, beside, hold_chance, refused
from simulator.planner.verification.traces import (
    FINE_STEPS,
    CheckOf,
    once_each,
    simulation,
    steady_states,
    sure_simulation,
    surest_simulation,
)
from simulator.planner.verified import Finalist, Finalists, FleetVerification, Verdict, Verification
from simulator.records import dataclass
from simulator.specs.base import Assumption, ValueOrigin

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
    at: CheckOf | None


def smallest_that_holds(at: CheckOf, *, planned: int, fewer: bool, step: int | None = None) -> int | None:
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


def surer(at: CheckOf, *, smallest: int) -> int:
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
    """The same kind of replica, in the given number or as many as the demand needs. Where the number is more than the
    steady state asks for, or fewer than for the mean, the capacity of a replica is what the simulation says."""
    shape, rate_per_s = sized.evaluated, question.demand.planned_rate_per_s
    counts = shape.counts(rate_per_s, replicas=replicas)
    if replicas is not None:
        carried_per_s, mean_per_s = replicas * shape.replica.capacity_per_s, rate_per_s / question.demand.peak_to_mean
        if carried_per_s < mean_per_s or (carried_per_s > rate_per_s and replicas > sized.replicas):
            shape = shape.confirmed(min(rate_per_s, max(carried_per_s, mean_per_s)), counts)
    again = size(shape, demand=question.demand, spec=question.spec, prices=question.prices, counts=counts)
    return replace(again, doubt=sized.doubt)


def _replayed(question: Question, sized: Sized, at: CheckOf) -> tuple[int | None, CheckOf]:
    """Fewest replicas under the replayed trace: by ``at``, then by longer replays, which are handed back too."""
    about = smallest_that_holds(at, planned=sized.replicas, fewer=True)
    if about is None:
        return None, at
    fine = once_each(simulation(question, sized, steps=FINE_STEPS))

    def unsure(replicas: int) -> Verification:
        short = at(replicas)
        return short if decided(short.chance) else fine(replicas)

    longer = surest_simulation(question, sized, unsure)

    def careful(replicas: int) -> Verification:
        # More replicas hold at least as surely: where the next size does worse, both were drawn luckily.
        found, more = longer(replicas), longer(replicas + 1)
        return replace(found, holds=found.holds and more.holds, chance=min(found.chance or 0.0, more.chance or 0.0))

    needed = smallest_that_holds(careful, planned=about, fewer=True, step=max(about // TOLD_APART, 1))
    return None if needed is None else surer(careful, smallest=needed), longer


def _steady(question: Question, sized: Sized, at: CheckOf) -> tuple[int | None, CheckOf]:
    """Fewest replicas, as many as planned at least, under a steady demand: by ``at``, then by more runs where those do
    not tell, which are handed back too."""
    about = smallest_that_holds(at, planned=sized.replicas, fewer=False)
    if about is None:
        return None, at
    longer = surest_simulation(question, sized, at)
    needed = smallest_that_holds(longer, planned=about, fewer=False)
    return None if needed is None else surer(longer, smallest=needed), longer


def check_fleet(question: Question, sized: Sized) -> Checked:
    """Simulate a fleet as planned, and look for the fewest replicas that hold."""
    planned = sized.replicas
    try:
        at = sure_simulation(question, sized)
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


CHEAPEST, OF_FRONT, MORE = 5, 3, 4
"""Finalists by cost, of the Pareto front, and how many more are checked at most where those fail or grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedSearch:
    """A search whose finalists were checked: the question and its fleets, best first, and what was found."""

    question: Question
    ranked: list[Sized]
    finalists: Finalists
    verification: FleetVerification


def _front(ranked: Sequence[Sized]) -> list[Sized]:
    """Fleets that none beats in cost, E2E p95 and power at once, evenly spread over the front."""
    priced = [item for item in ranked if item.cost.per_hour is not None]
    axes = [
        (item.cost.per_hour or 0.0, item.evaluated.replica.at_capacity.e2e_p95_s, fleet_power(item).typical_w)
        for item in priced
    ]
    if not axes:
        return []
    front = pareto_front(np.array(axes))
    places = np.unique(np.linspace(0, len(front) - 1, OF_FRONT).astype(int))
    return [priced[front[place]] for place in places]


def _entrants(question: Question, ranked: Sequence[Sized]) -> list[Sized]:
    """The cheapest set-ups of the cheapest accelerators, with ``pareto`` some of that front; for a trace the best."""
    if not question.spec.verify:
        return [ranked[0]]
    names = [item.evaluated.candidate.hardware for item in ranked]
    firsts = [item for place, item in enumerate(ranked) if names[place] not in names[:place]]
    entrants = (firsts if len(firsts) > 1 else list(ranked))[:CHEAPEST]
    if question.spec.pareto:
        entrants += [item for item in _front(ranked) if all(item is not other for other in entrants)]
    return entrants


def _all_checked(question: Question, entrants: Sequence[Sized]) -> list[Checked]:
    """Side by side where there are processors for it: the event loop does not hold the interpreter's lock."""
    if len(entrants) == 1:
        return [check_fleet(question, entrants[0])]
    with ThreadPoolExecutor(max_workers=min(len(entrants), os.cpu_count() or 1)) as pool:
        return list(pool.map(lambda item: check_fleet(question, item), entrants))


def _winner(checked: Sequence[Checked]) -> Checked:
    holding = [item for item in checked if item.verdict in HOLDING]
    return min(holding, key=lambda item: item.sized.rank) if holding else checked[0]


def _full_verification(question: Question, winner: Checked) -> FleetVerification:
    """With all replicas up and with the spares down, beside the steady states of the final demand."""
    sized, state = winner.sized, steady_states(question, winner.sized)
    whole = sized.replicas + sized.spares
    up = refused(winner.found.reason, steady=state(whole)) if winner.at is None else winner.at(whole)
    return FleetVerification(at_peak=beside(up, state(whole)), degraded=beside(winner.found, state(sized.replicas)))


def _record(question: Question, item: Checked, *, chosen: bool) -> Finalist:
    sized, state = item.sized, steady_states(question, item.sized)
    return Finalist(
        hardware=sized.evaluated.candidate.hardware,
        label=sized.evaluated.candidate.label,
        planned_replicas=item.planned_replicas,
        replicas=sized.replicas,
        spares=sized.spares,
        devices=sized.devices,
        cost_per_hour=sized.cost.per_hour,
        verdict=item.verdict,
        planned=beside(item.planned, state(item.planned_replicas)),
        found=beside(item.found, state(sized.replicas)),
        chosen=chosen,
    )


def _reordered(ranked: Sequence[Sized], checked: Sequence[Checked]) -> list[Sized]:
    """The winner, the rest by rank in the sizes that hold, and last what does not hold."""
    winner = _winner(checked)
    others = [item for item in checked if item is not winner]
    missed = [item.sized for item in others if item.verdict not in HOLDING]
    held = [item.sized for item in others if item.verdict in HOLDING]
    rest = [item for item in ranked if not _is_among(item, checked)]
    return [winner.sized, *sorted([*held, *rest], key=lambda item: item.rank), *missed]


def _is_among(sized: Sized, checked: Sequence[Checked]) -> bool:
    return any(item.sized.evaluated.candidate is sized.evaluated.candidate for item in checked)


def _next(ranked: Sequence[Sized], checked: Sequence[Checked]) -> Sized | None:
    """The best fleet that was not checked, where it ranks before the winner or nothing holds so far."""
    winner = _winner(checked)
    for item in ranked:
        if not _is_among(item, checked):
            return item if winner.verdict not in HOLDING or item.rank < winner.sized.rank else None
    return None


def checked_finalists(question: Question, ranked: Sequence[Sized]) -> CheckedSearch:
    """Check the best of ``ranked`` (best first) and put the best that holds in front.

    Where the winner grew, what then ranks before it is checked as well. For a trace the demand's peak is taken back to
    the rate at which the replayed fleet is full, so that all fleets are sized for that.
    """
    allowed = list(ranked) if question.spec.stock else within(fleet_limits(question), ranked)
    candidates = allowed or list(ranked)
    checked = _all_checked(question, _entrants(question, candidates))
    for _ in range(MORE):
        if replays_trace(question.spec):
            question, candidates = _scaled_to_trace(question, candidates, winner=_winner(checked))
        ahead = _next(candidates, checked)
        if ahead is None:
            break
        checked.append(check_fleet(question, ahead))
    winner = _winner(checked)
    members = tuple(_record(question, item, chosen=item is winner) for item in checked)
    return CheckedSearch(
        question=question,
        ranked=_reordered(candidates, checked),
        finalists=Finalists(members=members, replayed=replays_trace(question.spec)),
        verification=_full_verification(question, winner),
    )


def _scaled_to_trace(question: Question, ranked: Sequence[Sized], *, winner: Checked) -> tuple[Question, list[Sized]]:
    """The demand whose steady peak needs as many replicas as the replay did, where that is fewer; fleets for it. The
    mean of the trace is the least that is planned for."""
    demand, replica = question.demand, winner.sized.evaluated.replica
    peak = demand.peak_to_mean * winner.sized.replicas * replica.capacity_per_s / demand.planned_rate_per_s
    if winner.verdict not in HOLDING or peak >= demand.peak_to_mean:
        return question, list(ranked)
    question = replace(question, demand=replace(demand, peak_to_mean=max(peak, 1.0)))
    return question, sorted((sized_again(question, item) for item in ranked), key=lambda item: item.rank)


_SHOWN = 1 / 200
"""Peaks that are shown by the same three digits."""


def with_finalists(plan: CapacityPlan, simulated: CheckedSearch) -> CapacityPlan:
    """``plan`` with what the event simulation said about its best fleets."""
    finalists, verification = simulated.finalists, simulated.verification
    warnings = plan.warnings
    if not verification.holds:
        warnings = (*warnings, NotConfirmed(reason=verification.reason))
    if finalists.replayed and finalists.chosen.replicas < finalists.chosen.planned_replicas:
        warnings = (*warnings, BusiestMinute(peak_to_mean=_busiest(plan), replicas=finalists.chosen.planned_replicas))
    return replace(
        plan,
        verification=verification,
        finalists=finalists,
        warnings=warnings,
        assumptions=tuple(_replayed_peak(item, simulated) for item in plan.assumptions),
    )


def _replayed_peak(item: Assumption, simulated: CheckedSearch) -> Assumption:
    peak = simulated.question.demand.peak_to_mean
    if (
        item.key != "peak_to_mean"
        or (isinstance(item.value, float) and isclose(item.value, peak, rel_tol=_SHOWN))
        or not simulated.finalists.replayed
    ):
        return item
    return Assumption(key=item.key, value=peak, origin=ValueOrigin.RULE, detail=item)


def _busiest(plan: CapacityPlan) -> float:
    return next(
        float(item.value) for item in plan.assumptions if item.key == "peak_to_mean" and isinstance(item.value, float)
    )


_LOOPS = frozenset({"scheduler_lists", "scheduler_walk"})


def with_check(plan: CapacityPlan) -> CapacityPlan:
    """``plan`` with its best fleet simulated, all replicas up and with the spares down. As it was where it is not the
    answer alone (stock, a measured rate), and where the event simulation is not compiled or does not model it."""
    spec = plan.spec
    if not plan.objectives or spec.stock or spec.measured_rps_per_gpu is not None:
        return plan
    if not loops_on_disk() >= _LOOPS:
        return plan
    question, sized = plan.basis.question, plan.basis.shown[0]
    try:
        at = sure_simulation(question, sized)
        found = _up_and_degraded(sized, at)
        if surely_holds(found):
            # What is handed out as checked is as sure as where a check was asked for.
            found = _up_and_degraded(sized, surest_simulation(question, sized, at))
    except RoofcastError:
        return plan
    warnings = plan.warnings if found.holds else (*plan.warnings, NotConfirmed(reason=found.reason))
    return replace(plan, verification=found, warnings=warnings)


def _up_and_degraded(sized: Sized, at: CheckOf) -> FleetVerification:
    degraded = at(sized.replicas)
    return FleetVerification(at_peak=at(sized.replicas + sized.spares) if sized.spares else degraded, degraded=degraded)


def surely_holds(found: FleetVerification) -> bool:
    """Whether nine of ten further replays would hold, as far as the runs tell, with the spares up and down."""
    return found.holds and min(map(hold_chance, (found.at_peak, found.degraded))) >= SURE
