"""Section 1: the decision on one page."""

from __future__ import annotations

from simulator.planner.money.market import plan_rule
from simulator.planner.money.tco_records import Owning, TotalCost
from simulator.planner.studies.growth import CapacityStep, Growth
from simulator.planner.studies.stock import StockPlan
from simulator.reports.charts.chart import Axis, Chart, Series, SeriesKind, places
from simulator.reports.content.document import (
    Block,
    Bullets,
    Fact,
    Facts,
    Figure,
    Origin,
    Paragraph,
    Section,
    Table,
    Tone,
    columns,
    count,
    fact,
    kilo,
    known_as,
    money,
    table,
    text,
)
from simulator.reports.content.quantities import RENTAL_NAMES, percent_text, rate_text, signed_percent_text
from simulator.reports.sections.answer import sentence
from simulator.reports.sections.cost import price_note
from simulator.reports.sections.risks import confidence, top_risks
from simulator.reports.studies import Studies
from simulator.reports.words.prices import terms_text
from simulator.units import KILO, bound_text


def _equipment(studies: Studies) -> Facts:
    fleet, rooms = studies.plan.best, studies.rooms
    shape = "; ".join(
        f"{pool.replicas} {pool.role} replicas x {pool.replica.devices}, {pool.spares} spare".replace("  ", " ")
        for pool in fleet.pools
    )
    if fleet.idle_devices:
        shape += f", {fleet.idle_devices} idle in whole servers"
    devices = count(fleet.devices, origin=known_as(fleet.provenance))
    ends = text(f"{fleet.devices_low} to {fleet.devices_high}")
    servers = f"servers, {fleet.server.name}" if fleet.server else "servers"
    per_rack = f"{rooms.servers_per_rack} to a rack" if rooms.servers_per_rack else rooms.bound_by
    nameplate = f"nameplate {fleet.maximum_w / KILO:,.1f} kW"
    facts = (
        fact("devices", f"{fleet.hardware} in all", devices, shape),
        fact("devices_interval", "80 % interval", ends, f"of accelerators: step times are {fleet.provenance}"),
        fact("servers", servers, count(fleet.servers), per_rack),
        fact("racks", "racks", count(rooms.racks), f"bound by {rooms.bound_by}"),
        fact("power_typical_kw", "expected power", kilo(fleet.typical_w, "kW"), nameplate),
    )
    return Facts(facts=facts)


def _money(studies: Studies) -> Facts:
    """What the plan is charged with (its own kind of price), and what owning would take."""
    fleet, owning, cost = studies.plan.best, studies.cost.owning, studies.plan.best.cost
    kind = terms_text(cost.terms or plan_rule(studies.spec).terms)
    offer, ends = f"no such price in the list {studies.prices.name}", ""
    if cost.per_hour is not None:
        low, high = fleet.ends_of(cost.per_hour)
        offer, ends = f"price of {cost.offer}", f"80 %: {low:,.0f} to {high:,.0f}"
    tokens_in, tokens_out = cost.per_million_input_tokens, cost.per_million_output_tokens
    capital = money(owning.capex_total if owning else None, digits=0)
    split = "split by the time that prompts take"
    facts = (
        fact("cost_per_hour", f"an hour, rented {kind}", money(cost.per_hour), ends),
        fact("cost_per_month", f"a month, rented {kind}", money(cost.per_month, digits=0), offer),
        fact("cost_per_million_input_tokens", "per million input tokens", money(tokens_in, digits=4), split),
        fact("cost_per_million_output_tokens", "per million output tokens", money(tokens_out, digits=4)),
        fact("cost_per_million_requests", "per million requests", money(cost.per_million_requests, digits=2)),
        fact("capex", "capital if owned", capital, _owned(owning)),
    )
    return Facts(facts=facts)


def _owned(owning: Owning | None) -> str:
    if owning is None:
        return "no purchase price known"
    return f"{owning.monthly:,.0f} a month all in{'' if owning.quoted else '; no quote'}"


def _choice(studies: Studies) -> Table:
    """Ways to pay, cheapest present value first."""
    cost = studies.cost
    rows = [
        (
            f"rent, {RENTAL_NAMES[item.kind].removeprefix('reserved ')}",
            item.annual,
            item.present_value,
            f"{item.offer.provider}, {item.offer.date}",
        )
        for item in cost.renting
    ]
    if cost.owning is not None:
        offer = cost.owning.offer
        rows.append(("own", cost.owning.annual, cost.owning.present_value, f"{offer.provider}, {offer.date}"))
    rows.sort(key=lambda item: item[2])
    withdrawn = any(item.kind == "spot" for item in cost.renting)
    spot = " Spot capacity can be withdrawn at any time and carries no availability." if withdrawn else ""
    return table(
        "ways_to_pay",
        f"Ways to pay for the same fleet over {cost.years} years",
        columns("Way", "A year", "Present value", "Price from", words=("Way",), wide="Price from"),
        [
            (
                name,
                money(annual, digits=0),
                money(value, digits=0),
                text(whose, origin=Origin.SOURCED),
            )
            for name, annual, value, whose in rows
        ],
        note=f"Discounted at {percent_text(studies.ownership.discount_rate.value)} a year.{spot}",
    )


