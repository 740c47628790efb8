"""How sure the latencies of a planned fleet are."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

import numpy as np

from simulator.engine.lengths import RequestMix
from simulator.engine.steady_state import LatencyMetric
from simulator.planner.limits import DEVIATE_80
from simulator.planner.records import Fleet
from simulator.planner.replica_load import fleet_sweep

_PERCENTILE = 95.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyRange:
    """The 80 % intervals (low, high) of a fleet's p95 latencies with its spares down [s]; high may be infinite."""

    ttft_p95_s: tuple[float, float]
    tpot_p95_s: tuple[float, float]


def latency_range(fleet: Fleet, *, mix: RequestMix) -> LatencyRange:
    """What this very fleet would show where its steps take as long as the ends of their 80 % interval say.

    Steps that all take s times as long make a replica at rate r one at rate s r whose clock runs s times slower, so
    that waiting grows as well; an infinite end means that the fleet would be overloaded. Leaves out the error of the
    queueing formulas themselves.
    """
    spread = exp(DEVIATE_80 * fleet.log_sigma)
    scales = np.array([1 / spread, spread])
    state = fleet_sweep(fleet, mix=mix).state_of(fleet.degraded.rate_per_s * scales)

    def ends(metric: LatencyMetric) -> tuple[float, float]:
        low_s, high_s = state.percentile_s(metric, _PERCENTILE) * scales
        return float(low_s), float(high_s)

    return LatencyRange(ttft_p95_s=ends(LatencyMetric.TTFT), tpot_p95_s=ends(LatencyMetric.TPOT))
