"""Charts of money: from purchase to total cost, and renting against owning by hours of use."""

from __future__ import annotations

from functools import partial

from simulator.planner.money.tco_records import Owning, TotalCost
from simulator.planner.records import Fleet
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind
from simulator.reports.content.quantities import count_text, money_text, percent_text, range_text
from simulator.units import MEGA

RENTAL_NAMES = {
    "on_demand": "on demand",
    "reserved_1y": "reserved 1 year",
    "reserved_3y": "reserved 3 years",
    "spot": "spot",
}
_POINTS = 20
_PERCENT = 100


def _price_note(owning: Owning | None) -> str:
    """What a reader of a chart with owning in it has to know of the purchase price."""
    return f" The purchase price is an estimate: {owning.offer.note}." if owning and owning.estimated else ""


def owning_range_text(owning: Owning, *, fleet: Fleet, currency: str) -> str:
    """The total over the years at both ends of the 80 % interval of the accelerators; every line goes with them."""
    ends = [owning.total * devices / fleet.devices for devices in (fleet.devices_low, fleet.devices_high)]
    counts = range_text((fleet.devices_low, fleet.devices_high), count_text)
    money = range_text(ends, partial(money_text, currency=currency))
    return f"{money} in total for {counts} accelerators, prices as given"


def tco_waterfall_chart(owning: Owning, *, currency: str) -> Chart:
    """Capital lines, operation over the years and the residual, ending in the undiscounted total."""
    lines = [(line.name, line.amount, "") for line in owning.capex]
    lines.append(("capital", owning.capex_total, "total"))
    lines += [(f"{line.name} {owning.years} y", line.amount * owning.years, "") for line in owning.opex if line.amount]
    lines += [("residual", -owning.residual, ""), ("total", owning.total, "total")]
    return Chart(
        key="tco_waterfall",
        title=f"Owning costs {owning.total / MEGA:,.2f} million {currency} over {owning.years} years",
        x=Axis(title="", categories=tuple(name for name, _, _ in lines)),
        y=Axis(title="Cost", unit=currency),
        series=(
            Series(
                name="",
                kind=SeriesKind.WATERFALL,
                x=tuple(float(place) for place in range(len(lines))),
                y=tuple(amount for _, amount, _ in lines),
                labels=tuple(label for _, _, label in lines),
            ),
        ),
        caption="Undiscounted; capital at the start, operation over the years of depreciation, residual at the end."
        + _price_note(owning),
    )


def break_even_chart(cost: TotalCost) -> Chart:
    """Cost of a year over the share of hours that devices are used: owned, committed and paid by the hour."""
    shares = tuple(place / _POINTS for place in range(_POINTS + 1))
    percents = tuple(_PERCENT * share for share in shares)
    series: list[Series] = []
    notes: list[Annotation] = []
    if cost.owning is not None:
        flat = (cost.owning.annual,) * len(shares)
        series.append(Series(name="owned", kind=SeriesKind.LINE, x=percents, y=flat, color=7))
    for item in cost.renting:
        hourly = item.kind in ("on_demand", "spot")
        values = tuple(item.annual * (share if hourly else 1.0) for share in shares)
        name = RENTAL_NAMES[item.kind]
        series.append(Series(name=name, kind=SeriesKind.LINE, x=percents, y=values, dashed=not hourly))
        if item.kind == "on_demand" and item.break_even is not None and item.break_even <= 1:
            at = percent_text(item.break_even)
            notes.append(Annotation(text=f"break-even at {at}", x=_PERCENT * item.break_even))
    return Chart(
        key="break_even",
        title=_break_even_title(cost),
        x=Axis(title="Share of the hours of a year that devices are needed", unit="%", low=0.0, high=float(_PERCENT)),
        y=Axis(title="Cost of a year", unit=cost.currency),
        series=tuple(series),
        annotations=tuple(notes),
        caption="Owned: equivalent annual cost. Commitments are paid for all hours, on demand and spot for hours "
        f"of use.{_price_note(cost.owning)}",
    )


def present_value_chart(cost: TotalCost) -> Chart:
    """What each way to pay costs today, cheapest first."""
    ways = [(RENTAL_NAMES[item.kind], item.present_value) for item in cost.renting]
    if cost.owning is not None:
        ways.append(("owned", cost.owning.present_value))
    ways.sort(key=lambda way: way[1])
    return Chart(
        key="present_value",
        title=f"{ways[0][0].capitalize()} has the lowest present value over {cost.years} years",
        x=Axis(title="", categories=tuple(name for name, _ in ways)),
        y=Axis(title="Present value", unit=cost.currency),
        series=(
            Series(
                name="",
                kind=SeriesKind.BAR,
                x=tuple(float(place) for place in range(len(ways))),
                y=tuple(value for _, value in ways),
                color=0,
            ),
        ),
        caption=_price_note(cost.owning).strip(),
    )


def _break_even_title(cost: TotalCost) -> str:
    on_demand = next((item for item in cost.renting if item.kind == "on_demand"), None)
    if on_demand is None or on_demand.break_even is None:
        return "What a year costs, by hours of use"
    if on_demand.break_even > 1:
        return "Renting on demand stays cheaper than owning at these prices"
    return f"Owning pays from {percent_text(on_demand.break_even)} of the hours on"


def cash_flow_chart(cost: TotalCost) -> Chart:
    """Cash paid so far, owned and rented, by year."""
    years = tuple(float(flow.year) for flow in cost.flows)
    names = ("start", *(f"year {flow.year}" for flow in cost.flows[1:]))
    series = []
    if cost.owning is not None:
        paid = tuple(flow.cumulative for flow in cost.flows)
        series.append(Series(name="owned", kind=SeriesKind.LINE, x=years, y=paid, color=7))
    for place, item in enumerate(cost.renting):
        paid = tuple(flow.renting_cumulative[place] for flow in cost.flows)
        series.append(Series(name=RENTAL_NAMES[item.kind], kind=SeriesKind.LINE, x=years, y=paid))
    return Chart(
        key="cash_flow",
        title="Cash paid by the end of each year",
        x=Axis(title="", categories=names),
        y=Axis(title="Paid so far", unit=cost.currency),
        series=tuple(series),
        caption="Undiscounted; the residual comes back at the end of the last year.",
    )
