"""Reports as files in every format, of a plan or of a refusal: rendered as bytes, written all or none. Each file has
its name only when it is complete. A refusal's report says what was asked, missed and would close the gap."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from enum import StrEnum
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from simulator import __version__
from simulator.errors import FileError, InfeasibleError, MissingPackageError, RoofcastError
from simulator.files import write_new_files
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.gap.records import GapError
from simulator.records import dataclass
from simulator.reports.charts.chart import Chart
from simulator.reports.charts.static_svg import CSS_THEME, static_svg
from simulator.reports.content.document import Block, Paragraph, Report, Section, SignOff, Tone, cell_text, origin_mark
from simulator.reports.formats.csv_focus import SCENARIOS, file_name
from simulator.reports.handoff.launch import handoff_names
from simulator.reports.report import build_report, numbered
from simulator.reports.sections.appendix import reproduce_table
from simulator.reports.sections.gap import gap_sections
from simulator.reports.studies import Studies, gather, input_hash
from simulator.reports.tables.plan_document import error_document
from simulator.reports.words.fields import flagged, plan_command
from simulator.specs.question.plan import PlanSpec

_TEMPLATES = "simulator.reports.templates"


def _svg(chart: Chart) -> str:
    height = 90.0 + 34.0 * len(chart.y.categories) if chart.horizontal else 340.0
    return static_svg(chart, theme=CSS_THEME, width=760.0, height=height)


def report_html(report: Report) -> str:
    """The report as one self-contained HTML document. Raises ImportError: no jinja2 (extra ``report``)."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["cell"] = lambda cell: cell_text(cell, currency=report.currency)
    environment.filters["mark"] = origin_mark
    environment.filters["svg"] = lambda chart: Markup(_svg(chart))
    environment.filters["kind"] = lambda block: type(block).__name__
    folder = files(_TEMPLATES)
    template = environment.from_string(folder.joinpath("report.html.j2").read_text("utf-8"))
    style = folder.joinpath("report.css").read_text("utf-8")
    return str(template.render(report=report, style=Markup(style)))


class ReportFormat(StrEnum):
    """Forms of a report; ``handoff`` is the launch commands as files of their own."""

    HTML = "html"
    PDF = "pdf"
    XLSX = "xlsx"
    MD = "md"
    CSV = "csv"
    JSON = "json"
    HANDOFF = "handoff"


