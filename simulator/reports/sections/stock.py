"""What exists already: the fleet that starts from it, and its money beside that of a new one."""

from __future__ import annotations

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.money.stock_money import rent_of, stock_money
from simulator.planner.studies.stock import StockPlan
from simulator.reports.content.document import Table, columns, count, kilo, kilowatts, money, number, table
from simulator.reports.content.quantities import percent_text
from simulator.reports.studies import Studies


def stock_blocks(plan: CapacityPlan) -> tuple[Table, ...]:
    """Fleets side by side, the existing one first; nothing where no stock was given."""
    stock = plan.study(StockPlan)
    if stock is None:
        return ()
    cost = f"{plan.best.cost.currency}/h"
    names = ("Fleet", "Replicas", "Devices", "Existing", "To obtain", "Requests/s", cost, "kW")
    return (
        table(
            "stock",
            f"With what exists: {stock.devices} accelerators, {stock.bought} of them to obtain",
            columns(*names, words=("Fleet", "Replicas")),
            [
                (
                    f"{share.hardware} {share.label}",
                    f"{share.replicas} + {share.spares}",
                    count(share.devices),
                    count(share.from_stock),
                    count(share.bought),
                    number(share.rate_per_s),
                    money(share.cost_per_hour, digits=0),
                    kilowatts(share.typical_w),
                )
                for share in stock.shares
            ],
            note=_note(stock),
        ),
    )


def _note(stock: StockPlan) -> str:
    said = "Existing accelerators serve first and cost nothing an hour here: they are paid for."
    if len(stock.shares) > 1:
        said += " Requests go to each fleet in proportion to what it carries, "
        said += f"{percent_text(stock.shares[0].load)} of it at the planned peak."
    said += " Everything else said of this plan is about a new fleet alone, as if nothing existed."
    return said + (f" Left over: {'; '.join(stock.unused)}." if stock.unused else "")


def stock_money_blocks(studies: Studies) -> tuple[Table, ...]:
    """One table where stock was given, none otherwise."""
    plan, stock = studies.plan, studies.plan.study(StockPlan)
    if stock is None:
        return ()
    found = stock_money(stock, prices=studies.prices, ownership=studies.ownership)
    fleet, owning = plan.best, studies.cost.owning
    ours, new = found.rent, rent_of(fleet.cost.per_hour, ownership=studies.ownership)
    rate, years = studies.ownership.discount_rate.value, int(studies.ownership.depreciation_years.value)
    capital = owning.capex_total if owning is not None else None
    discounted, existing = f"discounted at {percent_text(rate)}", found.existing_electricity_per_year
    rows = (
        ("accelerators to obtain", count(stock.bought), count(fleet.devices), ""),
        ("rent, an hour", money(ours.per_hour), money(new.per_hour), fleet.cost.offer),
        ("rent, a year", money(ours.per_year, digits=0), money(new.per_year, digits=0), "x 8,760 h"),
        (
            f"present value of the rent, {years} years",
            money(ours.present_value, digits=0),
            money(new.present_value, digits=0),
            discounted,
        ),
        ("capital, if bought instead", money(found.capital, digits=0), money(capital, digits=0), "as in total cost"),
        (
            "electricity of the existing, a year",
            money(existing, digits=0),
            money(0.0, digits=0),
            "beside the rent, which includes its own",
        ),
        ("expected power", kilo(found.typical_w, "kW"), kilo(fleet.typical_w, "kW"), ""),
        (
            "energy of a year, at the meter",
            number(found.facility_kwh, "kWh", digits=0),
            number(studies.energy.facility_kwh, "kWh", digits=0),
            f"PUE {studies.prices.pue:g}",
        ),
        (
            "location-based emissions, a year",
            number(found.location_t, "t CO2e", digits=1),
            number(studies.energy.location_t, "t CO2e", digits=1),
            "grid as in energy",
        ),
    )
    return (
        table(
            "stock_money",
            "The money with what exists, beside a new fleet",
            columns("Figure", "With what exists", "New fleet alone", "How", words=("Figure",), wide="How"),
            rows,
            note="Existing accelerators count as paid for; their space, support and staff go on as they are.",
        ),
    )
