"""Section 1: the decision on one page."""

from __future__ import annotations

from simulator.planner.tco import MONTHS_PER_YEAR
from simulator.reports.cells import count, money, number, text
from simulator.reports.content import (
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
from simulator.reports.figures.money import present_value_chart
from simulator.reports.plan_tables import sentence
from simulator.reports.sections.risks import confidence, top_risks
from simulator.reports.studies import Studies
from simulator.units import KILO

_LABELS = {"on_demand": "on demand", "reserved_1y": "1 year", "reserved_3y": "3 years", "spot": "spot"}


def _equipment(studies: Studies) -> Facts:
    fleet, rooms = studies.plan.best, studies.rooms
    shape = f"{fleet.replicas} replicas x {fleet.replica.devices}, {fleet.spares} spare"
    if fleet.idle_devices:
        shape += f", {fleet.idle_devices} idle in whole servers"
    per_rack = f"{rooms.servers_per_rack} to a rack" if rooms.servers_per_rack else rooms.bound_by
    return Facts(
        facts=(
            Fact(key="devices", label=f"{fleet.hardware} in all", cell=count(fleet.devices), remark=shape),
            Fact(
                key="devices_interval",
                label="80 % interval",
                cell=text(f"{fleet.devices_low} to {fleet.devices_high}"),
                remark=f"step times are {fleet.provenance}",
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
    kind = _LABELS.get(fleet.cost.kind, fleet.cost.kind)
    facts = [
        Fact(key="cost_per_hour", label=f"an hour, rented {kind}", cell=money(fleet.cost.per_hour)),
        Fact(key="cost_per_month", label=f"a month, rented {kind}", cell=money(fleet.cost.per_month, digits=0)),
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
            cell=money(owning.capex_total if owning else None, digits=0),
            remark=f"{owning.annual / MONTHS_PER_YEAR:,.0f} a month all in" if owning else "no purchase price known",
        )
    )
    return Facts(facts=tuple(facts))


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
        note=f"Discounted at {studies.ownership.discount_rate.value:.0%} a year. Spot capacity can be withdrawn at any "
        "time and carries no availability.",
    )


def _order_by(studies: Studies) -> Fact:
    growth = studies.plan.growth
    if growth is None:
        return Fact(key="order_by", label="order by", cell=text("not planned"), remark="needs --growth and --lead-time")
    if not growth.steps:
        return Fact(key="order_by", label="order by", cell=text("no step in sight"), remark="within the horizon")
    step = growth.steps[0]
    return Fact(
        key="order_by",
        label="next order by",
        cell=text(step.order_by),
        remark=f"{step.devices_after} accelerators from {step.date}" + (", already late" if step.late else ""),
    )


def _existing(studies: Studies) -> tuple[Paragraph, ...]:
    """What the figures leave out where accelerators exist already."""
    stock = studies.plan.stock
    if stock is None:
        return ()
    said = (
        f"All figures below and all money of this report are those of a new fleet of {studies.plan.best.devices} "
        f"accelerators. With the existing ones {stock.bought} have to be obtained: section 4 has that fleet."
    )
    return (Paragraph(text=said, tone=Tone.WARNING),)


def decision_section(studies: Studies) -> Section:
    """Recommendation, headline numbers, confidence, risks, dates."""
    grade = confidence(studies)
    plan = studies.plan
    objectives = ", ".join(f"{item.name} at most {item.bound_s:g} s" for item in plan.objectives)
    lead = (
        f"Serve {plan.demand.mean_rate_per_s:,.6g} requests/s of {plan.best.replica.deployment.model.name} with "
        f"{sentence(plan)}."
    )
    blocks: tuple[Block, ...] = (
        Paragraph(text=lead, tone=Tone.LEAD),
        Paragraph(text=f"Held at the peak, with the spares down: {objectives or 'no latency objective'}."),
        *_existing(studies),
        _equipment(studies),
        _money(studies),
        _choice(studies),
        Figure(chart=present_value_chart(studies.cost)),
        Facts(
            facts=(
                Fact(key="confidence", label="confidence", cell=text(grade.letter), remark=grade.reason),
                _order_by(studies),
            )
        ),
        Paragraph(text="Top risks"),
        Bullets(items=top_risks(studies)[:3]),
    )
    return Section(number=1, key="decision", title="Decision summary", blocks=blocks)
