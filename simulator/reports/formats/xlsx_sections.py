"""The report's sections as sheets: sentences, lists, tables and commands as they stand in the other formats."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

from simulator.reports.content.cells import cell_text, marked_text
from simulator.reports.content.document import Block, Bullets, Cell, Code, Paragraph, Row, Section, SignOff, Table
from simulator.reports.formats.xlsx_style import Styles

if TYPE_CHECKING:
    from xlsxwriter import Workbook


_LONGEST_SHEET_NAME = 31
_FIRST_WIDTH, _WIDTH, _WIDE_WIDTH = 40, 18, 60
_A4 = 9
_LEAST_COLUMNS = 4
_ROW_HEIGHT = 15.0
_LETTERS = 0.95
"""Letters to a unit of column width, with words that do not fill their line."""


def sheet_name(section: Section) -> str:
    """``8 Total cost of ownership``, as long as a sheet's name may be."""
    return f"{section.number} {section.title}"[:_LONGEST_SHEET_NAME]


def print_ready(sheet: Any, *, whole: bool = False) -> None:
    """One page wide on A4, and as many as it takes downwards unless the ``whole`` sheet is one page."""
    sheet.set_landscape()
    sheet.set_paper(_A4)
    sheet.fit_to_pages(1, 1 if whole else 0)


def write_cell(sheet: Any, row: int, column: int, cell: Cell, styles: Styles, currency: str) -> None:
    """A cell as a number where it is one, otherwise as its text."""
    if isinstance(cell.value, str) or cell.value is None:
        style = styles.indented if column else styles.wrapped
        sheet.write_string(row, column, marked_text(cell, currency=currency), style)
    elif cell.value in (float("inf"), float("-inf")) or cell.value != cell.value:
        sheet.write_string(row, column, cell_text(cell, currency=currency))
    else:
        sheet.write_number(row, column, cell.value, styles.cell(cell))


def _write_table(sheet: Any, row: int, table: Table, styles: Styles, currency: str, *, widths: tuple[int, ...]) -> int:
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


def _texts(line: Row, currency: str) -> list[str]:
    """Of the cells that are wrapped."""
    return [marked_text(cell, currency=currency) if isinstance(cell.value, str) else "" for cell in line.cells]


def write_wrapped(sheet: Any, row: int, lines: tuple[str, ...], style: Any, *, widths: tuple[int, ...]) -> int:
    """Sentences over the width of the sheet; returns the row after a free one."""
    for place, line in enumerate(lines):
        sheet.set_row(row + place, _height(line, sum(widths)))
        if len(widths) > 1:
            sheet.merge_range(row + place, 0, row + place, len(widths) - 1, "", style)
        sheet.write_string(row + place, 0, line, style)
    return row + len(lines) + 1


def _write_block(sheet: Any, row: int, block: Block, styles: Styles, currency: str, *, widths: tuple[int, ...]) -> int:
    match block:
        case Table() if block.rows:
            return _write_table(sheet, row, block, styles, currency, widths=widths)
        case Paragraph():
            return write_wrapped(sheet, row, (block.text,), styles.tone(block.tone), widths=widths)
        case Bullets():
            items = tuple(f"- {item}" for item in block.items)
            return write_wrapped(sheet, row, items, styles.wrapped, widths=widths)
        case Code():
            sheet.write(row, 0, block.title, styles.strong)
            return write_lines(sheet, row + 1, tuple(block.text.rstrip("\n").split("\n")), styles.code)
        case SignOff():
            for column, name in enumerate(("Role", "Name", "Date", "Signature")):
                sheet.write(row, column, name, styles.head)
            return write_lines(sheet, row + 1, block.roles, None)
    return row


def _widths(tables: list[Table]) -> tuple[int, ...]:
    """Of the columns that the section's tables take, and at least so many that sentences have room."""
    columns = max([_LEAST_COLUMNS, *(len(table.columns) for table in tables)])
    wide = {place for table in tables for place, column in enumerate(table.columns) if column.wide}
    return (_FIRST_WIDTH, *(_WIDE_WIDTH if place in wide else _WIDTH for place in range(1, columns)))


def write_section(book: Workbook, styles: Styles, section: Section, currency: str) -> None:
    """One sheet; headline facts stand on the summary, charts in the HTML and PDF reports."""
    sheet = book.add_worksheet(sheet_name(section))
    widths = _widths([block for block in section.blocks if isinstance(block, Table) and block.rows])
    for column, width in enumerate(widths):
        sheet.set_column(column, column, width)
    print_ready(sheet)
    sheet.write(0, 0, section.title, styles.title)
    row = 2
    for block in section.blocks:
        row = _write_block(sheet, row, block, styles, currency, widths=widths)
