"""A report as a workbook: named inputs, live formulas to every total, and the report's tables as they are.

Every formula cell carries the plan's own value too, so that viewers which do not compute show the right numbers.
"""

from __future__ import annotations

from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING, Any

from simulator.reports.cells import cell_text, marked_text
from simulator.reports.content import Cell, CellKind, Report, Section, Table
from simulator.reports.finance_inputs import inputs_of
from simulator.reports.finance_model import groups_of
from simulator.reports.studies import Studies
from simulator.reports.xlsx_cash import write_cash_flow
from simulator.reports.xlsx_style import Styles

if TYPE_CHECKING:
    from xlsxwriter import Workbook

INPUTS, COST = "Inputs", "Cost"
_LONGEST_SHEET_NAME = 31


def _write_inputs(book: Workbook, styles: Styles, studies: Studies) -> None:
    sheet = book.add_worksheet(INPUTS)
    sheet.set_column(0, 0, 44)
    sheet.set_column(1, 1, 16)
    sheet.set_column(2, 3, 13)
    sheet.set_column(4, 5, 12)
    sheet.set_column(6, 6, 110)
    sheet.write(0, 0, "Inputs: edit the blue cells, everything else follows", styles.title)
    sheet.write(
        1, 0, f"Amounts in {studies.currency}. Assumed figures are marked; replace them with your own.", styles.note
    )
    for column, name in enumerate(("Input", "Value", "Unit", "Name", "Date", "Status", "Source")):
        sheet.write(3, column, name, styles.head)
    for row, item in enumerate(inputs_of(studies), start=4):
        sheet.write(row, 0, item.label)
        sheet.write_number(row, 1, item.value, styles.input(item.form))
        sheet.write(row, 2, item.unit)
        sheet.write(row, 3, item.name, styles.note)
        sheet.write(row, 4, item.date)
        sheet.write(row, 5, "assumed" if item.assumed else "", styles.warning)
        sheet.write(row, 6, item.source, styles.note)
        book.define_name(item.name, f"={INPUTS}!$B${row + 1}")
    sheet.freeze_panes(4, 1)


def _write_cost(book: Workbook, styles: Styles, studies: Studies) -> None:
    sheet = book.add_worksheet(COST)
    sheet.set_column(0, 0, 44)
    sheet.set_column(1, 1, 22)
    sheet.set_column(2, 2, 26)
    sheet.write(0, 0, f"Cost, energy and rooms, in {studies.currency}", styles.title)
    sheet.write(1, 0, "Every amount is a formula over the Inputs sheet.", styles.note)
    row = 3
    for group in groups_of(studies):
        for column, name in enumerate((group.title, "Value", "Name")):
            sheet.write(row, column, name, styles.head)
        for item in group.lines:
            row += 1
            value = item.value if item.value is not None else "not priced"
            sheet.write(row, 0, item.label, styles.strong if item.total else None)
            sheet.write_formula(row, 1, f"={item.formula}", styles.number(item.form, total=item.total), value)
            sheet.write(row, 2, item.name, styles.note)
            book.define_name(item.name, f"={COST}!$B${row + 1}")
        row += 2
    sheet.freeze_panes(3, 1)


def _write_summary(book: Workbook, styles: Styles, report: Report, studies: Studies) -> None:
    """Headline figures; those that follow from the inputs are live."""
    live = {
        "devices": "devices",
        "servers": "servers",
        "racks": "racks" if studies.rooms.racks is not None else "",
        "power_typical_kw": "typical_kw",
        "cost_per_hour": "plan_cost_per_hour",
        "cost_per_month": "plan_cost_per_month",
        "cost_per_million_input_tokens": "plan_per_million_input",
        "cost_per_million_output_tokens": "plan_per_million_output",
        "capex": "capex_total",
        "capex_total": "capex_total",
        "opex_per_year": "opex_total",
        "owning_annual": "owning_annual",
        "owning_present_value": "owning_present_value",
        "facility_kwh_per_year": "facility_kwh",
        "j_per_output_token": "j_per_output_token",
        "tco2e_location_per_year": "tco2e_location",
        "tco2e_market_per_year": "tco2e_market",
    }
    sheet = book.add_worksheet("Summary")
    sheet.set_column(0, 0, 32)
    sheet.set_column(1, 1, 20)
    sheet.set_column(2, 2, 16)
    sheet.set_column(3, 3, 70)
    sheet.write(0, 0, report.title, styles.title)
    sheet.write(1, 0, f"{report.subtitle}, {report.created}, roofcast {report.version}", styles.note)
    for column, name in enumerate(("Figure", "Value", "Unit", "Remark")):
        sheet.write(3, column, name, styles.head)
    for row, fact in enumerate(report.facts(), start=4):
        sheet.write(row, 0, fact.label)
        name = live.get(fact.key, "")
        if name and isinstance(fact.cell.value, int | float):
            sheet.write_formula(row, 1, f"={name}", styles.cell(fact.cell), fact.cell.value)
        else:
            _write_cell(sheet, row, 1, fact.cell, styles, report.currency)
        sheet.write(row, 2, _unit(fact.cell, report.currency))
        sheet.write(row, 3, fact.remark, styles.note)
    sheet.freeze_panes(4, 1)


def _unit(cell: Cell, currency: str) -> str:
    return f"{currency} {cell.unit}".strip() if cell.kind is CellKind.MONEY else cell.unit


def _write_cell(sheet: Any, row: int, column: int, cell: Cell, styles: Styles, currency: str) -> None:
    if isinstance(cell.value, str) or cell.value is None:
        sheet.write_string(row, column, marked_text(cell, currency=currency))
    elif cell.value in (float("inf"), float("-inf")) or cell.value != cell.value:
        sheet.write_string(row, column, cell_text(cell, currency=currency))
    else:
        sheet.write_number(row, column, cell.value, styles.cell(cell))


def _table_width(table: Table) -> int:
    return len(table.columns)


def _write_section(book: Workbook, styles: Styles, section: Section, currency: str) -> None:
    tables = [block for block in section.blocks if isinstance(block, Table) and block.rows]
    if not tables:
        return
    sheet = book.add_worksheet(f"{section.number} {section.title}"[:_LONGEST_SHEET_NAME])
    sheet.set_column(0, 0, 40)
    sheet.set_column(1, max(_table_width(table) for table in tables), 18)
    sheet.write(0, 0, section.title, styles.title)
    row = 2
    for table in tables:
        sheet.write(row, 0, table.title, styles.strong)
        row += 1
        for column, item in enumerate(table.columns):
            sheet.write(row, column, item.title, styles.head)
        for line in table.rows:
            row += 1
            for column, cell in enumerate(line.cells):
                _write_cell(sheet, row, column, cell, styles, currency)
        row += 1
        if table.note:
            sheet.write(row, 0, table.note, styles.note)
        row += 2


def report_xlsx(report: Report, studies: Studies) -> bytes:
    """The workbook.

    Raises
    ------
    ImportError
        xlsxwriter is not installed (extra ``report``).
    """
    import xlsxwriter

    stream = BytesIO()
    book = xlsxwriter.Workbook(stream, {"in_memory": True})
    book.set_properties(
        {"title": report.title, "author": "roofcast", "created": datetime.fromisoformat(report.created)}
    )
    styles = Styles(book)
    _write_summary(book, styles, report, studies)
    _write_inputs(book, styles, studies)
    _write_cost(book, styles, studies)
    write_cash_flow(book, styles, studies)
    for section in report.sections:
        if section.number > 1:
            _write_section(book, styles, section, report.currency)
    book.close()
    return stream.getvalue()
