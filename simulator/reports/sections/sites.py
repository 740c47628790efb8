"""Sections 9 and 10: rooms, and energy and carbon."""

from __future__ import annotations

from simulator.planner.money.facilities import Facilities
from simulator.reports.content import document as doc
from simulator.reports.content.quantities import percent_text
from simulator.reports.studies import Studies
from simulator.reports.words.fields import note_text
from simulator.specs.hardware.accelerator import ServerSpec
from simulator.units import KILO

_Line = tuple[str, doc.Cell, str]
_NOTHING = doc.Cell(value=None)
_CIRCUIT = "(3^0.5*circuit_volts*circuit_amperes*circuit_load_fraction)"
_PER_TOKEN = "facility_kwh*3600000/((input_millions+output_millions)*1000000)"
_HEADS = "Quantity: | Value | How::"
_ASK = "not in the server's profile: ask the vendor"


def _weight(studies: Studies) -> tuple[_Line, ...]:
    """Weight of a server, of a full rack's servers and of a unit of height, and what takes the heat away."""
    lines, several = list[_Line](), studies.plan.best.is_unlike
    for _, server in studies.plan.best.kinds:
        if server is not None:
            named = f", {server.name}" if several else ""
            lines += [(f"{label}{named}", value, how) for label, value, how in _weight_of(server, studies.rooms)]
    return tuple(lines)


def _weight_of(server: ServerSpec, rooms: Facilities) -> tuple[_Line, ...]:
    if server.weight_kg is None and server.cooling is None:
        return (("weight, cooling type", _NOTHING, _ASK),)
    source = server.sources.get("weight_kg")
    where = _ASK if source is None else f"{source.source}, {source.date}"
    of_rack = "without the rack itself, switches and cables" if rooms.rack_servers_kg is not None else where
    return (
        ("weight of a server", doc.number(server.weight_kg, "kg", digits=0), where),
        ("weight of a rack's servers", doc.number(rooms.rack_servers_kg, "kg", digits=0), of_rack),
        ("weight of a unit of height", doc.number(rooms.server_kg_per_unit, "kg/U", digits=1), ""),
        ("cooling type", doc.text(server.cooling or "–"), "server profile" if server.cooling else where),
    )


def _circuit(studies: Studies) -> str:
    owning = studies.ownership
    return (
        f"three-phase {owning.circuit_volts.value:g} V, {owning.circuit_amperes.value:g} A, "
        f"{percent_text(owning.circuit_load_fraction.value)} continuous"
    )


def _of_rack(value_w: float | None, each: str) -> doc.Cell:
    return doc.kilo(value_w, "kW", follows=f"servers_per_rack*{each}/1000") if value_w else _NOTHING


