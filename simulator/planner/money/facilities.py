"""What a fleet asks of a room: racks, power, heat and circuits."""

from __future__ import annotations

from math import ceil, floor, sqrt

from simulator.planner.fleet.records import Fleet
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec
from simulator.specs.money.ownership import OwnershipProfile
from simulator.units import SECONDS_PER_HOUR

# One British thermal unit of the International Table [BIPM2019] is 1055.05585262 J.
BTU_PER_HOUR_PER_W = SECONDS_PER_HOUR / 1055.05585262
PHASES = 3
# A ton of refrigeration, by definition [ASHRAE2021].
BTU_PER_HOUR_PER_TON = 12000.0
_SINGLE = "devices are not bought in whole servers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facilities:
    """Space, power and heat. ``None`` where devices are not bought in whole servers; what is of one rack or server
    also where those are of two kinds.

    servers_per_rack : the smaller of what power and height allow, at least one; bound_by : which of them
    rack_maximum_w, rack_typical_w : of a full rack; rack_overdrawn : one server alone exceeds the rack's limit
    circuit_w : continuous power of one feed; circuits : of all racks, every feed able to carry its rack alone
    rack_servers_kg : weight of a full rack's servers; server_kg_per_unit : of a server by unit of height
    """

    nameplate_w: float
    typical_w: float
    btu_per_hour_nameplate: float
    btu_per_hour_typical: float
    cooling_tons: float
    servers_per_rack: int | None
    bound_by: str
    racks: int | None
    rack_units: float | None
    rack_maximum_w: float | None
    rack_typical_w: float | None
    rack_overdrawn: bool
    circuit_w: float
    circuits: int | None
    rack_servers_kg: float | None
    server_kg_per_unit: float | None


def circuit_w(*, volts: float, amperes: float, load_fraction: float) -> float:
    """Power that a three-phase circuit carries continuously [W]: sqrt(3) x line voltage x current x load share."""
    return sqrt(PHASES) * volts * amperes * load_fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Racked:
    """Servers of one kind in racks of their own; maximum_w, typical_w : of a full rack."""

    server: ServerSpec
    per_rack: int
    racks: int
    bound_by: str
    overdrawn: bool
    maximum_w: float
    typical_w: float


def racked(server: ServerSpec, accelerator: AcceleratorSpec, *, servers: int, ownership: OwnershipProfile) -> Racked:
    """Servers in racks, as many in each as its power and height allow, one at least."""
    maximum_w = server.nameplate_w(accelerator)
    by_power = floor(ownership.rack_power_limit_w.value / maximum_w)
    by_height = floor(ownership.rack_units_usable.value / server.rack_units)
    per_rack = max(1, min(by_power, by_height))
    return Racked(
        server=server,
        per_rack=per_rack,
        racks=ceil(servers / per_rack),
        bound_by="power" if by_power <= by_height else "height",
        overdrawn=by_power < 1,
        maximum_w=per_rack * maximum_w,
        typical_w=per_rack * server.expected_w(accelerator),
    )


def facilities(fleet: Fleet, *, ownership: OwnershipProfile) -> Facilities:
    """Racks, heat and circuits of a fleet; unity power factor, switches and spares not included."""
    one_circuit_w = circuit_w(
        volts=ownership.circuit_volts.value,
        amperes=ownership.circuit_amperes.value,
        load_fraction=ownership.circuit_load_fraction.value,
    )
    each = [
        racked(server, accelerator, servers=item.servers, ownership=ownership)
        for item, (accelerator, server) in zip(fleet.housing, fleet.kinds, strict=True)
        if server is not None and item.servers is not None
    ]
    housed, feeds = len(each) == len(fleet.housing), int(ownership.feeds_per_rack.value)
    # Of two kinds of servers only what both have together: racks hold one kind.
    one = each[0] if housed and len(each) == 1 else None
    kg = None if one is None else one.server.weight_kg
    return Facilities(
        nameplate_w=fleet.maximum_w,
        typical_w=fleet.typical_w,
        btu_per_hour_nameplate=fleet.maximum_w * BTU_PER_HOUR_PER_W,
        btu_per_hour_typical=fleet.typical_w * BTU_PER_HOUR_PER_W,
        cooling_tons=fleet.maximum_w * BTU_PER_HOUR_PER_W / BTU_PER_HOUR_PER_TON,
        servers_per_rack=None if one is None else one.per_rack,
        bound_by=" and ".join(dict.fromkeys(item.bound_by for item in each)) if housed else _SINGLE,
        racks=sum(item.racks for item in each) if housed else None,
        rack_units=None if one is None else one.server.rack_units,
        rack_maximum_w=None if one is None else one.maximum_w,
        rack_typical_w=None if one is None else one.typical_w,
        rack_overdrawn=any(item.overdrawn for item in each),
        circuit_w=one_circuit_w,
        circuits=sum(item.racks * ceil(item.maximum_w / one_circuit_w) * feeds for item in each) if housed else None,
        rack_servers_kg=None if one is None or kg is None else kg * one.per_rack,
        server_kg_per_unit=None if one is None or kg is None else kg / one.server.rack_units,
    )
