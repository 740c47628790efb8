"""How the latency of one replica of a fleet rises with its load, and how sure its latencies are."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from statistics import NormalDist
from typing import Protocol

import numpy as np

from simulator.operators.work import Array
from simulator.planner.fleet.records import Fleet, Serving
from simulator.planner.serving.shapes import DEVIATE_80
from simulator.records import dataclass
from simulator.specs.question.plan_values import LatencyMetric, ObjectiveSpec

_POINTS = 40
_HIGHEST_LOAD = 0.97
PERCENTILES = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoadPoint:
    """Percentiles of one metric at one load, in the order of PERCENTILES [s]."""

    metric: LatencyMetric
    rate_per_s: float
    load: float
    values_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoad:
    """Latency over load of one replica.

    rates_per_s, loads : arrival rates and their shares of the saturation rate
    ttft_p50_s, ttft_slow_s : at those rates, the latter at ``percentile`` [s]
    at : at each of the rates that were asked for, every metric
    knee_load : share of saturation from which ``ttft_slow_s`` rises faster than the chord from idle to the end
    """

    rates_per_s: tuple[float, ...]
    loads: tuple[float, ...]
    ttft_p50_s: tuple[float, ...]
    ttft_slow_s: tuple[float, ...]
    percentile: float
    knee_load: float
    knee_ttft_s: float
    at: tuple[tuple[ReplicaLoadPoint, ...], ...]

    @property
    def knee_per_s(self) -> float:
        """Arrival rate at the knee [1/s]."""
        return self.rates_per_s[self.loads.index(self.knee_load)]


def knee_index(x: Array, y: Array) -> int:
    """Where a rising curve lies deepest below the chord between its ends, both axes scaled to one.

    Reference: [Satopaa2011] definition of a knee as the point of greatest curvature, for convex increasing data.
    """
    along = (x - x[0]) / (x[-1] - x[0])
    rise = (y - y[0]) / max(float(y[-1] - y[0]), np.finfo(float).tiny)
    return int(np.argmax(along - rise))


def replica_load(
    fleet: Fleet, *, rates_per_s: tuple[float, ...] = (), objectives: Sequence[ObjectiveSpec] = ()
) -> ReplicaLoad:
    """Percentiles of one replica of a fleet over its load, the slow one that of ``objectives``, and at ``rates_per_s``
    of the whole replica. Where it only decodes, with its share of the prefill pool before it."""
    counts = tuple(pool.replicas for pool in fleet.pools)
    saturation_per_s = fleet.serving.saturation_per_s(counts)
    loads = np.linspace(0.02, _HIGHEST_LOAD, _POINTS)
    state = fleet.serving.sweep(np.append(loads * saturation_per_s, rates_per_s), counts=counts)

    def curve_of(metric: LatencyMetric, percentile: float) -> Array:
        values = state.percentile_s(metric, percentile)[:_POINTS]
        return values[np.isfinite(values)]

    bounded = (item.percentile for item in objectives if item.metric is LatencyMetric.TTFT)
    percentile = max(bounded, default=95.0)
    ttft = curve_of(LatencyMetric.TTFT, percentile)
    shown = len(ttft)
    knee = knee_index(loads[:shown], ttft)
    at = tuple(
        tuple(
            ReplicaLoadPoint(
                metric=metric,
                rate_per_s=rate,
                load=rate / saturation_per_s,
                values_s=tuple(float(state.percentile_s(metric, item)[_POINTS + index]) for item in PERCENTILES),
            )
            for metric in LatencyMetric
        )
        for index, rate in enumerate(rates_per_s)
    )
    return ReplicaLoad(
        rates_per_s=tuple(float(load * saturation_per_s) for load in loads[:shown]),
        loads=tuple(float(load) for load in loads[:shown]),
        ttft_p50_s=tuple(map(float, curve_of(LatencyMetric.TTFT, 50.0)[:shown])),
        ttft_slow_s=tuple(map(float, ttft)),
        percentile=percentile,
        knee_load=float(loads[knee]),
        knee_ttft_s=float(ttft[knee]),
        at=at,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRange:
    """The 80 % intervals (low, high) of a fleet's p95 latencies with its spares down [s]; high may be infinite.

    objectives_s : of the objectives that were asked for, in their order
    """

    ttft_p95_s: tuple[float, float]
    tpot_p95_s: tuple[float, float]
    objectives_s: tuple[tuple[float, float], ...] = ()


def load_range(load: float, *, fleet: Fleet) -> tuple[float, float]:
    """80 % interval of a load of the fleet's replicas: it goes with their step time."""
    spread = exp(DEVIATE_80 * fleet.log_sigma)
    return load / spread, load * spread


_SLOWEST = 4.0
_SCALES = 65
"""Step times from so many standard deviations below what is predicted to as many above, at so many points."""


class Loaded(Protocol):
    """A fleet, or one of several side by side, with the rate that it gets."""

    @property
    def serving(self) -> Serving:
        """What is asked for latencies."""

    @property
    def counts(self) -> tuple[int, ...]:
        """Replicas of each pool without spares."""

    @property
    def replica_rate_per_s(self) -> float:
        """Rate on one replica of the last pool [1/s]."""

    @property
    def log_sigma(self) -> float:
        """Standard deviation of log(measured / predicted) of its step times."""


def meeting_chances(fleet: Loaded, *, objectives: Sequence[ObjectiveSpec]) -> tuple[float, ...]:
    """Probability that each objective holds with the spares down, over the log-normal spread of the step times.

    Latencies rise with step times (see ``latency_range``): the chance is that of steps no slower than those at which
    the objective fails. Demand is the planned one; errors of the queueing formulas are left out.
    """
    deviates = np.linspace(-_SLOWEST, _SLOWEST, _SCALES)
    scales = np.exp(fleet.log_sigma * deviates)
    state = fleet.serving.sweep(fleet.replica_rate_per_s * scales, counts=fleet.counts)

    def chance(item: ObjectiveSpec) -> float:
        holds = state.percentile_s(item.metric, item.percentile) * scales <= item.bound_s
        if holds.all() or not holds.any():
            return float(holds[0])
        last = int(np.flatnonzero(~holds)[0])
        middle = (deviates[last - 1] + deviates[last]) / 2 if last else deviates[0]
        return NormalDist().cdf(float(middle))

    return tuple(chance(item) for item in objectives)


def latency_range(fleet: Loaded, *, objectives: Sequence[ObjectiveSpec] = ()) -> LatencyRange:
    """What this very fleet would show where its steps take as long as the ends of their 80 % interval say.

    Steps that all take s times as long make a replica at rate r one at rate s r whose clock runs s times slower, so
    that waiting grows as well; an infinite end means that the fleet would be overloaded. Leaves out the error of the
    queueing formulas themselves.
    """
    spread = exp(DEVIATE_80 * fleet.log_sigma)
    scales = np.array([1 / spread, spread])
    state = fleet.serving.sweep(fleet.replica_rate_per_s * scales, counts=fleet.counts)

    def ends(metric: LatencyMetric, percentile: float = 95.0) -> tuple[float, float]:
        low_s, high_s = state.percentile_s(metric, percentile) * scales
        return float(low_s), float(high_s)

    return LatencyRange(
        ttft_p95_s=ends(LatencyMetric.TTFT),
        tpot_p95_s=ends(LatencyMetric.TPOT),
        objectives_s=tuple(ends(item.metric, item.percentile) for item in objectives),
    )
