"""Sections 9 to 11: rooms, energy and carbon, growth and dates."""

from __future__ import annotations

from simulator.reports.cells import count, kilo, number, text
from simulator.reports.content import Block, Cell, Column, Fact, Facts, Figure, Paragraph, Row, Section, Table, Tone
from simulator.reports.figures.growth import capacity_demand_chart
from simulator.reports.studies import Studies
from simulator.units import KILO


def _pairs(key: str, title: str, rows: tuple[tuple[str, Cell, str], ...], *, note: str = "") -> Table:
    return Table(
        key=key,
        title=title,
        columns=(Column(title="Quantity"), Column(title="Value", numeric=True), Column(title="How", wide=True)),
        rows=tuple(Row(cells=(text(name), cell, text(how))) for name, cell, how in rows),
        note=note,
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
            text="Weight and cooling type are not in the server profiles; ask the vendor. Switches, storage and their "
            "power are not counted.",
            tone=Tone.NOTE,
        )
    )
    return Section(number=9, key="facilities", title="Facilities", blocks=tuple(blocks))


def _circuit(studies: Studies) -> str:
    owning = studies.ownership
    return (
        f"three-phase {owning.circuit_volts.value:g} V, {owning.circuit_amperes.value:g} A, "
        f"{owning.circuit_load_fraction.value:.0%} continuous"
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


def growth_section(studies: Studies) -> Section:
    """Demand to come, capacity steps, order-by dates."""
    growth = studies.plan.growth
    if growth is None:
        text_ = (
            "No growth was given, so that no purchase beyond this one is planned; add --growth 5%/month, --horizon and "
            "--lead-time to plan-capacity for capacity steps and order-by dates."
        )
        blocks: tuple[Block, ...] = (Paragraph(text=text_, tone=Tone.MISSING),)
        return Section(number=11, key="growth", title="Growth and procurement", blocks=blocks)
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
        note=f"Lead time {growth.lead_time_days:g} days ({growth.lead_time_source}).",
    )
    bands = ", ".join(f"{band.name} {band.rate_per_month:+.1%} a month" for band in growth.bands)
    chart = capacity_demand_chart(growth, devices_now=studies.plan.best.devices)
    blocks = (Paragraph(text=f"Bands from {growth.start}: {bands}."), Figure(chart=chart), steps)
    return Section(number=11, key="growth", title="Growth and procurement", blocks=blocks)
