"""Section 8: total cost of ownership, and renting against it: the bill, the ways to pay, their charts, the sources."""

from __future__ import annotations

from functools import partial

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet
from simulator.planner.money.tco_records import SHARES_OF_HOURS, CostLine, Owning, Renting, TotalCost
from simulator.planner.studies.rental import RentalMix
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind, waterfall_chart
from simulator.reports.content import document as doc
from simulator.reports.content import quantities as say
from simulator.reports.content.document import Origin, Table, fraction, number, table, text
from simulator.reports.studies import Studies
from simulator.reports.words.fields import flagged, note_text, note_texts
from simulator.reports.words.plan_inputs import TERMS
from simulator.specs.base import is_recalled
from simulator.specs.money.ownership import OwnershipProfile, SourcedFigure
from simulator.units import MEGA

_PRESENT = "owning_present_value"
_SHARES = ("_fraction", "_rate", "_fraction_per_year")


def _paid(value: float, formula: str, *, digits: int = 2) -> doc.Cell:
    """Money that the workbook computes by a formula."""
    return doc.money(value, digits=digits, follows=formula)


def _line(line: CostLine, group: str) -> doc.Cell:
    return _paid(line.amount, f"{group}_{line.name.replace(' ', '_')}")


def _bill(owning: Owning) -> doc.Table:
    rows = [doc.row(line.name, _line(line, "capex"), note_text(line.basis)) for line in owning.capex]
    rows.append(doc.row("capital", _paid(owning.capex_total, "capex_total"), "paid at the start", total=True))
    rows += [doc.row(f"{line.name}, a year", _line(line, "opex"), note_text(line.basis)) for line in owning.opex]
    yearly = _paid(owning.opex_total, "opex_total")
    rows.append(doc.row("operation, a year", yearly, "paid every year", total=True))
    return doc.table("bill", "Owning: what is paid", "Line: | Amount | How::", rows)


def _owning_facts(owning: Owning) -> doc.Table:
    discounted = f"discounted at {say.percent_text(owning.discount_rate)}"
    straight = f"straight line over {owning.years} years"
    annual = _paid(owning.annual, "owning_annual")
    hourly = _paid(owning.per_device_hour, "owning_per_device_hour", digits=4)
    tokens_in = _paid(owning.per_million_input_tokens, "owning_per_million_input", digits=4)
    tokens_out = _paid(owning.per_million_output_tokens, "owning_per_million_output", digits=4)
    rows = (
        ("residual after the last year", _paid(owning.residual, "residual_value"), "of the server price"),
        ("depreciation, a year", _paid(owning.depreciation_per_year, "depreciation_per_year"), straight),
        ("total over the years", _paid(owning.total, "owning_total"), "undiscounted, less the residual"),
        ("present value", _paid(owning.present_value, _PRESENT), discounted),
        doc.row("equivalent annual cost", annual, "the same every year with the same present value", total=True),
        ("an accelerator-hour", hourly, "equivalent annual cost over devices and 8,760 h"),
        ("a million input tokens", tokens_in, "by the share of time that prompts take"),
        ("a million output tokens", tokens_out, "by the rest of the time"),
    )
    heads = "Figure: | Amount | How::"
    return doc.table("owning", "Owning: what it comes to", heads, rows)


def _flows(cost: TotalCost) -> doc.Table:
    owned = ("Owned", "Discounted", "Owned so far") if cost.owning is not None else ()
    rented = [say.RENTAL_NAMES[item.kind] for item in cost.renting]
    rows = []
    for flow in cost.flows:
        own = (flow.owning, flow.discounted, flow.cumulative) if cost.owning is not None else ()
        rows.append((doc.count(flow.year), *(doc.number(value, digits=2) for value in (*own, *flow.renting))))
    return doc.table(
        "cash_flow",
        "Cash flow by year",
        " | ".join(("Year", *owned, *rented)),
        rows,
        note=f"Amounts in {cost.currency}, money out positive. Capital at the start, everything else at the end of its "
        "year, the residual with the last one.",
    )


