"""From one replica to a fleet: how many, with spares, in whole servers, at what power and price."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp
from sys import float_info
from typing import TYPE_CHECKING

from simulator.planner.fleet.availability import (
    DEFAULT_MTTR_HOURS,
    DEFAULT_SPARES,
    DEVICE_MTBF_HOURS,
    replica_unavailability,
    spares_for,
)
from simulator.planner.money.cost import choose_offer, fleet_cost
from simulator.planner.records import Demand, Fleet, FleetCost, Objective
from simulator.planner.search.candidates import NO_TECHNIQUES
from simulator.planner.serving.feasibility import Evaluated
from simulator.planner.serving.limits import DEVIATE_80, limiting_resource, operating_steps
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.money.prices import PriceProfile
from simulator.specs.question.plan import PlanSpec

if TYPE_CHECKING:
    from simulator.planner.search.format_quality import AnswerQuality


# Ceilings are taken a hair lower, so that a demand of exactly n capacities does not need n + 1 replicas.
_ROUNDING: float = float_info.epsilon ** (1 / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Packing:
    """Replicas in servers: servers (None where single devices are bought) and devices that only fill them up."""

    servers: int | None
    idle_devices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSize:
    """Replicas of a second pool and the spares among them, beside the first."""

    replicas: int
    spares: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """A fleet before its latencies and limits are worked out: enough to rank it.

    prefill : replicas that compute the prompts, where the others only decode
    """

    evaluated: Evaluated
    server: ServerSpec | None
    replicas: int
    spares: int
    packing: Packing
    cost: FleetCost
    prefill: PoolSize | None = None

    @property
    def devices(self) -> int:
        """Accelerators to obtain."""
        own = (self.replicas + self.spares) * self.evaluated.replica.devices + self.packing.idle_devices
        if self.prefill is None or self.evaluated.prefill is None:
            return own
        return own + (self.prefill.replicas + self.prefill.spares) * self.evaluated.prefill.replica.devices

    @property
    def rank(self) -> tuple[bool, float, int, str, str]:
        """Order of preference: known prices by cost, then fewer devices, then names."""
        hardware = self.evaluated.candidate.platform.hardware.name
        known = self.cost.per_hour is not None
        return (not known, self.cost.per_hour or 0.0, self.devices, hardware, self.evaluated.candidate.label)


def pack(*, replicas: int, devices_per_replica: int, devices_per_server: int) -> Packing:
    """Fewest servers that hold the replicas, none of them split where one server can hold it."""
    if devices_per_replica <= devices_per_server:
        servers = ceil(replicas / (devices_per_server // devices_per_replica))
    else:
        servers = replicas * ceil(devices_per_replica / devices_per_server)
    return Packing(servers=servers, idle_devices=servers * devices_per_server - replicas * devices_per_replica)


def fill_servers(devices: tuple[int, int], *, devices_per_server: int) -> bool:
    """Whether replicas of two sizes fill servers without gaps, whatever their mix: each size divides the next."""
    small, large = min(devices), max(devices)
    return large % small == 0 and devices_per_server % large == 0


def replicas_for(rate_per_s: float, *, capacity_per_s: float) -> int:
    """Replicas that carry a rate, at least one."""
    return max(1, ceil(rate_per_s / capacity_per_s * (1 - _ROUNDING)))


def _packing(evaluated: Evaluated, *, replicas: int, round_to: str) -> Packing:
    server = evaluated.candidate.platform.server
    if server is None or round_to == "device":
        return Packing(servers=None, idle_devices=0)
    return pack(
        replicas=replicas,
        devices_per_replica=evaluated.replica.devices,
        devices_per_server=server.accelerators_per_server,
    )


def spare_replicas(evaluated: Evaluated, *, replicas: int, spec: PlanSpec, pools: int = 1) -> int:
    """Spares that were asked for: as a number, in whole servers, for an availability, or the default of one.

    pools : that have to be up together for the availability, each of them as often as the others
    """
    if spec.spares is not None:
        return spec.spares
    server, devices = evaluated.candidate.platform.server, evaluated.replica.devices
    in_server = max(1, server.accelerators_per_server // devices) if server is not None else 1
    wanted = [] if spec.server_spares is None else [spec.server_spares * in_server]
    if spec.availability is not None:
        down = replica_unavailability(
            devices=devices,
            mtbf_hours=spec.mtbf_hours or DEVICE_MTBF_HOURS,
            mttr_hours=spec.mttr_hours or DEFAULT_MTTR_HOURS,
        )
        target = (spec.availability / 100) ** (1 / pools)
        wanted.append(spares_for(replicas=replicas, unavailability=down, target=target))
    return max(wanted, default=DEFAULT_SPARES)


def size(
    evaluated: Evaluated, *, demand: Demand, spec: PlanSpec, prices: PriceProfile, replicas: int | None = None
) -> Sized:
    """Replicas, spares, servers and cost for a demand; ``replicas`` where their number was simulated."""
    if evaluated.prefill is not None:
        from simulator.planner.fleet.disaggregated_fleet import size_pools

        return size_pools(evaluated, demand=demand, spec=spec, prices=prices, replicas=replicas)
    replica = evaluated.replica
    if replicas is None:
        replicas = replicas_for(demand.planned_rate_per_s, capacity_per_s=replica.capacity_per_s)
    spares = spare_replicas(evaluated, replicas=replicas, spec=spec)
    packing = _packing(evaluated, replicas=replicas + spares, round_to=spec.round_to)
    platform = evaluated.candidate.platform
    return Sized(
        evaluated=evaluated,
        server=platform.server,
        replicas=replicas,
        spares=spares,
        packing=packing,
        cost=fleet_cost(
            prices=prices,
            offer=choose_offer(prices, hardware=platform.hardware.name, kind=spec.price_kind),
            devices=(replicas + spares) * replica.devices + packing.idle_devices,
            demand=demand,
            prompt_share=replica.at_capacity.prompt_share,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPower:
    """Typical and nameplate power [W], and what they are of."""

    typical_w: float
    maximum_w: float
    of: str


def fleet_power(sized: Sized) -> FleetPower:
    """Of whole servers their own figures, of single devices their TDP, hosts not included."""
    servers, server = sized.packing.servers, sized.server
    if servers is not None and server is not None:
        return FleetPower(
            typical_w=servers * server.system_power_typical_w,
            maximum_w=servers * server.system_power_max_w,
            of="whole servers",
        )
    devices_w = sized.devices * sized.evaluated.candidate.platform.hardware.tdp_w
    return FleetPower(typical_w=devices_w, maximum_w=devices_w, of="accelerators at TDP, without hosts")


def _devices_at(sized: Sized, *, rate_per_s: float, capacity_per_s: float, round_to: str) -> int:
    replicas = replicas_for(rate_per_s, capacity_per_s=capacity_per_s) + sized.spares
    packing = _packing(sized.evaluated, replicas=replicas, round_to=round_to)
    return replicas * sized.evaluated.replica.devices + packing.idle_devices


def quality_of(evaluated: Evaluated) -> AnswerQuality:
    """What is published about the answers of a replica."""
    from simulator.planner.search.format_quality import answer_quality

    candidate = evaluated.candidate
    return answer_quality(evaluated.replica.deployment.model, candidate.precision, candidate.techniques)


def changed_answers(evaluated: Evaluated) -> str:
    """What is published about answers that may differ from the model's own; empty where they do not."""
    candidate = evaluated.candidate
    if candidate.precision == PrecisionSpec() and candidate.techniques == NO_TECHNIQUES:
        return ""
    found = quality_of(evaluated)
    return "" if found.loss == 0 else found.note


