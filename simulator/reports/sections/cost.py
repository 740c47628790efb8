"""Section 8: total cost of ownership, and renting against it."""

from __future__ import annotations

from simulator.planner.money.tco_records import Owning, TotalCost
from simulator.reports.charts.money import RENTAL_NAMES, break_even_chart, cash_flow_chart, tco_waterfall_chart
from simulator.reports.content.cells import count, fraction, money, number, text
from simulator.reports.content.document import (
    Block,
    Cell,
    Column,
    Fact,
    Facts,
    Figure,
    Origin,
    Paragraph,
    Row,
    Section,
    Table,
    Tone,
)
from simulator.reports.content.quantities import percent_text
from simulator.reports.studies import Studies
from simulator.specs.money.ownership import SourcedFigure

_FIGURE_NAMES = {
    "depreciation_years": "depreciation, years",
    "residual_fraction": "residual, of servers",
    "discount_rate": "cost of capital, a year",
    "network_fraction": "network, of servers",
    "storage_fraction": "storage, of servers",
    "spare_parts_fraction": "spare parts, of servers",
    "integration_fraction": "integration, of everything bought",
    "support_fraction_per_year": "support a year, of servers",
    "licence_per_device_year": "licences of an accelerator a year",
    "colocation_per_kw_month": "colocation of a kW a month",
    "staff_per_fte_year": "one person a year",
    "servers_per_fte": "servers one person looks after",
    "cloud_extra_fraction": "cloud extras, of the rate",
    "grid_location_kg_per_kwh": "grid, kg CO2e/kWh",
    "grid_market_kg_per_kwh": "contracts, kg CO2e/kWh",
    "rack_power_limit_w": "power of a rack, W",
    "rack_units_usable": "height of a rack, U",
    "circuit_volts": "circuit, V",
    "circuit_amperes": "circuit, A",
    "circuit_load_fraction": "continuous load of a circuit",
}
"""Names with units, in the report's words; others read as they are."""
_SHARES = ("_fraction", "_rate", "_fraction_per_year")


def _bill(owning: Owning) -> Table:
    rows = [Row(cells=(text(line.name), money(line.amount), text(line.basis))) for line in owning.capex]
    rows.append(Row(cells=(text("capital"), money(owning.capex_total), text("paid at the start")), total=True))
    rows += [Row(cells=(text(f"{line.name}, a year"), money(line.amount), text(line.basis))) for line in owning.opex]
    rows.append(Row(cells=(text("operation, a year"), money(owning.opex_total), text("paid every year")), total=True))
    return Table(
        key="bill",
        title="Owning: what is paid",
        columns=(Column(title="Line"), Column(title="Amount", numeric=True), Column(title="How", wide=True)),
        rows=tuple(rows),
    )


def _owning_facts(owning: Owning) -> Table:
    rate = percent_text(owning.discount_rate)
    rows = (
        ("residual after the last year", owning.residual, "of the server price"),
        ("depreciation, a year", owning.depreciation_per_year, f"straight line over {owning.years} years"),
        ("total over the years", owning.total, "capital + operation - residual, undiscounted"),
        ("present value", owning.present_value, f"discounted at {rate}"),
        ("equivalent annual cost", owning.annual, "the same every year with the same present value"),
        ("an accelerator-hour", owning.per_device_hour, "equivalent annual cost over devices and 8,760 h"),
        ("a million input tokens", owning.per_million_input_tokens, "by the share of time that prompts take"),
        ("a million output tokens", owning.per_million_output_tokens, "by the rest of the time"),
    )
    fine = ("an accelerator-hour", "a million input tokens", "a million output tokens")
    return Table(
        key="owning",
        title="Owning: what it comes to",
        columns=(Column(title="Figure"), Column(title="Amount", numeric=True), Column(title="How", wide=True)),
        rows=tuple(
            Row(
                cells=(text(name), money(value, digits=4 if name in fine else 2), text(how)),
                total=name == "equivalent annual cost",
            )
            for name, value, how in rows
        ),
    )


def _renting(cost: TotalCost) -> Table:
    names = ("Renting", "Device-hour", "A year", "Over the years", "1M input", "1M output", "Break-even", "Price from")
    return Table(
        key="renting",
        title=f"Renting all {cost.devices} devices all hours",
        columns=tuple(Column(title=name, numeric=0 < place < 7, wide=place == 7) for place, name in enumerate(names)),
        rows=tuple(
            Row(
                cells=(
                    text(RENTAL_NAMES[item.kind]),
                    number(item.offer.per_hour, digits=4),
                    number(item.annual, digits=2),
                    number(item.total, digits=2),
                    number(item.per_million_input_tokens, digits=4),
                    number(item.per_million_output_tokens, digits=4),
                    fraction(item.break_even),
                    text(f"{item.offer.provider}, {item.offer.date}: {item.offer.source}", origin=Origin.SOURCED),
                )
            )
            for item in cost.renting
        ),
        note=f"Amounts in {cost.currency}. Break-even: share of the hours above which owning is cheaper than "
        f"paying this "
        "price for hours of use; above 100 % it never is. Spot has no availability.",
    )


def _flows(cost: TotalCost) -> Table:
    owned = ("Owned", "Discounted", "Owned so far") if cost.owning is not None else ()
    names = ("Year", *owned, *(RENTAL_NAMES[item.kind] for item in cost.renting))
    rows = []
    for flow in cost.flows:
        own = (flow.owning, flow.discounted, flow.cumulative) if cost.owning is not None else ()
        cells: list[Cell] = [number(value, digits=2) for value in (*own, *flow.renting)]
        rows.append(Row(cells=(count(flow.year), *cells)))
    return Table(
        key="cash_flow",
        title="Cash flow by year",
        columns=tuple(Column(title=name, numeric=True) for name in names),
        rows=tuple(rows),
        note=f"Amounts in {cost.currency}, money out positive. Capital at the start, everything else at the end of its "
        "year, the residual with the last one.",
    )