def figure_cell(name: str, value: float) -> doc.Cell:
    """Shares in percent, whole figures whole."""
    if name.endswith(_SHARES):
        return doc.fraction(value)
    return doc.count(value) if value.is_integer() else doc.number(value)


def figure_name(field: str) -> str:
    """A figure of owning in the words of its profile."""
    return OwnershipProfile.model_fields[field].description or field.replace("_", " ")


def _figure_row(name: str, cell: doc.Cell, item: SourcedFigure) -> doc.Row:
    return doc.row(name, cell, item.date, doc.sourced(item.source, item.note, assumed=item.assumed))


def _inputs(studies: Studies) -> doc.Table:
    owning, prices = studies.ownership, studies.prices
    rows = [
        _figure_row(figure_name(name), figure_cell(name, value.value), value)
        for name in type(owning).model_fields
        if isinstance(value := getattr(owning, name), SourcedFigure) and not value.unsourced
    ]
    rows += [
        doc.row(name, doc.number(value), prices.date, doc.text(source, origin=doc.Origin.SOURCED))
        for name, value, source in (
            ("electricity a kWh", prices.power_per_kwh, prices.power_source),
            ("PUE", prices.pue, prices.pue_source),
        )
        if not is_recalled(source)
    ]
    for item in studies.plan.best.housing:
        reference = owning.owning_reference_per_device_hour.get(item.hardware)
        if reference is not None:
            of = f" of {item.hardware}" if studies.plan.best.is_unlike else ""
            name = f"published cost of owning, an accelerator-hour{of} (to compare)"
            rows.append(_figure_row(name, figure_cell("", reference.value), reference))
    return doc.table(
        "cost_inputs",
        "Figures behind the money that have a source",
        "Figure: | Value | Date: | Source::",
        rows,
        note="The others stand with the assumptions to accept. Replace any of them in a file of your own: --ownership "
        "FILE and --prices FILE, or the Inputs sheet of "
        "the workbook.",
    )


def cost_content(studies: Studies) -> tuple[doc.Block, ...]:
    """Capital, operation, present value, renting, break-even, cash flow, tokens."""
    cost, owning = studies.cost, studies.cost.owning
    blocks: list[doc.Block] = [doc.Paragraph(text=buying_text(cost), tone=doc.Tone.LEAD)]
    if owning is None:
        blocks.append(
            doc.Paragraph(text=f"Owning is not priced: {flagged(cost.owning_unpriced)}.", tone=doc.Tone.MISSING)
        )
    else:
        facts = (
            doc.fact("capex_total", "capital, at the start", _paid(owning.capex_total, "capex_total")),
            doc.fact("opex_per_year", "operation, a year", _paid(owning.opex_total, "opex_total")),
            doc.fact("owning_annual", "equivalent annual cost", _paid(owning.annual, "owning_annual")),
            doc.fact("owning_present_value", "present value", _paid(owning.present_value, _PRESENT)),
        )
        waterfall = doc.Figure(chart=tco_waterfall_chart(owning, currency=cost.currency))
        blocks += [doc.Facts(facts=facts), _bill(owning), waterfall, _owning_facts(owning)]
        if not owning.offer.server_included:
            warning = f"The purchase price is of the card alone ({owning.offer.note}): add the server to the list."
            blocks.append(doc.Paragraph(text=warning, tone=doc.Tone.WARNING))
    if cost.renting:
        blocks += [renting_table(cost), doc.Figure(chart=break_even_chart(cost))]
    unmixed = "Renting by the hour of the day is not planned: the price list has no hourly price to mix."
    mix = rental_blocks(studies.plan) or (doc.Paragraph(text=unmixed, tone=doc.Tone.MISSING),)
    if cost.priced:
        blocks += [_flows(cost), doc.Figure(chart=cash_flow_chart(cost))]
    blocks += [*mix, _inputs(studies)]
    return tuple(blocks)