def facilities_content(studies: Studies) -> tuple[doc.Block, ...]:
    """Racks, power, heat, circuits."""
    rooms, fleet, owning = studies.rooms, studies.plan.best, studies.ownership
    limit = f"at most {owning.rack_power_limit_w.value / KILO:g} kW and {owning.rack_units_usable.value:g} units a rack"
    racks, circuits = ("racks", "circuits") if rooms.servers_per_rack is not None else ("", "")
    tons = doc.number(rooms.cooling_tons, "tons", digits=1, follows="cooling_tons")
    nameplate = doc.number(rooms.btu_per_hour_nameplate, "BTU/h", digits=0, follows="btu_per_hour")
    share = "btu_per_hour*typical_kw/nameplate_kw"
    expected = doc.number(rooms.btu_per_hour_typical, "BTU/h", digits=0, follows=share)
    feeds = f"{owning.feeds_per_rack.value:g} feeds a rack, each carries it alone"
    rows: tuple[_Line, ...] = (
        ("servers", doc.count(fleet.servers, follows="servers"), fleet.servers_text or "single devices"),
        ("racks", doc.count(rooms.racks, follows=racks), f"{rooms.servers_per_rack or '-'} servers a rack, {limit}"),
        ("height of a server", doc.number(rooms.rack_units, "U", digits=0), "server profile"),
        *_weight(studies),
        ("power, nameplate", doc.kilo(rooms.nameplate_w, "kW", follows="nameplate_kw"), note_text(fleet.power_of)),
        ("power, expected", doc.kilo(rooms.typical_w, "kW", follows="typical_kw"), note_text(fleet.power_of)),
        ("full rack, nameplate", _of_rack(rooms.rack_maximum_w, "maximum_w_per_unit"), ""),
        ("full rack, expected", _of_rack(rooms.rack_typical_w, "typical_w_per_unit"), ""),
        ("heat, nameplate", nameplate, "all power becomes heat"),
        ("heat, expected", expected, ""),
        ("cooling, nameplate", tons, "12,000 BTU/h a ton"),
        ("power of one circuit", doc.kilo(rooms.circuit_w, "kW", follows=f"{_CIRCUIT}/1000"), _circuit(studies)),
        ("circuits", doc.count(rooms.circuits, follows=circuits), feeds),
    )
    blocks: list[doc.Block] = [doc.table("facilities", "Rooms", _HEADS, rows)]
    if rooms.rack_overdrawn:
        overdrawn = (
            "One server draws more than a rack of the ownership profile may: it is sold as a rack of its own or needs "
            "liquid cooling; check with the site."
        )
        blocks.append(doc.Paragraph(text=overdrawn, tone=doc.Tone.WARNING))
    blocks.append(doc.Paragraph(text="Switches, storage and their power are not counted.", tone=doc.Tone.NOTE))
    return tuple(blocks)


def energy_content(studies: Studies) -> tuple[doc.Block, ...]:
    """Energy of a year, per token, and emissions by both methods."""
    energy, owning, pue = studies.energy, studies.ownership, studies.prices.pue
    location, market = owning.grid_location_kg_per_kwh, owning.grid_market_kg_per_kwh
    facility = doc.number(energy.facility_kwh, "kWh", digits=0, follows="facility_kwh")
    per_token = doc.number(energy.j_per_output_token, "J", follows="j_per_output_token")
    by_grid = doc.number(energy.location_t, "t CO2e", digits=1, follows="tco2e_location")
    by_contract = doc.number(energy.market_t, "t CO2e", digits=1, follows="tco2e_market")
    facts = (
        doc.fact("facility_kwh_per_year", "energy of a year, at the meter", facility),
        doc.fact("j_per_output_token", "per output token", per_token),
        doc.fact("tco2e_location_per_year", "location-based, a year", by_grid),
        doc.fact("tco2e_market_per_year", "market-based, a year", by_contract),
    )
    made = "no published figure for this accelerator"
    if energy.embodied_t is not None:
        made = "; ".join(owning.embodied_kg_per_device[item.hardware].source for item in studies.plan.best.housing)
    per_million = "facility_kwh*grid_location*1000/output_millions"
    grams = doc.number(energy.g_per_million_output_tokens, "g CO2e", digits=0, follows=per_million)
    rows: tuple[_Line, ...] = (
        ("machines", doc.number(energy.it_kwh, "kWh", digits=0, follows="it_kwh"), "mean power, all year"),
        ("at the meter", facility, f"PUE {pue:g}"),
        ("per token in or out", doc.number(energy.j_per_token, "J", follows=_PER_TOKEN), "mean demand"),
        ("per million output tokens", grams, "by the grid"),
        ("grid", doc.number(location.value, "kg/kWh", follows="grid_location"), f"{location.source}, {location.date}"),
        ("contracts", doc.number(market.value, "kg/kWh", follows="grid_market"), market.note or market.source),
        ("made, once", doc.number(energy.embodied_t, "t CO2e", digits=1), made),
    )
    scopes = "Scope 2 by both methods of the GHG Protocol."
    return doc.Facts(facts=facts), doc.table("energy", "Energy and carbon", _HEADS, rows, note=scopes)