def _figure_value(name: str, value: float) -> Cell:
    """Shares in percent, whole figures whole."""
    if name.endswith(_SHARES):
        return fraction(value)
    return count(value) if value.is_integer() else number(value)


def _figure_row(field: str, item: SourcedFigure) -> Row:
    name = _FIGURE_NAMES.get(field, field.replace("_", " "))
    origin = Origin.ASSUMED if item.assumed else Origin.SOURCED
    said = tuple(part for part in (item.source, item.note) if part and not (item.assumed and part == origin.value))
    note = "; ".join(said) or origin.value
    return Row(cells=(text(name), _figure_value(field, item.value), text(item.date), text(note, origin=origin)))


def _inputs(studies: Studies) -> Table:
    owning, prices = studies.ownership, studies.prices
    rows = [
        _figure_row(name, value)
        for name in type(owning).model_fields
        if isinstance(value := getattr(owning, name), SourcedFigure)
    ]
    rows += [
        Row(
            cells=(
                text(name),
                number(value),
                text(prices.date),
                text(source, origin=Origin.SOURCED),
            )
        )
        for name, value, source in (
            ("electricity a kWh", prices.power_per_kwh, prices.power_source),
            ("PUE", prices.pue, prices.pue_source),
        )
    ]
    reference = owning.owning_reference_per_device_hour.get(studies.plan.best.hardware)
    if reference is not None:
        rows.append(_figure_row("published cost of owning, an accelerator-hour (to compare)", reference))
    return Table(
        key="cost_inputs",
        title="Figures behind the money",
        columns=(
            Column(title="Figure"),
            Column(title="Value", numeric=True),
            Column(title="Date"),
            Column(title="Source", wide=True),
        ),
        rows=tuple(rows),
        note="Replace any of them in a file of your own: --ownership FILE and --prices FILE, or the Inputs sheet "
        "of the "
        "workbook.",
    )


def _lead(studies: Studies) -> Paragraph:
    cost = studies.cost
    cheapest = min(
        (item for item in cost.renting if item.kind != "spot"), key=lambda item: item.present_value, default=None
    )
    if cost.owning is None:
        return Paragraph(text=f"Owning is not priced: {cost.owning_unpriced}.", tone=Tone.MISSING)
    if cheapest is None:
        return Paragraph(text="Renting is not priced: the price list has no hourly offer.", tone=Tone.MISSING)
    better = (
        "owning" if cost.owning.present_value < cheapest.present_value else f"renting {RENTAL_NAMES[cheapest.kind]}"
    )
    difference = abs(cost.owning.present_value - cheapest.present_value)
    return Paragraph(
        text=f"Over {cost.years} years {better} is cheaper by {studies.currency} {difference:,.0f} of present value, "
        "commitments compared with owning at full-time use.",
        tone=Tone.LEAD,
    )


def cost_section(studies: Studies) -> Section:
    """Capital, operation, present value, renting, break-even, cash flow, tokens."""
    cost = studies.cost
    blocks: list[Block] = [_lead(studies)]
    if cost.owning is not None:
        blocks += [
            Facts(
                facts=(
                    Fact(key="capex_total", label="capital, at the start", cell=money(cost.owning.capex_total)),
                    Fact(key="opex_per_year", label="operation, a year", cell=money(cost.owning.opex_total)),
                    Fact(key="owning_annual", label="equivalent annual cost", cell=money(cost.owning.annual)),
                    Fact(key="owning_present_value", label="present value", cell=money(cost.owning.present_value)),
                )
            ),
            _bill(cost.owning),
            Figure(chart=tco_waterfall_chart(cost.owning, currency=cost.currency)),
            _owning_facts(cost.owning),
        ]
        if cost.owning.estimated:
            blocks.insert(1, Paragraph(text=f"Estimated purchase price: {cost.owning.offer.note}.", tone=Tone.WARNING))
        if not cost.owning.offer.server_included:
            warning = f"The purchase price is of the card alone ({cost.owning.offer.note}): add the server to the list."
            blocks.append(Paragraph(text=warning, tone=Tone.WARNING))
    if cost.renting:
        blocks += [_renting(cost), Figure(chart=break_even_chart(cost))]
    blocks += [_flows(cost), Figure(chart=cash_flow_chart(cost)), *_mix(studies), _inputs(studies)]
    return Section(number=8, key="cost", title="Total cost of ownership", blocks=tuple(blocks))


def _mix(studies: Studies) -> list[Block]:
    rental = studies.plan.rental
    if rental is None:
        unpriced = "Renting by the hour of the day is not planned: the price list has no hourly price to mix."
        return [Paragraph(text=unpriced, tone=Tone.MISSING)]
    return [
        Table(
            key="rental_mix",
            title=f"Cheapest mix over the {rental.period}",
            columns=(
                Column(title="Rented"),
                Column(title="Devices", numeric=True),
                Column(title="Mean in use", numeric=True),
                Column(title="Device-hour", numeric=True),
                Column(title="A month", numeric=True),
            ),
            rows=tuple(
                Row(
                    cells=(
                        text(RENTAL_NAMES.get(share.kind, share.kind)),
                        count(share.devices),
                        number(share.mean_devices),
                        money(share.per_device_hour, digits=4),
                        money(share.per_month),
                    )
                )
                for share in rental.shares
            ),
            note=f"Profile: {rental.profile_source}. All devices always cost {rental.flat_per_month:,.0f} a month "
            f"({RENTAL_NAMES.get(rental.flat_kind, rental.flat_kind)}).",
        )
    ]
