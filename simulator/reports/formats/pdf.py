"""A report as PDF, typeset by Typst from its own fonts; text goes in as string literals, so nothing is interpreted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from importlib.resources import files
from typing import Literal

from simulator.reports.charts.chart import Chart
from simulator.reports.charts.marks import FONT, svg_text
from simulator.reports.charts.static_svg import LIGHT, static_svg, wrapped
from simulator.reports.content import document as doc

_OWN_WIDTH, _SHARED_WIDTH, _WORD_WIDTH, _WIDE_WIDTH = "auto", "0.8fr", "1fr", "2.2fr"
_SHORT = 24
"""Letters of words that stay on one line."""
_NARROW_COLUMNS = 2
_HEIGHT = 250.0
_PAGES = ("decision", "evidence", "acceptance")
"""Sections that end their page: those that a plan is decided and signed by."""


def literal(text: str) -> str:
    """A Typst string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _cell(cell: doc.Cell, column: doc.Column, currency: str, *, total: bool) -> str:
    shown = literal(_breakable(doc.cell_text(cell, currency=currency)))
    badge = doc.origin_mark(cell)
    mark = f" #mark({literal(badge)})" if badge else ""
    body = f"#strong({shown})" if total else f"#{shown}"
    sized = f"#text(size: 7.2pt)[{body}{mark}]" if column.wide else f"{body}{mark}"
    return f"[{sized}]"


def _breakable(text: str) -> str:
    """Zero-width spaces where long paths may be broken."""
    return text.replace("/", "/\u200b").replace("_", "_\u200b") if len(text) > 24 else text


def _width(column: doc.Column, texts: Sequence[str], *, wordy: bool) -> str:
    """Numbers and short words take what they need beside long texts, otherwise their share of the line."""
    if column.wide:
        return _WIDE_WIDTH
    if column.numeric:
        return _OWN_WIDTH if wordy else _SHARED_WIDTH
    return _OWN_WIDTH if max(map(len, texts), default=0) <= _SHORT else _WORD_WIDTH


def _table(table: doc.Table, currency: str) -> str:
    wordy = any(column.wide for column in table.columns)
    narrow = len(table.columns) <= _NARROW_COLUMNS and not wordy
    texts = [
        [doc.cell_text(row.cells[place], currency=currency) for row in table.rows]
        for place in range(len(table.columns))
    ]
    widths = ", ".join(_width(column, said, wordy=wordy) for column, said in zip(table.columns, texts, strict=True))
    align = ", ".join("right" if column.numeric else "left" for column in table.columns)
    heads = ", ".join(f"[#{literal(column.title)}]" for column in table.columns)
    rows = [
        ", ".join(
            _cell(cell, column, currency, total=row.total)
            for cell, column in zip(row.cells, table.columns, strict=True)
        )
        for row in table.rows
    ]
    body = ",\n  ".join(rows)
    return (
        f"#data-table({literal(table.title)}, ({widths},), ({align},), ({heads},), {literal(table.note)}, "
        f"width: {'62%' if narrow else '100%'},\n  {body},\n)\n"
    )


def _facts(block: doc.Facts, currency: str) -> str:
    tiles = ", ".join(
        f"({literal(fact.label)}, {literal(doc.cell_text(fact.cell, currency=currency))}, {literal(fact.remark)}, "
        f"{literal(doc.origin_mark(fact.cell))})"
        for fact in block.facts
    )
    return f"#facts(({tiles},))\n"


def _block(block: doc.Block, currency: str, charts: list[str]) -> str:
    match block:
        case doc.Paragraph():
            return f"#para({literal(block.tone.value)}, {literal(block.text)})\n"
        case doc.Bullets():
            items = ", ".join(f"[#{literal(_breakable(item))}]" for item in block.items)
            return f"#list({items})\n" if block.items else ""
        case doc.Facts():
            return _facts(block, currency)
        case doc.Table():
            return _table(block, currency) if block.rows else ""
        case doc.Figure():
            charts.append(block.chart.key)
            chart = block.chart
            return f"#chart({literal(f'chart-{len(charts)}')}, {literal(chart.title)}, {literal(chart.caption)})\n"
        case doc.Code():
            return f"#code({literal(block.title)}, {literal(block.text.rstrip())})\n"
        case doc.SignOff():
            roles = ", ".join(literal(role) for role in block.roles)
            return f"#sign-off(({roles},))\n"


