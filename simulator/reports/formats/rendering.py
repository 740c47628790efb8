"""A report in every format, as bytes: for files and for download buttons."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec

from simulator.errors import MissingPackageError, RoofcastError
from simulator.reports.content.document import Report
from simulator.reports.studies import Studies


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
    ReportFormat.CSV: "costs.csv",
    ReportFormat.JSON: "report.json",
}
_HANDOFF_NAMES = ("launch-vllm.sh", "launch-sglang.sh", "launch-tensorrt-llm.sh", "kubernetes.yaml", "verify.sh")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered:
    """One file: its name and its content."""

    name: str
    data: bytes


def parse_formats(text: str) -> tuple[ReportFormat, ...]:
    """``html,pdf`` as formats, in the order of ReportFormat.

    Raises
    ------
    RoofcastError
        A format is unknown, or its package is not installed.
    """
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
    """The files that these formats write."""
    return tuple(
        name for item in formats for name in (_HANDOFF_NAMES if item is ReportFormat.HANDOFF else (_NAMES[item],))
    )


def render(report: Report, studies: Studies, form: ReportFormat) -> tuple[Rendered, ...]:
    """The files of one format."""
    match form:
        case ReportFormat.HTML:
            from simulator.reports.formats.html import report_html

            data = report_html(report).encode()
        case ReportFormat.PDF:
            from simulator.reports.formats.pdf import report_pdf

            data = report_pdf(report)
        case ReportFormat.XLSX:
            from simulator.reports.formats.xlsx import report_xlsx

            data = report_xlsx(report, studies)
        case ReportFormat.MD:
            from simulator.reports.formats.markdown import report_markdown

            data = report_markdown(report).encode()
        case ReportFormat.CSV:
            from simulator.reports.formats.csv_focus import report_csv

            data = report_csv(studies).encode()
        case ReportFormat.JSON:
            from simulator.reports.formats.json_document import report_json

            data = report_json(report, studies).encode()
        case ReportFormat.HANDOFF:
            return tuple(Rendered(name=file.name, data=file.text.encode()) for file in studies.handoff.files)
    return (Rendered(name=_NAMES[form], data=data),)
