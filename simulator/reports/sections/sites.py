"""Sections 9 to 11: rooms, energy and carbon, growth and dates."""

from __future__ import annotations

from simulator.planner.studies.risk_records import Growth
from simulator.reports.charts.risk import capacity_demand_chart
from simulator.reports.content.cells import count, kilo, number, text
from simulator.reports.content.document import (
    Block,
    Cell,
    Column,
    Fact,
    Facts,
    Figure,
    Paragraph,
    Row,
    Section,
    Table,
    Tone,
)
from simulator.reports.content.quantities import percent_text, signed_percent_text
from simulator.reports.studies import Studies
from simulator.units import KILO

_SHOWN_EVERY_MONTHS = 3


def _pairs(key: str, title: str, rows: tuple[tuple[str, Cell, str], ...], *, note: str = "") -> Table:
    return Table(
        key=key,
        title=title,
        columns=(Column(title="Quantity"), Column(title="Value", numeric=True), Column(title="How", wide=True)),
        rows=tuple(Row(cells=(text(name), cell, text(how))) for name, cell, how in rows),
        note=note,
    )


def _weight(studies: Studies) -> tuple[tuple[str, Cell, str], ...]:
    """Weight of a server, of a full rack's servers and of a unit of height, and what takes the heat away."""
    server, rooms = studies.plan.best.server, studies.rooms
    if server is None:
        return ()
    if server.weight_kg is None and server.cooling is None:
        return (("weight, cooling type", Cell(value=None), "not in the server's profile: ask the vendor"),)
    source = server.sources.get("weight_kg")
    where = "not in the server's profile: ask the vendor" if source is None else f"{source.source}, {source.date}"
    kg = server.weight_kg
    many = kg * rooms.servers_per_rack if kg is not None and rooms.servers_per_rack else None
    of_rack = "without the rack itself, switches and cables" if many is not None else where
    return (
        ("weight of a server", number(kg, "kg", digits=0), where),
        ("weight of a rack's servers", number(many, "kg", digits=0), of_rack),
        (
            "weight of a unit of height",
            number(kg / server.rack_units if kg is not None else None, "kg/U", digits=1),
            "",
        ),
        ("cooling type", text(server.cooling or "–"), "server profile" if server.cooling else where),
    )


def facilities_section(studies: Studies) -> Section:
    """Racks, power, heat, circuits."""
    rooms, fleet, owning = studies.rooms, studies.plan.best, studies.ownership
    server = fleet.server
    limit = f"at most {owning.rack_power_limit_w.value / KILO:g} kW and {owning.rack_units_usable.value:g} units a rack"
    none = Cell(value=None)
    rows = (
        ("servers", count(fleet.servers), server.name if server else "single devices"),
        ("racks", count(rooms.racks), f"{rooms.servers_per_rack or '-'} servers a rack, {limit}"),
        ("height of a server", number(rooms.rack_units, "U", digits=0), "server profile"),
        *_weight(studies),
        ("power, nameplate", kilo(rooms.nameplate_w, "kW"), fleet.power_of),
        ("power, expected", kilo(rooms.typical_w, "kW"), fleet.power_of),
        ("full rack, nameplate", kilo(rooms.rack_maximum_w, "kW") if rooms.rack_maximum_w else none, ""),
        ("full rack, expected", kilo(rooms.rack_typical_w, "kW") if rooms.rack_typical_w else none, ""),
        ("heat, nameplate", number(rooms.btu_per_hour_nameplate, "BTU/h", digits=0), "all power becomes heat"),
        ("heat, expected", number(rooms.btu_per_hour_typical, "BTU/h", digits=0), ""),
        ("cooling, nameplate", number(rooms.cooling_tons, "tons", digits=1), "12,000 BTU/h a ton"),
        ("power of one circuit", kilo(rooms.circuit_w, "kW"), _circuit(studies)),
        ("circuits", count(rooms.circuits), f"{owning.feeds_per_rack.value:g} feeds a rack, each carries it alone"),
    )
    blocks: list[Block] = [_pairs("facilities", "Rooms", rows)]
    if rooms.rack_overdrawn:
        blocks.append(
            Paragraph(
                text="One server draws more than a rack of the ownership profile may: it is sold as a rack of its "
                "own or "
                "needs liquid cooling; check with the site.",
                tone=Tone.WARNING,
            )
        )
    blocks.append(
        Paragraph(
            text="Switches, storage and their power are not counted.",
            tone=Tone.NOTE,
        )
    )
    return Section(number=9, key="facilities", title="Facilities", blocks=tuple(blocks))


def _circuit(studies: Studies) -> str:
    owning = studies.ownership
    return (
        f"three-phase {owning.circuit_volts.value:g} V, {owning.circuit_amperes.value:g} A, "
        f"{percent_text(owning.circuit_load_fraction.value)} continuous"
    )


