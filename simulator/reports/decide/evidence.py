"""Section 2: the runs, the kernels and the offers that the decision rests on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from simulator.kernels.timing import Provenance
from simulator.planner.money.market import offers_of, plan_rule
from simulator.planner.verification.confidence import BOUNDS, FEW, Confidence, Evidence, confidence_in, every_evidence
from simulator.reports.content import document as doc
from simulator.reports.content.quantities import chance_text, percent_text
from simulator.reports.sections.cost import ways_table
from simulator.reports.studies import Studies
from simulator.reports.words.derivation import TERMS

_OFFERS = 10


def confidence_text(sure: Confidence) -> str:
    """``Confidence B, of A to D: holds its objectives in 83 % of draws of the step times; 40 whole runs of ...``"""
    held = f"holds its objectives in {chance_text(sure.chance)} of draws of the step times; " if sure.chances else ""
    return f"Confidence {sure.letter}, of A to D: {held}{sure.reason}."


def _runs_table(levels: Sequence[Evidence]) -> doc.Table:
    bounds = ", ".join(f"{letter} within {percent_text(bound)}" for bound, letter in BOUNDS)
    sources = sorted({name for item in levels for name in item.sources})
    heads = ("Whole runs of", "Runs", "Off on average", "Bias", "In the 80 % interval", "Models")
    return doc.table(
        "evidence",
        "Whole runs that were measured, and what the same library predicts of them",
        doc.columns(*heads, words=("Whole runs of",), wide="Models"),
        [
            (
                item.names,
                doc.count(item.runs),
                doc.fraction(None if item.score is None else item.score.mean),
                doc.fraction(None if item.score is None else item.score.bias),
                doc.fraction(None if item.score is None else item.score.coverage),
                ", ".join(item.models) or "none",
            )
            for item in levels
        ],
        note="Errors over latencies, token rates and energy; bias: positive where predictions are high. The first line "
        f"with {FEW} runs or more decides: {bounds}, D beyond; at best B on the second line, C on the fourth; one "
        f"less where no model of this class ran. Sources: {', '.join(sources) or 'none'}.",
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
        doc.columns("Kernels", "How they are known", words=("Kernels", "How they are known")),
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
    heads = ("Provider", "Kind", "Term", "Accelerator-hour", "Date", "Source")
    every = ("Accelerator", *heads) if best.is_unlike else heads
    words = ("Accelerator", "Provider", "Kind", "Term", "Date")[0 if best.is_unlike else 1 :]
    return doc.table(
        "offers",
        f"Who rents {best.hardware}, and for how much",
        doc.columns(*every, words=words, wide="Source"),
        rows,
        note=" ".join(notes),
    )


def evidence_section(studies: Studies) -> doc.Section:
    """The runs, the kernels and the offers that the decision rests on."""
    blocks: tuple[doc.Block, ...] = (
        doc.Paragraph(text=confidence_text(confidence_in(studies.plan)), tone=doc.Tone.LEAD),
        _runs_table(tuple(dict.fromkeys(chain(*every_evidence(studies.plan))))),
        _kernels(studies),
        _offers(studies),
        ways_table(studies),
    )
    return doc.Section(key="evidence", title="Evidence", blocks=blocks)
