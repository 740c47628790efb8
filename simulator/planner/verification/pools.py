"""A planned pair of pools, checked by event simulation: a small group of both, as loaded as in the fleet."""

from __future__ import annotations

from dataclasses import dataclass, replace

from simulator.engine.runs.disaggregation import ServedPools
from simulator.engine.runs.rate_simulation import simulate_rate
from simulator.engine.runs.scheduling import Pool, step_tables
from simulator.phases.deployment import Deployment
from simulator.planner.records import Demand, Latencies, Objective, Verification
from simulator.planner.verification.fleets import (
    COMPANY_TIMES,
    LEAST_REQUESTS,
    MOST_REQUESTS,
    SEEDS,
    objective_specs,
    verification_of,
)
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.traffic.mixes import requests_of_mix

MOST_REPLICAS = 16
"""Replicas of both pools that are simulated at most; larger fleets by a group of the nearest ratio."""


def small_group(prefill: int, decode: int, *, most: int = MOST_REPLICAS) -> tuple[int, int]:
    """Replicas of both pools, at most ``most`` in all, in the ratio nearest to the fleet's; the fewest of equals."""
    if prefill + decode <= most:
        return prefill, decode
    pairs = [(first, second) for first in range(1, most) for second in range(1, most + 1 - first)]

    def mismatch(pair: tuple[int, int]) -> float:
        ratio = pair[0] / pair[1] * decode / prefill
        return max(ratio, 1 / ratio)

    return min(pairs, key=lambda pair: (mismatch(pair), sum(pair)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCheck:
    """A pair of pools, compiled once, to be simulated in fleets of any size."""

    pools: ServedPools
    demand: Demand
    objectives: tuple[Objective, ...]
    seeds: int

    def at(self, counts: tuple[int, int], steady: Latencies) -> Verification:
        """With (prefill, decode) replicas at the planned rate, beside a steady state."""
        group = small_group(*counts)
        # As loaded as in the fleet; where the ratio is not quite the fleet's, one pool a little more.
        share = max(part / whole for part, whole in zip(group, counts, strict=True))
        rate = self.demand.planned_rate_per_s * share
        company = COMPANY_TIMES * steady.mean_sequences * group[1]
        count = int(min(max(company, LEAST_REQUESTS), MOST_REQUESTS))
        block = self.pools.decode.deployment.engine.block_size_tokens
        samples = [
            requests_of_mix(self.demand.mix, rate_per_s=rate, count=count, seed=seed, block_size_tokens=block)
            for seed in range(self.seeds)
        ]
        served = replace(
            self.pools,
            prefill=replace(self.pools.prefill, replicas=group[0]),
            decode=replace(self.pools.decode, replicas=group[1]),
        )
        point = simulate_rate(served, samples=samples, rate_per_s=rate, objectives=objective_specs(self.objectives))
        return verification_of(point, objectives=self.objectives, steady=steady, seeds=self.seeds, requests=count)


def pool_check(
    prefill: Deployment,
    decode: Deployment,
    *,
    server: ServerSpec | None,
    demand: Demand,
    objectives: tuple[Objective, ...],
    seeds: int = SEEDS,
) -> PoolCheck:
    """Compile both pools. Raises RoofcastError for what the event simulation does not model."""
    pools = ServedPools(
        prefill=Pool(deployment=prefill, replicas=1, tables=step_tables(prefill)),
        decode=Pool(deployment=decode, replicas=1, tables=step_tables(decode)),
        link="nic" if server is not None else "scale_up",
        server=server,
    )
    return PoolCheck(pools=pools, demand=demand, objectives=objectives, seeds=seeds)
