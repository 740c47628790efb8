"""Section 13: how to reproduce, whose figures, what to run, who signs."""

from __future__ import annotations

from simulator.reports.cells import text
from simulator.reports.content import Block, Bullets, Code, Column, Paragraph, Row, Section, SignOff, Table, Tone
from simulator.reports.json_document import SCHEMA_VERSION
from simulator.reports.sections.sources import calibration_table, hardware_tables
from simulator.reports.studies import Studies

ROLES = ("Prepared", "Reviewed", "Approved")


def _reproduce(studies: Studies) -> Table:
    rows = (
        ("command", studies.command),
        ("roofcast", studies.version),
        ("created", studies.created),
        ("hash of the question (SHA-256)", studies.input_hash),
        ("report schema", f"{SCHEMA_VERSION}; roofcast report --schema prints it"),
    )
    return Table(
        key="reproduce",
        title="Reproduce",
        columns=(Column(title="What"), Column(title="Value", wide=True)),
        rows=tuple(Row(cells=(text(name), text(value))) for name, value in rows),
    )


def _profiles(studies: Studies) -> Table:
    fleet = studies.plan.best
    hardware = fleet.replica.deployment.hardware
    engine = fleet.replica.deployment.engine
    rows = [
        ("accelerator", hardware.name, hardware.facts_date),
        ("price list", studies.prices.name, studies.prices.date),
        ("ownership", studies.ownership.name, studies.ownership.date),
        ("engine", f"{engine.name} {engine.version}", "overheads fitted on measured runs"),
        ("model", f"{fleet.replica.deployment.model.name} ({studies.model_id})", "the published configuration"),
    ]
    if fleet.server is not None:
        newest = max(source.date for source in fleet.server.sources.values())
        rows.insert(1, ("server", fleet.server.name, newest))
    return Table(
        key="profiles",
        title="Profiles",
        columns=(Column(title="Profile"), Column(title="Name"), Column(title="Newest figure")),
        rows=tuple(Row(cells=(text(kind), text(name), text(date))) for kind, name, date in rows),
        note="roofcast profiles show NAME prints every figure with its source and date.",
    )


def appendix_section(studies: Studies) -> Section:
    """Provenance, launch commands, sign-off."""
    blocks: list[Block] = [_reproduce(studies), _profiles(studies), calibration_table(studies)]
    blocks.append(Paragraph(text="Run it", tone=Tone.HEAD))
    blocks += [Code(title=f"{file.title} ({file.name})", text=file.text) for file in studies.handoff.files]
    blocks += [Bullets(items=studies.handoff.notes), *hardware_tables(studies)]
    blocks += [
        Paragraph(text="Change log: first version of this report; later versions are compared by their hash."),
        SignOff(roles=ROLES),
    ]
    return Section(number=13, key="provenance", title="Provenance and sign-off", blocks=tuple(blocks))
