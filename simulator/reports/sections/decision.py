"""Section 1: the decision on one page."""

from __future__ import annotations

from datetime import date, timedelta

from simulator.planner.money.tco import MONTHS_PER_YEAR
from simulator.planner.money.tco_records import Owning
from simulator.planner.studies.risk_records import CapacityStep, Growth
from simulator.reports.charts.money import present_value_chart
from simulator.reports.content.cells import count, known_as, money, number, text
from simulator.reports.content.document import (
    Block,
    Bullets,
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
from simulator.reports.content.quantities import percent_text, rate_text, signed_percent_text
from simulator.reports.sections.risks import confidence, top_risks
from simulator.reports.studies import Studies
from simulator.reports.tables.plan import sentence
from simulator.units import KILO, bound_text

_LABELS = {"on_demand": "on demand", "reserved_1y": "1 year", "reserved_3y": "3 years", "spot": "spot"}


def _equipment(studies: Studies) -> Facts:
    fleet, rooms = studies.plan.best, studies.rooms
    shape = f"{fleet.replicas} replicas x {fleet.replica.devices}, {fleet.spares} spare"
    if fleet.prefill is not None:
        pool = fleet.prefill
        prompts = f"{pool.replicas} prefill replicas x {pool.replica.devices}, {pool.spares} spare"
        shape = f"{prompts}; {fleet.replicas} decode replicas x {fleet.replica.devices}, {fleet.spares} spare"
    if fleet.idle_devices:
        shape += f", {fleet.idle_devices} idle in whole servers"
    per_rack = f"{rooms.servers_per_rack} to a rack" if rooms.servers_per_rack else rooms.bound_by
    return Facts(
        facts=(
            Fact(
                key="devices",
                label=f"{fleet.hardware} in all",
                cell=count(fleet.devices, origin=known_as(fleet.provenance)),
                remark=shape,
            ),
            Fact(
                key="devices_interval",
                label="80 % interval",
                cell=text(f"{fleet.devices_low} to {fleet.devices_high}"),
                remark=f"of accelerators: step times are {fleet.provenance}",
            ),
            Fact(
                key="servers",
                label=f"servers, {fleet.server.name}" if fleet.server else "servers",
                cell=count(fleet.servers),
                remark=per_rack,
            ),
            Fact(key="racks", label="racks", cell=count(rooms.racks), remark=f"bound by {rooms.bound_by}"),
            Fact(
                key="power_typical_kw",
                label="expected power",
                cell=number(fleet.typical_w / KILO, "kW", digits=1),
                remark=f"nameplate {fleet.maximum_w / KILO:,.1f} kW",
            ),
        )
    )


def _money(studies: Studies) -> Facts:
    """What the plan is charged with (its own kind of price), and what owning would take."""
    fleet, cost = studies.plan.best, studies.cost
    kind = _LABELS.get(studies.spec.price_kind, studies.spec.price_kind)
    price = fleet.cost.per_device_hour
    offer = f"price of {fleet.cost.offer}" if price is not None else f"no such price in the list {studies.prices.name}"
    ends = f"80 %: {fleet.devices_low * price:,.0f} to {fleet.devices_high * price:,.0f}" if price is not None else ""
    facts = [
        Fact(key="cost_per_hour", label=f"an hour, rented {kind}", cell=money(fleet.cost.per_hour), remark=ends),
        Fact(
            key="cost_per_month",
            label=f"a month, rented {kind}",
            cell=money(fleet.cost.per_month, digits=0),
            remark=offer,
        ),
        Fact(
            key="cost_per_million_input_tokens",
            label="per million input tokens",
            cell=money(fleet.cost.per_million_input_tokens, digits=4),
            remark="split by the time that prompts take",
        ),
        Fact(
            key="cost_per_million_output_tokens",
            label="per million output tokens",
            cell=money(fleet.cost.per_million_output_tokens, digits=4),
        ),
    ]
    owning = cost.owning
    facts.append(
        Fact(
            key="capex",
            label="capital if owned",
            cell=money(
                owning.capex_total if owning else None,
                digits=0,
                origin=Origin.ASSUMED if owning and owning.estimated else Origin.NONE,
            ),
            remark=_owned(owning),
        )
    )
    return Facts(facts=tuple(facts))


def _has_ways(studies: Studies) -> bool:
    """Whether there is something to compare: one bar alone says nothing."""
    return len(studies.cost.renting) + (studies.cost.owning is not None) > 1


def _owned(owning: Owning | None) -> str:
    if owning is None:
        return "no purchase price known"
    monthly = f"{owning.annual / MONTHS_PER_YEAR:,.0f} a month all in"
    return f"{monthly}; price estimated" if owning.estimated else monthly


def _choice(studies: Studies) -> Table:
    """Ways to pay, cheapest present value first."""
    cost = studies.cost
    rows = [
        (f"rent, {_LABELS[item.kind]}", item.annual, item.present_value, f"{item.offer.provider}, {item.offer.date}")
        for item in cost.renting
    ]
    if cost.owning is not None:
        offer = cost.owning.offer
        rows.append(("own", cost.owning.annual, cost.owning.present_value, f"{offer.provider}, {offer.date}"))
    rows.sort(key=lambda row: row[2])
    withdrawn = any(item.kind == "spot" for item in cost.renting)
    spot = " Spot capacity can be withdrawn at any time and carries no availability." if withdrawn else ""
    return Table(
        key="ways_to_pay",
        title=f"Ways to pay for the same fleet over {cost.years} years",
        columns=(
            Column(title="Way"),
            Column(title="A year", numeric=True),
            Column(title="Present value", numeric=True),
            Column(title="Price from", wide=True),
        ),
        rows=tuple(
            Row(
                cells=(text(name), money(annual, digits=0), money(value, digits=0), text(offer, origin=Origin.SOURCED)),
            )
            for name, annual, value, offer in rows
        ),
        note=f"Discounted at {percent_text(studies.ownership.discount_rate.value)} a year.{spot}",
    )


def _dates(studies: Studies) -> tuple[Fact, ...]:
    """When a purchase made today is in use, and by when the next one has to be ordered."""
    growth = studies.plan.growth
    if growth is None:
        return (Fact(key="order_by", label="order by", cell=text("not planned"), remark="no growth"),)
    arrival = date.fromisoformat(growth.start) + timedelta(days=growth.lead_time_days)
    first = Fact(
        key="in_use",
        label=f"in use, if bought on {growth.start}",
        cell=text(arrival.isoformat()),
        remark=f"{growth.lead_time_days:g} days: {growth.lead_time_source}",
    )
    assumed = Origin.ASSUMED if studies.illustrates_growth else Origin.NONE
    base = growth.bands[len(growth.bands) // 2].rate_per_month
    illustrated = ", an illustration: give --growth" if studies.illustrates_growth else ""
    at = f"at {signed_percent_text(base)} a month{illustrated}"
    if not growth.steps:
        cell = text("no step in sight", origin=assumed)
        return first, Fact(key="order_by", label="next order by", cell=cell, remark=at)
    step = growth.steps[0]
    return first, Fact(
        key="order_by",
        label="next order by",
        cell=text("today" if step.late else step.order_by, origin=assumed),
        remark=f"{step.devices_after} accelerators from {step.date}{_late(step, growth)}; {at}",
    )


def _late(step: CapacityStep, growth: Growth) -> str:
    return f", {growth.lead_time_days:g} days ahead: too late, so order them with this fleet" if step.late else ""


def _existing(studies: Studies) -> tuple[Block, ...]:
    """The fleet with what exists already, and that everything else is about one without it."""
    stock = studies.plan.stock
    if stock is None:
        return ()
    said = (
        f"From here on this report is about the alternative: {studies.plan.best.devices} new accelerators of one kind, "
        f"as if nothing existed. Section 4 has the fleet with the existing ones in full, and the money of both."
    )
    shapes = ", ".join(f"{share.replicas} + {share.spares} x {share.hardware} {share.label}" for share in stock.shares)
    facts = (
        Fact(key="stock_devices", label="with what exists", cell=count(stock.devices), remark=shapes),
        Fact(key="stock_bought", label="of them to obtain", cell=count(stock.bought), remark="the rest is in stock"),
        Fact(
            key="stock_cost_per_hour",
            label="an hour",
            cell=money(stock.cost_per_hour),
            remark="existing ones count as paid for",
        ),
        Fact(key="stock_power_kw", label="expected power", cell=number(stock.typical_w / KILO, "kW", digits=1)),
    )
    return Facts(facts=facts), Paragraph(text=said, tone=Tone.WARNING)


def decision_section(studies: Studies) -> Section:
    """Recommendation, headline numbers, confidence, risks, dates."""
    grade = confidence(studies)
    plan = studies.plan
    objectives = ", ".join(f"{item.name} at most {bound_text(item.bound_s)}" for item in plan.objectives)
    lead = (
        f"Serve {rate_text(plan.demand.mean_rate_per_s, 'requests')} of {plan.best.replica.deployment.model.name} with "
        f"{sentence(plan)}."
    )
    blocks: tuple[Block, ...] = (
        Paragraph(text=lead, tone=Tone.LEAD),
        Paragraph(text=f"Held at the peak, with the spares down: {objectives or 'no latency objective'}."),
        *_existing(studies),
        _equipment(studies),
        _money(studies),
        _choice(studies),
        *((Figure(chart=present_value_chart(studies.cost)),) if _has_ways(studies) else ()),
        Facts(
            facts=(
                Fact(
                    key="confidence",
                    label="confidence, from A to D",
                    cell=text(grade.letter, origin=known_as(plan.best.provenance)),
                    remark=grade.reason,
                ),
                *_dates(studies),
            )
        ),
        Paragraph(text="Top risks", tone=Tone.HEAD),
        Bullets(items=top_risks(studies)[:3]),
    )
    return Section(number=1, key="decision", title="Decision summary", blocks=blocks)
