"""How the latency of one replica rises with its load, from idle to almost saturated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.engine.lane import lanes
from simulator.engine.lengths import RequestMix
from simulator.engine.steady_state import LatencyMetric, steady_state
from simulator.operators.step_shape import Array
from simulator.planner.records import Replica
from simulator.planner.replica_curve import replica_curve

_POINTS = 40
_HIGHEST_LOAD = 0.97
PERCENTILES = (50.0, 90.0, 95.0, 99.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """Percentiles of one metric at one load, in the order of PERCENTILES [s]."""

    metric: LatencyMetric
    rate_per_s: float
    load: float
    values_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoad:
    """Latency over load of one replica.

    rates_per_s, loads : arrival rates and their shares of the saturation rate
    ttft_p95_s, tpot_p95_s, e2e_p95_s, ttft_p50_s : at those rates [s]
    knee_load : share of saturation from which TTFT p95 rises faster than the chord from idle to the end
    """

    rates_per_s: tuple[float, ...]
    loads: tuple[float, ...]
    ttft_p50_s: tuple[float, ...]
    ttft_p95_s: tuple[float, ...]
    tpot_p95_s: tuple[float, ...]
    e2e_p95_s: tuple[float, ...]
    knee_load: float
    knee_ttft_s: float
    at: tuple[LoadPoint, ...]


def knee_index(x: Array, y: Array) -> int:
    """Where a rising curve lies deepest below the chord between its ends, both axes scaled to one.

    References
    ----------
    [Satopaa2011] definition of a knee as the point of greatest curvature, for convex increasing data.
    """
    along = (x - x[0]) / (x[-1] - x[0])
    rise = (y - y[0]) / max(float(y[-1] - y[0]), np.finfo(float).tiny)
    return int(np.argmax(along - rise))


def replica_load(replica: Replica, *, mix: RequestMix, rates_per_s: tuple[float, ...] = ()) -> ReplicaLoad:
    """Percentiles of one replica over its load, and at the given ``rates_per_s`` of the whole replica."""
    deployment = replica.deployment

    curve, _ = replica_curve(deployment, memory=replica.memory, mix=mix)
    count = lanes(deployment)
    loads = np.linspace(0.02, _HIGHEST_LOAD, _POINTS)
    state = steady_state(curve, rates_per_s=np.append(loads * replica.saturation_per_s, rates_per_s) / count)

    def curve_of(metric: LatencyMetric, percentile: float) -> Array:
        values = state.percentile_s(metric, percentile)[:_POINTS]
        return values[np.isfinite(values)]

    ttft = curve_of(LatencyMetric.TTFT, 95.0)
    shown = len(ttft)
    knee = knee_index(loads[:shown], ttft)
    at = tuple(
        LoadPoint(
            metric=metric,
            rate_per_s=rate,
            load=rate / replica.saturation_per_s,
            values_s=tuple(float(state.percentile_s(metric, item)[_POINTS + index]) for item in PERCENTILES),
        )
        for index, rate in enumerate(rates_per_s)
        for metric in LatencyMetric
    )
    return ReplicaLoad(
        rates_per_s=tuple(float(load * replica.saturation_per_s) for load in loads[:shown]),
        loads=tuple(float(load) for load in loads[:shown]),
        ttft_p50_s=tuple(map(float, curve_of(LatencyMetric.TTFT, 50.0)[:shown])),
        ttft_p95_s=tuple(map(float, ttft)),
        tpot_p95_s=tuple(map(float, curve_of(LatencyMetric.TPOT, 95.0)[:shown])),
        e2e_p95_s=tuple(map(float, curve_of(LatencyMetric.E2E, 95.0)[:shown])),
        knee_load=float(loads[knee]),
        knee_ttft_s=float(ttft[knee]),
        at=at,
    )
