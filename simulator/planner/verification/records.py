"""What the event simulation says of a planned fleet, and of each finalist that was compared in it."""

from __future__ import annotations

from enum import StrEnum
from math import nan

from simulator.planner.serving.capacity import Latencies
from simulator.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveVerification:
    """One objective [s]: simulated over all seeds, with the 80 % interval of its mean over them, beside the plan's."""

    name: str
    bound_s: float
    simulated_s: float
    low_s: float
    high_s: float
    steady_s: float

    @property
    def holds(self) -> bool:
        """The simulated percentile stays at or under the bound."""
        return self.simulated_s <= self.bound_s

    @property
    def surely_holds(self) -> bool:
        """Nine of ten further runs would together, as far as three tell: each has to with a chance of 96.3 %, for which
        Student's one-sided limit of one more run is 3.7 half widths of the interval of their mean."""
        return self.simulated_s + 3.7 * (self.high_s - self.simulated_s) <= self.bound_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One replica at one rate, simulated.

    holds : every objective holds and the queue does not grow; False where nothing was simulated (see ``reason``)
    means and p95 : TTFT, TPOT, E2E [s]; unanswered_fraction : requests that the engine refused
    reason : why there is no simulation, with nothing said of it, empty where there is one
    chance : that one further replay meets every objective, of a trace with the whole fleet; None of few runs
    held_fraction : of the replays, those that meet every objective each by itself
    """

    rate_per_s: float
    steady: Latencies
    holds: bool = False
    saturated: bool = False
    unanswered_fraction: float = 0.0
    ttft_mean_s: float = nan
    tpot_mean_s: float = nan
    e2e_mean_s: float = nan
    ttft_p95_s: float = nan
    tpot_p95_s: float = nan
    e2e_p95_s: float = nan
    mean_sequences: float = nan
    kv_utilization: float = nan
    objectives: tuple[ObjectiveVerification, ...] = ()
    seeds: int = 0
    requests: int = 0
    reason: str = ""
    chance: float | None = None
    held_fraction: float = 0.0

    @property
    def held_runs(self) -> int:
        """Replays that meet every objective, each by itself."""
        return round(self.held_fraction * self.seeds)

    @property
    def missed_fraction(self) -> float:
        """Share of the replays that miss an objective."""
        return 1 - self.held_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetVerification:
    """A fleet's replica with all replicas up, and with the spares gone."""

    at_peak: Verification
    degraded: Verification

    @property
    def holds(self) -> bool:
        """Whether every objective holds, with all replicas and with the spares down."""
        return self.at_peak.holds and self.degraded.holds

    @property
    def reason(self) -> str:
        """Why nothing was simulated, or nothing."""
        return self.at_peak.reason


class Verdict(StrEnum):
    """What became of a finalist. RESIZED holds with another number of replicas than planned."""

    HOLDS = "holds"
    RESIZED = "holds resized"
    MISSES = "misses"
    BEYOND_LIMITS = "beyond the limits"
    NOT_SIMULATED = "not simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """One fleet with its spares down: as it was planned, and in the size that holds.

    planned_replicas, planned : of the plan, and what was simulated there; replicas, found : of the size that holds, the
    same where none does; devices, cost_per_hour : of that size with its spares; chosen : this fleet is recommended
    """

    hardware: str
    label: str
    planned_replicas: int
    replicas: int
    spares: int
    devices: int
    cost_per_hour: float | None
    verdict: Verdict
    planned: Verification
    found: Verification
    chosen: bool

    @property
    def name(self) -> str:
        """``h100-sxm-80gb TP4``."""
        return f"{self.hardware} {self.label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalists:
    """Best first as they were planned. ``replayed``: under the trace itself, and not under its mix at a steady rate."""

    members: tuple[Finalist, ...]
    replayed: bool

    @property
    def chosen(self) -> Finalist:
        """The recommended one."""
        return next(item for item in self.members if item.chosen)
