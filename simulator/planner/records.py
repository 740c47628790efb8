"""What a capacity plan is made of: demand, objectives, candidates, capacities, fleets, simulations. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from simulator.engine.lanes.load_curve import SlotLimit
from simulator.engine.lanes.steady_state import LatencyMetric
from simulator.phases.deployment import Deployment
from simulator.phases.memory import MemoryPlan
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.specs.question.plan import PlanSpec
from simulator.traffic.lengths import RequestMix

if TYPE_CHECKING:
    from simulator.planner.gap.records import Gap
    from simulator.planner.studies.choice_records import ParetoSet, PoolPlan, SearchSummary, StockPlan
    from simulator.planner.studies.risk_records import Growth, RentalMix, Resilience, Uncertainty


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
class Latencies:
    """Latencies of one replica at one arrival rate [s]; percentiles are of the objectives, in their order.

    rate_per_s, mean_sequences : of the whole replica, all its pipeline lanes and ranks of attention together
    """

    rate_per_s: float
    mean_sequences: float
    ttft_mean_s: float
    tpot_mean_s: float
    e2e_mean_s: float
    ttft_p95_s: float
    tpot_p95_s: float
    e2e_p95_s: float
    objectives_s: tuple[float, ...]
    kv_utilization: float
    prompt_share: float
    slot_wait_probability: float
    load: float


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Replica:
    """One copy of the model, what it sustains and what holds it back.

    saturation_per_s : highest rate it keeps up with; capacity_per_s : planned for, within objectives and utilisation
    binding : index of the objective that holds capacity below the target utilisation, or None
    """

    deployment: Deployment
    memory: MemoryPlan
    slots: int
    slot_limit: SlotLimit
    saturated_sequences: float
    saturation_per_s: float
    capacity_per_s: float
    utilization: float
    binding: int | None
    unloaded: Latencies
    at_capacity: Latencies

    @property
    def devices(self) -> int:
        """Accelerators of the replica."""
        return self.deployment.parallelism.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What holds a replica back: the resource, and a clause that says how it was met."""

    resource: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCost:
    """Money per time and per token in ``currency``; ``None`` where no price is known.

    kind, offer : of price (on_demand, reserved_3y, ...) and who offers it when
    per_hour : of all accelerators in whole servers; input and output shares divide it by the time each takes
    """

    currency: str
    kind: str
    per_device_hour: float | None
    offer: str
    per_hour: float | None
    per_month: float | None
    per_million_output_tokens: float | None
    per_million_input_tokens: float | None
    per_million_output_tokens_all_in: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillPool:
    """Replicas that compute the prompts for a fleet whose other replicas only decode.

    load : share of its saturation rate at the planned rate, spares down; limit : what holds a replica back
    link : between the pools; transfer_s : of a mean prompt's KV cache [s]; transfer_token_s : of it for each token [s]
    link_busy_fraction : of a replica's link
    """

    replica: Replica
    label: str
    replicas: int
    spares: int
    limit: Limit
    load: float
    link: str
    transfer_s: float
    transfer_token_s: float
    link_busy_fraction: float

    @property
    def devices(self) -> int:
        """Accelerators of the pool, spares included."""
        return (self.replicas + self.spares) * self.replica.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Replicas that carry a demand, in whole servers.

    replicas : needed at the planned rate; spares : beyond them; idle_devices : only fill up servers
    at_peak : latencies with all replicas up; degraded : with the spares gone, where the objectives still hold
    devices_low, devices_high : devices for the 80 % interval of the step times, spares and rounding included
    log_sigma : standard deviation of log(measured / predicted) of those step times
    scheme : quantization method, None where the formats say it all
    quality : what is published about its answers where they may differ from the model's, else empty
    prefill : the pool that computes the prompts, None where replicas do both; else replica, label, replicas and spares
        are those of the pool that decodes, and all the rest is of both
    """

    replica: Replica
    label: str
    replicas: int
    spares: int
    idle_devices: int
    server: ServerSpec | None
    servers: int | None
    typical_w: float
    maximum_w: float
    power_of: str
    cost: FleetCost
    limit: Limit
    at_peak: Latencies
    degraded: Latencies
    devices_low: int
    devices_high: int
    provenance: str
    log_sigma: float = 0.0
    scheme: str | None = None
    quality: str = ""
    prefill: PrefillPool | None = None

    @property
    def hardware(self) -> str:
        """Profile name of the accelerator."""
        return self.replica.deployment.hardware.name

    @property
    def devices(self) -> int:
        """Accelerators to obtain."""
        prefill = 0 if self.prefill is None else self.prefill.devices
        return (self.replicas + self.spares) * self.replica.devices + self.idle_devices + prefill

    @property
    def spread(self) -> float:
        """Width of the 80 % interval as a share of the devices."""
        return (self.devices_high - self.devices_low) / max(self.devices, 1)

    def ends_of(self, value: float) -> tuple[float, float]:
        """A figure that goes with the devices (cost, power) at both ends of their 80 % interval."""
        return value * (self.devices_low / self.devices), value * (self.devices_high / self.devices)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """One replica at one rate, simulated.

    holds : every objective holds and the queue does not grow; False where nothing was simulated (see ``reason``)
    means and p95 : TTFT, TPOT, E2E [s]; unanswered_fraction : requests that the engine refused
    reason : why there is no simulation, empty where there is one
    chance : that one replay of a trace with the whole fleet meets every objective; None where no trace is replayed
    """

    rate_per_s: float
    holds: bool
    saturated: bool
    unanswered_fraction: float
    ttft_mean_s: float
    tpot_mean_s: float
    e2e_mean_s: float
    ttft_p95_s: float
    tpot_p95_s: float
    e2e_p95_s: float
    mean_sequences: float
    kv_utilization: float
    objectives: tuple[ObjectiveVerification, ...]
    steady: Latencies
    seeds: int
    requests: int
    reason: str = ""
    chance: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetVerification:
    """A fleet's replica with all replicas up, and with the spares gone."""

    at_peak: Verification
    degraded: Verification

    @property
    def holds(self) -> bool:
        """Both keep every objective."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPlan:
    """The answer: the chosen fleet, the best of every other option, what was refused and what it all rests on.

    spec : the question as it was asked
    search and what follows it : studies beside the plan itself, None where they were not asked for
    """

    spec: PlanSpec

    demand: Demand
    objectives: tuple[Objective, ...]
    best: Fleet
    alternatives: tuple[Fleet, ...]
    rejections: tuple[Rejection, ...]
    candidates: int
    assumptions: tuple[Assumption, ...]
    warnings: tuple[str, ...]
    search: SearchSummary | None = None
    pareto: ParetoSet | None = None
    gap: Gap | None = None
    stock: StockPlan | None = None
    pools: PoolPlan | None = None
    resilience: Resilience | None = None
    growth: Growth | None = None
    rental: RentalMix | None = None
    uncertainty: Uncertainty | None = None
    verification: FleetVerification | None = None
    finalists: Finalists | None = None