ALL_FORMATS: tuple[ReportFormat, ...] = tuple(ReportFormat)
_NEEDS = {ReportFormat.HTML: "jinja2", ReportFormat.PDF: "typst", ReportFormat.XLSX: "xlsxwriter"}
_NAMES = {
    ReportFormat.HTML: "report.html",
    ReportFormat.PDF: "report.pdf",
    ReportFormat.XLSX: "report.xlsx",
    ReportFormat.MD: "report.md",
    ReportFormat.JSON: "report.json",
}
_SUMMARY = "summary.pdf"
MODELS_NAME = "models.md"
REFUSAL_NAMES = ("refusal.html", "refusal.pdf", "refusal.md", "refusal.json")
_SEVERAL = {ReportFormat.PDF: (_NAMES[ReportFormat.PDF], _SUMMARY), ReportFormat.CSV: tuple(map(file_name, SCENARIOS))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """One file: its name and its content."""

    name: str
    data: bytes


def parse_formats(text: str) -> tuple[ReportFormat, ...]:
    """``html,pdf`` as formats, in order. Raises RoofcastError: one is unknown, or its package is not installed."""
    known = [item.value for item in ReportFormat]
    asked = [word.strip().lower() for word in text.split(",") if word.strip()]
    for word in asked:
        if word not in known:
            raise RoofcastError(f"unknown format {word!r}; allowed: {', '.join(known)}", field="--format")
    if not asked:
        raise RoofcastError(f"at least one format is needed; allowed: {', '.join(known)}", field="--format")
    chosen = tuple(item for item in ReportFormat if item.value in asked)
    check_packages(chosen)
    return chosen


def check_packages(formats: tuple[ReportFormat, ...]) -> None:
    """Refuse formats whose package is missing, before anything is computed."""
    for item in formats:
        package = _NEEDS.get(item)
        if package is not None and find_spec(package) is None:
            raise MissingPackageError(
                f"{item.value} needs the package {package}",
                field="--format",
                hint="install the extra: pip install '.[report]', or choose md, csv and json",
            )


def file_names(formats: tuple[ReportFormat, ...]) -> tuple[str, ...]:
    """The files that these formats may write."""
    several = {**_SEVERAL, ReportFormat.HANDOFF: handoff_names()}
    return tuple(name for item in formats for name in several.get(item, ()) or (_NAMES[item],))


def render(report: Report, studies: Studies, form: ReportFormat) -> tuple[Rendered, ...]:
    """The files of one format."""
    match form:
        case ReportFormat.HTML:
            data = report_html(report).encode()
        case ReportFormat.PDF:
            from simulator.reports.decide.summary import summary_report
            from simulator.reports.formats.pdf import report_pdf

            summary = Rendered(name=_SUMMARY, data=report_pdf(summary_report(studies)))
            return Rendered(name=_NAMES[form], data=report_pdf(report)), summary
        case ReportFormat.XLSX:
            from simulator.reports.formats.xlsx import report_xlsx

            data = report_xlsx(report, studies)
        case ReportFormat.MD:
            from simulator.reports.formats.markdown import report_markdown

            data = report_markdown(report).encode()
        case ReportFormat.CSV:
            from simulator.reports.formats.csv_focus import cost_files

            return tuple(Rendered(name=name, data=text.encode()) for name, text in cost_files(studies).items())
        case ReportFormat.JSON:
            from simulator.reports.formats.json_document import report_json

            data = report_json(report, studies).encode()
        case ReportFormat.HANDOFF:
            return tuple(Rendered(name=file.name, data=file.text.encode()) for file in studies.handoff.files)
    return (Rendered(name=_NAMES[form], data=data),)


def check_targets(folder: str, *, formats: tuple[ReportFormat, ...] = ALL_FORMATS, force: bool, flag: str) -> None:
    """Refuse before anything is computed: files that exist, a folder that cannot be written, a missing package.

    Raises FileError: exit code 5; names ``flag``, the path and the way out.
    Raises RoofcastError: a format needs a package that is not installed.
    """
    check_packages(formats)
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise FileError(f"{folder!r} is a file, a folder is needed", field=flag)
    existing = [name for name in (*file_names(formats), *REFUSAL_NAMES) if (path / name).exists()]
    if existing and not force:
        more = f" and {len(existing) - 1} more exist" if len(existing) > 1 else " exists"
        message = f"{str(path / existing[0])!r}{more}"
        raise FileError(message, field=flag, hint="choose another folder or add --force")
    parent = path
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir():
        raise FileError(f"{str(parent)!r} is a file, a folder is needed", field=flag)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise FileError(f"cannot write to {str(parent)!r}: permission denied", field=flag)


def write_files(files: tuple[Rendered, ...], *, folder: str, flag: str, instead_of: Sequence[str]) -> tuple[Path, ...]:
    """All files into ``folder``, made where it is missing, or none of them; files of an older answer go.

    instead_of : names of those that may lie there. Raises FileError: a file cannot be written.
    """
    paths = tuple(Path(folder) / file.name for file in files)
    written = [(path, file.data) for path, file in zip(paths, files, strict=True)]
    write_new_files(written, force=True, flag=flag)
    for name in {*instead_of} - {file.name for file in files}:
        with suppress(OSError):
            (Path(folder) / name).unlink()
    return paths


def drop_models(folder: str, *, kept: Sequence[str] = ()) -> None:
    """Remove what an older answer wrote of models that are not asked about any more; files of other names stay."""
    if not (Path(folder) / MODELS_NAME).exists():
        return
    old = [path for path in Path(folder).iterdir() if path.is_dir() and path.name not in kept]
    stale = [path / name for path in old for name in (*file_names(ALL_FORMATS), *REFUSAL_NAMES)]
    for path in stale if kept else (*stale, Path(folder) / MODELS_NAME):
        path.unlink(missing_ok=True)
    for path in old:
        with suppress(OSError):
            path.rmdir()


def write_reports(
    plan: CapacityPlan,
    *,
    folder: str,
    formats: tuple[ReportFormat, ...] = ALL_FORMATS,
    command: str,
    force: bool,
    ownership: str | None = None,
    created: str | None = None,
    flag: str = "--report",
) -> tuple[Path, ...]:
    """Every format of the plan's report in ``folder``; returns the paths.

    command : the line that reproduces the plan, for the appendix
    ownership : profile of owning costs, by name or file; created : ISO date, today where None

    Raises FileError: a file exists and ``force`` is not set, or the folder cannot be written.
    Raises ProfileError: currencies differ.
    """
    check_targets(folder, formats=formats, force=force, flag=flag)
    studies = gather(plan, command=command, ownership=ownership, created=created)
    report = build_report(studies)
    files = tuple(file for form in formats for file in render(report, studies, form))
    written = write_files(files, folder=folder, flag=flag, instead_of=(*file_names(formats), *REFUSAL_NAMES))
    drop_models(folder)
    return written


_DEFAULT_CURRENCY = "USD"
_ROLES = ("Prepared", "Reviewed", "Decided")


def _answer(error: InfeasibleError) -> Section:
    message, hint = flagged(error.message), flagged(error.hint)
    said = f"{message[:1].upper()}{message[1:]}."
    blocks: list[Block] = [Paragraph(text="No fleet does what was asked.", tone=Tone.LEAD), Paragraph(text=said)]
    if hint:
        blocks.append(Paragraph(text=f"{hint[:1].upper()}{hint[1:]}.", tone=Tone.WARNING))
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
    """The refusal's files into ``folder``, all or none; returns the paths. Raises FileError: one cannot be written."""
    report = refusal_report(error, spec=spec, command=plan_command(spec))
    return write_files(
        refusal_files(error, report=report), folder=folder, flag=flag, instead_of=file_names(ALL_FORMATS)
    )
