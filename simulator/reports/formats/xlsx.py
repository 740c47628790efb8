"""A report as a workbook: named inputs, live formulas (each with the plan's own value), and the report's tables."""

from __future__ import annotations

from datetime import datetime
from io import BytesIO
from typing import TYPE_CHECKING

from simulator.reports.charts.chart import PALETTE
from simulator.reports.content.document import Bullets, Cell, CellKind, Paragraph, Report
from simulator.reports.content.quantities import RENTAL_NAMES
from simulator.reports.formats.finance_inputs import Form, inputs_of
from simulator.reports.formats.finance_model import groups_of
from simulator.reports.formats.xlsx_sections import (
    Styles,
    live_text,
    new_sheet,
    write_cell,
    write_heads,
    write_section,
    write_wrapped,
)
from simulator.reports.studies import Studies

if TYPE_CHECKING:
    from xlsxwriter import Workbook


CASH = "Cash flow"
LONGEST_YEARS = 15
_FIRST_ROW = 4


def _owning_formula(year: int) -> str:
    cash = "capex_total" if year == 0 else f"opex_total-IF({year}=depreciation_years,residual_value,0)"
    return f"=IF(AND(purchase_price>0,{year}<=depreciation_years),{cash},0)"


def write_cash_flow(book: Workbook, styles: Styles, studies: Studies) -> None:
    """Years 0 to 15; those beyond the depreciation are zero."""
    cost = studies.cost
    kinds = [item.kind for item in cost.renting]
    heads = ["Year", "Owned", "Owned, discounted", "Owned so far", *(f"{RENTAL_NAMES[kind]}, so far" for kind in kinds)]
    title = f"Cash flow by year, in {cost.currency}"
    note = "Money out is positive; undiscounted unless it says so; years beyond the horizon are zero."
    widths = (8, *([22] * len(heads)))
    sheet = new_sheet(book, styles, CASH, title=title, note=note, widths=widths, whole=True)
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
    _cash_chart(book, heads=heads, years=cost.years, priced=cost.owning is not None)
    sheet.freeze_panes(_FIRST_ROW, 1)


def _cash_chart(book: Workbook, *, heads: list[str], years: int, priced: bool) -> None:
    chart = book.add_chart({"type": "line"})
    first, last = _FIRST_ROW, _FIRST_ROW + years
    for column in range(3 if priced else 4, len(heads)):
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
    sheet = book.get_worksheet_by_name(CASH)
    assert sheet is not None
    sheet.insert_chart(_FIRST_ROW + LONGEST_YEARS + 2, 0, chart)


INPUTS, COST = "Inputs", "Cost"


def _write_inputs(book: Workbook, styles: Styles, studies: Studies) -> None:
    title = "Inputs: edit the blue cells, everything else follows"
    note = f"Amounts in {studies.currency}. Assumed figures are marked; replace them with your own."
    sheet = new_sheet(book, styles, INPUTS, title=title, note=note, widths=(44, 16, 13, 13, 12, 12, 110))
    write_heads(sheet, 3, ("Input", "Value", "Unit", "Name", "Date", "Status", "Source"), styles)
    for row, item in enumerate(inputs_of(studies), start=4):
        sheet.write(row, 0, item.label)
        sheet.write_number(row, 1, item.value, styles.input(item.form))
        sheet.write(row, 2, item.unit, styles.name)
        sheet.write(row, 3, item.name, styles.note)
        sheet.write(row, 4, item.date)
        sheet.write(row, 5, "assumed" if item.assumed else "", styles.warning)
        sheet.write(row, 6, item.source, styles.note)
        book.define_name(item.name, f"={INPUTS}!$B${row + 1}")
    sheet.freeze_panes(4, 1)


def _write_cost(book: Workbook, styles: Styles, studies: Studies) -> None:
    title, note = f"Cost, energy and rooms, in {studies.currency}", "Every amount is a formula over the Inputs sheet."
    sheet = new_sheet(book, styles, COST, title=title, note=note, widths=(44, 22, 26))
    row = 3
    for group in groups_of(studies):
        write_heads(sheet, row, (group.title, "Value", "Name"), styles)
        for item in group.lines:
            row += 1
            value = item.value if item.value is not None else "not priced"
            sheet.write(row, 0, item.label, styles.strong if item.total else None)
            sheet.write_formula(row, 1, f"={item.formula}", styles.number(item.form, total=item.total), value)
            sheet.write(row, 2, item.name, styles.name)
            book.define_name(item.name, f"={COST}!$B${row + 1}")
        row += 2
    sheet.freeze_panes(3, 1)


def _write_summary(book: Workbook, styles: Styles, report: Report, studies: Studies) -> None:
    widths = (32, 20, 16, 70)
    made = f"{report.subtitle}, {report.created}, roofcast {report.version}. {live_text(report.created)}"
    sheet = new_sheet(book, styles, "Summary", title=report.title, note=made, widths=widths)
    write_heads(sheet, 3, ("Figure", "Value", "Unit", "Remark"), styles)
    for row, fact in enumerate(report.facts(), start=4):
        sheet.write(row, 0, fact.label)
        write_cell(sheet, row, 1, fact.cell, styles, report.currency)
        sheet.write(row, 2, _unit(fact.cell, report.currency), styles.name)
        sheet.write(row, 3, fact.remark, styles.note)
    row = len(report.facts()) + 5
    for block in report.sections[0].blocks:
        if isinstance(block, Paragraph):
            row = write_wrapped(sheet, row, (block.text,), styles.tone(block.tone), widths=widths)
        if isinstance(block, Bullets):
            items = tuple(f"- {item}" for item in block.items)
            row = write_wrapped(sheet, row, items, styles.wrapped, widths=widths)
    sheet.freeze_panes(4, 1)


def _unit(cell: Cell, currency: str) -> str:
    return f"{currency} {cell.unit}".strip() if cell.kind is CellKind.MONEY else cell.unit


def report_xlsx(report: Report, studies: Studies) -> bytes:
    """The workbook. Raises ImportError: xlsxwriter is not installed (extra ``report``)."""
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
            write_section(book, styles, section, report)
    book.close()
    return stream.getvalue()
