"""A planned fleet in the event simulation: one replica at its share of the rate, or a group of both pools."""

from __future__ import annotations

from dataclasses import replace
from math import atan, inf, pi, sqrt

import numpy as np

from simulator.engine.pools import Pool, PoolGroup, small_group
from simulator.engine.runs.capacity_search import student_80
from simulator.engine.runs.disaggregation import ServedPools
from simulator.engine.runs.rate_simulation import RatePoint, simulate_rate
from simulator.engine.runs.serving import ServedDeployment, step_tables
from simulator.errors import RoofcastError
from simulator.phases.deployment import Deployment
from simulator.planner.records import Demand
from simulator.planner.serving.capacity import Latencies
from simulator.planner.serving.shapes import Counts
from simulator.planner.verification.records import ObjectiveVerification, Verification
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.lengths import RequestMix
from simulator.traffic.requests import Requests
from simulator.traffic.workload_requests import requests_of_mix

SEEDS = 3
LEAST_REQUESTS, MOST_REQUESTS = 3_000, 10_000
COMPANY_TIMES = 50
"""Requests of a run per sequence that decodes at once: enough to fill the batch and empty it many times."""
FEWEST_TIMES = 8
"""The same at least: what is left between filling and emptying is long enough to be looked at."""
ENOUGH = 0.9
"""Share of runs that have to hold every objective, each by itself."""
MANY = 10
"""Runs of which nine have to hold."""
SURE = 0.95
"""Chance that nine of `MANY` replays hold which a fleet should have."""
_ANGLES = 4001


def chance_below(bound_s: float, *, value_s: float, deviation_s: float, replays: int) -> float:
    """Chance that another replay stays at or under ``bound_s``, by Student's law; 0 or 1 without a deviation."""
    if not np.isfinite(value_s) or deviation_s == inf:
        return 0.0
    if deviation_s == 0:
        return float(value_s <= bound_s)
    freedom = replays - 1
    # The density over the angle whose tangent is the deviate over the root of the degrees of freedom has no long tails.
    angles = np.linspace(-pi / 2, pi / 2, _ANGLES)
    density = np.cos(angles) ** (freedom - 1)
    below = angles <= atan((bound_s - value_s) / deviation_s / sqrt(freedom))
    return float(density[below].sum() / density.sum())


def bar_chance(chance: float) -> float:
    """Chance that at least nine of ten replays hold, each with that chance."""
    return chance**MANY + MANY * chance ** (MANY - 1) * (1 - chance)


def hold_chance(found: Verification) -> float:
    """Chance that at least nine of ten further replays hold; 1 where few runs already hold for sure."""
    return float(found.holds) if found.chance is None else bar_chance(found.chance)


def _chance(point: RatePoint, objectives: tuple[ObjectiveSpec, ...]) -> float:
    """That another run meets every objective: none of them scatters beyond its bound more often."""
    chances = []
    for place, objective in enumerate(objectives):
        values_s = np.array([checks[place].value_s for checks in point.by_seed])
        count, known = len(values_s), bool(np.isfinite(values_s).all())
        deviation_s = float(values_s.std(ddof=1)) * sqrt(1 + 1 / count) if known else inf
        mean_s = float(values_s.mean()) if known else inf
        chances.append(chance_below(objective.bound_s, value_s=mean_s, deviation_s=deviation_s, replays=count))
    return min(chances, default=1.0)


def beside(verification: Verification, steady: Latencies) -> Verification:
    """A simulation beside another steady state."""
    objectives = tuple(
        replace(item, steady_s=steady_s)
        for item, steady_s in zip(verification.objectives, steady.objectives_s, strict=False)
    )
    return replace(verification, steady=steady, objectives=objectives)


def _objective(objective: ObjectiveSpec, *, point: RatePoint, place: int, steady_s: float) -> ObjectiveVerification:
    values = np.array([checks[place].value_s for checks in point.by_seed])
    simulated_s = point.objectives[place].value_s
    half_s = float("inf")
    if np.isfinite(values).all():
        half_s = student_80(len(values) - 1) * float(values.std(ddof=1)) / sqrt(len(values)) if len(values) > 1 else 0.0
    return ObjectiveVerification(
        name=objective.name,
        bound_s=objective.bound_s,
        simulated_s=simulated_s,
        low_s=max(simulated_s - half_s, 0.0) if np.isfinite(half_s) else 0.0,
        high_s=simulated_s + half_s,
        steady_s=steady_s,
    )


def verification_of(
    point: RatePoint, *, objectives: tuple[ObjectiveSpec, ...], steady: Latencies, seeds: int, requests: int
) -> Verification:
    """A simulated rate beside the steady state of the plan. It holds where enough runs do, by their number and their
    scatter, and all of them together."""
    held_fraction = float(np.mean([all(check.holds for check in checks) for checks in point.by_seed]))
    chance = _chance(point, objectives) if len(point.by_seed) >= MANY else None
    return Verification(
        rate_per_s=point.rate_per_s,
        holds=point.holds and held_fraction >= ENOUGH and (chance is None or chance >= ENOUGH),
        saturated=point.saturated,
        unanswered_fraction=point.unanswered_fraction,
        ttft_mean_s=point.ttft.mean_s,
        tpot_mean_s=point.tpot.mean_s,
        e2e_mean_s=point.e2e.mean_s,
        ttft_p95_s=point.ttft.p95_s,
        tpot_p95_s=point.tpot.p95_s,
        e2e_p95_s=point.e2e.p95_s,
        mean_sequences=point.mean_batch,
        kv_utilization=point.kv_utilization,
        objectives=tuple(
            _objective(item, point=point, place=place, steady_s=steady_s)
            for place, (item, steady_s) in enumerate(zip(objectives, steady.objectives_s, strict=True))
        ),
        steady=steady,
        seeds=seeds,
        requests=requests,
        chance=chance,
        held_fraction=held_fraction,
    )


