"""Section 8: total cost of ownership, and renting against it: the bill, the ways to pay, their charts, the sources."""

from __future__ import annotations

from functools import partial

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet
from simulator.planner.money.tco_records import Owning, TotalCost
from simulator.planner.studies.rental import RentalMix
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind, places
from simulator.reports.content.document import (
    Block,
    Cell,
    Facts,
    Figure,
    Origin,
    Paragraph,
    Row,
    Section,
    Table,
    Tone,
    columns,
    count,
    fact,
    fraction,
    money,
    number,
    row,
    table,
    text,
)
from simulator.reports.content.quantities import (
    RENTAL_NAMES,
    count_text,
    money_text,
    percent_text,
    price_text,
    range_text,
)
from simulator.reports.studies import Studies
from simulator.reports.words.flags import flagged
from simulator.specs.money.ownership import SourcedFigure
from simulator.units import MEGA

_POINTS = 20
_PERCENT = 100

_FIGURE_NAMES = {
    "depreciation_years": "depreciation, years",
    "residual_fraction": "residual, of servers",
    "discount_rate": "cost of capital, a year",
    "network_fraction": "network, of servers",
    "storage_fraction": "storage, of servers",
    "failures_per_device_year": "failures of an accelerator a year",
    "replacement_days": "days to replace one",
    "spare_stock_factor": "safety stock, standard deviations",
    "integration_fraction": "integration, of everything bought",
    "support_fraction_per_year": "support a year, of servers",
    "licence_per_device_year": "licences of an accelerator a year",
    "colocation_per_kw_month": "colocation of a kW a month",
    "staff_per_fte_year": "one person a year",
    "servers_per_fte": "servers one person looks after",
    "staff_minimum_fte": "people, at least",
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
    rows = [row(line.name, money(line.amount), line.basis) for line in owning.capex]
    rows.append(row("capital", money(owning.capex_total), "paid at the start", total=True))
    rows += [row(f"{line.name}, a year", money(line.amount), line.basis) for line in owning.opex]
    rows.append(row("operation, a year", money(owning.opex_total), "paid every year", total=True))
    return table("bill", "Owning: what is paid", columns("Line", "Amount", "How", words=("Line",), wide="How"), rows)


def _owning_facts(owning: Owning) -> Table:
    discounted = f"discounted at {percent_text(owning.discount_rate)}"
    fine = money(owning.per_device_hour, digits=4)
    tokens_in, tokens_out = owning.per_million_input_tokens, owning.per_million_output_tokens
    rows = (
        row("residual after the last year", money(owning.residual), "of the server price"),
        row("depreciation, a year", money(owning.depreciation_per_year), f"straight line over {owning.years} years"),
        row("total over the years", money(owning.total), "capital + operation - residual, undiscounted"),
        row("present value", money(owning.present_value), discounted),
        row(
            "equivalent annual cost",
            money(owning.annual),
            "the same every year with the same present value",
            total=True,
        ),
        row("an accelerator-hour", fine, "equivalent annual cost over devices and 8,760 h"),
        row("a million input tokens", money(tokens_in, digits=4), "by the share of time that prompts take"),
        row("a million output tokens", money(tokens_out, digits=4), "by the rest of the time"),
    )
    heads = columns("Figure", "Amount", "How", words=("Figure",), wide="How")
    return table("owning", "Owning: what it comes to", heads, rows)


def _renting(cost: TotalCost) -> Table:
    names = ("Renting", "Device-hour", "A year", "Over the years", "1M input", "1M output", "Break-even", "Price from")
    return table(
        "renting",
        f"Renting all {cost.devices} devices all hours",
        columns(*names, words=("Renting",), wide="Price from"),
        [
            (
                RENTAL_NAMES[item.kind],
                number(item.offer.per_hour, digits=4),
                number(item.annual, digits=2),
                number(item.total, digits=2),
                number(item.per_million_input_tokens, digits=4),
                number(item.per_million_output_tokens, digits=4),
                fraction(item.break_even),
                text(f"{item.offer.provider}, {item.offer.date}: {item.offer.source}", origin=Origin.SOURCED),
            )
            for item in cost.renting
        ],
        note=f"Amounts in {cost.currency}. Break-even: share of the hours above which owning is cheaper than paying "
        "this price for hours of use; above 100 % it never is. Spot has no availability.",
    )


def _flows(cost: TotalCost) -> Table:
    owned = ("Owned", "Discounted", "Owned so far") if cost.owning is not None else ()
    rows = []
    for flow in cost.flows:
        own = (flow.owning, flow.discounted, flow.cumulative) if cost.owning is not None else ()
        rows.append((count(flow.year), *(number(value, digits=2) for value in (*own, *flow.renting))))
    return table(
        "cash_flow",
        "Cash flow by year",
        columns("Year", *owned, *(RENTAL_NAMES[item.kind] for item in cost.renting)),
        rows,
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
    return row(name, _figure_value(field, item.value), item.date, text(note, origin=origin))


def _inputs(studies: Studies) -> Table:
    owning, prices = studies.ownership, studies.prices
    rows = [
        _figure_row(name, value)
        for name in type(owning).model_fields
        if isinstance(value := getattr(owning, name), SourcedFigure)
    ]
    rows += [
        row(name, number(value), prices.date, text(source, origin=Origin.SOURCED))
        for name, value, source in (
            ("electricity a kWh", prices.power_per_kwh, prices.power_source),
            ("PUE", prices.pue, prices.pue_source),
        )
    ]
    reference = owning.owning_reference_per_device_hour.get(studies.plan.best.hardware)
    if reference is not None:
        rows.append(_figure_row("published cost of owning, an accelerator-hour (to compare)", reference))
    return table(
        "cost_inputs",
        "Figures behind the money",
        columns("Figure", "Value", "Date", "Source", words=("Figure", "Date"), wide="Source"),
        rows,
        note="Replace any of them in a file of your own: --ownership FILE and --prices FILE, or the Inputs sheet of "
        "the workbook.",
    )


def buying_text(cost: TotalCost) -> str:
    """Below which purchase price owning pays, and what is asked: a quote decides, a published price does not."""
    rent, even, owning = cost.rent, cost.break_even_price, cost.owning
    if rent is None:
        return "Without a price of renting there is nothing to compare owning with."
    if even is None:
        return f"Owning does not pay at any purchase price over {cost.years} years: its operation alone costs the rent."
    limit = f"Owning pays below {cost.currency} {even:,.0f} an accelerator with its share of a server"
    if owning is None:
        return f"{limit}; nobody lists that price: get a quote."
    asked, saves = owning.offer.per_device or 0.0, cost.owning_saves or 0.0
    worth = f"{cost.currency} {abs(saves):,.0f} of present value over {cost.years} years"
    if owning.quoted:
        return (
            f"{limit}; the quote of {asked:,.0f} ({owning.offer.provider}) {'saves' if saves > 0 else 'loses'} {worth}."
        )
    side = "below that: get quotes before committing to a rent" if saves > 0 else "above that"
    return f"{limit}; the published price of {asked:,.0f} ({owning.offer.provider}) is {side}."


def _lead(studies: Studies) -> Paragraph:
    return Paragraph(text=buying_text(studies.cost), tone=Tone.LEAD)


def cost_section(studies: Studies) -> Section:
    """Capital, operation, present value, renting, break-even, cash flow, tokens."""
    cost, owning = studies.cost, studies.cost.owning
    blocks: list[Block] = [_lead(studies)]
    if owning is None:
        blocks.append(Paragraph(text=f"Owning is not priced: {flagged(cost.owning_unpriced)}.", tone=Tone.MISSING))
    else:
        facts = (
            fact("capex_total", "capital, at the start", money(owning.capex_total)),
            fact("opex_per_year", "operation, a year", money(owning.opex_total)),
            fact("owning_annual", "equivalent annual cost", money(owning.annual)),
            fact("owning_present_value", "present value", money(owning.present_value)),
        )
        waterfall = Figure(chart=tco_waterfall_chart(owning, currency=cost.currency))
        blocks += [Facts(facts=facts), _bill(owning), waterfall, _owning_facts(owning)]
        if not owning.offer.server_included:
            warning = f"The purchase price is of the card alone ({owning.offer.note}): add the server to the list."
            blocks.append(Paragraph(text=warning, tone=Tone.WARNING))
    if cost.renting:
        blocks += [_renting(cost), Figure(chart=break_even_chart(cost))]
    unmixed = "Renting by the hour of the day is not planned: the price list has no hourly price to mix."
    mix = rental_blocks(studies.plan) or (Paragraph(text=unmixed, tone=Tone.MISSING),)
    blocks += [_flows(cost), Figure(chart=cash_flow_chart(cost)), *mix, _inputs(studies)]
    return Section(key="cost", title="Total cost of ownership", blocks=tuple(blocks))


def rental_blocks(plan: CapacityPlan) -> tuple[Table, ...]:
    """How to rent over a day or a week; nothing where it was not asked for."""
    rental, currency = plan.study(RentalMix), plan.best.cost.currency
    if rental is None:
        return ()
    kind = RENTAL_NAMES.get(rental.flat_kind, rental.flat_kind)
    flat = f"{price_text(rental.flat_per_month, currency)} a month ({kind})"
    per_token = (
        f"{price_text(rental.per_million_input_tokens, currency)} per 1M input and "
        f"{price_text(rental.per_million_output_tokens, currency)} per 1M output tokens"
    )
    said = (
        f"The mix costs {price_text(rental.per_month, currency)} a month, all devices always {flat}: "
        f"{percent_text(rental.saved_fraction)} less; {per_token}. Profile: {rental.profile_source}; "
        f"{min(rental.devices)} to {max(rental.devices)} devices."
    )
    return (
        table(
            "rental_mix",
            f"Cheapest mix over the {rental.period}",
            columns("Rented", "Devices", "Mean in use", "Device-hour", "A month", words=("Rented",)),
            [
                (
                    RENTAL_NAMES.get(share.kind, share.kind),
                    count(share.devices),
                    number(share.mean_devices),
                    money(share.per_device_hour, digits=4),
                    money(share.per_month),
                )
                for share in rental.shares
            ],
            note=" ".join([said, *(f"{note[:1].upper()}{note[1:]}." for note in rental.notes)]),
        ),
    )


def price_note(owning: Owning | None) -> str:
    """What a reader of a chart with owning in it has to know of the purchase price."""
    if owning is None or owning.quoted:
        return ""
    return f" The purchase price is no quote: {owning.offer.provider}, {owning.offer.date}."


def owning_range_text(owning: Owning, *, fleet: Fleet, currency: str) -> str:
    """The total over the years at both ends of the 80 % interval of the accelerators; every line goes with them."""
    ends = fleet.ends_of(owning.total)
    counts = range_text((fleet.devices_low, fleet.devices_high), count_text)
    money = range_text(ends, partial(money_text, currency=currency))
    return f"{money} in total for {counts} accelerators, prices as given"


def tco_waterfall_chart(owning: Owning, *, currency: str) -> Chart:
    """Capital lines, operation over the years and the residual, ending in the undiscounted total."""
    lines = [(line.name, line.amount, "") for line in owning.capex]
    lines.append(("capital", owning.capex_total, "total"))
    lines += [(line.name, line.amount, "") for line in owning.undiscounted]
    lines += [("residual", -owning.residual, ""), ("total", owning.total, "total")]
    return Chart(
        key="tco_waterfall",
        title=f"Owning costs {owning.total / MEGA:,.2f} million {currency} over {owning.years} years",
        x=Axis(title="", categories=tuple(name for name, _, _ in lines)),
        y=Axis(title="Cost", unit=currency),
        series=(
            Series(
                name="",
                kind=SeriesKind.WATERFALL,
                x=places(len(lines)),
                y=tuple(amount for _, amount, _ in lines),
                labels=tuple(label for _, _, label in lines),
            ),
        ),
        caption="Undiscounted; capital at the start, operation over the years of depreciation, residual at the end."
        + price_note(owning),
    )


def break_even_chart(cost: TotalCost) -> Chart:
    """Cost of a year over the share of hours that devices are used: owned, committed and paid by the hour."""
    shares = tuple(place / _POINTS for place in range(_POINTS + 1))
    percents = tuple(_PERCENT * share for share in shares)
    series: list[Series] = []
    notes: list[Annotation] = []
    if cost.owning is not None:
        flat = (cost.owning.annual,) * len(shares)
        series.append(Series(name="owned", kind=SeriesKind.LINE, x=percents, y=flat, color=7))
    for item in cost.renting:
        values = tuple(map(item.year_at, shares))
        name = RENTAL_NAMES[item.kind]
        series.append(Series(name=name, kind=SeriesKind.LINE, x=percents, y=values, dashed=not item.by_the_hour))
        if item.kind == "on_demand" and item.break_even is not None and item.break_even <= 1:
            at = percent_text(item.break_even)
            notes.append(Annotation(text=f"break-even at {at}", x=_PERCENT * item.break_even))
    return Chart(
        key="break_even",
        title=_break_even_title(cost),
        x=Axis(title="Share of the hours of a year that devices are needed", unit="%", low=0.0, high=float(_PERCENT)),
        y=Axis(title="Cost of a year", unit=cost.currency),
        series=tuple(series),
        annotations=tuple(notes),
        caption="Owned: equivalent annual cost. Commitments are paid for all hours, on demand and spot for hours "
        f"of use.{price_note(cost.owning)}",
    )


def _break_even_title(cost: TotalCost) -> str:
    on_demand = next((item for item in cost.renting if item.kind == "on_demand"), None)
    if on_demand is None or on_demand.break_even is None:
        return "What a year costs, by hours of use"
    if on_demand.break_even > 1:
        return "Renting on demand stays cheaper than owning at these prices"
    return f"Owning pays from {percent_text(on_demand.break_even)} of the hours on"


def cash_flow_chart(cost: TotalCost) -> Chart:
    """Cash paid so far, owned and rented, by year."""
    years = tuple(float(flow.year) for flow in cost.flows)
    names = ("start", *(f"year {flow.year}" for flow in cost.flows[1:]))
    series = []
    if cost.owning is not None:
        paid = tuple(flow.cumulative for flow in cost.flows)
        series.append(Series(name="owned", kind=SeriesKind.LINE, x=years, y=paid, color=7))
    for place, item in enumerate(cost.renting):
        paid = tuple(flow.renting_cumulative[place] for flow in cost.flows)
        series.append(Series(name=RENTAL_NAMES[item.kind], kind=SeriesKind.LINE, x=years, y=paid))
    return Chart(
        key="cash_flow",
        title="Cash paid by the end of each year",
        x=Axis(title="", categories=names),
        y=Axis(title="Paid so far", unit=cost.currency),
        series=tuple(series),
        caption="Undiscounted; the residual comes back at the end of the last year.",
    )
