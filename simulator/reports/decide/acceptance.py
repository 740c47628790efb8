"""Section 3: what no source states, in one table, and the lines to sign: who signs accepts these figures."""

from __future__ import annotations

from collections.abc import Iterator

from simulator.planner.money.market import offers_of, plan_rule
from simulator.planner.studies.growth import LEAD_TIME_SOURCE, Growth
from simulator.planner.studies.uncertainty import Uncertainty
from simulator.reports.content import document as doc
from simulator.reports.content.quantities import percent_text, signed_percent_text
from simulator.reports.sections.appendix import figure_words
from simulator.reports.sections.cost import figure_cell, figure_name
from simulator.reports.studies import Studies
from simulator.reports.words.plan_inputs import plan_input
from simulator.specs.base import Source, ValueOrigin
from simulator.specs.money.ownership import ROOM_FIGURES, SourcedFigure

ROLES = ("Prepared", "Reviewed", "Approved")
_CHOICES = ("hardware", "prices")
"""Defaults that choose among facts, and are no figures; those of engines are facts of their releases."""
_ENGINE = "engine."
_Line = tuple[str, str, str, str]
"""Where it enters, the figure, its value, what it rests on."""


def _demand(studies: Studies) -> Iterator[_Line]:
    """Inputs that nobody gave."""
    for item in studies.plan.assumptions:
        chosen = item.key in _CHOICES or item.key.startswith(_ENGINE)
        if item.origin is ValueOrigin.DEFAULT and not chosen:
            shown = plan_input(item)
            yield "plan", shown.name, shown.value, shown.remark or "default"
    growth, drawn = studies.plan.study(Growth), studies.plan.study(Uncertainty)
    if growth is not None and studies.illustrates_growth:
        monthly = f"{signed_percent_text(growth.base.rate_per_month)} a month"
        yield "dates", "growth of demand", monthly, "an illustration"
    if growth is not None and growth.lead_time_source == LEAD_TIME_SOURCE:
        yield "dates", "lead time", f"{growth.lead_time_days:g} days", growth.lead_time_source
    if drawn is not None and studies.spec.demand_sigma is None:
        yield "risk", "spread of demand around its forecast", percent_text(drawn.demand_sigma), "assumed"


def _money(studies: Studies) -> Iterator[_Line]:
    """Figures of owning that carry the break-even price, and of rooms where machines are bought."""
    owning = studies.ownership
    for name in type(owning).model_fields:
        figure = getattr(owning, name)
        if not isinstance(figure, SourcedFigure) or not figure.unsourced:
            continue
        if name not in ROOM_FIGURES or studies.cost.owning is not None:
            shown = doc.cell_text(figure_cell(name, figure.value), currency=studies.currency)
            yield "owning", figure_name(name), shown, figure.note or figure.source
    power = Source(source=studies.prices.power_source, date=studies.prices.date)
    if power.unsourced:
        yield "owning", "electricity a kWh", f"{studies.prices.power_per_kwh:g}", power.source
    for offer in offers_of(studies.prices, hardware=studies.plan.best.hardware, rule=plan_rule(studies.spec)):
        if Source(source=offer.source, date=offer.date, note=offer.note).unsourced:
            yield "price", f"{offer.provider}, an hour", f"{offer.per_hour:,.4g}", offer.note or offer.source


def _machines(studies: Studies) -> Iterator[_Line]:
    fleet = studies.plan.best
    for profile in (fleet.replica.deployment.hardware, fleet.server):
        if profile is None:
            continue
        for name, source in sorted(profile.sources.items()):
            if source.unsourced:
                yield profile.name, *figure_words(profile, name), source.note or source.source


def unsourced_table(studies: Studies) -> doc.Table:
    """Every figure of the report that no source states."""
    lines = [*_demand(studies), *_money(studies), *_machines(studies)]
    return doc.table(
        "unsourced",
        f"{len(lines)} figures that no source states",
        doc.columns("Enters", "Figure", "Value", "Rests on", words=("Enters", "Figure", "Value"), wide="Rests on"),
        [doc.row(*line) for line in lines],
        note="Defaults that nobody changed, assumptions, and figures written from memory. Whoever signs accepts them, "
        "or has them replaced: flags for the plan's inputs, --prices and --ownership for money.",
    )


def acceptance_section(studies: Studies) -> doc.Section:
    """What the signers accept, and where they sign."""
    hashed = f"Signed is the plan of question {studies.input_hash[:12]}, made on {studies.created}."
    blocks: tuple[doc.Block, ...] = (
        unsourced_table(studies),
        doc.Paragraph(text=hashed, tone=doc.Tone.NOTE),
        doc.SignOff(roles=ROLES),
    )
    return doc.Section(key="acceptance", title="Assumptions to accept, and sign-off", blocks=blocks)
