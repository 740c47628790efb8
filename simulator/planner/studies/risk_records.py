"""What a plan says about failure, growth and uncertainty. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING

from simulator.specs.question.plan_values import HOURS_PER_DAY

if TYPE_CHECKING:
    from simulator.planner.money.tco_records import OwningBar


@dataclass(frozen=True, slots=True, kw_only=True)
class LossCase:
    """A fleet after something went away, at the planned peak.

    name : ``one replica``, ``one server``, ...; replicas_lost, replicas_left
    load : share of saturation of those left; the latencies are infinite where they are overloaded
    holds : every objective is still met
    """

    name: str
    replicas_lost: int
    replicas_left: int
    load: float
    ttft_p95_s: float
    tpot_p95_s: float
    e2e_p95_s: float
    holds: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Availability:
    """Spares for a target: at least ``replicas`` of ``replicas + spares`` are up a share ``achieved`` of the time.

    mtbf_s, mttr_s : of one replica (of all its accelerators and its share of a server); source : where they come from
    unavailability : MTTR / (MTBF + MTTR) of one replica; spares, devices : needed for the target
    present_achieved : with the spares that the plan has
    spares_each : what --spares has to say with two pools, whose spares the others sum; None with one pool
    """

    target: float
    mtbf_s: float
    mttr_s: float
    source: str
    unavailability: float
    replicas: int
    spares: int
    devices: int
    achieved: float
    present_spares: int
    present_achieved: float
    spares_each: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Startup:
    """From the decision to add a replica to its first answer, and what that asks of a ramp.

    load_s : weights over the host link; fixed_s : process, compilation, CUDA graphs; lag_s : of the autoscaler
    ramp_per_s2 : growth of the rate that is planned for [1/s^2]; headroom_replicas : running ahead of the demand
    """

    load_s: float
    fixed_s: float
    lag_s: float
    ramp_per_s2: float
    headroom_replicas: int
    source: str

    @property
    def delay_s(self) -> float:
        """Decision to first answer [s]."""
        return self.load_s + self.fixed_s + self.lag_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """Rolling restart of every replica: ``at_once`` of them down at a time, ``rounds`` of ``round_s`` each.

    holds : every objective is met meanwhile, even at the planned peak
    """

    at_once: int
    rounds: int
    round_s: float
    holds: bool

    @property
    def total_s(self) -> float:
        """The whole fleet [s]."""
        return self.rounds * self.round_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTarget:
    """How far a replica may be loaded: what the objectives allow, and what the plan took.

    by_objectives : share of the saturation rate at which the first objective fails (1 where none does)
    planned : share that the plan uses; binding : name of that objective, or why another limit holds
    curve : (share of saturation, worst objective over its bound) pairs, for the load-latency chart
    """

    by_objectives: float
    planned: float
    binding: str
    curve: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resilience:
    """What happens when replicas, servers or time go wrong. Parts that were not asked for are None.

    spares : that the plan has; spares_for_one_server : for N+1 by server; both count all pools, replicas_per_server the
    one that decodes
    """

    cases: tuple[LossCase, ...]
    spares: int
    replicas_per_server: int
    spares_for_one_server: int
    maintenance: Maintenance
    startup: Startup
    load_target: LoadTarget
    availability: Availability | None

    @property
    def spares_for_two_servers(self) -> int:
        """For N+2 by server."""
        return 2 * self.spares_for_one_server


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandBand:
    """A named growth: ``rate_per_month`` is the relative growth of demand each month (0.05 is 5 %)."""

    name: str
    rate_per_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthMonth:
    """Demand and devices of one month for every band, in the order of ``Growth.bands``."""

    month: int
    date: str
    rates_per_s: tuple[float, ...]
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityStep:
    """More devices are needed from ``date`` on (base band); order by ``order_by``, which may be past (``late``)."""

    date: str
    order_by: str
    devices_before: int
    devices_after: int
    late: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """Demand over the horizon, what it needs when, and when to order it. Dates are ISO.

    bridge_until : the day on which what is ordered at the start arrives; bridge_devices : needed beyond the fleet on
    the last month's day before it (base band), which nothing but rental can bring
    """

    start: str
    bands: tuple[DemandBand, ...]
    months: tuple[GrowthMonth, ...]
    steps: tuple[CapacityStep, ...]
    lead_time_days: float
    lead_time_source: str
    bridge_until: str
    bridge_devices: int

    @property
    def base(self) -> DemandBand:
        """The expected one, in the middle."""
        return self.bands[len(self.bands) // 2]

    @property
    def arrival(self) -> str:
        """The day on which what is bought at the start is in use."""
        return (date.fromisoformat(self.start) + timedelta(days=self.lead_time_days)).isoformat()

    def in_place(self, day: str, *, now: int) -> int:
        """Devices in place on ``day``: those of the last step by then, ``now`` before the first."""
        return ([now] + [step.devices_after for step in self.steps if step.date <= day])[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class RentalShare:
    """Devices rented one way: how many at most, how many are paid for on average, cost a month."""

    kind: str
    per_device_hour: float
    devices: int
    mean_devices: float
    per_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RentalMix:
    """Cheapest way to rent a load that changes by the hour, against renting the peak all the time.

    profile : demand over its peak by hour, of a day or of a week from Monday; devices : needed in each of those hours
    per_month : of all shares; per_million_* : tokens of the mean demand at that bill
    """

    profile: tuple[float, ...]
    profile_source: str
    devices: tuple[int, ...]
    shares: tuple[RentalShare, ...]
    per_month: float
    flat_per_month: float
    flat_kind: str
    notes: tuple[str, ...]
    per_million_input_tokens: float
    per_million_output_tokens: float

    @property
    def saved_fraction(self) -> float:
        """What the mix costs less than renting the peak all the time, as a share of that."""
        return 1 - self.per_month / self.flat_per_month

    @property
    def period(self) -> str:
        """What the profile is of."""
        return "week" if len(self.profile) > HOURS_PER_DAY else "day"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Ten, fifty and ninety percent of the draws lie below."""

    p10: float
    p50: float
    p90: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TornadoBar:
    """What one input does to devices and cost when it alone moves from its low to its high end.

    elastic : the input changes devices; otherwise only money
    """

    name: str
    low: str
    high: str
    devices_low: int
    devices_high: int
    cost_per_hour_low: float | None
    cost_per_hour_high: float | None

    @property
    def swing(self) -> float:
        """Range of cost where it is known, otherwise of devices."""
        if self.cost_per_hour_low is not None and self.cost_per_hour_high is not None:
            return abs(self.cost_per_hour_high - self.cost_per_hour_low)
        return float(abs(self.devices_high - self.devices_low))


@dataclass(frozen=True, slots=True, kw_only=True)
class Regret:
    """How a fleet fares over the draws: mean cost above the best choice of each draw, and how often it is the best."""

    hardware: str
    label: str
    mean_regret_per_hour: float
    best_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BreaksFirst:
    """The input whose adverse change overloads the planned fleet soonest, and by how much it may change."""

    name: str
    margin: float
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncertainty:
    """Monte Carlo over step times and demand.

    devices, cost_per_hour : of the best fleet sized for each draw; enough_share : draws that the planned fleet carries
    tornado : widest first; regrets : of the recommended fleet and its alternatives, smallest first
    owning : what figures of the bill, the price of a kWh among them, do to the cost of owning; empty where unpriced
    """

    seed: int
    draws: int
    demand_sigma: float
    devices: Quantiles
    cost_per_hour: Quantiles | None
    enough_share: float
    tornado: tuple[TornadoBar, ...]
    breaks_first: tuple[BreaksFirst, ...]
    regrets: tuple[Regret, ...]
    owning: tuple[OwningBar, ...] = ()
