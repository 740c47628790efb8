"""How the latency of one replica rises with its load, from idle to almost saturated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simulator.engine.lanes.load_curve import lanes
from simulator.engine.lanes.steady_state import LatencyMetric, SteadyState, steady_state
from simulator.operators.step_shape import Array
from simulator.planner.records import Fleet, PrefillPool, Replica
from simulator.planner.serving.replica_curve import replica_curve
from simulator.traffic.lengths import RequestMix

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Steady states at rates of one replica, and the rate that saturates it or the pool before it [1/s]."""

    state_of: Callable[[Array], SteadyState]
    saturation_per_s: float


def _replica_sweep(replica: Replica, *, mix: RequestMix) -> Sweep:
    curve, _ = replica_curve(replica.deployment, memory=replica.memory, mix=mix)
    count = lanes(replica.deployment)
    return Sweep(
        state_of=lambda rates: steady_state(curve, rates_per_s=rates / count),
        saturation_per_s=replica.saturation_per_s,
    )


def _pools_sweep(fleet: Fleet, pool: PrefillPool, *, mix: RequestMix) -> Sweep:
    """Of a decode replica, while the prefill replicas of the fleet share what all decode replicas get."""
    from simulator.planner.serving.pool_states import (
        Transfer,
        both_pools,
        decode_curve,
        decode_mix,
        decode_state,
        prefill_mix,
        prefill_state,
        turns,
    )

    first, second = pool.replica, fleet.replica
    prompts, _ = replica_curve(first.deployment, memory=first.memory, mix=prefill_mix(mix))
    answers, _ = replica_curve(second.deployment, memory=second.memory, mix=decode_mix(mix))
    alone = decode_curve(answers)
    transfer = Transfer(
        link=pool.link,
        token_s=pool.transfer_token_s,
        request_s=max(0.0, pool.transfer_s - mix.isl.mean_tokens * pool.transfer_token_s),
        lanes=first.deployment.parallelism.pp_size,
    )
    ratio = fleet.replicas / pool.replicas
    counts, streams = (lanes(first.deployment), lanes(second.deployment)), turns(first.deployment, (pool.replicas,))

    def states(rates: Array) -> SteadyState:
        ahead = prefill_state(prompts, rates_per_s=rates * ratio / counts[0], transfer=transfer, streams=streams)
        return both_pools(ahead, decode_state(alone, rates_per_s=rates / counts[1]))

    return Sweep(state_of=states, saturation_per_s=min(second.saturation_per_s, first.saturation_per_s / ratio))


def fleet_sweep(fleet: Fleet, *, mix: RequestMix) -> Sweep:
    """Of one replica of a fleet; where it only decodes, with its share of the prefill pool before it."""
    if fleet.prefill is None:
        return _replica_sweep(fleet.replica, mix=mix)
    return _pools_sweep(fleet, fleet.prefill, mix=mix)


def replica_load(
    replica: Replica, *, mix: RequestMix, rates_per_s: tuple[float, ...] = (), fleet: Fleet | None = None
) -> ReplicaLoad:
    """Percentiles of one replica over its load, and at the given ``rates_per_s`` of the whole replica.

    fleet : where prompts are computed in a pool of their own, the fleet that says how many replicas share them
    """
    swept = _replica_sweep(replica, mix=mix) if fleet is None else fleet_sweep(fleet, mix=mix)
    loads = np.linspace(0.02, _HIGHEST_LOAD, _POINTS)
    state = swept.state_of(np.append(loads * swept.saturation_per_s, rates_per_s))

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
            load=rate / swept.saturation_per_s,
            values_s=tuple(float(state.percentile_s(metric, item)[_POINTS + index]) for item in PERCENTILES),
        )
        for index, rate in enumerate(rates_per_s)
        for metric in LatencyMetric
    )
    return ReplicaLoad(
        rates_per_s=tuple(float(load * swept.saturation_per_s) for load in loads[:shown]),
        loads=tuple(float(load) for load in loads[:shown]),
        ttft_p50_s=tuple(map(float, curve_of(LatencyMetric.TTFT, 50.0)[:shown])),
        ttft_p95_s=tuple(map(float, ttft)),
        tpot_p95_s=tuple(map(float, curve_of(LatencyMetric.TPOT, 95.0)[:shown])),
        e2e_p95_s=tuple(map(float, curve_of(LatencyMetric.E2E, 95.0)[:shown])),
        knee_load=float(loads[knee]),
        knee_ttft_s=float(ttft[knee]),
        at=at,
    )
