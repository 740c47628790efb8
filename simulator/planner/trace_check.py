"""A planned fleet under the trace it was planned for: the whole trace again, as one of its replicas meets it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import hypot, inf, sqrt

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
LEAST_DRAWS, MOST_DRAWS = 4, 48
"""Replays of which one replica's share is simulated."""
MOST_STEPS = 1_500_000
"""Steps of a check, about: a long trace takes its time even where few requests come."""


def _replay_scatter_s(point: RatePoint, place: int, *, replicas: int) -> float:
    """How far one replay in ten lies above the mean replay in an objective, from the scatter of single shares [s].

    A replay's percentile is about the mean of those of its ``replicas`` shares.
    """
    values_s = np.array([checks[place].value_s for checks in point.by_seed])
    if len(values_s) < 2 or not np.isfinite(values_s).all():
        return inf
    return DEVIATE_80 * float(values_s.std(ddof=1)) / sqrt(replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCheck:
    """One replica, compiled once, and the trace with ``times`` as many requests; ``step_s`` about a step of its [s].

    Percentiles are over all requests of the trace, its busiest minutes among them. A replica gets every so-manyth
    request, as round-robin routing gives.
    """

    served: ServedDeployment
    trace: RequestTrace
    times: float
    step_s: float
    objectives: tuple[Objective, ...]

    def at(self, replicas: int, *, steady: Latencies) -> Verification:
        """With that many replicas; holds where nine replays in ten should meet every bound."""
        shares = self._shares(replicas)
        point = simulate_as_sent(self.served, samples=shares, objectives=objective_specs(self.objectives))
        found = verification_of(
            point,
            objectives=self.objectives,
            steady=steady,
            seeds=len(shares),
            requests=sum(map(len, shares)) // len(shares),
        )
        likely = (
            item.simulated_s + hypot(item.high_s - item.simulated_s, _replay_scatter_s(point, place, replicas=replicas))
            for place, item in enumerate(found.objectives)
        )
        return replace(
            found, holds=all(value_s <= item.bound_s for value_s, item in zip(likely, found.objectives, strict=True))
        )

    def _shares(self, replicas: int) -> tuple[Requests, ...]:
        """Of another replica in every replay, so that their scatter is that of replays and of replicas."""
        shares: list[Requests] = []
        by_steps = int(MOST_STEPS * self.step_s / float(self.trace.arrival_s[-1]))
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


def trace_check(question: Question, replica: Replica) -> TraceCheck:
    """Compile a replica and read the trace.

    Raises RoofcastError for what the event simulation does not model.
    """
    trace, demand = read_trace(str(question.spec.trace)), question.demand
    mean_rate_per_s = demand.planned_rate_per_s / demand.peak_to_mean
    return TraceCheck(
        served=served_deployment(replica.deployment),
        trace=trace,
        times=mean_rate_per_s / summarise(trace).mean_rate_per_s,
        step_s=replica.unloaded.tpot_mean_s or replica.unloaded.ttft_mean_s,
        objectives=question.objectives,
    )
