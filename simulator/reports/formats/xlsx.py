"""A report as a workbook: named inputs, live formulas (each with the plan's own value), and the report's tables."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from io import BytesIO
from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

from simulator.records import dataclass
from simulator.reports.charts.chart import PALETTE
from simulator.reports.content import document as doc
from simulator.reports.content.quantities import RENTAL_NAMES
from simulator.reports.formats.finance_model import Form, groups_of, inputs_of
from simulator.reports.studies import Studies

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.format import Format

CASH = "Cash flow"
LONGEST_YEARS = 15
_FIRST_ROW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    """A workbook that is being made, with its formats, of a report and the studies behind it."""

    made: Workbook
    styles: Styles
    report: doc.Report
    studies: Studies

    @property
    def currency(self) -> str:
        """Currency of all money in the workbook."""
        return self.report.currency


def _owning_formula(year: int) -> str:
    cash = "capex_total" if year == 0 else f"opex_total-IF({year}=depreciation_years,residual_value,0)"
    return f"=IF(AND(purchase_price>0,{year}<=depreciation_years),{cash},0)"


def _write_cash_flow(book: Book) -> None:
    """Years 0 to 15; those beyond the depreciation are zero."""
    cost, styles = book.studies.cost, book.styles
    kinds = [item.kind for item in cost.renting]
    heads = ["Year", "Owned", "Owned, discounted", "Owned so far", *(f"{RENTAL_NAMES[kind]}, so far" for kind in kinds)]
    title = f"Cash flow by year, in {cost.currency}"
    note = "Money out is positive; undiscounted unless it says so; years beyond the horizon are zero."
    widths = (8, *([22] * len(heads)))
    sheet = Sheet(book, CASH, title=title, note=note, widths=widths, whole=True).sheet
    for column, name in enumerate(heads):
        sheet.write(_FIRST_ROW - 1, column, name, styles.heading(numeric=True))
    money = styles.number(Form.MONEY)
    for year in range(LONGEST_YEARS + 1):
        row = _FIRST_ROW + year
        flow = cost.flows[year] if year <= cost.years else None
        sheet.write_number(row, 0, year)
        sheet.write_formula(row, 1, _owning_formula(year), money, flow.owning if flow else 0.0)
        discounted = f"=B{row + 1}/(1+discount_rate)^{year}"
        sheet.write_formula(row, 2, discounted, money, flow.discounted if flow else 0.0)
        so_far = f"=SUM(B${_FIRST_ROW + 1}:B{row + 1})"
        sheet.write_formula(row, 3, so_far, money, flow.cumulative if flow else cost.flows[-1].cumulative)
        for place, kind in enumerate(kinds):
            paid = f"=rent_{kind}_annual*MIN({year},depreciation_years)"
            value = (flow or cost.flows[-1]).renting_cumulative[place]
            sheet.write_formula(row, 4 + place, paid, money, value)
    if cost.priced:
        sheet.insert_chart(_FIRST_ROW + LONGEST_YEARS + 2, 0, _cash_chart(book, heads=heads))
    sheet.freeze_panes(_FIRST_ROW, 1)


def _cash_chart(book: Book, *, heads: list[str]) -> Any:
    cost, chart = book.studies.cost, book.made.add_chart({"type": "line"})
    first, last = _FIRST_ROW, _FIRST_ROW + cost.years
    for column in range(4 if cost.owning is None else 3, len(heads)):
        chart.add_series(
            {
                "name": [CASH, _FIRST_ROW - 1, column],
                "categories": [CASH, first, 0, last, 0],
                "values": [CASH, first, column, last, column],
                "line": {"color": PALETTE[(column - 3) % len(PALETTE)], "width": 2.25},
            }
        )
    chart.set_title({"name": "Cash paid by the end of each year"})
    chart.set_x_axis({"name": "Year"})
    chart.set_y_axis({"num_format": "#,##0", "major_gridlines": {"visible": True, "line": {"color": "#E3E7EB"}}})
    chart.set_size({"width": 760, "height": 360})
    return chart


INPUTS, COST = "Inputs", "Cost"


def _write_inputs(book: Book) -> None:
    title = "Inputs: edit the blue cells, everything else follows"
    note = f"Amounts in {book.currency}. Assumed figures are marked; replace them with your own."
    page = Sheet(book, INPUTS, title=title, note=note, widths=(44, 16, 13, 13, 12, 12, 110))
    page.heads(3, "Input", "Value", "Unit", "Name", "Date", "Status", "Source")
    sheet, styles = page.sheet, page.styles
    for row, item in enumerate(inputs_of(book.studies), start=4):
        sheet.write(row, 0, item.label)
        sheet.write_number(row, 1, item.value, styles.input(item.form))
        sheet.write(row, 2, item.unit, styles.name)
        sheet.write(row, 3, item.name, styles.note)
        sheet.write(row, 4, item.date)
        sheet.write(row, 5, item.status, styles.warning)
        sheet.write(row, 6, item.source, styles.note)
        book.made.define_name(item.name, f"={INPUTS}!$B${row + 1}")
    sheet.freeze_panes(4, 1)


def _write_cost(book: Book) -> None:
    title, note = f"Cost, energy and rooms, in {book.currency}", "Every amount is a formula over the Inputs sheet."
    page, row = Sheet(book, COST, title=title, note=note, widths=(44, 22, 26)), 3
    sheet, styles = page.sheet, page.styles
    for group in groups_of(book.studies):
        page.heads(row, group.title, "Value", "Name")
        for item in group.lines:
            row += 1
            value = item.value if item.value is not None else "not priced"
            sheet.write(row, 0, item.label, styles.strong if item.total else None)
            sheet.write_formula(row, 1, f"={item.formula}", styles.number(item.form, total=item.total), value)
            sheet.write(row, 2, item.name, styles.name)
            book.made.define_name(item.name, f"={COST}!$B${row + 1}")
        row += 2
    sheet.freeze_panes(3, 1)


def _write_summary(book: Book) -> None:
    report, styles = book.report, book.styles
    made = f"{report.subtitle}, {report.created}, roofcast {report.version}. {live_text(report.created)}"
    page = Sheet(book, "Summary", title=report.title, note=made, widths=(32, 20, 16, 70))
    page.heads(3, "Figure", "Value", "Unit", "Remark")
    for row, fact in enumerate(report.facts(), start=4):
        page.sheet.write(row, 0, fact.label)
        page.cell(row, 1, replace(fact.cell, unit=""))
        of_money = fact.cell.kind is doc.CellKind.MONEY
        page.sheet.write(row, 2, f"{report.currency if of_money else ''} {fact.cell.unit}".strip(), styles.name)
        page.sheet.write(row, 3, fact.remark, styles.note)
    row = len(report.facts()) + 5
    for block in report.sections[0].blocks:
        if isinstance(block, doc.Paragraph | doc.Bullets):
            row = page.block(row, block)
    page.sheet.freeze_panes(4, 1)


def report_xlsx(report: doc.Report, studies: Studies) -> bytes:
    """The workbook. Raises ImportError: xlsxwriter is not installed (extra ``report``)."""
    import xlsxwriter

    stream = BytesIO()
    made = xlsxwriter.Workbook(stream, {"in_memory": True})
    created = datetime.fromisoformat(report.created)
    made.set_properties({"title": report.title, "author": "roofcast", "created": created})
    book = Book(made=made, styles=Styles(made), report=report, studies=studies)
    for write in (_write_summary, _write_inputs, _write_cost, _write_cash_flow):
        write(book)
    for section in report.sections:
        if section.number > 1:
            _write_section(book, section)
    made.close()
    return stream.getvalue()


_FORMS = {doc.CellKind.COUNT: Form.COUNT, doc.CellKind.FRACTION: Form.SHARE, doc.CellKind.SECONDS: Form.FINE}

_WRAPPED: dict[str, object] = {"text_wrap": True, "valign": "top"}


class Styles:
    """Formats by use; a workbook keeps each once."""

    def __init__(self, book: Workbook) -> None:
        self._book = book
        self._numbers: dict[tuple[str, bool, bool, bool], Format] = {}
        self.title = book.add_format({"bold": True, "font_size": 14})
        head: dict[str, object] = {"bold": True, "bg_color": "#E9EDF1", "bottom": 1, "text_wrap": True}
        self.head = book.add_format(head)
        self._number_head = book.add_format({**head, "align": "right"})
        self.strong = book.add_format({"bold": True})
        self.note = book.add_format({"font_color": "#5B6570", "font_size": 9})
        self.remark = book.add_format({"font_color": "#5B6570", "font_size": 9, **_WRAPPED})
        self.warning = book.add_format({"font_color": "#9A4A00", **_WRAPPED})
        self.name = book.add_format({"font_color": "#5B6570", "font_size": 9, "indent": 1})
        self.wrapped = book.add_format(_WRAPPED)
        self.indented = book.add_format({**_WRAPPED, "align": "left", "indent": 1})
        self.lead = book.add_format({"bold": True, **_WRAPPED})
        self.code = book.add_format({"font_name": "Courier New", "font_size": 8})

    def heading(self, *, numeric: bool) -> Format:
        """Format of a column's heading, over numbers or words."""
        return self._number_head if numeric else self.head

    def tone(self, tone: doc.Tone) -> Format:
        """Format of a sentence."""
        return {
            doc.Tone.LEAD: self.lead,
            doc.Tone.HEAD: self.lead,
            doc.Tone.WARNING: self.warning,
            doc.Tone.NOTE: self.remark,
        }.get(tone, self.wrapped)

    def _number(self, form: str, *, total: bool = False, editable: bool = False, live: bool = False) -> Format:
        key = (form, total, editable, live)
        if key not in self._numbers:
            properties: dict[str, object] = {"num_format": form, "bold": total, "valign": "top"}
            if total:
                properties["top"] = 1
            if live:
                properties |= {"bg_color": "#EAF5EE"}
            if editable:
                properties |= {"font_color": "#0000FF", "bg_color": "#FFF9E5", "border": 1, "border_color": "#D7DCE1"}
            self._numbers[key] = self._book.add_format(properties)
        return self._numbers[key]

    def input(self, form: Form) -> Format:
        """An editable number, blue by convention."""
        return self._number(form.value, editable=True)

    def number(self, form: Form, *, total: bool = False) -> Format:
        """A computed number."""
        return self._number(form.value, total=total)

    def cell(self, cell: doc.Cell) -> Format:
        """The number format of a report's cell, which shows its unit too."""
        form, unit = _FORMS.get(cell.kind, Form.NUMBER).value, "s" if cell.kind is doc.CellKind.SECONDS else cell.unit
        digits = 2 if cell.kind is doc.CellKind.MONEY and cell.digits is None else cell.digits
        if digits is not None:
            form = "#,##0" + ("." + "0" * digits if digits else "")
        return self._number(form + (f' "{unit}"' if unit else ""), live=bool(cell.follows))


