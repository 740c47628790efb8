"""The report of a question without a plan: what was asked, what is missed and what would close the gap."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from simulator.errors import InfeasibleError
from simulator.planner.gap.records import GapError
from simulator.reports.content.document import Block, Paragraph, Report, Section, SignOff, Tone
from simulator.reports.formats.files import Rendered, write_files
from simulator.reports.report import numbered
from simulator.reports.sections.appendix import reproduce_table
from simulator.reports.sections.gap import gap_sections
from simulator.reports.studies import input_hash
from simulator.reports.tables.plan_document import error_document
from simulator.specs.question.plan import PlanSpec, plan_command
from simulator.version import __version__

REFUSAL_NAMES = ("refusal.html", "refusal.pdf", "refusal.md", "refusal.json")
_DEFAULT_CURRENCY = "USD"
_ROLES = ("Prepared", "Reviewed", "Decided")


def _answer(error: InfeasibleError) -> Section:
    said = f"{error.message[:1].upper()}{error.message[1:]}."
    blocks: list[Block] = [Paragraph(text="No fleet does what was asked.", tone=Tone.LEAD), Paragraph(text=said)]
    if error.hint:
        blocks.append(Paragraph(text=f"{error.hint[:1].upper()}{error.hint[1:]}.", tone=Tone.WARNING))
    return Section(key="answer", title="Answer", blocks=tuple(blocks))


def refusal_report(error: InfeasibleError, *, spec: PlanSpec, command: str, created: str | None = None) -> Report:
    """The content of the report; ``created`` is an ISO date, today where None."""
    created = created or datetime.now(UTC).date().isoformat()
    currency = error.currency if isinstance(error, GapError) else _DEFAULT_CURRENCY
    studies = gap_sections(error.gap, currency=currency) if isinstance(error, GapError) else ()
    made = reproduce_table(command=command, created=created, version=__version__, question=input_hash(spec))
    provenance = Section(key="provenance", title="Provenance", blocks=(made, SignOff(roles=_ROLES)))
    return Report(
        title=f"No capacity plan: {spec.model}",
        subtitle="What was asked for cannot be had; what comes nearest",
        created=created,
        currency=currency,
        version=__version__,
        sections=numbered((_answer(error), *studies, provenance)),
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
