"""The cash-flow sheet: year by year for as long as the inputs say, with a chart that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulator.reports.charts.chart import PALETTE
from simulator.reports.charts.money import RENTAL_NAMES
from simulator.reports.formats.finance_cells import Form
from simulator.reports.formats.xlsx_sections import print_ready
from simulator.reports.formats.xlsx_style import Styles
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
    sheet = book.add_worksheet(CASH)
    cost = studies.cost
    kinds = [item.kind for item in cost.renting]
    heads = ["Year", "Owned", "Owned, discounted", "Owned so far", *(f"{RENTAL_NAMES[kind]}, so far" for kind in kinds)]
    print_ready(sheet, whole=True)
    sheet.set_column(0, 0, 8)
    sheet.set_column(1, len(heads), 22)
    sheet.write(0, 0, f"Cash flow by year, in {cost.currency}", styles.title)
    sheet.write(
        1, 0, "Money out is positive; undiscounted unless it says so; years beyond the horizon are zero.", styles.note
    )
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
    _write_chart(book, heads=heads, years=cost.years, priced=cost.owning is not None)
    sheet.freeze_panes(_FIRST_ROW, 1)


def _write_chart(book: Workbook, *, heads: list[str], years: int, priced: bool) -> None:
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
