"""Demand to come against capacity in steps.

What is left of a fleet carries the planned peak: load of the survivors, case by case.

What moves the answer most: one bar per input.
"""

from __future__ import annotations

from itertools import pairwise
from math import exp, isfinite

from simulator.planner.records import Fleet
from simulator.planner.serving.limits import DEVIATE_80
from simulator.planner.studies.risk_records import Growth, Resilience, TornadoBar, Uncertainty
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind


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
        title=_growth_title(growth),
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


def _growth_title(growth: Growth) -> str:
    if not growth.steps:
        return "The fleet carries the expected demand to the end of the horizon"
    first = growth.steps[0]
    ordered = "to be ordered at once" if first.late else f"ordered by {first.order_by}"
    return f"Next step on {first.date}: {first.devices_after} accelerators, {ordered}"


_NOTHING = "nothing"
_HEADROOM = 1.15
"""Room above the tallest bar for the texts of horizontal lines."""


def loss_cases_chart(found: Resilience, *, fleet: Fleet) -> Chart:
    """Load of the replicas that remain, as a share of the rate that saturates them, after each loss.

    Cases that leave no replica have no load and are named in the caption. A load goes with the step time, and so do its
    whiskers: the ends of the 80 % interval.
    """
    loads = [(_NOTHING, fleet.at_peak.load), *((case.name, case.load) for case in found.cases)]
    shown = [(name, 100 * load) for name, load in loads if isfinite(load)]
    gone = [name for name, load in loads if not isfinite(load)]
    allowed = 100 * found.load_target.by_objectives
    spread = exp(DEVIATE_80 * fleet.log_sigma)
    ends = [(load / spread, load * spread) for _, load in shown]
    tallest = max([allowed, *(high for _, high in ends)])
    return Chart(
        key="loss_cases",
        title=_loss_title(found),
        x=Axis(title="Lost at the planned peak", categories=tuple(name for name, _ in shown)),
        y=Axis(title="Load of what is left", unit="% of saturation", low=0.0, high=_HEADROOM * tallest),
        series=(
            Series(
                name="load",
                kind=SeriesKind.BAR,
                x=tuple(float(place) for place, _ in enumerate(shown)),
                y=tuple(load for _, load in shown),
                low=tuple(low for low, _ in ends),
                high=tuple(high for _, high in ends),
                labels=tuple(f"{load:.0f} %" for _, load in shown),
                color=0,
            ),
        ),
        annotations=(Annotation(text="", y=allowed),),
        caption=" ".join(
            [
                f"The line is what the objectives allow: {allowed:.0f} %. Spares carry load until they are needed. "
                "Whiskers: 80 % interval; above 100 % the queue grows.",
                *([f"No replica is left after losing {' or '.join(gone)}."] if gone else []),
            ]
        ),
    )


def _loss_title(found: Resilience) -> str:
    missed = [case.name for case in found.cases if not case.holds]
    if not missed:
        return "The objectives hold in every loss case"
    held = [case.name for case in found.cases if case.holds]
    first = f"Losing {held[-1]} is covered" if held else "No loss is covered"
    return f"{first}; losing {missed[0]} breaks the objectives"


def tornado_chart(uncertainty: Uncertainty, *, base_devices: int) -> Chart:
    """Devices of the fleet when each input alone moves to its ends; inputs that move only money are left out."""
    bars = [bar for bar in uncertainty.tornado if bar.devices_low != bar.devices_high]
    widest = f"{bars[0].name} moves the fleet most" if bars else "No input moves the number of devices"
    return _chart("tornado", widest, bars, base=float(base_devices), axis=Axis(title="Accelerators"), money=False)


def cost_tornado_chart(uncertainty: Uncertainty, *, base_per_hour: float, currency: str) -> Chart:
    """Cost per hour when each input alone moves to its ends."""
    bars = [bar for bar in uncertainty.tornado if bar.cost_per_hour_low is not None and bar.swing > 0]
    title = f"{bars[0].name} moves the cost most" if bars else "No input moves the cost"
    axis = Axis(title="Cost", unit=f"{currency}/h")
    return _chart("cost_tornado", title, bars, base=base_per_hour, axis=axis, money=True)


def _chart(key: str, title: str, bars: list[TornadoBar], *, base: float, axis: Axis, money: bool) -> Chart:
    low = tuple((bar.cost_per_hour_low or 0.0) if money else float(bar.devices_low) for bar in bars)
    high = tuple((bar.cost_per_hour_high or 0.0) if money else float(bar.devices_high) for bar in bars)
    return Chart(
        key=key,
        title=f"{title[:1].upper()}{title[1:]}",
        x=axis,
        y=Axis(title="", categories=tuple(bar.name for bar in bars)),
        series=(
            Series(
                name="",
                kind=SeriesKind.TORNADO,
                x=tuple(float(place) for place in range(len(bars))),
                y=(base,) * len(bars),
                low=low,
                high=high,
                labels=tuple(f"{bar.low} to {bar.high}" for bar in bars),
            ),
        ),
        caption="Each input alone moves from its low to its high end; the line is the plan.",
    )