_LONGEST_SHEET_NAME = 31
_FIRST_WIDTH, _WIDTH, _WIDE_WIDTH = 40, 18, 60
_A4 = 9
_LEAST_COLUMNS = 4
_ROW_HEIGHT = 15.0
_LETTERS = 0.95
"""Letters to a unit of column width, with words that do not fill their line."""


def sheet_name(section: doc.Section) -> str:
    """``8 Total cost of ownership``, as long as a sheet's name may be."""
    return f"{section.number} {section.title}"[:_LONGEST_SHEET_NAME]


def _height(text: str, width: float) -> float:
    """Of a row with a wrapped text: a program that opens the file does not always fit it by itself."""
    return _ROW_HEIGHT * max(1, ceil(len(text) / (_LETTERS * width)))


class Sheet:
    """A sheet with its title and a note, printed one A4 page wide, and on one page in all where it is ``whole``. What
    writes sentences, lines or a table returns the row after a free one."""

    def __init__(
        self, book: Book, name: str, *, title: str, note: str, widths: tuple[int, ...], whole: bool = False
    ) -> None:
        self.sheet: Any = book.made.add_worksheet(name)
        self.styles, self.currency, self.widths = book.styles, book.currency, widths
        for column, width in enumerate(widths):
            self.sheet.set_column(column, column, width)
        self.sheet.set_landscape()
        self.sheet.set_paper(_A4)
        self.sheet.fit_to_pages(1, 1 if whole else 0)
        self.sheet.write(0, 0, title, self.styles.title)
        self.sheet.write(1, 0, note, self.styles.note)

    def heads(self, row: int, *names: str) -> None:
        """Headings of a sheet's own table, of which only the value is a number."""
        for column, name in enumerate(names):
            self.sheet.write(row, column, name, self.styles.heading(numeric=name == "Value"))

    def cell(self, row: int, column: int, cell: doc.Cell) -> None:
        """Write a formula where a value follows from the inputs, a number where it is one, otherwise its text."""
        styles = self.styles
        if cell.follows:
            value = "" if cell.value is None else cell.value
            self.sheet.write_formula(row, column, f"={cell.follows}", styles.cell(cell), value)
        elif isinstance(cell.value, str) or cell.value is None:
            style = styles.indented if column else styles.wrapped
            self.sheet.write_string(row, column, doc.marked_text(cell, currency=self.currency), style)
        elif isfinite(cell.value):
            self.sheet.write_number(row, column, cell.value, styles.cell(cell))
        else:
            self.sheet.write_string(row, column, doc.cell_text(cell, currency=self.currency))

    def table(self, row: int, table: doc.Table) -> int:
        """Title, headings, rows as high as their texts, note."""
        self.sheet.write(row, 0, table.title, self.styles.strong)
        row += 1
        for column, item in enumerate(table.columns):
            self.sheet.write(row, column, item.title, self.styles.heading(numeric=item.numeric))
        for line in table.rows:
            row += 1
            words = [cell if isinstance(cell.value, str) else doc.text("") for cell in line.cells]
            texts = [doc.marked_text(cell, currency=self.currency) for cell in words]
            self.sheet.set_row(row, max(map(_height, texts, self.widths)))
            for column, cell in enumerate(line.cells):
                self.cell(row, column, cell)
        return self.wrapped(row + 1, (table.note,) if table.note else (), self.styles.remark)

    def lines(self, row: int, lines: tuple[str, ...], style: Any) -> int:
        """Lines below each other, as they are."""
        for place, line in enumerate(lines):
            self.sheet.write_string(row + place, 0, line, style)
        return row + len(lines) + 1

    def wrapped(self, row: int, lines: tuple[str, ...], style: Any) -> int:
        """Sentences over the width of the sheet."""
        for place, line in enumerate(lines):
            self.sheet.set_row(row + place, _height(line, sum(self.widths)))
            if len(self.widths) > 1:
                self.sheet.merge_range(row + place, 0, row + place, len(self.widths) - 1, "", style)
        return self.lines(row, lines, style)

    def block(self, row: int, block: doc.Block) -> int:
        """A part of a section; facts stand on the summary, charts in other formats."""
        match block:
            case doc.Table() if block.rows:
                return self.table(row, block)
            case doc.Paragraph():
                return self.wrapped(row, (block.text,), self.styles.tone(block.tone))
            case doc.Bullets():
                return self.wrapped(row, tuple(f"- {item}" for item in block.items), self.styles.wrapped)
            case doc.Code():
                self.sheet.write(row, 0, block.title, self.styles.strong)
                return self.lines(row + 1, tuple(block.text.rstrip("\n").split("\n")), self.styles.code)
            case doc.SignOff():
                for column, name in enumerate(("Role", "Name", "Date", "Signature")):
                    self.sheet.write(row, column, name, self.styles.head)
                return self.lines(row + 1, block.roles, None)
        return row


