"""What a planned fleet is made of: replicas and their latencies, pools, servers that they fill, money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from typing import Protocol

from simulator.engine.lanes.steady_state import SteadyState
from simulator.kernels.timing import Provenance
from simulator.planner.money.market import MarketPrice, mean_price
from simulator.planner.records import Demand, Platform
from simulator.planner.serving.capacity import Latencies, Limit, Replica, Role
from simulator.planner.serving.pool_states import Transfer
from simulator.records import dataclass
from simulator.specs.base import Note
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec
from simulator.specs.money.prices import OfferKind
from simulator.traffic.lengths import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCost:
    """Money per time and per token in ``currency``; ``None`` where no price is known.

    terms, offer : of the price (on_demand, reserved_3y, ...) and who offers it when; prices : of each kind of
    accelerator
    per_hour : of all accelerators in whole servers; input and output shares divide it by the time each takes
    """

    currency: str
    terms: tuple[OfferKind, ...]
    per_device_hour: float | None = None
    offer: str
    per_hour: float | None = None
    per_month: float | None = None
    per_million_output_tokens: float | None = None
    per_million_input_tokens: float | None = None
    per_million_output_tokens_all_in: float | None = None
    per_million_requests: float | None = None
    prices: tuple[MarketPrice, ...] = ()

    @property
    def kind(self) -> str:
        """The terms in one word: ``reserved_1y``, ``on_demand or reserved_1y``, ``unknown`` without a price."""
        return " or ".join(self.terms) or "unknown"

    def more_per_month(self, other: FleetCost) -> float | None:
        """What this costs over another fleet; None where either has no price."""
        if self.per_month is None or other.per_month is None:
            return None
        return self.per_month - other.per_month


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPool:
    """Replicas of one kind in a fleet.

    role : prefill or decode where each has a pool of its own, empty for the only kind
    load : share of its saturation rate at the planned rate, spares down; limit : what holds a replica back
    """

    role: Role
    replica: Replica
    label: str
    replicas: int
    spares: int
    limit: Limit
    load: float

    @property
    def hardware(self) -> str:
        """Profile name of the accelerator."""
        return self.replica.deployment.hardware.name

    @property
    def spare_devices(self) -> int:
        """Accelerators of the spares."""
        return self.spares * self.replica.devices

    @property
    def devices(self) -> int:
        """Accelerators of the pool, spares included."""
        return (self.replicas + self.spares) * self.replica.devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Housing:
    """Accelerators of one kind in a fleet, in whole servers, or single where ``servers`` is None.

    devices : in all; idle_devices : only fill up servers; power is that of the servers, or of the accelerators alone
    """

    hardware: str
    server: ServerSpec | None
    servers: int | None
    devices: int
    idle_devices: int
    typical_w: float
    maximum_w: float


def fill_servers(devices: Sequence[int], *, devices_per_server: int) -> bool:
    """Whether replicas of these sizes fill servers without gaps, whatever their mix: each size divides the next."""
    sizes = [*sorted(devices), devices_per_server]
    return all(large % small == 0 for small, large in pairwise(sizes))


def pack(counts: tuple[int, ...], *, devices: tuple[int, ...], devices_per_server: int) -> int:
    """Fewest servers that hold ``counts`` replicas of ``devices`` each, none split where one server can hold it. Sizes
    that divide one another and the server fill it without gaps, whatever the mix; others get servers of their own."""
    if fill_servers(devices, devices_per_server=devices_per_server):
        return -(-sum(count * each for count, each in zip(counts, devices, strict=True)) // devices_per_server)
    return sum(
        -(-count // (devices_per_server // each))
        if each <= devices_per_server
        else count * -(-each // devices_per_server)
        for count, each in zip(counts, devices, strict=True)
    )


def housing_of(platform: Platform, counts: tuple[int, ...], *, devices: tuple[int, ...], round_to: str) -> Housing:
    """Housing of ``counts`` replicas of ``devices`` each on one kind of accelerator."""
    hardware, server = platform.hardware, platform.server
    busy = sum(count * size for count, size in zip(counts, devices, strict=True))
    if server is None or round_to == "device":
        return Housing(
            hardware=hardware.name,
            server=server,
            servers=None,
            devices=busy,
            idle_devices=0,
            typical_w=busy * hardware.limit_w,
            maximum_w=busy * hardware.limit_w,
        )
    in_server = server.accelerators_per_server
    servers = pack(counts, devices=devices, devices_per_server=in_server)
    return Housing(
        hardware=hardware.name,
        server=server,
        servers=servers,
        devices=servers * in_server,
        idle_devices=servers * in_server - busy,
        typical_w=servers * server.expected_w(hardware),
        maximum_w=servers * server.nameplate_w(hardware),
    )


class Serving(Protocol):
    """What a fleet can still be asked about its latencies: its shape, see ``planner.serving.shapes``."""

    def sweep(self, rates_per_s: Array, *, counts: tuple[int, ...]) -> SteadyState:
        """States at arrival rates of one of the last pool's replicas [1/s]."""

    def saturation_per_s(self, counts: tuple[int, ...]) -> float:
        """Rate of one of the last pool's replicas that saturates the fleet [1/s]."""


