"""One request rate, simulated over several seeds: percentiles with their scatter, and whether objectives hold."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.engine.events.state import BUSY_S, SEQUENCE_S
from simulator.engine.runs import metrics
from simulator.records import FLAT, INSIDE, dataclass
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.traffic.requests import Floats, Outcome, Requests
from simulator.traffic.workload_requests import at_rate, mean_rate_per_s

WARM_UP_SHARE = 0.1
"""First requests of a run whose latencies are left out: they meet a lane that is still filling up."""
FILLING_STAYS, LEFT_OUT_AT_MOST = 2, 0.4
"""Mean stays after which a lane is full, so that as many arrivals are left out, up to this share of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanAndTail:
    """A latency over all runs together [s]."""

    mean_s: float
    p95_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """A rate and what clients see there, warm-up left out.

    holds : every objective holds and the queue does not grow; saturated : it grows in most runs
    unanswered_fraction : given up or rejected; objectives : each with its percentile over all runs
    by_seed : the same of each run, or of each group of runs; by_run : of each run where that is of groups, else empty
    """

    rate_per_s: float
    holds: bool
    saturated: bool
    ttft: MeanAndTail = field(metadata=FLAT)
    tpot: MeanAndTail = field(metadata=FLAT)
    e2e: MeanAndTail = field(metadata=FLAT)
    mean_batch: float
    kv_utilization: float
    unanswered_fraction: float
    objectives: tuple[metrics.ObjectiveCheck, ...]
    by_seed: tuple[tuple[metrics.ObjectiveCheck, ...], ...] = field(metadata=INSIDE)
    by_run: tuple[tuple[metrics.ObjectiveCheck, ...], ...] = field(default=(), metadata=INSIDE)

    @property
    def binding(self) -> ObjectiveSpec | None:
        """The objective that is nearest to its bound or furthest beyond; None without objectives."""
        return max(self.objectives, key=lambda check: check.excess).objective if self.objectives else None

    def within(self, bounds: Mapping[ObjectiveSpec, ObjectiveSpec]) -> RatePoint:
        """These latencies beside other bounds; ``bounds`` : what takes the place of each objective."""
        checks, *by_seed = (
            tuple(replace(check, objective=bounds[check.objective]) for check in found)
            for found in (self.objectives, *self.by_seed)
        )
        holds = not self.saturated and all(check.holds for check in checks)
        return replace(self, holds=holds, objectives=checks, by_seed=tuple(by_seed))

    def excess_of(self, seed: int) -> float:
        """Largest of one run's percentiles over their bounds; at most 1 where that run meets them all."""
        return max((check.excess for check in self.by_seed[seed]), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    result: metrics.ServeResult
    inside: NDArray[np.bool_]

    def latencies_s(self, metric: str) -> Floats:
        return metrics.offered_latency_s(self.result.requests, self.result.run.records, metric=metric)[self.inside]


def _checks(values: Sequence[Floats], objectives: tuple[ObjectiveSpec, ...]) -> tuple[metrics.ObjectiveCheck, ...]:
    return tuple(
        metrics.ObjectiveCheck(objective=item, value_s=metrics.percentile_s(found, item.percentile))
        for item, found in zip(objectives, values, strict=True)
    )


def _pooled(runs: Sequence[_Run], metric: str) -> MeanAndTail:
    values_s = np.concatenate([run.latencies_s(metric) for run in runs])
    known = values_s[np.isfinite(values_s)]
    return MeanAndTail(mean_s=float(known.mean()) if len(known) else 0.0, p95_s=metrics.percentile_s(values_s, 95.0))


def _growth(result: metrics.ServeResult, timeout_s: float | None) -> tuple[float, int]:
    """In the stage of most requests: from a stage to a busier one the number in service grows without any queue."""
    requests = result.requests
    stage = int(np.bincount(requests.stage).argmax())
    start_s, end_s = np.append(0.0, requests.stage_end_s)[stage : stage + 2].tolist()
    return metrics.queue_growth(requests, result.run.records, start_s=start_s, end_s=end_s, timeout_s=timeout_s)


class Served(Protocol):
    """What serves requests: replicas of one deployment, or pools."""

    @property
    def timeout_s(self) -> float | None:
        """How long clients wait, as in a workload [s]."""
        ...

    def run(self, requests: Requests) -> metrics.ServeResult:
        """Serve requests."""
        ...


def simulate_rate(
    served: Served,
    *,
    samples: Sequence[Requests],
    rate_per_s: float,
    objectives: tuple[ObjectiveSpec, ...],
    at_once: float = 0.0,
    growth_share: float = metrics.GROWTH_SHARE,
    pooled: bool = False,
) -> RatePoint:
    """Send each of ``samples`` (one per seed) at a mean rate [1/s] and gather what clients see.

    at_once : requests in service together; those that meet less company, while replicas fill up and empty, are left out
    growth_share : of the arrivals, as in ``is_saturated``
    pooled : a queue grows where it does over all runs together, of which chance hides less; else where it does in most
    """
    runs = []
    for requests in samples:
        result = served.run(at_rate(requests, rate_per_s=rate_per_s))
        share = at_once / len(requests)
        first = min(max(WARM_UP_SHARE, FILLING_STAYS * share), LEFT_OUT_AT_MOST)
        place = np.arange(len(requests)) / len(requests)
        inside = (place >= first) & (place < 1 - min(share, LEFT_OUT_AT_MOST / 2))
        runs.append(_Run(result=result, inside=inside))
    return _gathered(
        runs, served=served, rate_per_s=rate_per_s, objectives=objectives, growth_share=growth_share, pooled=pooled
    )


def simulate_as_sent(
    served: Served, *, samples: Sequence[Requests], objectives: tuple[ObjectiveSpec, ...], together: int = 1
) -> RatePoint:
    """Send each of ``samples`` at its own times and gather what clients see of all requests, the first included.

    together : about so many samples in a row count as one in ``by_seed``, the samples spread evenly over the groups
    """
    # The event loop does not hold the interpreter's lock; results come in the order of the samples.
    with ThreadPoolExecutor(max_workers=min(len(samples), os.cpu_count() or 1)) as pool:
        results = list(pool.map(served.run, samples))
    runs = [
        _Run(result=result, inside=np.ones(len(requests), dtype=np.bool_))
        for result, requests in zip(results, samples, strict=True)
    ]
    rate_per_s = float(np.mean([mean_rate_per_s(requests) for requests in samples]))
    point = _gathered(runs, served=served, rate_per_s=rate_per_s, objectives=objectives)
    if together == 1:
        return point
    groups = np.array_split(np.arange(len(runs)), max(len(runs) // together, 1))
    return replace(
        point,
        by_run=point.by_seed,
        by_seed=tuple(
            _checks(
                [np.concatenate([runs[place].latencies_s(item.metric) for place in group]) for item in objectives],
                objectives,
            )
            for group in groups
        ),
    )


def _gathered(
    runs: Sequence[_Run],
    *,
    served: Served,
    rate_per_s: float,
    objectives: tuple[ObjectiveSpec, ...],
    growth_share: float = metrics.GROWTH_SHARE,
    pooled: bool = False,
) -> RatePoint:
    values = [[run.latencies_s(item.metric) for item in objectives] for run in runs]
    usage = sum(run.result.run.usage.sum(axis=0) for run in runs)
    answered = sum(np.count_nonzero(run.result.run.records.outcome == int(Outcome.FINISHED)) for run in runs)
    checks = _checks([np.concatenate(column) for column in zip(*values, strict=True)], objectives)
    growths = [_growth(run.result, served.timeout_s) for run in runs]
    if pooled:
        growths = [(sum(growth for growth, _ in growths), sum(offered for _, offered in growths))]
    saturated = 2 * sum(metrics.is_saturated(*growth, share=growth_share) for growth in growths) > len(growths)
    return RatePoint(
        rate_per_s=rate_per_s,
        holds=not saturated and all(check.holds for check in checks),
        saturated=saturated,
        ttft=_pooled(runs, "ttft"),
        tpot=_pooled(runs, "tpot"),
        e2e=_pooled(runs, "e2e"),
        mean_batch=float(usage[SEQUENCE_S] / usage[BUSY_S]) if usage[BUSY_S] > 0 else 0.0,
        kv_utilization=float(np.mean([run.result.overall.kv_utilization for run in runs])),
        unanswered_fraction=1 - answered / sum(len(run.inside) for run in runs),
        objectives=checks,
        by_seed=tuple(_checks(found, objectives) for found in values),
    )
