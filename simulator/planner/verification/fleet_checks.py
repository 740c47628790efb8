"""How fleets of one kind of replica fare in the event simulation: under a trace, as one replica, as pools."""

from __future__ import annotations

from collections.abc import Callable

from simulator.planner.capacity_plan import Verification
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized
from simulator.planner.fleet.records import Latencies
from simulator.planner.search.question import Question
from simulator.planner.verification.simulation import SEEDS, pool_check, steady_check
from simulator.planner.verification.traces import COARSE_STEPS, trace_check

CheckOf = Callable[[int], Verification]
"""Replicas -> how one of them fares."""


def steady_states(question: Question, sized: Sized) -> Callable[[int], Latencies]:
    """Steady state of one of so many replicas at the planned rate, by their number."""
    rate_per_s, shape = question.demand.planned_rate_per_s, sized.evaluated

    def state(replicas: int) -> Latencies:
        counts = shape.counts(rate_per_s, replicas=replicas)
        return shape.at_counts(rate_per_s, counts, objectives=question.objectives)[0]

    return state


def simulation(question: Question, sized: Sized, *, steps: int = COARSE_STEPS, seeds: int = SEEDS) -> CheckOf:
    """The event simulation of a fleet of any size: ``steps`` of a trace's replay, else ``seeds`` runs.

    Raises
    ------
    RoofcastError
        The event simulation does not model this kind of replica.
    """
    shape, state, rate_per_s = sized.evaluated, steady_states(question, sized), question.demand.planned_rate_per_s
    deployments = tuple(part.replica.deployment for part in shape.parts)
    if replays_trace(question.spec):
        replay = trace_check(question, sized.evaluated, steps=steps)
        return lambda replicas: replay.at(replicas, steady=state(replicas))
    if len(deployments) == 1:
        mix, objectives, busiest = question.demand.mix, question.objectives, state(sized.replicas)
        steady = steady_check(deployments[0], mix=mix, objectives=objectives, busiest=busiest, seeds=seeds)
        return lambda replicas: steady.at(state(replicas))
    pools = pool_check(
        *deployments,
        server=sized.housing[0].server,
        demand=question.demand,
        objectives=question.objectives,
        seeds=seeds,
    )
    return lambda replicas: pools.at(shape.counts(rate_per_s, replicas=replicas), state(replicas))


def once_each(simulate: CheckOf) -> CheckOf:
    """The same simulation, each size once."""
    seen: dict[int, Verification] = {}

    def at(replicas: int) -> Verification:
        if replicas not in seen:
            seen[replicas] = simulate(replicas)
        return seen[replicas]

    return at