KNOWN = frozenset({Provenance.MEASURED.label, Provenance.CALIBRATED.label})
"""Kernels that were measured on the very accelerator, or fitted to such measurements."""


class Housed:
    """What stands in ``housing``, an entry for each kind of accelerator."""

    __slots__ = ()
    housing: tuple[Housing, ...]

    @property
    def devices(self) -> int:
        """Accelerators to obtain."""
        return sum(item.devices for item in self.housing)

    @property
    def servers(self) -> int | None:
        """Servers of all kinds; None for single devices."""
        counts = [item.servers for item in self.housing if item.servers is not None]
        return sum(counts) if counts else None

    @property
    def typical_w(self) -> float:
        """Typical power [W]."""
        return sum(item.typical_w for item in self.housing)

    @property
    def maximum_w(self) -> float:
        """Nameplate power [W]."""
        return sum(item.maximum_w for item in self.housing)

    @property
    def power_of(self) -> Note:
        """What both are of: whole servers, or single devices by their TDP, hosts not included."""
        single = [item.servers is None for item in self.housing]
        return Note("power_of_devices" if all(single) else "power_of_both" if any(single) else "power_of_servers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet(Housed):
    """Replicas that carry a demand, in whole servers.

    pools : in the order of a request's way, one where replicas do both; transfer : between two, None for one
    housing : one for each kind of accelerator
    at_peak : latencies with all replicas up; degraded : with the spares gone, where the objectives still hold
    devices_low, devices_high : devices for the 80 % interval of the step times, spares and rounding included
    log_sigma : standard deviation of log(measured / predicted) of those step times
    scheme : quantization method, None where the formats say it all
    quality : what is published about its answers where they may differ from the model's, else None
    prompt_share : of the money that prompts take; serving : what is asked for more latencies
    doubt : share of its cost that counts against it when fleets are compared, 0 where its kernels are KNOWN: the margin
    for slower steps once more, because that rests on measurements of other kinds
    replica, replicas, spares : of the last pool, which generates; all the rest is of the whole fleet
    """

    label: str
    pools: tuple[FleetPool, ...]
    housing: tuple[Housing, ...]
    cost: FleetCost
    prompt_share: float
    doubt: float
    limit: Limit
    at_peak: Latencies
    degraded: Latencies
    devices_low: int
    devices_high: int
    provenance: str
    serving: Serving = field(repr=False, compare=False)
    log_sigma: float = 0.0
    scheme: str | None = None
    quality: Note | None = None
    transfer: Transfer | None = None

    @property
    def replica(self) -> Replica:
        """The replica of the last pool."""
        return self.pools[-1].replica

    @property
    def replicas(self) -> int:
        """Replicas of the last pool, needed at the planned rate."""
        return self.pools[-1].replicas

    @property
    def spares(self) -> int:
        """Spare replicas of the last pool."""
        return self.pools[-1].spares

    @property
    def counts(self) -> tuple[int, ...]:
        """Replicas of each pool, needed at the planned rate."""
        return tuple(pool.replicas for pool in self.pools)

    @property
    def replica_rate_per_s(self) -> float:
        """Rate on one replica of the last pool, with the spares gone [1/s]."""
        return self.degraded.rate_per_s

    @property
    def hosts(self) -> int:
        """Replicas of all pools with their spares: so many hosts at most where single devices are bought."""
        return sum(pool.replicas + pool.spares for pool in self.pools)

    @property
    def counted_per_hour(self) -> float | None:
        """The cost by which fleets are compared, doubt included."""
        return None if self.cost.per_hour is None else self.cost.per_hour * (1 + self.doubt)

    @property
    def prefill(self) -> FleetPool | None:
        """The pool that computes the prompts, None where replicas do both."""
        return next((pool for pool in self.pools if pool.role == "prefill"), None)

    @property
    def hardware(self) -> str:
        """Profile name of the accelerator; of both in the order of a request's way where the pools are unlike."""
        return " + ".join(item.hardware for item in self.housing)

    @property
    def is_unlike(self) -> bool:
        """Whether prompts and answers are computed on two kinds of accelerator."""
        return len(self.housing) > 1

    @property
    def price(self) -> MarketPrice | None:
        """What one of its accelerators costs, on average where they are of two kinds; None where that is unknown."""
        counts = [item.devices for item in self.housing]
        return mean_price(list(zip(self.cost.prices, counts, strict=True))) if self.cost.prices else None

    @property
    def kinds(self) -> tuple[tuple[AcceleratorSpec, ServerSpec | None], ...]:
        """Every accelerator and the server that it is bought in; None for single devices."""
        specs = {pool.hardware: pool.replica.deployment.hardware for pool in self.pools}
        return tuple((specs[item.hardware], item.server if item.servers is not None else None) for item in self.housing)

    @property
    def server(self) -> ServerSpec | None:
        """What the last pool is housed in; None for single devices."""
        own = self.housing[-1]
        return None if own.servers is None else own.server

    @property
    def servers_text(self) -> str:
        """Names of the servers; empty for single devices."""
        return " + ".join(server.name for _, server in self.kinds if server is not None)

    @property
    def idle_devices(self) -> int:
        """Accelerators that only fill up servers."""
        return sum(item.idle_devices for item in self.housing)

    @property
    def busy_devices(self) -> int:
        """Accelerators of its replicas, spares included."""
        return self.devices - self.idle_devices

    def energy_per_output_token_j(self, demand: Demand) -> float:
        """Expected power over the answers at the planned peak [J]."""
        return self.typical_w / (demand.planned_rate_per_s * demand.mix.osl.mean_tokens)

    @property
    def spread(self) -> float:
        """Width of the 80 % interval as a share of the devices."""
        return (self.devices_high - self.devices_low) / max(self.devices, 1)

    @property
    def more_devices(self) -> int:
        """Accelerators at the upper end of their 80 % interval beyond those that are planned."""
        return self.devices_high - self.devices

    def cost_ratio(self, than: Fleet) -> float | None:
        """Its cost over another's; None where one has no price."""
        own, other = self.cost.per_hour, than.cost.per_hour
        return None if own is None or other is None else own / other

    def size_ratio(self, than: Fleet) -> float:
        """Its cost over another's, or its devices where one has no price."""
        cost = self.cost_ratio(than)
        return self.devices / than.devices if cost is None else cost

    def changed_by(self, *, devices: float, cost_per_hour: float | None) -> float:
        """Change of cost as a share of the planned one, or of devices where nothing is priced."""
        if cost_per_hour is not None and self.cost.per_hour:
            return cost_per_hour / self.cost.per_hour - 1
        return devices / self.devices - 1

    def ends_of(self, value: float) -> tuple[float, float]:
        """A figure that goes with the devices (cost, power) at both ends of their 80 % interval."""
        return value * (self.devices_low / self.devices), value * (self.devices_high / self.devices)


DEFAULT_SPARES = 1