def rental_blocks(plan: CapacityPlan) -> tuple[doc.Block, ...]:
    """How to rent over a day or a week; nothing where it was not asked for."""
    rental, currency = plan.study(RentalMix), plan.best.cost.currency
    if rental is None:
        return ()
    if len(rental.shares) == len(plan.best.housing):
        return (
            doc.Paragraph(text=f"There is nothing to mix by the hour. Profile: {note_text(rental.profile_source)}."),
        )
    kind = say.RENTAL_NAMES.get(rental.flat_kind, rental.flat_kind)
    flat = f"{say.price_text(rental.flat_per_month, currency)} a month ({kind})"
    per_token = (
        f"{say.price_text(rental.per_million_input_tokens, currency)} per 1M input and "
        f"{say.price_text(rental.per_million_output_tokens, currency)} per 1M output tokens"
    )
    said = (
        f"The mix costs {say.price_text(rental.per_month, currency)} a month, all devices always {flat}: "
        f"{say.percent_text(rental.saved_fraction)} less; {per_token}. Profile: {note_text(rental.profile_source)}; "
        f"{min(rental.devices)} to {max(rental.devices)} devices."
    )
    rows = []
    for share in rental.shares:
        name = say.RENTAL_NAMES.get(share.kind, share.kind)
        rented = f"{share.hardware}, {name}" if plan.best.is_unlike else name
        used, hourly = doc.number(share.mean_devices), doc.money(share.per_device_hour, digits=4)
        rows.append((rented, doc.count(share.devices), used, hourly, doc.money(share.per_month)))
    heads = "Rented: | Devices | Mean in use | Device-hour | A month"
    note = " ".join([said, *(f"{note[:1].upper()}{note[1:]}." for note in note_texts(rental.notes))])
    return (doc.table("rental_mix", f"Cheapest mix over the {rental.period}", heads, rows, note=note),)


def owning_range_text(owning: Owning, *, fleet: Fleet, currency: str) -> str:
    """The total over the years at both ends of the 80 % interval of the accelerators; every line goes with them."""
    ends = fleet.ends_of(owning.total)
    counts = say.range_text((fleet.devices_low, fleet.devices_high), say.count_text)
    money = say.range_text(ends, partial(say.money_text, currency=currency))
    return f"{money} in total for {counts} accelerators, prices as given"


def tco_waterfall_chart(owning: Owning, *, currency: str) -> Chart:
    """Capital lines, operation over the years and the residual, ending in the undiscounted total."""
    return waterfall_chart(
        "tco_waterfall",
        f"Owning costs {owning.total / MEGA:,.2f} million {currency} over {owning.years} years",
        y=f"Cost [{currency}]",
        parts=[
            *((line.name, line.amount, False) for line in owning.capex),
            ("capital", owning.capex_total, True),
            *((line.name, line.amount, False) for line in owning.undiscounted),
            *(("residual", -owning.residual, False), ("total", owning.total, True)),
        ],
        caption="Undiscounted; capital at the start, operation over the years of depreciation, residual at the end."
        + price_note(owning),
    )


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
        # Dashed over the plan's own line, which is one of them and would be covered.
        name = say.RENTAL_NAMES[item.kind]
        series.append(Series(name=name, kind=SeriesKind.LINE, x=years, y=paid, dashed=place > 0))
    return Chart(
        key="cash_flow",
        title="Cash paid by the end of each year",
        x=Axis(title="", categories=names),
        y=Axis(title="Paid so far", unit=cost.currency),
        series=tuple(series),
        caption="Undiscounted; the residual comes back at the end of the last year.",
    )


_PERCENT = 100
UNPRICED = (
    "The price list holds no price of this fleet: its cost is left out. Get quotes and name them with --prices FILE."
)


def _term(rent: Renting) -> str:
    return "as planned" if rent.kind == "planned" else TERMS[rent.kind]


def buying_text(cost: TotalCost) -> str:
    """Below which purchase price owning pays, and what is asked: a quote decides, a published price does not."""
    rent, even, owning = cost.lasting, cost.break_even_price, cost.owning
    if rent is None:
        return "Without a price of renting there is nothing to compare owning with." if owning else UNPRICED
    if even is None:
        return f"Owning does not pay at any purchase price over {cost.years} years: its operation alone costs the rent."
    limit = f"Owning pays below {cost.currency} {even:,.0f} an accelerator with its share of a server"
    if rent is not cost.rent:
        hourly = f"{cost.currency} {rent.per_device_hour:,.4g} an hour"
        limit += f", against renting {_term(rent)} at {hourly} ({rent.provider}), which costs least"
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