def _widths(tables: list[doc.Table]) -> tuple[int, ...]:
    """Of the columns that the section's tables take, and at least so many that sentences have room."""
    columns = max([_LEAST_COLUMNS, *(len(table.columns) for table in tables)])
    wide = {place for table in tables for place, column in enumerate(table.columns) if column.wide}
    return (_FIRST_WIDTH, *(_WIDE_WIDTH if place in wide else _WIDTH for place in range(1, columns)))


_ELSEWHERE = ("cash_flow", "cost_inputs")
"""Tables that stand live on sheets of their own."""


def live_text(created: str) -> str:
    """What of a sheet follows the inputs, and of which day all the rest is."""
    return f"Figures on green follow the Inputs sheet; all others are those of the plan of {created} and stay."


def is_live(section: doc.Section) -> bool:
    """Whether any figure of a section follows the inputs."""
    tables = [block for block in section.blocks if isinstance(block, doc.Table)]
    return any(cell.follows for table in tables for row in table.rows for cell in row.cells)


def _write_section(book: Book, section: doc.Section) -> None:
    """One sheet; headline facts stand on the summary, charts in the HTML and PDF reports."""
    created = book.report.created
    widths = _widths([block for block in section.blocks if isinstance(block, doc.Table) and block.rows])
    stays = f"Static: the plan of {created}. Nothing here follows the Inputs sheet; plan again to change it."
    note = live_text(created) if is_live(section) else stays
    page, row = Sheet(book, sheet_name(section), title=section.title, note=note, widths=widths), 3
    for block in section.blocks:
        if not isinstance(block, doc.Table) or block.key not in _ELSEWHERE:
            row = page.block(row, block)
