"""Fleets of one kind of replica in the event simulation: as one of their replicas meets the planned trace, as pools."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import ceil, inf, sqrt

import numpy as np

from simulator.engine.pools import slower_network
from simulator.engine.runs.rate_simulation import RatePoint, simulate_as_sent
from simulator.engine.runs.serving import ServedDeployment
from simulator.errors import Option, RoofcastError
from simulator.planner.demand import replays_trace
from simulator.planner.fleet.fleet import Sized
from simulator.planner.search.question import Question
from simulator.planner.serving.capacity import Latencies
from simulator.planner.serving.shapes import DEVIATE_80, Shape
from simulator.planner.verification.records import Verification
from simulator.planner.verification.simulation import (
    MANY,
    SEEDS,
    SURE,
    chance_below,
    hold_chance,
    pool_check,
    steady_check,
    verification_of,
)
from simulator.records import dataclass
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.recorded.traces import RequestTrace, read_trace, replica_shares
from simulator.traffic.requests import LARGEST_REQUESTS, Requests
from simulator.units import MEGA

BEYOND = 2_000
"""Requests of a check beyond the rarest percentile asked for: where that is, is then known to about a hundredth."""
LEAST_SHARES, MOST_SHARES = 4, 384
"""Shares of single replicas that a check simulates, whatever they cost."""
MOST_DRAWN = int(MEGA / 2)
"""Requests of a whole fleet that are drawn for the shares of its replicas: at the same rate each, a share of a fleet of
hundreds is that of one of thousands."""
LEAST_FLEET = 16
"""Replicas that are drawn for together at least, however many requests that takes: every 16th of random arrivals comes
nearly as evenly as every thousandth."""
GROUPS = 8
"""Replays among which those are divided: what the shares of one replay have in common does not average out."""
HALF = 0.5
"""Share of a few runs that have to hold before more are made."""
COARSE_STEPS, FINE_STEPS = 600_000, 9_000_000
"""Steps of a check, about, to come near and to decide: a long trace takes its time even where few requests come."""
LEAST_BLOCK = 16
"""Tokens of a cache block in replays of a trace that knows its prompts, where an engine's pages are smaller: prompts
begin alike in blocks of hundreds, a sequence wastes half a block, and every page would take its time."""
LONGER, CLEAR = 3, 0.99
"""Times as many runs or replays where those leave open whether nine in ten hold, and the chance from which they do not:
of many plans some are drawn luckily."""


def _replay_deviation_s(point: RatePoint, place: int, *, replicas: int) -> float:
    """Standard deviation of an objective's percentile from replay to replay [s]. ``by_seed`` are replays of which some
    of the replicas were simulated, ``by_run`` those replicas. Their variance has a part that all replicas of a replay
    share (crowded minutes) and a part of each, which averages out over the fleet."""
    groups_s = np.array([checks[place].value_s for checks in point.by_seed])
    if len(groups_s) < 2 or not np.isfinite(groups_s).all():
        return inf
    between = float(groups_s.var(ddof=1))
    if not point.by_run:
        return sqrt(between / replicas)
    runs_s = np.array([checks[place].value_s for checks in point.by_run]).reshape(len(groups_s), -1)
    each = runs_s.shape[1]
    if each >= replicas or not np.isfinite(runs_s).all():
        return sqrt(between)
    within = float(runs_s.var(axis=1, ddof=1).mean())
    return sqrt(max(between - within / each, 0.0) + within / replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCheck:
    """One replica, compiled once, and the trace with ``times`` as many requests; ``step_s`` about a step of its [s],
    ``steps`` about how many a check takes, ``beyond`` the requests of it that are rarer than the rarest percentile; its
    replays are numbered from ``first_seed`` on.

    Percentiles are over all requests of the trace, its busiest minutes among them. A replica gets every so-manyth
    request, as round-robin routing gives; with ``by_prefix`` every so-manyth family of prompts that begin alike.
    """

    served: ServedDeployment
    trace: RequestTrace
    times: float
    step_s: float
    steps: int
    objectives: tuple[ObjectiveSpec, ...]
    first_seed: int = 0
    by_prefix: bool = False
    beyond: int = BEYOND

    def at(self, replicas: int, *, steady: Latencies) -> Verification:
        """A check of so many replicas: holds where nine replays in ten should meet every bound. Its ``chance`` is more
        careful: it counts in that the mean over few replays is not exact either."""
        shares, together = self._shares(replicas)
        point = simulate_as_sent(self.served, samples=shares, objectives=self.objectives, together=together)
        found = verification_of(
            point,
            objectives=self.objectives,
            steady=steady,
            seeds=len(shares),
            requests=sum(map(len, shares)) // len(shares),
        )
        deviations_s = [_replay_deviation_s(point, place, replicas=replicas) for place in range(len(found.objectives))]
        of_mean = sqrt(1 + replicas / len(shares))
        chances = (
            chance_below(
                item.bound_s,
                value_s=item.simulated_s,
                deviation_s=of_mean * deviation_s,
                replays=len(shares) // together,
            )
            for item, deviation_s in zip(found.objectives, deviations_s, strict=True)
        )
        return replace(
            found,
            holds=all(
                item.simulated_s + DEVIATE_80 * deviation_s <= item.bound_s
                for item, deviation_s in zip(found.objectives, deviations_s, strict=True)
            ),
            chance=min(chances, default=1.0),
        )

    def first_share(self, replicas: int) -> Requests:
        """What the first of so many replicas gets in the first replay."""
        return self._shares(replicas)[0][0]

    def replays(self, replicas: int) -> int:
        """How many shares of single replicas it simulates, of a fleet of that many."""
        _, _, count, each = self._drawn(replicas)
        return count // each * each

    def _drawn(self, replicas: int) -> tuple[float, int, int, int]:
        """How often the trace is drawn, for how many replicas, how many of whom are simulated, and of how many a
        replay."""
        most = min(max(int(self.steps * self.step_s / float(self.trace.arrival_s[-1])), LEAST_SHARES), MOST_SHARES)
        expected = self.times * len(self.trace.arrival_s) / replicas
        times, fleet = self._drawn_fleet(replicas, each=expected)
        rarest = 1 - max(item.percentile for item in self.objectives) / 100
        count = min(max(ceil(self.beyond / rarest / expected), 2 * GROUPS * self.beyond // BEYOND), most)
        return times, fleet, count, min(max(count // GROUPS, 1), fleet)

    def _shares(self, replicas: int) -> tuple[tuple[Requests, ...], int]:
        """Of some replicas of every replay, replay by replay; and of how many."""
        times, replicas, count, each = self._drawn(replicas)
        shares: list[Requests] = []
        for seed in range(count // each):
            places = [(seed + place * (replicas // each)) % replicas for place in range(each)]
            found = replica_shares(
                self.trace,
                times=times,
                replicas=replicas,
                places=places,
                seed=self.first_seed + seed,
                prompt_token_delay_s=self.served.deployment.engine.overheads.prompt_token_s,
                block_size_tokens=self.served.deployment.engine.block_size_tokens,
                by_prefix=self.by_prefix,
            )
            shares += found if len(found) == each else []
        if not shares:
            raise RoofcastError(
                "too few requests to replay",
                field=Option("rate_per_s"),
                code="nothing_finished",
                hint="`peak_to_mean` plans without",
            )
        return tuple(shares), each

    def _drawn_fleet(self, replicas: int, *, each: float) -> tuple[float, int]:
        """How often the trace is drawn, and for how many replicas, so that each gets as many requests as in the fleet.

        Raises RoofcastError: more requests than anybody waits for.
        """
        fleet = min(replicas, max(int(MOST_DRAWN / each), LEAST_FLEET))
        if fleet * each > LARGEST_REQUESTS:
            raise RoofcastError(
                f"takes {replicas * each:.3g} requests at this rate; at most {LARGEST_REQUESTS:,} are replayed",
                field=Option("trace"),
                code="out_of_range",
                hint="a shorter part of it",
            )
        return self.times * fleet / replicas, fleet


def trace_check(
    question: Question, shape: Shape, *, steps: int = FINE_STEPS, first_seed: int = 0, times: int = 1
) -> TraceCheck:
    """Compile a replica and read the trace, ``times`` the usual shares of replays a check where those take no more than
    ``steps`` engine steps. Raises RoofcastError: not modelled."""
    if len(shape.parts) > 1:
        raise RoofcastError("a trace is not replayed on two pools: roofcast serve does that")
    replica = shape.replica
    trace, demand = read_trace(str(question.spec.trace)), question.demand
    mean_rate_per_s = demand.planned_rate_per_s / demand.peak_to_mean
    deployment, engine = replica.deployment, replica.deployment.engine
    if trace.hashes is not None and engine.block_size_tokens < LEAST_BLOCK:
        deployment = replace(deployment, engine=replace(engine, block_size_tokens=LEAST_BLOCK))
    return TraceCheck(
        served=ServedDeployment(deployment=deployment),
        trace=trace,
        times=mean_rate_per_s / trace.mean_rate_per_s,
        step_s=replica.at_capacity.tpot_mean_s or replica.at_capacity.ttft_mean_s,
        steps=steps,
        objectives=question.objectives,
        first_seed=first_seed,
        by_prefix=bool(question.spec.kv_tiers),
        beyond=times * BEYOND,
    )


CheckOf = Callable[[int], Verification]
"""Replicas -> how one of them fares."""


def steady_states(question: Question, sized: Sized) -> Callable[[int], Latencies]:
    """Steady state of one of so many replicas at the planned rate, by their number."""
    rate_per_s = question.demand.planned_rate_per_s

    def state(replicas: int) -> Latencies:
        counts = sized.counts_with(replicas, rate_per_s=rate_per_s)
        return sized.evaluated.at_counts(rate_per_s, counts, objectives=question.objectives)[0]

    return state


def simulation(
    question: Question,
    sized: Sized,
    *,
    steps: int = COARSE_STEPS,
    seeds: int = SEEDS,
    first_seed: int = 0,
    times: int = 1,
) -> CheckOf:
    """The event simulation of a fleet of any size: ``steps`` of a trace's replay, else ``seeds`` runs.

    first_seed : of the draws; from 0 on are those that plans are checked with
    times : as many runs; as many shares of replays where ``steps`` are enough for those

    Raises RoofcastError: the event simulation does not model this kind of replica.
    """
    shape, state, rate_per_s = sized.evaluated, steady_states(question, sized), question.demand.planned_rate_per_s
    deployments = tuple(part.replica.deployment for part in shape.parts)
    if replays_trace(question.spec):
        replay = trace_check(question, sized.evaluated, steps=steps, first_seed=first_seed, times=times)
        return lambda replicas: replay.at(replicas, steady=state(replicas))
    if len(deployments) == 1:
        mix, objectives, busiest = question.demand.mix, question.objectives, state(sized.replicas)
        steady = steady_check(
            deployments[0], mix=mix, objectives=objectives, busiest=busiest, seeds=times * seeds, first_seed=first_seed
        )
        return lambda replicas: steady.at(state(replicas))
    pools = pool_check(
        *deployments,
        server=slower_network(*(item.server for item in sized.housing)),
        demand=question.demand,
        objectives=question.objectives,
        seeds=times * seeds,
        first_seed=first_seed,
    )
    pools.require_alike(sized.counts_with(sized.replicas, rate_per_s=rate_per_s))
    return lambda replicas: pools.at(sized.counts_with(replicas, rate_per_s=rate_per_s), state(replicas))


def sure_simulation(question: Question, sized: Sized) -> CheckOf:
    """`simulation`, with `MANY` runs where a few do not tell whether a size holds; a trace decides its own number."""
    few = simulation(question, sized)
    if replays_trace(question.spec):
        return once_each(few)

    @cache
    def many() -> CheckOf:
        return simulation(question, sized, seeds=MANY)

    def at(replicas: int) -> Verification:
        found = few(replicas)
        # Of few runs one that misses proves nothing: nine in ten are asked for.
        misses = not found.holds and found.held_fraction < HALF
        if misses or (found.holds and all(item.surely_holds for item in found.objectives)):
            return found
        return many()(replicas)

    return once_each(at)


def surest_simulation(question: Question, sized: Sized, at: CheckOf) -> CheckOf:
    """`at`, with more runs or replays where those leave open whether nine in ten hold."""

    @cache
    def longer() -> CheckOf:
        return simulation(question, sized, steps=FINE_STEPS, seeds=MANY, times=LONGER)

    @cache
    def replay() -> TraceCheck:
        return trace_check(question, sized.evaluated, steps=FINE_STEPS, times=LONGER)

    def surest(replicas: int) -> Verification:
        found = at(replicas)
        is_open = found.chance is not None and 1 - SURE < hold_chance(found) < CLEAR
        # Of a trace that takes all steps there are no more replays than were made, and the same again say the same.
        if not is_open or (replays_trace(question.spec) and replay().replays(replicas) <= found.seeds):
            return found
        return longer()(replicas)

    return once_each(surest)


def once_each(simulate: CheckOf) -> CheckOf:
    """A simulation that runs each size once."""
    seen: dict[int, Verification] = {}

    def at(replicas: int) -> Verification:
        if replicas not in seen:
            seen[replicas] = simulate(replicas)
        return seen[replicas]

    return at
