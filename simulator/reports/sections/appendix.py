"""Section 13: how to reproduce, whose figures, what to run, who signs."""

from __future__ import annotations

from simulator.reports.cells import text
from simulator.reports.content import Block, Bullets, Code, Column, Paragraph, Row, Section, SignOff, Table
from simulator.reports.studies import Studies
from simulator.specs.hardware import AcceleratorSpec, ServerSpec

ROLES = ("Prepared", "Reviewed", "Approved")


def _reproduce(studies: Studies) -> Table:
    rows = (
        ("command", studies.command),
        ("roofcast", studies.version),
        ("created", studies.created),
        ("hash of the question (SHA-256)", studies.input_hash),
        ("report schema", "1.0"),
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
        ("engine", f"{engine.name} {engine.version}", "fitted overheads, see the profile"),
        ("model", fleet.replica.deployment.model.name, studies.model_id),
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


def _hardware_sources(studies: Studies) -> Table:
    fleet = studies.plan.best
    profiles: list[AcceleratorSpec | ServerSpec] = [fleet.replica.deployment.hardware]
    if fleet.server is not None:
        profiles.append(fleet.server)
    return Table(
        key="hardware_sources",
        title="Hardware figures",
        columns=(Column(title="Figure"), Column(title="Date"), Column(title="Source", wide=True)),
        rows=tuple(
            Row(cells=(text(f"{profile.name}: {name}"), text(source.date), text(_sourced(source.source, source.note))))
            for profile in profiles
            for name, source in sorted(profile.sources.items())
        ),
    )


def _sourced(source: str, note: str) -> str:
    return f"{source}; {note}" if note else source


def appendix_section(studies: Studies) -> Section:
    """Provenance, launch commands, sign-off."""
    blocks: list[Block] = [_reproduce(studies), _profiles(studies)]
    blocks.append(Paragraph(text="Run it"))
    blocks += [Code(title=f"{file.title} ({file.name})", text=file.text) for file in studies.handoff.files]
    blocks += [Bullets(items=studies.handoff.notes), _hardware_sources(studies)]
    blocks += [Paragraph(text="Changes: first version of this report."), SignOff(roles=ROLES)]
    return Section(number=13, key="provenance", title="Provenance and sign-off", blocks=tuple(blocks))
