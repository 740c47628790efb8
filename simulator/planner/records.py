"""What a capacity plan starts from: demand and objectives. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from simulator.assumptions import Assumption
from simulator.engine.lanes.steady_state import LatencyMetric
from simulator.planner.plan_warnings import PlanWarning
from simulator.traffic.lengths import RequestMix


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
    warnings: tuple[PlanWarning, ...] = ()

    @property
    def served_mean_rate_per_s(self) -> float:
        """Mean rate that accelerators serve [1/s]."""
        return self.mean_rate_per_s * (1 - self.cache_hit_fraction)

    @property
    def planned_rate_per_s(self) -> float:
        """Peak rate that accelerators must sustain, headroom included [1/s]."""
        return self.served_mean_rate_per_s * self.peak_to_mean * (1 + self.headroom_fraction)

    @property
    def mean_load(self) -> float:
        """Mean rate over the planned one: the one load of tokens, energy and rented hours."""
        return self.served_mean_rate_per_s / self.planned_rate_per_s


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


class SearchFamily(StrEnum):
    """What people deploy beside one kind of replica under the engine's own limits."""

    LIMITS = "engine limits"
    EXPERTS = "data-parallel attention and expert parallelism"
    POOLS = "pools for prompts and for answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFound:
    """The best fleet of a family on the accelerators that were searched for it.

    saving : of its cost, or of devices where no price is known, over the best fleet of the same accelerator without the
    family; negative where it takes more; kept : worth its place among the options
    """

    family: SearchFamily
    hardware: str
    label: str
    devices: int
    saving: float
    kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSummary:
    """How wide the search was.

    candidates : replica set-ups screened with the vectorised steady state; feasible : of them that can serve
    finalists : of them that were priced again exactly, one by one, and sized as fleets
    axes : what was varied, with the number of values of each
    """

    candidates: int
    feasible: int
    finalists: int
    axes: tuple[str, ...]