def present_value_chart(cost: TotalCost) -> Chart:
    """What each way to pay costs today, cheapest first."""
    ways = [(RENTAL_NAMES[item.kind], item.present_value) for item in cost.renting]
    if cost.owning is not None:
        ways.append(("owned", cost.owning.present_value))
    ways.sort(key=lambda way: way[1])
    values = tuple(value for _, value in ways)
    return Chart(
        key="present_value",
        title=f"{ways[0][0].capitalize()} has the lowest present value over {cost.years} years",
        x=Axis(title="", categories=tuple(name for name, _ in ways)),
        y=Axis(title="Present value", unit=cost.currency),
        series=(Series(name="", kind=SeriesKind.BAR, x=places(len(ways)), y=values, color=0),),
        caption=price_note(cost.owning).strip(),
    )


def _dates(studies: Studies) -> tuple[Fact, ...]:
    """When a purchase made today is in use, and by when the next one has to be ordered."""
    growth = studies.plan.study(Growth)
    if growth is None:
        return (fact("order_by", "order by", text("not planned"), "no growth"),)
    lead = f"{growth.lead_time_days:g} days: {growth.lead_time_source}"
    first = fact("in_use", f"in use, if bought on {growth.start}", text(growth.arrival), lead)
    assumed = Origin.ASSUMED if studies.illustrates_growth else Origin.NONE
    illustrated = ", an illustration: give --growth" if studies.illustrates_growth else ""
    at = f"at {signed_percent_text(growth.base.rate_per_month)} a month{illustrated}"
    if not growth.steps:
        return first, fact("order_by", "next order by", text("no step in sight", origin=assumed), at)
    step = growth.steps[0]
    when = text("today" if step.late else step.order_by, origin=assumed)
    why = f"{step.devices_after} accelerators from {step.date}{_late(step, growth)}; {at}"
    return first, fact("order_by", "next order by", when, why)


def _late(step: CapacityStep, growth: Growth) -> str:
    return f", {growth.lead_time_days:g} days ahead: too late, so order them with this fleet" if step.late else ""


def _existing(studies: Studies) -> tuple[Block, ...]:
    """The fleet with what exists already, and that everything else is about one without it."""
    stock = studies.plan.study(StockPlan)
    if stock is None:
        return ()
    said = (
        f"From here on this report is about the alternative: {studies.plan.best.devices} new accelerators of one kind, "
        f"as if nothing existed. Section 4 has the fleet with the existing ones in full, and the money of both."
    )
    shapes = ", ".join(f"{share.replicas} + {share.spares} x {share.hardware} {share.label}" for share in stock.shares)
    facts = (
        fact("stock_devices", "with what exists", count(stock.devices), shapes),
        fact("stock_bought", "of them to obtain", count(stock.bought), "the rest is in stock"),
        fact("stock_cost_per_hour", "an hour", money(stock.cost_per_hour), "existing ones count as paid for"),
        fact("stock_power_kw", "expected power", kilo(stock.typical_w, "kW")),
    )
    return Facts(facts=facts), Paragraph(text=said, tone=Tone.WARNING)


def decision_section(studies: Studies) -> Section:
    """Recommendation, headline numbers, confidence, risks, dates."""
    grade, plan = confidence(studies), studies.plan
    objectives = ", ".join(f"{item.name} at most {bound_text(item.bound_s)}" for item in plan.objectives)
    lead = (
        f"Serve {rate_text(plan.demand.mean_rate_per_s, 'requests')} of {plan.best.replica.deployment.model.name} with "
        f"{sentence(plan)}."
    )
    # One bar alone says nothing.
    compared = len(studies.cost.renting) + (studies.cost.owning is not None) > 1
    letter = text(grade.letter, origin=known_as(plan.best.provenance))
    blocks: tuple[Block, ...] = (
        Paragraph(text=lead, tone=Tone.LEAD),
        Paragraph(text=f"Held at the peak, with the spares down: {objectives or 'no latency objective'}."),
        *_existing(studies),
        _equipment(studies),
        _money(studies),
        _choice(studies),
        *((Figure(chart=present_value_chart(studies.cost)),) if compared else ()),
        Facts(facts=(fact("confidence", "confidence, from A to D", letter, grade.reason), *_dates(studies))),
        Paragraph(text="Top risks", tone=Tone.HEAD),
        Bullets(items=top_risks(studies)[:3]),
    )
    return Section(key="decision", title="Decision summary", blocks=blocks)
