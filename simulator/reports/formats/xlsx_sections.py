"""The report's sections as sheets: sentences, lists, tables and commands as they stand in the other formats."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from simulator.reports.content import document as doc
from simulator.reports.formats.finance_inputs import Form

if TYPE_CHECKING:
    from xlsxwriter import Workbook
    from xlsxwriter.format import Format


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
        """Of a column, over its numbers or its words."""
        return self._number_head if numeric else self.head

    def tone(self, tone: doc.Tone) -> Format:
        """Of a sentence."""
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
        """The number format of a report's cell."""
        live = bool(cell.follows)
        if cell.kind is doc.CellKind.MONEY:
            digits = 2 if cell.digits is None else cell.digits
            return self._number("#,##0" + ("." + "0" * digits if digits else ""), live=live)
        return self._number(_FORMS.get(cell.kind, Form.NUMBER).value, live=live)


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


def new_sheet(
    book: Workbook, styles: Styles, name: str, *, title: str, note: str, widths: tuple[int, ...], whole: bool = False
) -> Any:
    """A sheet with its title and a note, printed one A4 page wide, and on one page in all where it is ``whole``."""
    sheet = book.add_worksheet(name)
    for column, width in enumerate(widths):
        sheet.set_column(column, column, width)
    sheet.set_landscape()
    sheet.set_paper(_A4)
    sheet.fit_to_pages(1, 1 if whole else 0)
    sheet.write(0, 0, title, styles.title)
    sheet.write(1, 0, note, styles.note)
    return sheet


def write_heads(sheet: Any, row: int, names: tuple[str, ...], styles: Styles) -> None:
    """Headings of a sheet's own table, of which only the value is a number."""
    for column, name in enumerate(names):
        sheet.write(row, column, name, styles.heading(numeric=name == "Value"))


def write_cell(sheet: Any, row: int, column: int, cell: doc.Cell, styles: Styles, currency: str) -> None:
    """A cell as a formula where it follows from the inputs, as a number where it is one, otherwise as its text."""
    if cell.follows:
        style, value = styles.cell(cell), "" if cell.value is None else cell.value
        sheet.write_formula(row, column, f"={cell.follows}", style, value)
    elif isinstance(cell.value, str) or cell.value is None:
        style = styles.indented if column else styles.wrapped
        sheet.write_string(row, column, doc.marked_text(cell, currency=currency), style)
    elif cell.value in (float("inf"), float("-inf")) or cell.value != cell.value:
        sheet.write_string(row, column, doc.cell_text(cell, currency=currency))
    else:
        sheet.write_number(row, column, cell.value, styles.cell(cell))


def _write_table(
    sheet: Any, row: int, table: doc.Table, styles: Styles, currency: str, *, widths: tuple[int, ...]
) -> int:
    sheet.write(row, 0, table.title, styles.strong)
    row += 1
    for column, item in enumerate(table.columns):
        sheet.write(row, column, item.title, styles.heading(numeric=item.numeric))
    for line in table.rows:
        row += 1
        sheet.set_row(row, max(map(_height, _texts(line, currency), widths)))
        for column, cell in enumerate(line.cells):
            write_cell(sheet, row, column, cell, styles, currency)
    row += 1
    return write_wrapped(sheet, row, (table.note,) if table.note else (), styles.remark, widths=widths)


def write_lines(sheet: Any, row: int, lines: tuple[str, ...], style: Any) -> int:
    """Lines below each other, as they are; returns the row after a free one."""
    for place, line in enumerate(lines):
        sheet.write_string(row + place, 0, line, style)
    return row + len(lines) + 1


def _height(text: str, width: float) -> float:
    """Of a row with a wrapped text: a program that opens the file does not always fit it by itself."""
    return _ROW_HEIGHT * max(1, ceil(len(text) / (_LETTERS * width)))


def _texts(line: doc.Row, currency: str) -> list[str]:
    return [doc.marked_text(cell, currency=currency) if isinstance(cell.value, str) else "" for cell in line.cells]


def write_wrapped(sheet: Any, row: int, lines: tuple[str, ...], style: Any, *, widths: tuple[int, ...]) -> int:
    """Sentences over the width of the sheet; returns the row after a free one."""
    for place, line in enumerate(lines):
        sheet.set_row(row + place, _height(line, sum(widths)))
        if len(widths) > 1:
            sheet.merge_range(row + place, 0, row + place, len(widths) - 1, "", style)
        sheet.write_string(row + place, 0, line, style)
    return row + len(lines) + 1


def _write_block(
    sheet: Any, row: int, block: doc.Block, styles: Styles, currency: str, *, widths: tuple[int, ...]
) -> int:
    match block:
        case doc.Table() if block.rows:
            return _write_table(sheet, row, block, styles, currency, widths=widths)
        case doc.Paragraph():
            return write_wrapped(sheet, row, (block.text,), styles.tone(block.tone), widths=widths)
        case doc.Bullets():
            items = tuple(f"- {item}" for item in block.items)
            return write_wrapped(sheet, row, items, styles.wrapped, widths=widths)
        case doc.Code():
            sheet.write(row, 0, block.title, styles.strong)
            return write_lines(sheet, row + 1, tuple(block.text.rstrip("\n").split("\n")), styles.code)
        case doc.SignOff():
            for column, name in enumerate(("Role", "Name", "Date", "Signature")):
                sheet.write(row, column, name, styles.head)
            return write_lines(sheet, row + 1, block.roles, None)
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


def write_section(book: Workbook, styles: Styles, section: doc.Section, report: doc.Report) -> None:
    """One sheet; headline facts stand on the summary, charts in the HTML and PDF reports."""
    currency = report.currency
    widths = _widths([block for block in section.blocks if isinstance(block, doc.Table) and block.rows])
    stays = f"Static: the plan of {report.created}. Nothing here follows the Inputs sheet; plan again to change it."
    note = live_text(report.created) if is_live(section) else stays
    sheet = new_sheet(book, styles, sheet_name(section), title=section.title, note=note, widths=widths)
    row = 3
    for block in section.blocks:
        if isinstance(block, doc.Table) and block.key in _ELSEWHERE:
            continue
        row = _write_block(sheet, row, block, styles, currency, widths=widths)