def refused(reason: str, *, steady: Latencies) -> Verification:
    """No simulation; the event loop does not model this replica."""
    return Verification(rate_per_s=steady.rate_per_s, steady=steady, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyCheck:
    """One replica, compiled once, and requests of the planned mix at random moments, drawn once for every rate."""

    served: ServedDeployment
    samples: tuple[Requests, ...]
    objectives: tuple[ObjectiveSpec, ...]

    def at(self, steady: Latencies) -> Verification:
        """The replica at the rate of a steady state."""
        point = simulate_rate(
            self.served,
            samples=self.samples,
            rate_per_s=steady.rate_per_s,
            objectives=self.objectives,
            at_once=steady.mean_sequences,
        )
        return verification_of(
            point, objectives=self.objectives, steady=steady, seeds=len(self.samples), requests=len(self.samples[0])
        )


def steady_check(
    deployment: Deployment,
    *,
    mix: RequestMix,
    objectives: tuple[ObjectiveSpec, ...],
    busiest: Latencies,
    seeds: int = SEEDS,
    first_seed: int = 0,
) -> SteadyCheck:
    """Compile a replica and draw requests, as many as fill the batch of its ``busiest`` state many times over.

    Raises RoofcastError for what the event simulation does not model.
    """
    served = ServedDeployment(deployment=deployment)
    count = int(min(max(COMPANY_TIMES * busiest.mean_sequences, LEAST_REQUESTS), MOST_REQUESTS))
    block = deployment.engine.block_size_tokens
    samples = tuple(
        requests_of_mix(mix, rate_per_s=busiest.rate_per_s, count=count, seed=seed, block_size_tokens=block)
        for seed in range(first_seed, first_seed + seeds)
    )
    return SteadyCheck(served=served, samples=samples, objectives=objectives)


LEAST_DECODING, MOST_REPLICAS, MOST_RANKS = 4, 64, 128
"""Schedulers of the decode pool that take turns at least; replicas of both pools, and ranks of attention data
parallelism of all of them, that are simulated at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCheck:
    """A pair of pools, compiled once, to be simulated in fleets of any size."""

    pools: ServedPools
    demand: Demand
    objectives: tuple[ObjectiveSpec, ...]
    seeds: int
    first_seed: int = 0

    def at(self, counts: Counts, steady: Latencies) -> Verification:
        """A check of (prefill, decode) replicas at the planned rate, beside a steady state; its rate is that of
        one replica that decodes."""
        group = self._group(counts)
        rate = self.demand.planned_rate_per_s * group.share
        at_once = steady.mean_sequences * group.decode
        count = int(min(max(COMPANY_TIMES * at_once, LEAST_REQUESTS), max(MOST_REQUESTS, FEWEST_TIMES * at_once)))
        block = self.pools.decode.deployment.engine.block_size_tokens
        samples = [
            requests_of_mix(self.demand.mix, rate_per_s=rate, count=count, seed=seed, block_size_tokens=block)
            for seed in range(self.first_seed, self.first_seed + self.seeds)
        ]
        served = replace(
            self.pools,
            prefill=replace(self.pools.prefill, replicas=group.prefill),
            decode=replace(self.pools.decode, replicas=group.decode),
        )
        point = simulate_rate(served, samples=samples, rate_per_s=rate, objectives=self.objectives, at_once=at_once)
        found = verification_of(point, objectives=self.objectives, steady=steady, seeds=self.seeds, requests=count)
        return replace(found, rate_per_s=rate / group.decode)

    def require_alike(self, counts: Counts) -> None:
        """Refuse pools for which no few replicas stand: where the nearest ratio is far off, one of them would be asked
        for more than it is in the fleet. Raises RoofcastError."""
        if not self._group(counts).is_alike:
            raise RoofcastError(
                f"{counts[0]:,} prefill and {counts[1]:,} decode replicas are too unequal for few of both to stand for",
                field="replicas",
                code="not_simulated",
            )

    def _group(self, counts: Counts) -> PoolGroup:
        ranks = max(pool.deployment.parallelism.dp_size for pool in (self.pools.prefill, self.pools.decode))
        least = -(-LEAST_DECODING // self.pools.decode.deployment.parallelism.dp_size)
        return small_group(counts, least=least, most=max(min(MOST_REPLICAS, MOST_RANKS // ranks), 2))


def pool_check(
    prefill: Deployment,
    decode: Deployment,
    *,
    server: ServerSpec | None,
    demand: Demand,
    objectives: tuple[ObjectiveSpec, ...],
    seeds: int = SEEDS,
    first_seed: int = 0,
) -> PoolCheck:
    """Compile both pools. Raises RoofcastError for what the event simulation does not model."""
    pools = ServedPools(
        prefill=Pool(deployment=prefill, replicas=1, tables=step_tables(prefill)),
        decode=Pool(deployment=decode, replicas=1, tables=step_tables(decode)),
        link="nic" if server is not None else "scale_up",
        server=server,
    )
    return PoolCheck(pools=pools, demand=demand, objectives=objectives, seeds=seeds, first_seed=first_seed)
