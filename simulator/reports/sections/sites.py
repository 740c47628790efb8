"""Sections 9 and 10: rooms, and energy and carbon."""

from __future__ import annotations

from simulator.reports.content.document import (
    Block,
    Cell,
    Column,
    Facts,
    Paragraph,
    Section,
    Tone,
    columns,
    count,
    fact,
    kilo,
    number,
    table,
    text,
)
from simulator.reports.content.quantities import percent_text
from simulator.reports.studies import Studies
from simulator.units import KILO

_Line = tuple[str, Cell, str]
_NOTHING = Cell(value=None)
_ASK = "not in the server's profile: ask the vendor"


def _heads() -> tuple[Column, ...]:
    return columns("Quantity", "Value", "How", words=("Quantity",), wide="How")


def _weight(studies: Studies) -> tuple[_Line, ...]:
    """Weight of a server, of a full rack's servers and of a unit of height, and what takes the heat away."""
    server, rooms = studies.plan.best.server, studies.rooms
    if server is None:
        return ()
    if server.weight_kg is None and server.cooling is None:
        return (("weight, cooling type", _NOTHING, _ASK),)
    source = server.sources.get("weight_kg")
    where = _ASK if source is None else f"{source.source}, {source.date}"
    of_rack = "without the rack itself, switches and cables" if rooms.rack_servers_kg is not None else where
    return (
        ("weight of a server", number(server.weight_kg, "kg", digits=0), where),
        ("weight of a rack's servers", number(rooms.rack_servers_kg, "kg", digits=0), of_rack),
        ("weight of a unit of height", number(rooms.server_kg_per_unit, "kg/U", digits=1), ""),
        ("cooling type", text(server.cooling or "–"), "server profile" if server.cooling else where),
    )


def _circuit(studies: Studies) -> str:
    owning = studies.ownership
    return (
        f"three-phase {owning.circuit_volts.value:g} V, {owning.circuit_amperes.value:g} A, "
        f"{percent_text(owning.circuit_load_fraction.value)} continuous"
    )


def facilities_section(studies: Studies) -> Section:
    """Racks, power, heat, circuits."""
    rooms, fleet, owning = studies.rooms, studies.plan.best, studies.ownership
    limit = f"at most {owning.rack_power_limit_w.value / KILO:g} kW and {owning.rack_units_usable.value:g} units a rack"
    rows: tuple[_Line, ...] = (
        ("servers", count(fleet.servers), fleet.server.name if fleet.server else "single devices"),
        ("racks", count(rooms.racks), f"{rooms.servers_per_rack or '-'} servers a rack, {limit}"),
        ("height of a server", number(rooms.rack_units, "U", digits=0), "server profile"),
        *_weight(studies),
        ("power, nameplate", kilo(rooms.nameplate_w, "kW"), fleet.power_of),
        ("power, expected", kilo(rooms.typical_w, "kW"), fleet.power_of),
        ("full rack, nameplate", kilo(rooms.rack_maximum_w, "kW") if rooms.rack_maximum_w else _NOTHING, ""),
        ("full rack, expected", kilo(rooms.rack_typical_w, "kW") if rooms.rack_typical_w else _NOTHING, ""),
        ("heat, nameplate", number(rooms.btu_per_hour_nameplate, "BTU/h", digits=0), "all power becomes heat"),
        ("heat, expected", number(rooms.btu_per_hour_typical, "BTU/h", digits=0), ""),
        ("cooling, nameplate", number(rooms.cooling_tons, "tons", digits=1), "12,000 BTU/h a ton"),
        ("power of one circuit", kilo(rooms.circuit_w, "kW"), _circuit(studies)),
        ("circuits", count(rooms.circuits), f"{owning.feeds_per_rack.value:g} feeds a rack, each carries it alone"),
    )
    blocks: list[Block] = [table("facilities", "Rooms", _heads(), rows)]
    if rooms.rack_overdrawn:
        overdrawn = (
            "One server draws more than a rack of the ownership profile may: it is sold as a rack of its own or needs "
            "liquid cooling; check with the site."
        )
        blocks.append(Paragraph(text=overdrawn, tone=Tone.WARNING))
    blocks.append(Paragraph(text="Switches, storage and their power are not counted.", tone=Tone.NOTE))
    return Section(key="facilities", title="Facilities", blocks=tuple(blocks))


def energy_section(studies: Studies) -> Section:
    """Energy of a year, per token, and emissions by both methods."""
    energy, owning, pue = studies.energy, studies.ownership, studies.prices.pue
    location, market = owning.grid_location_kg_per_kwh, owning.grid_market_kg_per_kwh
    facility = number(energy.facility_kwh, "kWh", digits=0)
    facts = (
        fact("facility_kwh_per_year", "energy of a year, at the meter", facility),
        fact("j_per_output_token", "per output token", number(energy.j_per_output_token, "J")),
        fact("tco2e_location_per_year", "location-based, a year", number(energy.location_t, "t CO2e", digits=1)),
        fact("tco2e_market_per_year", "market-based, a year", number(energy.market_t, "t CO2e", digits=1)),
    )
    made = "no published figure for this accelerator"
    if energy.embodied_t is not None:
        made = owning.embodied_kg_per_device[studies.plan.best.hardware].source
    grams = number(energy.g_per_million_output_tokens, "g CO2e", digits=0)
    rows: tuple[_Line, ...] = (
        ("machines", number(energy.it_kwh, "kWh", digits=0), "expected power all year"),
        ("at the meter", facility, f"PUE {pue:g}"),
        ("per token in or out", number(energy.j_per_token, "J"), "mean demand"),
        ("per million output tokens", grams, "location-based"),
        ("grid", number(location.value, "kg/kWh"), f"{location.source}, {location.date}"),
        ("contracts", number(market.value, "kg/kWh"), market.note or market.source),
        ("made, once", number(energy.embodied_t, "t CO2e", digits=1), made),
    )
    scopes = "Scope 2 by both methods of the GHG Protocol."
    blocks = (Facts(facts=facts), table("energy", "Energy and carbon", _heads(), rows, note=scopes))
    return Section(key="energy", title="Energy and carbon", blocks=blocks)
