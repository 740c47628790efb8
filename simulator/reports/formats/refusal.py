"""The report of a question without a plan: what was asked, what is missed and what would close the gap."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from simulator.errors import InfeasibleError
from simulator.planner.gap.records import GapError
from simulator.reports.content.cells import text
from simulator.reports.content.document import (
    Block,
    Bullets,
    Column,
    Paragraph,
    Report,
    Row,
    Section,
    SignOff,
    Table,
    Tone,
)
from simulator.reports.content.text import StudySection, plan_command
from simulator.reports.formats.rendering import Rendered
from simulator.reports.formats.writing import write_files
from simulator.reports.studies import input_hash
from simulator.reports.tables.gap import gap_sections
from simulator.reports.tables.plan_document import error_document
from simulator.specs.question.plan import PlanSpec
from simulator.version import __version__

REFUSAL_NAMES = ("refusal.html", "refusal.pdf", "refusal.md", "refusal.json")
_DEFAULT_CURRENCY = "USD"
_ROLES = ("Prepared", "Reviewed", "Decided")
_NUMBERS = ("GPUs", "saves", "cost/h", "kW", "racks", "bound", "idle replica")


def _answer(error: InfeasibleError) -> Section:
    said = f"{error.message[:1].upper()}{error.message[1:]}."
    blocks: list[Block] = [Paragraph(text="No fleet does what was asked.", tone=Tone.LEAD), Paragraph(text=said)]
    if error.hint:
        blocks.append(Paragraph(text=f"{error.hint[:1].upper()}{error.hint[1:]}.", tone=Tone.WARNING))
    return Section(number=1, key="answer", title="Answer", blocks=tuple(blocks))


def _table(section: StudySection) -> Table:
    last = len(section.columns) - 1
    return Table(
        key=section.title.lower().replace(" ", "_"),
        title=section.title,
        columns=tuple(
            Column(title=name, numeric=name in _NUMBERS, wide=place == last)
            for place, name in enumerate(section.columns)
        ),
        rows=tuple(Row(cells=tuple(text(cell) for cell in row)) for row in section.rows),
    )


def _study(section: StudySection, *, number: int) -> Section:
    blocks: list[Block] = [Bullets(items=section.lines)] if section.lines else []
    if section.rows:
        blocks.append(_table(section))
    return Section(
        number=number, key=section.title.lower().replace(" ", "_"), title=section.title, blocks=tuple(blocks)
    )


def _provenance(*, spec: PlanSpec, command: str, created: str, number: int) -> Section:
    rows = (
        ("command", command),
        ("roofcast", __version__),
        ("created", created),
        ("hash of the question (SHA-256)", input_hash(spec)),
    )
    table = Table(
        key="reproduce",
        title="Reproduce",
        columns=(Column(title="What"), Column(title="Value", wide=True)),
        rows=tuple(Row(cells=(text(name), text(value))) for name, value in rows),
    )
    return Section(number=number, key="provenance", title="Provenance", blocks=(table, SignOff(roles=_ROLES)))


def refusal_report(error: InfeasibleError, *, spec: PlanSpec, command: str, created: str | None = None) -> Report:
    """The content of the report; ``created`` is an ISO date, today where None."""
    created = created or datetime.now(UTC).date().isoformat()
    currency = error.currency if isinstance(error, GapError) else _DEFAULT_CURRENCY
    studies = gap_sections(error.gap, currency=currency) if isinstance(error, GapError) else []
    sections = [_answer(error), *(_study(item, number=place) for place, item in enumerate(studies, start=2))]
    sections.append(_provenance(spec=spec, command=command, created=created, number=len(sections) + 1))
    return Report(
        title=f"No capacity plan: {spec.model}",
        subtitle="What was asked for cannot be had; what comes nearest",
        created=created,
        currency=currency,
        version=__version__,
        sections=tuple(sections),
    )


def refusal_files(error: InfeasibleError, *, report: Report) -> tuple[Rendered, ...]:
    """HTML, PDF, Markdown and the refusal's JSON document; none takes the name of a file of a plan's report."""
    from simulator.reports.formats.html import report_html
    from simulator.reports.formats.markdown import report_markdown
    from simulator.reports.formats.pdf import report_pdf

    data = (
        report_html(report).encode(),
        report_pdf(report),
        report_markdown(report).encode(),
        error_document(error).encode(),
    )
    return tuple(Rendered(name=name, data=item) for name, item in zip(REFUSAL_NAMES, data, strict=True))


def write_refusal(error: InfeasibleError, *, spec: PlanSpec, folder: str, flag: str) -> tuple[Path, ...]:
    """The refusal's files into ``folder``, all or none; returns the paths.

    Raises
    ------
    FileError
        The folder or a file cannot be written.
    """
    report = refusal_report(error, spec=spec, command=plan_command(spec))
    return write_files(refusal_files(error, report=report), folder=folder, flag=flag)
