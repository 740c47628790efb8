"""What a fleet asks of a room: racks, power, heat and circuits."""

from __future__ import annotations

from math import ceil, floor, sqrt

from simulator.planner.fleet.records import Fleet
from simulator.records import dataclass
from simulator.specs.money.ownership import OwnershipProfile
from simulator.units import SECONDS_PER_HOUR

# One British thermal unit of the International Table [BIPM2019] is 1055.05585262 J.
BTU_PER_HOUR_PER_W = SECONDS_PER_HOUR / 1055.05585262
PHASES = 3
# A ton of refrigeration, by definition [ASHRAE2021].
BTU_PER_HOUR_PER_TON = 12000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Facilities:
    """Space, power and heat. ``None`` where devices are not bought in whole servers.

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


def facilities(fleet: Fleet, *, ownership: OwnershipProfile) -> Facilities:
    """Racks, heat and circuits of a fleet; unity power factor, switches and spares not included."""
    one_circuit_w = circuit_w(
        volts=ownership.circuit_volts.value,
        amperes=ownership.circuit_amperes.value,
        load_fraction=ownership.circuit_load_fraction.value,
    )
    server, servers = fleet.server, fleet.servers
    kg = server.weight_kg if server is not None else None
    per_rack: int | None = None
    racks: int | None = None
    circuits: int | None = None
    bound_by, overdrawn = "devices are not bought in whole servers", False
    maximum_w, typical_w = 0.0, 0.0
    if server is not None and servers is not None:
        hardware = fleet.replica.deployment.hardware
        maximum_w, typical_w = server.nameplate_w(hardware), server.expected_w(hardware)
        by_power = floor(ownership.rack_power_limit_w.value / maximum_w)
        by_height = floor(ownership.rack_units_usable.value / server.rack_units)
        per_rack = max(1, min(by_power, by_height))
        bound_by = "power" if by_power <= by_height else "height"
        overdrawn = by_power < 1
        racks = ceil(servers / per_rack)
        feeds = ownership.feeds_per_rack.value
        circuits = racks * ceil(per_rack * maximum_w / one_circuit_w) * int(feeds)
    return Facilities(
        nameplate_w=fleet.maximum_w,
        typical_w=fleet.typical_w,
        btu_per_hour_nameplate=fleet.maximum_w * BTU_PER_HOUR_PER_W,
        btu_per_hour_typical=fleet.typical_w * BTU_PER_HOUR_PER_W,
        cooling_tons=fleet.maximum_w * BTU_PER_HOUR_PER_W / BTU_PER_HOUR_PER_TON,
        servers_per_rack=per_rack,
        bound_by=bound_by,
        racks=racks,
        rack_units=server.rack_units if server is not None else None,
        rack_maximum_w=per_rack * maximum_w if per_rack else None,
        rack_typical_w=per_rack * typical_w if per_rack else None,
        rack_overdrawn=overdrawn,
        circuit_w=one_circuit_w,
        circuits=circuits,
        rack_servers_kg=kg * per_rack if kg is not None and per_rack else None,
        server_kg_per_unit=kg / server.rack_units if kg is not None and server is not None else None,
    )