def ways_table(studies: Studies) -> Table:
    """Ways to pay, cheapest present value first."""
    cost = studies.cost
    rows = [
        (
            f"rent, {_term(item)}",
            _paid(item.annual, f"rent_{item.kind}_annual", digits=0),
            _paid(item.present_value, f"rent_{item.kind}_present", digits=0),
            f"{item.provider}, {item.date}",
        )
        for item in cost.renting
    ]
    if cost.owning is not None:
        offer = cost.owning.offer
        name = "own" if cost.owning.quoted else "own, at a published price"
        annual = _paid(cost.owning.annual, "owning_annual", digits=0)
        present = _paid(cost.owning.present_value, "owning_present_value", digits=0)
        rows.append((name, annual, present, f"{offer.provider}, {offer.date}"))
    rows.sort(key=lambda item: float(item[2].value or 0.0))
    withdrawn = any(item.kind == "spot" for item in cost.renting)
    spot = " Spot capacity can be withdrawn at any time and carries no availability." if withdrawn else ""
    return table(
        "ways_to_pay",
        f"Ways to pay for the same fleet over {cost.years} years",
        "Way: | A year | Present value | Price from::",
        [(name, annual, value, text(whose, origin=Origin.SOURCED)) for name, annual, value, whose in rows],
        note=f"Discounted at {say.percent_text(studies.ownership.discount_rate.value)} a year."
        f"{price_note(cost.owning)}{spot}",
    )


def renting_table(cost: TotalCost) -> Table:
    """Every kind of renting, by the hour, the year and the token, and from how many hours on owning is cheaper."""
    return table(
        "renting",
        f"Renting all {cost.devices} devices all hours",
        "Renting: | Device-hour | A year | Over the years | 1M input | 1M output | Break-even | Price from::",
        [
            (
                say.RENTAL_NAMES[item.kind],
                number(item.per_device_hour, digits=4, follows=f"rate_{item.kind}"),
                number(item.annual, digits=2, follows=f"rent_{item.kind}_annual"),
                number(item.total, digits=2, follows=f"rent_{item.kind}_total"),
                number(item.per_million_input_tokens, digits=4, follows=f"rent_{item.kind}_input"),
                number(item.per_million_output_tokens, digits=4, follows=f"rent_{item.kind}_output"),
                fraction(item.break_even, follows=f"rent_{item.kind}_even"),
                text(f"{item.provider}, {item.date}: {item.source}", origin=Origin.SOURCED),
            )
            for item in cost.renting
        ],
        note=f"Amounts in {cost.currency}. Break-even: share of the hours above which owning is cheaper than paying "
        "this price for hours of use; above 100 % it never is. Spot has no availability.",
    )


def price_note(owning: Owning | None) -> str:
    """What a reader of a chart with owning in it has to know of the purchase price."""
    if owning is None or owning.quoted:
        return ""
    return f" The purchase price is no quote: {owning.offer.provider}, {owning.offer.date}."


def break_even_chart(cost: TotalCost) -> Chart:
    """Cost of a year over the share of hours that devices are used: owned, committed and paid by the hour."""
    percents = tuple(_PERCENT * share for share in SHARES_OF_HOURS)
    series: list[Series] = []
    notes: list[Annotation] = []
    if cost.owning is not None:
        flat = tuple(cost.owning.annual for _ in percents)
        series.append(Series(name="owned", kind=SeriesKind.LINE, x=percents, y=flat, color=7))
    for item in cost.renting:
        values = item.by_share_of_hours
        name = say.RENTAL_NAMES[item.kind]
        series.append(Series(name=name, kind=SeriesKind.LINE, x=percents, y=values, dashed=not item.by_the_hour))
        if item.kind == "on_demand" and item.break_even is not None and item.break_even <= 1:
            at = say.percent_text(item.break_even)
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
    return f"Owning pays from {say.percent_text(on_demand.break_even)} of the hours on"
