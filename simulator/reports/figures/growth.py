"""Demand to come against capacity in steps."""

from __future__ import annotations

from itertools import pairwise

from simulator.planner.risk_records import Growth
from simulator.reports.figures.chart import Annotation, Axis, Chart, Series, SeriesKind


def capacity_demand_chart(growth: Growth, *, devices_now: int) -> Chart:
    """Devices that each month's demand needs, as a band over the growth bands, and the planned steps."""
    months = tuple(float(item.month) for item in growth.months)
    base = len(growth.bands) // 2
    # A month's need holds until the next one: corners, as of the capacity that it is compared with.
    corners = tuple(month for month in months[1:] for _ in range(2))
    edges = (months[0], *corners)
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
                x=edges,
                low=_held([float(min(item.devices)) for item in growth.months]),
                high=_held([float(max(item.devices)) for item in growth.months]),
                color=1,
            ),
            Series(
                name=f"needed, {growth.bands[base].name}",
                kind=SeriesKind.STEP,
                x=months,
                y=tuple(float(item.devices[base]) for item in growth.months),
                color=1,
                dashed=True,
            ),
            Series(name="capacity", kind=SeriesKind.STEP, x=months, y=tuple(owned), color=0),
        ),
        annotations=(Annotation(text=f"order at once: needed {first_late.date}", x=0.0),) if first_late else (),
        caption=f"Lead time {growth.lead_time_days:g} days ({growth.lead_time_source}).",
    )


def _held(values: list[float]) -> tuple[float, ...]:
    """Each value until the next month, at the corners of the steps."""
    return (values[0], *(value for pair in pairwise(values) for value in pair))


def _capacity(growth: Growth, day: str, *, devices_now: int) -> float:
    """Devices in place on a day: those of the last step by then."""
    return float(([devices_now] + [step.devices_after for step in growth.steps if step.date <= day])[-1])


def _title(growth: Growth) -> str:
    if not growth.steps:
        return "The fleet carries the expected demand to the end of the horizon"
    first = growth.steps[0]
    ordered = "to be ordered at once" if first.late else f"ordered by {first.order_by}"
    return f"Next step on {first.date}: {first.devices_after} accelerators, {ordered}"
