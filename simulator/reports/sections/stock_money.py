"""The money of a fleet that starts from what exists, beside that of a new one."""

from __future__ import annotations

from simulator.planner.money.tco import annuity_factor
from simulator.planner.studies.stock_money import stock_money
from simulator.reports.content.cells import columns, count, kilo, money, number, text
from simulator.reports.content.document import Cell, Row, Table
from simulator.reports.content.quantities import percent_text
from simulator.reports.studies import Studies
from simulator.units import HOURS_PER_YEAR

_TITLES = ("Figure", "With what exists", "New fleet alone", "How")


def _row(name: str, ours: Cell, new: Cell, how: str = "") -> Row:
    return Row(cells=(text(name), ours, new, text(how)))


def stock_money_blocks(studies: Studies) -> tuple[Table, ...]:
    """One table where stock was given, none otherwise."""
    plan, stock = studies.plan, studies.plan.stock
    if stock is None:
        return ()
    found = stock_money(stock, prices=studies.prices, ownership=studies.ownership)
    fleet, owning = plan.best, studies.cost.owning
    hourly = fleet.cost.per_hour
    yearly = None if hourly is None else hourly * HOURS_PER_YEAR
    rate, years = studies.ownership.discount_rate.value, int(studies.ownership.depreciation_years.value)
    present = None if yearly is None else yearly * annuity_factor(rate, years)
    capital = owning.capex_total if owning is not None else None
    rows = (
        _row("accelerators to obtain", count(stock.bought), count(fleet.devices)),
        _row("rent, an hour", money(found.rent_per_hour), money(hourly), fleet.cost.offer),
        _row("rent, a year", money(found.rent_per_year, digits=0), money(yearly, digits=0), "x 8,760 h"),
        _row(
            f"present value of the rent, {years} years",
            money(found.rent_present_value, digits=0),
            money(present, digits=0),
            f"discounted at {percent_text(rate)}",
        ),
        _row("capital, if bought instead", money(found.capital, digits=0), money(capital, digits=0), "as in section 8"),
        _row(
            "electricity of the existing, a year",
            money(found.existing_electricity_per_year, digits=0),
            money(0.0, digits=0),
            "beside the rent, which includes its own",
        ),
        _row("expected power", kilo(found.typical_w, "kW"), kilo(fleet.typical_w, "kW")),
        _row(
            "energy of a year, at the meter",
            number(found.facility_kwh, "kWh", digits=0),
            number(studies.energy.facility_kwh, "kWh", digits=0),
            f"PUE {studies.prices.pue:g}",
        ),
        _row(
            "location-based emissions, a year",
            number(found.location_t, "t CO2e", digits=1),
            number(studies.energy.location_t, "t CO2e", digits=1),
            "grid as in section 10",
        ),
    )
    return (
        Table(
            key="stock_money",
            title="The money with what exists, beside a new fleet",
            columns=columns(*_TITLES, words=("Figure", "How"), wide="How"),
            rows=rows,
            note="Existing accelerators count as paid for; their space, support and staff go on as they are.",
        ),
    )