def energy_section(studies: Studies) -> Section:
    """Energy of a year, per token, and emissions by both methods."""
    energy, owning, pue = studies.energy, studies.ownership, studies.prices.pue
    location, market = owning.grid_location_kg_per_kwh, owning.grid_market_kg_per_kwh
    facts = Facts(
        facts=(
            Fact(
                key="facility_kwh_per_year",
                label="energy of a year, at the meter",
                cell=number(energy.facility_kwh, "kWh", digits=0),
            ),
            Fact(
                key="j_per_output_token",
                label="per output token",
                cell=number(energy.j_per_output_token, "J"),
            ),
            Fact(
                key="tco2e_location_per_year",
                label="location-based, a year",
                cell=number(energy.location_t, "t CO2e", digits=1),
            ),
            Fact(
                key="tco2e_market_per_year",
                label="market-based, a year",
                cell=number(energy.market_t, "t CO2e", digits=1),
            ),
        )
    )
    embodied = energy.embodied_t
    rows = (
        ("machines", number(energy.it_kwh, "kWh", digits=0), "expected power all year"),
        ("at the meter", number(energy.facility_kwh, "kWh", digits=0), f"PUE {pue:g}"),
        ("per token in or out", number(energy.j_per_token, "J"), "mean demand"),
        ("per million output tokens", number(energy.g_per_million_output_tokens, "g CO2e", digits=0), "location-based"),
        ("grid", number(location.value, "kg/kWh"), f"{location.source}, {location.date}"),
        ("contracts", number(market.value, "kg/kWh"), market.note or market.source),
        (
            "made, once",
            number(embodied, "t CO2e", digits=1),
            owning.embodied_kg_per_device[studies.plan.best.hardware].source
            if embodied is not None
            else "no published figure for this accelerator",
        ),
    )
    blocks = (facts, _pairs("energy", "Energy and carbon", rows, note="Scope 2 by both methods of the GHG Protocol."))
    return Section(number=10, key="energy", title="Energy and carbon", blocks=blocks)


def _illustration(studies: Studies) -> tuple[Paragraph, ...]:
    if not studies.illustrates_growth:
        return ()
    said = (
        "No growth was given: this section shows what an assumed one would ask for, and enters no total. Give --growth "
        "5%/month, --horizon, --start and --lead-time to plan-capacity for your own."
    )
    return (Paragraph(text=said, tone=Tone.WARNING),)


def _needed(growth: Growth) -> Table:
    """Rate and accelerators of every third month in every band."""
    months = growth.months[::_SHOWN_EVERY_MONTHS]
    titles = [f"{band.name}, {what}" for band in growth.bands for what in ("requests/s", "devices")]
    return Table(
        key="demand_bands",
        title="Demand and what it needs",
        columns=(Column(title="From"), *(Column(title=title, numeric=True) for title in titles)),
        rows=tuple(
            Row(
                cells=(
                    text(month.date),
                    *(
                        cell
                        for rate, devices in zip(month.rates_per_s, month.devices, strict=True)
                        for cell in (number(rate), count(devices))
                    ),
                )
            )
            for month in months
        ),
    )


def _bridge(growth: Growth) -> str:
    if not growth.bridge_devices:
        return ""
    return f" Nothing ordered at the start arrives before {growth.bridge_until}: rent up to {growth.bridge_devices}."


def growth_section(studies: Studies) -> Section:
    """Demand to come, capacity steps, order-by dates."""
    growth = studies.plan.growth
    if growth is None:
        return Section(number=11, key="growth", title="Growth and procurement", blocks=())
    steps = Table(
        key="capacity_steps",
        title="Capacity steps",
        columns=(
            Column(title="Needed from"),
            Column(title="Order by"),
            Column(title="Before", numeric=True),
            Column(title="After", numeric=True),
            Column(title="Status"),
        ),
        rows=tuple(
            Row(
                cells=(
                    text(step.date),
                    text(step.order_by),
                    count(step.devices_before),
                    count(step.devices_after),
                    text("late" if step.late else "in time"),
                )
            )
            for step in growth.steps
        ),
        note=f"Lead time {growth.lead_time_days:g} days ({growth.lead_time_source}); orders for a quarter at a time."
        + ("" if growth.steps else " The fleet carries the base band to the end: no step.")
        + _bridge(growth),
    )
    bands = ", ".join(f"{band.name} {signed_percent_text(band.rate_per_month)} a month" for band in growth.bands)
    chart = capacity_demand_chart(growth, devices_now=studies.plan.best.devices)
    blocks: tuple[Block, ...] = (
        *_illustration(studies),
        Paragraph(text=f"Bands from {growth.start}: {bands}."),
        Figure(chart=chart),
        _needed(growth),
        steps,
    )
    return Section(number=11, key="growth", title="Growth and procurement", blocks=blocks)
