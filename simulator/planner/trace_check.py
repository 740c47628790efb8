"""A planned fleet under the trace it was planned for: the whole trace again, as one of its replicas meets it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np

from simulator.engine.rate_simulation import RatePoint, ServedDeployment, served_deployment, simulate_as_sent
from simulator.engine.request import Requests
from simulator.engine.trace_files import RequestTrace, read_trace, summarise
from simulator.engine.trace_replay import replica_share
from simulator.errors import RoofcastError
from simulator.planner.limits import DEVIATE_80
from simulator.planner.records import Latencies, Objective, Replica
from simulator.planner.search import Question
from simulator.planner.verification import Verification, objective_specs, verification_of

REQUESTS = 24_000
"""Requests of a check: their p95 is known to about a hundredth."""
LEAST_DRAWS, MOST_DRAWS = 4, 128
"""Replays of which one replica's share is simulated."""
COARSE_STEPS, FINE_STEPS = 600_000, 3_000_000
"""Steps of a check, about, to come near and to decide: a long trace takes its time even where few requests come."""


def _replay_scatter_s(point: RatePoint, place: int, *, part: float) -> float:
    """How far one replay in ten lies above the mean replay in an objective, from the scatter of parts of replays [s].

    part : of the fleet's replicas that each of ``by_seed`` holds; percentiles scatter as one over the root of that
    """
    values_s = np.array([checks[place].value_s for checks in point.by_seed])
    if len(values_s) < 2 or not np.isfinite(values_s).all():
        return inf
    return DEVIATE_80 * float(values_s.std(ddof=1)) * sqrt(min(part, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCheck:
    """One replica, compiled once, and the trace with ``times`` as many requests; ``step_s`` about a step of its [s],
    ``steps`` about how many a check takes.

    Percentiles are over all requests of the trace, its busiest minutes among them. A replica gets every so-manyth
    request, as round-robin routing gives.
    """

    served: ServedDeployment
    trace: RequestTrace
    times: float
    step_s: float
    steps: int
    objectives: tuple[Objective, ...]

    def at(self, replicas: int, *, steady: Latencies) -> Verification:
        """With that many replicas; holds where nine replays in ten should meet every bound."""
        shares = self._shares(replicas)
        together = max(min(replicas, len(shares) // LEAST_DRAWS), 1)
        point = simulate_as_sent(
            self.served, samples=shares, objectives=objective_specs(self.objectives), together=together
        )
        part = together / replicas
        found = verification_of(
            point,
            objectives=self.objectives,
            steady=steady,
            seeds=len(shares),
            requests=sum(map(len, shares)) // len(shares),
        )
        likely = (
            item.simulated_s + _replay_scatter_s(point, place, part=part) for place, item in enumerate(found.objectives)
        )
        return replace(
            found, holds=all(value_s <= item.bound_s for value_s, item in zip(likely, found.objectives, strict=True))
        )

    def _shares(self, replicas: int) -> tuple[Requests, ...]:
        """Of another replica in every replay, so that their scatter is that of replays and of replicas."""
        shares: list[Requests] = []
        by_steps = int(self.steps * self.step_s / float(self.trace.arrival_s[-1]))
        most = min(max(by_steps, LEAST_DRAWS), MOST_DRAWS)
        for draw in range(most):
            if len(shares) >= LEAST_DRAWS and sum(map(len, shares)) >= REQUESTS:
                break
            share = replica_share(self.trace, times=self.times, replicas=replicas, replica=draw % replicas, seed=draw)
            if share is not None:
                shares.append(share)
        if not shares:
            raise RoofcastError(
                "too few requests to replay",
                field="--rps",
                code="nothing_finished",
                hint="--peak-to-mean plans without",
            )
        return tuple(shares)


def trace_check(question: Question, replica: Replica, *, steps: int = FINE_STEPS) -> TraceCheck:
    """Compile a replica and read the trace; a check takes about that many engine ``steps``.

    Raises RoofcastError for what the event simulation does not model.
    """
    trace, demand = read_trace(str(question.spec.trace)), question.demand
    mean_rate_per_s = demand.planned_rate_per_s / demand.peak_to_mean
    return TraceCheck(
        served=served_deployment(replica.deployment),
        trace=trace,
        times=mean_rate_per_s / summarise(trace).mean_rate_per_s,
        step_s=replica.at_capacity.tpot_mean_s or replica.at_capacity.ttft_mean_s,
        steps=steps,
        objectives=question.objectives,
    )
