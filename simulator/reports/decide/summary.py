"""The summary for a board: one page in plain words, for people who approve money and do not size fleets."""

from __future__ import annotations

from simulator.planner.studies.uncertainty import Uncertainty
from simulator.planner.verification.confidence import confidence_in
from simulator.reports.content import document as doc
from simulator.reports.content.quantities import demand_text, money_text, percent_text, rate_text, served_unit
from simulator.reports.decide.decision import cheapest_elsewhere, lead_text, rent_or_buy_text
from simulator.reports.decide.risks import top_risks
from simulator.reports.sections.cost import ways_table
from simulator.reports.sections.growth import rent_text
from simulator.reports.sections.stock import existing
from simulator.reports.studies import Studies
from simulator.units import bound_text

_RISKS = 4


def _numbers(studies: Studies) -> doc.Facts:
    fleet, cost = studies.plan.best, studies.plan.best.cost
    yearly = studies.cost.rent.annual if studies.cost.rent is not None else None
    ends = ""
    if yearly is not None:
        low, high = (money_text(value, studies.currency) for value in fleet.ends_of(yearly))
        ends = f"{low} to {high} in four cases of five"
    sure = confidence_in(studies.plan)
    span, price = f"{fleet.devices_low} to {fleet.devices_high}", doc.money(cost.per_million_output_tokens_all_in)
    facts = (
        doc.fact("accelerators", "accelerators", doc.count(fleet.devices), f"{span} in four cases of five"),
        doc.fact("a_year", "a year, rented", doc.money(yearly, digits=0), ends),
        doc.fact("per_million", "per million tokens answered", price, "all costs on the answers"),
        doc.fact(
            "carbon",
            "emissions a year",
            doc.number(studies.energy.location_t, "t CO2e", digits=0),
            "by the grid's mean",
        ),
        doc.fact("grade", "confidence, A to D", doc.text(sure.letter), "by measured runs alone"),
    )
    return doc.Facts(facts=facts)


def _promise(studies: Studies) -> str:
    plan = studies.plan
    held = ", ".join(f"{item.name} within {bound_text(item.bound_s)}" for item in plan.objectives)
    held_for = plan.objectives[0].percentile if plan.objectives else 95.0
    rate = rate_text(plan.demand.planned_rate_per_s, served_unit(plan.demand).removesuffix("/s"))
    return (
        f"It carries {rate} at the peak, with its spare machines down: {held or 'no latency is promised'}. TTFT is the "
        "time to the first word, TPOT the time of each further one; "
        f"p{held_for:g} means {held_for:g} of 100 requests."
    )


def _other(studies: Studies) -> str:
    rival, best = cheapest_elsewhere(studies), studies.plan.best
    more = None if rival is None else rival.cost.more_per_month(best.cost)
    if rival is None or more is None:
        return "No other accelerator was priced."
    side = "more" if more > 0 else "less"
    paid = f"{money_text(abs(more), studies.currency)} a month {side}"
    known = f"its step times are {rival.provenance}"
    if rival.provenance != best.provenance:
        known += f", those of {best.hardware} {best.provenance}"
    return f"The alternative is {rival.devices:,} {rival.hardware}: {paid}; {known}."


def _outlook(studies: Studies) -> str:
    growth, drawn = studies.growth, studies.study(Uncertainty)
    parts = []
    if drawn is not None:
        carried = percent_text(drawn.enough_share)
        parts.append(f"Of {drawn.draws:,} draws of demand and speed the fleet carries {carried}.")
    if growth is not None and growth.steps and not studies.illustrates_growth:
        step = growth.steps[0]
        when = "order them with this fleet" if step.late else f"order by {step.order_by}"
        parts.append(f"From {step.date} on {step.devices_after:,} are needed; {when}.")
        parts.append(rent_text(growth, studies.currency))
    if growth is not None and studies.cost.owning is not None:
        parts.append(f"What is bought on {growth.start} serves from {growth.arrival} on.")
    return " ".join(filter(None, parts))


def summary_section(studies: Studies) -> doc.Section:
    """What is asked for, what it buys, what it costs, what else could be done, and what could go wrong."""
    outlook = _outlook(studies)
    blocks: tuple[doc.Block, ...] = (
        doc.Paragraph(text=lead_text(studies), tone=doc.Tone.LEAD),
        *existing(studies),
        _numbers(studies),
        doc.Paragraph(text="What it buys", tone=doc.Tone.HEAD),
        doc.Paragraph(text=_promise(studies)),
        doc.Paragraph(text="Rent or buy", tone=doc.Tone.HEAD),
        doc.Paragraph(text=rent_or_buy_text(studies)),
        ways_table(studies),
        doc.Paragraph(text="What else could be done", tone=doc.Tone.HEAD),
        doc.Paragraph(text=_other(studies)),
        *((doc.Paragraph(text="What is to come", tone=doc.Tone.HEAD), doc.Paragraph(text=outlook)) if outlook else ()),
        doc.Paragraph(text="What could go wrong", tone=doc.Tone.HEAD),
        doc.Bullets(items=top_risks(studies)[:_RISKS]),
    )
    return doc.Section(key="summary", title="Summary for the board", blocks=blocks)


def summary_report(studies: Studies) -> doc.Report:
    """The summary as a document of its own."""
    plan = studies.plan
    return doc.Report(
        title=f"Capacity for {plan.best.replica.deployment.model.name}",
        subtitle=f"{demand_text(plan.demand)}: what is asked of the board",
        created=studies.created,
        currency=studies.currency,
        version=studies.version,
        sections=(summary_section(studies),),
    )
