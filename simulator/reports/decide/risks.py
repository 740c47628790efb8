"""The runs, kernels and offers that a decision rests on, how sure it is, and what speaks against it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from simulator.kernels.timing import Provenance
from simulator.phases.engine_settings import KERNELS_NEVER_TIMED
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.fleet import fleet_price
from simulator.planner.money.market import offers_of, plan_rule
from simulator.planner.studies.growth import LEAD_TIME_SOURCE
from simulator.planner.studies.resilience import Resilience
from simulator.planner.studies.uncertainty import Uncertainty
from simulator.planner.verification.confidence import BOUNDS, FEW, Confidence, Evidence, confidence_in, every_evidence
from simulator.reports.content import document as doc
from simulator.reports.content.document import Block, Bullets, Paragraph, Tone
from simulator.reports.content.quantities import chance_text, percent_text, signed_percent_text
from simulator.reports.sections.appendix import figure_words
from simulator.reports.sections.cost import figure_cell, figure_name, ways_table
from simulator.reports.sections.uncertainty import breaks_text, drawn_blocks
from simulator.reports.studies import Studies, named_parts, of_each
from simulator.reports.words.fields import note_text
from simulator.reports.words.plan_inputs import TERMS, plan_input, terms_text, warning_text
from simulator.specs.base import Note, Source, ValueOrigin
from simulator.specs.money.ownership import ROOM_FIGURES, SourcedFigure

_FAR_PRICES = 2.0
_SURE = 0.9


def _price_risk(studies: Studies) -> str | None:
    fleet, rule = studies.plan.best, plan_rule(studies.spec)
    terms = terms_text(rule.terms)
    price = fleet_price(fleet.housing, prices=studies.prices, rule=rule)
    if price is None:
        return (
            f"Price: the price list {studies.prices.name} has no {terms} price of {fleet.hardware}, "
            "so that nothing here says what it costs to rent. Obtain a quote and plan again with it (--prices)."
        )
    if price.spread < _FAR_PRICES:
        return None
    ends = f"{price.low:,.2f} ({price.low_provider}) to {price.high:,.2f} {studies.currency}/h ({price.high_provider})"
    average = ", on average of both kinds" if fleet.is_unlike else ""
    found = studies.plan.price_ranking
    choice = "" if found is None or found.steady else " At other prices another accelerator wins."
    return (
        f"Price: published {terms} prices of {fleet.hardware} run from {ends}{average}; the plan takes "
        f"{price.per_hour:,.2f}. Obtain a quote before signing.{choice}"
    )


def top_risks(studies: Studies) -> tuple[str, ...]:
    """Risks in order of what they can cost, each one sentence with its number."""
    fleet, plan = studies.plan.best, studies.plan
    found = []
    if plan.verification is not None and not plan.verification.holds:
        found.append("Verification: the event simulation does not confirm the objectives at the planned peak.")
    if fleet.quality:
        found.append(
            f"Answers: they may differ from the published model's ({note_text(fleet.quality)}). Measure before signing."
        )
    if fleet.devices_high > fleet.devices:
        found.append(
            f"Forecast: the 80 % interval of the step times reaches {fleet.devices_high} accelerators, "
            f"{fleet.more_devices} more than planned. Benchmark one replica first: verify.sh."
        )
    price = _price_risk(studies)
    if price:
        found.append(price)
    parts = [(f" ({name})" if name else "", part) for name, part in named_parts(plan, brief=True)]
    for name, part in parts:
        found += [f"{said}{name}." for said in (*_short_of_demand(part), *_lost_server(part))]
    for name, part in parts:
        drawn = part.study(Uncertainty)
        found += [f"{breaks_text(item)}{name}." for item in drawn.breaks_first[:1]] if drawn else []
    assumed = [item.name for item in map(plan_input, plan.assumptions) if item.origin is ValueOrigin.DEFAULT]
    if assumed:
        found.append(
            f"Inputs: {len(assumed)} of {len(plan.assumptions)} inputs are defaults ({', '.join(assumed[:3])})."
        )
    if fleet.spares == 0:
        found.append("Failure: there is no spare replica; losing one puts the others above their planned load.")
    found.extend(_warned(item) for item in plan.warnings if item.key not in _SAID_ELSEWHERE)
    return tuple(found)


_SAID_ELSEWHERE = ("answers_may_differ", "not_confirmed")


def _warned(warning: Note) -> str:
    said = warning_text(Note("get_quotes", warning.values) if warning.key == "smaller_unpriced" else warning)
    return f"{said[:1].upper()}{said[1:]}."


def _short_of_demand(plan: CapacityPlan) -> list[str]:
    """Demand and step times together: how likely the fleet is too small."""
    found = plan.study(Uncertainty)
    if found is None or found.enough_share > _SURE:
        return []
    spread = f"demand spread by {percent_text(found.demand_sigma)}"
    fleet = plan.best
    more = f"; nine in ten need at most {found.devices.p90:,.0f} accelerators"
    if found.devices.p90 <= fleet.devices:
        more = f"; with replicas on its {fleet.idle_devices} idle ones too, nine in ten" if fleet.idle_devices else ""
    return [f"Demand: the fleet carries {percent_text(found.enough_share)} of {found.draws:,} draws ({spread}){more}"]


def _lost_server(plan: CapacityPlan) -> list[str]:
    found = plan.study(Resilience)
    missed = [case for case in found.cases if not case.holds] if found is not None else []
    if found is None or not missed:
        return []
    whole = f"; to survive the loss of a whole server takes {found.spares_for_one_server} spare replicas"
    needed = whole if any(case.of_server for case in missed) else ""
    return [f"Failure: at the peak the objectives are missed after the loss of {missed[0].name}{needed}"]


def risk_content(studies: Studies) -> tuple[Block, ...]:
    """Interval, calibration status, range of validity."""
    fleet = studies.plan.best
    return (
        Paragraph(
            text=f"Fleet: {fleet.devices} accelerators, 80 % interval "
            f"{fleet.devices_low} to {fleet.devices_high} from errors of the step times on unseen shapes."
        ),
        *of_each(studies.plan, drawn_blocks),
        Paragraph(text="All risks", tone=Tone.HEAD),
        Bullets(items=top_risks(studies)),
        Paragraph(
            text="Valid for steady traffic of the stated lengths and burstiness, independent replicas behind a "
            "balanced router, the stated engine and formats. Left out: network between clients and replicas, "
            "multi-tenant interference, failures that strike several servers at once.",
            tone=Tone.NOTE,
        ),
    )


ROLES = ("Prepared", "Reviewed", "Approved")
_CHOICES = ("hardware", "prices")
"""Defaults that choose among facts, and are no figures; those of engines are facts of their releases."""
_ENGINE = "engine."
_Line = tuple[str, str, str, str]
"""Where it enters, the figure, its value, what it rests on."""


def _demand(studies: Studies) -> Iterator[_Line]:
    """Inputs that nobody gave, and kernels that nobody timed."""
    for item in studies.plan.assumptions:
        chosen = item.key in _CHOICES or item.key.startswith(_ENGINE)
        if (item.origin is ValueOrigin.DEFAULT and not chosen) or item.key in KERNELS_NEVER_TIMED:
            shown = plan_input(item)
            yield "plan", shown.name, shown.value, shown.remark or "default"
    growth, drawn = studies.growth, studies.study(Uncertainty)
    if growth is not None and studies.illustrates_growth:
        monthly = f"{signed_percent_text(growth.base.rate_per_month)} a month"
        yield "dates", "growth of demand", monthly, "an illustration"
    if growth is not None and growth.lead_time_source == LEAD_TIME_SOURCE:
        yield "dates", "lead time", f"{growth.lead_time_days:g} days", note_text(growth.lead_time_source)
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
    rule, kinds = plan_rule(studies.spec), studies.plan.best.housing
    for offer in chain(*(offers_of(studies.prices, hardware=item.hardware, rule=rule) for item in kinds)):
        if Source(source=offer.source, date=offer.date, note=offer.note).unsourced:
            yield "price", f"{offer.provider}, an hour", f"{offer.per_hour:,.4g}", offer.note or offer.source


def _machines(studies: Studies) -> Iterator[_Line]:
    fleet = studies.plan.best
    for profile in chain(*fleet.kinds):
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
        "Enters: | Figure: | Value: | Rests on::",
        [doc.row(*line) for line in lines],
        note="Defaults that nobody changed, assumptions, and figures written from memory. Whoever signs accepts them, "
        "or has them replaced: flags for the plan's inputs, --prices and --ownership for money.",
    )


def acceptance_content(studies: Studies) -> tuple[doc.Block, ...]:
    """What the signers accept, and where they sign."""
    hashed = f"Signed is the plan of question {studies.input_hash[:12]}, made on {studies.created}."
    return (unsourced_table(studies), doc.Paragraph(text=hashed, tone=doc.Tone.NOTE), doc.SignOff(roles=ROLES))


_OFFERS = 10


def confidence_text(sure: Confidence) -> str:
    """``Confidence B, of A to D: holds its objectives in 83 % of draws of the step times; 40 whole runs of ...``"""
    held = f"holds its objectives in {chance_text(sure.chance)} of draws of the step times; " if sure.chances else ""
    return f"Confidence {sure.letter}, of A to D: {held}{note_text(sure.reason)}."


def _runs_table(levels: Sequence[Evidence]) -> doc.Table:
    bounds = ", ".join(f"{letter} within {percent_text(bound)}" for bound, letter in BOUNDS)
    sources = sorted({name for item in levels for name in item.sources})
    return doc.table(
        "evidence",
        "Whole runs that were measured, and what the same library predicts of them",
        "Whole runs of: | Runs | Off on average | Bias | In the 80 % interval | Models::",
        [
            (
                note_text(item.names),
                doc.count(item.runs),
                doc.fraction(None if item.score is None else item.score.mean),
                doc.fraction(None if item.score is None else item.score.bias),
                doc.fraction(None if item.score is None else item.score.coverage),
                ", ".join(item.models) or "none",
            )
            for item in levels
        ],
        note="Errors over latencies, token rates and energy; bias: positive where predictions are high. The first line "
        f"but the third with {FEW} runs or more decides: {bounds}, D beyond; at best B on the second line, C on the "
        f"fourth; one less where the third has none. Sources: {', '.join(sources) or 'none'}.",
    )


def _kernels(studies: Studies) -> doc.Table:
    """How each part of the step times is known."""
    worst: dict[str, doc.Cell] = {}
    levels: dict[str, int] = {}
    for _, estimate in studies.steps:
        for line in estimate.rows:
            kind, level = line.work.family.value, line.timing.provenance.max()
            if int(level) >= levels.get(kind, -1):
                levels[kind] = int(level)
                worst[kind] = _known(int(level))
    return doc.table(
        "calibration",
        "Kernels of a step",
        "Kernels: | How they are known:",
        [(name, worst[name]) for name in sorted(worst, key=lambda name: (-levels[name], name))],
        note="Calibrated: fitted on kernels or whole runs of this accelerator or of a sibling (the same dies with "
        "other memory); extrapolated: outside the measured shapes, or from a farther relative; assumed: a plain "
        "roofline.",
    )


def _known(level: int) -> doc.Cell:
    label = Provenance(level).label
    return doc.text(label, origin=doc.known_as(label))


def _offers(studies: Studies) -> doc.Table:
    """Who asks what for the chosen accelerators: the offers that the plan's price is made of."""
    rule, best = plan_rule(studies.spec), studies.plan.best
    rows, notes = [], ["The cheapest lasting offer of each provider."]
    for item in best.housing:
        of = (item.hardware,) if best.is_unlike else ()
        offers = offers_of(studies.prices, hardware=item.hardware, rule=rule)
        rows += [
            doc.row(
                *of,
                offer.provider,
                offer.provider_kind or "",
                TERMS[offer.kind],
                doc.money(offer.per_hour),
                offer.date,
                doc.text(offer.source, origin=doc.Origin.SOURCED),
            )
            for offer in offers[:_OFFERS]
        ]
        dearer = offers[_OFFERS:]
        if dearer:
            notes.append(f"{len(dearer)} dearer ones{' of ' if of else ''}{''.join(of)} are left out.")
    taken = [f"{price.per_hour:,.4g}: {price.provider}" for price in best.cost.prices]
    if taken:
        notes.insert(1, f"The plan takes {'; '.join(taken)}.")
    whose = "Accelerator: | " if best.is_unlike else ""
    return doc.table(
        "offers",
        f"Who rents {best.hardware}, and for how much",
        f"{whose}Provider: | Kind: | Term: | Accelerator-hour | Date: | Source::",
        rows,
        note=" ".join(notes),
    )


def evidence_content(studies: Studies) -> tuple[doc.Block, ...]:
    """The runs, the kernels and the offers that the decision rests on."""
    return (
        doc.Paragraph(text=confidence_text(confidence_in(studies.plan)), tone=doc.Tone.LEAD),
        _runs_table(tuple(dict.fromkeys(chain(*every_evidence(studies.plan))))),
        _kernels(studies),
        _offers(studies),
        ways_table(studies),
    )
