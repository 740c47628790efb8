"""What a capacity plan starts from: demand, objectives, assumptions, and why candidates are refused. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.engine.lanes.steady_state import LatencyMetric
from simulator.traffic.lengths import RequestMix


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """A value that the plan rests on, and where it came from (flag, file, trace, default)."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Requests that arrive, and those that reach accelerators.

    mean_rate_per_s : of all requests; peak_to_mean : busiest over mean; cache_hit_fraction : answered elsewhere
    headroom_fraction : growth that capacity is kept free for; warnings : what was put right in a trace
    """

    mean_rate_per_s: float
    peak_to_mean: float
    cache_hit_fraction: float
    headroom_fraction: float
    mix: RequestMix
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...] = ()

    @property
    def served_mean_rate_per_s(self) -> float:
        """Mean rate that accelerators serve [1/s]."""
        return self.mean_rate_per_s * (1 - self.cache_hit_fraction)

    @property
    def planned_rate_per_s(self) -> float:
        """Peak rate that accelerators must sustain, headroom included [1/s]."""
        return self.served_mean_rate_per_s * self.peak_to_mean * (1 + self.headroom_fraction)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A percentile of a latency that must stay at or under ``bound_s``."""

    metric: LatencyMetric
    percentile: float
    bound_s: float

    @property
    def name(self) -> str:
        """``TTFT p95``."""
        return f"{self.metric.value.upper()} p{self.percentile:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a candidate cannot serve: ``message`` says by how much, ``excess`` the same as a share of the bound.

    code : memory, slots, objective, limit (of the fleet), or that of the refusal to deploy
    """

    hardware: str
    label: str
    code: str
    message: str
    excess: float

    @property
    def distance(self) -> tuple[int, float]:
        """How far from serving, for ordering: a fleet limit, then a missed objective, then memory, the unsupported."""
        nearest_first = ("limit", "objective", "slots", "memory")
        order = nearest_first.index(self.code) if self.code in nearest_first else len(nearest_first)
        return order, self.excess