def _section(section: doc.Section, currency: str, charts: list[str]) -> str:
    blocks = "\n".join(_block(block, currency, charts) for block in section.blocks)
    end = "#pagebreak(weak: true)\n" if section.key in _PAGES else ""
    return f"#section({section.number}, {literal(section.title)})\n{blocks}{end}"


def typst_source(report: doc.Report) -> str:
    """Typst markup of the report; its charts are the inputs ``chart-1``, ``chart-2``, ... in order of appearance."""
    style = files("simulator.reports.templates").joinpath("report.typ").read_text("utf-8")
    charts: list[str] = []
    body = "\n".join(_section(section, report.currency, charts) for section in report.sections)
    head = (
        f"#show: report.with({literal(report.title)}, {literal(report.subtitle)}, {literal(report.created)}, "
        f"{literal(report.version)}, {literal(report.currency)})\n"
    )
    return f"{style}\n{head}\n{body}"


def _svg(chart: Chart) -> str:
    height = 90.0 + 30.0 * len(chart.y.categories) if chart.horizontal else _HEIGHT
    return static_svg(chart, theme=LIGHT, width=720.0, height=height)


def report_pdf(report: doc.Report) -> bytes:
    """The report as a PDF, equal bytes of equal reports. Raises ImportError: no typst (extra ``report``)."""
    import typst

    charts = [block.chart for section in report.sections for block in section.blocks if isinstance(block, doc.Figure)]
    inputs = {f"chart-{place}": _svg(chart) for place, chart in enumerate(charts, start=1)}
    days = date.fromisoformat(report.created) - date.fromisoformat("1970-01-01")
    return typst.compile(
        typst_source(report).encode("utf-8"),
        sys_inputs=inputs,
        ignore_system_fonts=True,
        timestamp=int(days.total_seconds()),
    )


_WIDTH, _LINE_HEIGHT, _EDGE = 720.0, 380.0, 16.0
_LINE = FONT * 1.4
_POINTS_PER_INCH = 192.0
"""Twice what screens resolve by convention: sharp on slides."""
_PAGE = '#set page(width: auto, height: auto, margin: 0pt)\n#image(bytes(sys.inputs.at("chart")), format: "svg")'


def _lines(text: str, *, top: float, fill: str, weight: str = "normal") -> Iterator[str]:
    for place, line in enumerate(wrapped(text, width=_WIDTH - 2 * _EDGE)):
        drawn = svg_text(_EDGE, top + place * _LINE, line, fill=fill, anchor="start")
        yield f'<g font-weight="{weight}">{drawn}</g>'


def picture_svg(chart: Chart, *, question: str) -> str:
    """The chart on paper, with the question that it answers."""
    above = [*_lines(question, top=_EDGE + FONT, fill=LIGHT.faint)]
    above += _lines(chart.title, top=_EDGE + FONT + len(above) * _LINE, fill=LIGHT.ink, weight="bold")
    top = _EDGE + len(above) * _LINE
    below = [*_lines(chart.caption, top=top + _LINE_HEIGHT + FONT, fill=LIGHT.faint)]
    height = top + _LINE_HEIGHT + len(below) * _LINE + _EDGE
    drawn = static_svg(chart, theme=LIGHT, width=_WIDTH, height=_LINE_HEIGHT)
    place = f'<svg y="{top:g}" width="{_WIDTH:g}" height="{_LINE_HEIGHT:g}" '
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH:g}" height="{height:g}" '
            f'viewBox="0 0 {_WIDTH:g} {height:g}" font-family="Helvetica, Arial, Liberation Sans, sans-serif" '
            f'font-size="{FONT:g}">',
            f'<rect width="{_WIDTH:g}" height="{height:g}" fill="{LIGHT.paper}"/>',
            *above,
            drawn.replace("<svg ", place, 1),
            *below,
            "</svg>",
        )
    )


def picture(chart: Chart, *, question: str, form: Literal["svg", "png"]) -> bytes:
    """A chart as a picture file."""
    drawn = picture_svg(chart, question=question)
    return drawn.encode("utf-8") if form == "svg" else png_of(drawn)


def png_of(svg: str) -> bytes:
    """A drawing as pixels. Raises ImportError: typst is not installed (extra ``report``)."""
    import typst

    return typst.compile(
        _PAGE.encode("utf-8"), sys_inputs={"chart": svg}, format="png", ppi=_POINTS_PER_INCH, ignore_system_fonts=True
    )