def complete(sized: Sized, *, demand: Demand, objectives: tuple[Objective, ...], spec: PlanSpec) -> Fleet:
    """Latencies at the planned rate, the limiting resource, the interval and the power of a sized fleet.

    Servers draw their own typical and maximum power; single devices their TDP, host not included.
    """
    if sized.prefill is not None:
        from simulator.planner.fleet.disaggregated_fleet import complete_pools

        return complete_pools(sized, demand=demand, objectives=objectives, spec=spec)
    evaluated, replica = sized.evaluated, sized.evaluated.replica
    steps = operating_steps(evaluated)
    rate = demand.planned_rate_per_s
    low, high = (
        _devices_at(
            sized,
            rate_per_s=rate,
            capacity_per_s=replica.capacity_per_s * exp(sign * DEVIATE_80 * steps.log_sigma),
            round_to=spec.round_to,
        )
        for sign in (1, -1)
    )
    servers, server, power = sized.packing.servers, sized.server, fleet_power(sized)
    at_peak, degraded = evaluated.latencies(
        rate / (sized.replicas + sized.spares), rate / sized.replicas, objectives=objectives
    )
    return Fleet(
        replica=replica,
        label=evaluated.candidate.label,
        replicas=sized.replicas,
        spares=sized.spares,
        idle_devices=sized.packing.idle_devices,
        server=server if servers is not None else None,
        servers=servers,
        typical_w=power.typical_w,
        maximum_w=power.maximum_w,
        power_of=power.of,
        cost=sized.cost,
        limit=limiting_resource(evaluated, steps, objectives=objectives),
        at_peak=at_peak,
        degraded=degraded,
        devices_low=low,
        devices_high=high,
        provenance=steps.provenance,
        log_sigma=steps.log_sigma,
        scheme=evaluated.candidate.precision.scheme,
        quality=changed_answers(evaluated),
    )
