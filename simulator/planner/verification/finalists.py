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
from math import isclose

import numpy as np

from simulator.errors import RoofcastError
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized
from simulator.planner.gap.limits import fleet_limits, within
from simulator.planner.search.question import Question
from simulator.planner.search.screened_space import pareto_front
from simulator.planner.verification.fleet_check import HOLDING, Checked, check_fleet, full_verification, sized_again
from simulator.planner.verification.records import Finalist, Finalists, FleetVerification
from simulator.planner.verification.simulation import SURE, beside, hold_chance
from simulator.planner.verification.traces import CheckOf, steady_states, sure_simulation, surest_simulation
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note, ValueOrigin

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
        (item.cost.per_hour or 0.0, item.evaluated.replica.at_capacity.e2e_p95_s, item.typical_w) for item in priced
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
        verification=full_verification(question, winner),
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
        warnings = (*warnings, Note("not_confirmed", {"reason": verification.reason}))
    if finalists.replayed and finalists.chosen.replicas < finalists.chosen.planned_replicas:
        busiest = {"peak_to_mean": _busiest(plan), "replicas": finalists.chosen.planned_replicas}
        warnings = (*warnings, Note("busiest_minute", busiest))
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


def with_check(plan: CapacityPlan) -> CapacityPlan:
    """``plan`` with its best fleet simulated, all replicas up and with the spares down. As it was where it is not the
    answer alone (a measured rate), and where the event simulation does not model it."""
    spec = plan.spec
    if not plan.objectives or spec.measured_rps_per_gpu is not None:
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
    warnings = plan.warnings if found.holds else (*plan.warnings, Note("not_confirmed", {"reason": found.reason}))
    return replace(plan, verification=found, warnings=warnings)


def _up_and_degraded(sized: Sized, at: CheckOf) -> FleetVerification:
    degraded = at(sized.replicas)
    return FleetVerification(at_peak=at(sized.replicas + sized.spares) if sized.spares else degraded, degraded=degraded)


def surely_holds(found: FleetVerification) -> bool:
    """Whether nine of ten further replays would hold, as far as the runs tell, with the spares up and down."""
    return found.holds and min(map(hold_chance, (found.at_peak, found.degraded))) >= SURE
