"""A report as Markdown, for reviews and wikis; charts become tables of their points."""

from __future__ import annotations

from collections.abc import Iterable

from simulator.reports.content import document as doc

_PREFIXES = {
    doc.Tone.LEAD: "**{}**",
    doc.Tone.HEAD: "**{}**",
    doc.Tone.NOTE: "*{}*",
    doc.Tone.WARNING: "> **Warning:** {}",
    doc.Tone.MISSING: "> {}",
}


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _cell(cell: doc.Cell, currency: str) -> str:
    return _escaped(doc.marked_text(cell, currency=currency))


def _table(table: doc.Table, currency: str) -> list[str]:
    bold = [row.total for row in table.rows]
    rows = [[_cell(cell, currency) for cell in row.cells] for row in table.rows]
    title = [f"**{table.title}**", ""] if table.title else []
    lines = [*title, f"| {' | '.join(_escaped(column.title) or ' ' for column in table.columns)} |"]
    lines.append("|" + "|".join(" ---: " if column.numeric else " --- " for column in table.columns) + "|")
    for cells, total in zip(rows, bold, strict=True):
        lines.append(f"| {' | '.join(f'**{cell}**' if total and cell else cell for cell in cells)} |")
    return [*lines, "", *([f"*{table.note}*", ""] if table.note else [])]


def _facts(block: doc.Facts, currency: str) -> list[str]:
    lines = []
    for fact in block.facts:
        remark = f" ({fact.remark})" if fact.remark else ""
        mark = doc.origin_mark(fact.cell)
        shown = doc.cell_text(fact.cell, currency=currency)
        lines.append(f"- {fact.label}: **{shown}**{f' [{mark}]' if mark else ''}{remark}")
    return [*lines, ""]


def _block(block: doc.Block, currency: str) -> list[str]:
    match block:
        case doc.Paragraph():
            return [_PREFIXES.get(block.tone, "{}").format(block.text), ""]
        case doc.Bullets():
            return [*(f"- {item}" for item in block.items), ""]
        case doc.Facts():
            return _facts(block, currency)
        case doc.Table():
            return _table(block, currency)
        case doc.Figure():
            return [f"Chart: {block.chart.title}. {block.chart.caption} (drawn in the HTML and PDF reports)", ""]
        case doc.Code():
            return [f"**{block.title}**", "", "```", block.text.rstrip("\n"), "```", ""]
        case doc.SignOff():
            rows = [f"| {role} | | | |" for role in block.roles]
            return ["| | Name | Date | Signature |", "| --- | --- | --- | --- |", *rows, ""]


def sections_markdown(sections: Iterable[doc.Section], *, currency: str) -> str:
    """Sections under headings of the second level; one without a title has none."""
    lines: list[str] = []
    for section in sections:
        number = f"{section.number}. " if section.number else ""
        lines += [f"## {number}{section.title}", ""] if section.title else []
        for block in section.blocks:
            lines += _block(block, currency)
    return "\n".join(lines).rstrip("\n") + "\n"


def report_markdown(report: doc.Report) -> str:
    """The whole report as one Markdown text."""
    head = f"# {report.title}\n\n{report.subtitle}. {report.created}, roofcast {report.version}.\n\n"
    return head + sections_markdown(report.sections, currency=report.currency)
