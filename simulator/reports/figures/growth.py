"""Demand to come against capacity in steps."""

from __future__ import annotations

from simulator.planner.risk_records import Growth
from simulator.reports.figures.chart import Annotation, Axis, Chart, Series, SeriesKind


def capacity_demand_chart(growth: Growth, *, devices_now: int) -> Chart:
    """Devices that each month's demand needs, as a band over the growth bands, and the planned steps."""
    months = tuple(float(item.month) for item in growth.months)
    base = len(growth.bands) // 2
    needed = tuple(float(item.devices[base]) for item in growth.months)
    owned = [_capacity(growth, item.date, devices_now=devices_now) for item in growth.months]
    first_late = next((step for step in growth.steps if step.late), None)
    return Chart(
        key="capacity_demand",
        title=_title(growth),
        x=Axis(title=f"Months from {growth.start}", low=0.0, high=months[-1]),
        y=Axis(title="Accelerators", low=0.0),
        series=(
            Series(
                name=f"needed, {growth.bands[0].name} to {growth.bands[-1].name}",
                kind=SeriesKind.BAND,
                x=months,
                y=needed,
                low=tuple(float(min(item.devices)) for item in growth.months),
                high=tuple(float(max(item.devices)) for item in growth.months),
                color=1,
            ),
            Series(name="capacity", kind=SeriesKind.STEP, x=months, y=tuple(owned), color=0),
        ),
        annotations=(Annotation(text=f"order at once: needed {first_late.date}", x=0.0),) if first_late else (),
        caption=f"Lead time {growth.lead_time_days:g} days ({growth.lead_time_source}).",
    )


def _capacity(growth: Growth, day: str, *, devices_now: int) -> float:
    """Devices in place on a day: those of the last step by then."""
    return float(([devices_now] + [step.devices_after for step in growth.steps if step.date <= day])[-1])


def _title(growth: Growth) -> str:
    if not growth.steps:
        return "The fleet carries the expected demand to the end of the horizon"
    first = growth.steps[0]
    return f"Next step on {first.date}: {first.devices_after} accelerators, ordered by {first.order_by}"
