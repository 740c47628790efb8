"""What each accelerator would cost for the same demand."""

from __future__ import annotations

from simulator.planner.records import CapacityPlan, Fleet
from simulator.reports.figures.chart import Axis, Chart, Series, SeriesKind
from simulator.reports.quantities import money_text
from simulator.units import KILO

SHOWN = 8


def plan_options_chart(plan: CapacityPlan) -> Chart:
    """Rent per month of the best fleet of each accelerator, the chosen one first [thousands].

    Where no price is known, accelerators of each option instead.
    """
    fleets = [fleet for fleet in (plan.best, *plan.alternatives) if fleet.cost.per_month is not None][:SHOWN]
    priced = bool(fleets)
    fleets = fleets or [plan.best, *plan.alternatives][:SHOWN]
    currency = plan.best.cost.currency
    values = [(fleet.cost.per_month or 0.0) / KILO if priced else float(fleet.devices) for fleet in fleets]
    ends = [(fleet.devices_low / fleet.devices, fleet.devices_high / fleet.devices) for fleet in fleets]
    labels = [_label(fleet) for fleet in fleets]
    names = tuple(f"{fleet.hardware} {fleet.label}" for fleet in fleets)
    return Chart(
        key="plan_options",
        title=f"{fleets[0].hardware} carries this demand for the least",
        x=Axis(title="", categories=names),
        y=Axis(title="Rent per month", unit=f"thousand {currency}") if priced else Axis(title="Devices"),
        series=(
            Series(
                name="Rent per month" if priced else "Devices",
                kind=SeriesKind.BAR,
                x=tuple(float(place) for place in range(len(fleets))),
                y=tuple(values),
                low=tuple(value * low for value, (low, _) in zip(values, ends, strict=True)),
                high=tuple(value * high for value, (_, high) in zip(values, ends, strict=True)),
                labels=tuple(labels),
                color=0,
            ),
        ),
        caption=(
            "Best setup of each accelerator, spares and whole servers included; "
            f"{plan.best.cost.kind.replace('_', ' ')} prices. Whiskers: 80 % interval."
        ),
    )


def _label(fleet: Fleet) -> str:
    """``$475k, 352 devices``."""
    devices = f"{fleet.devices:,} devices"
    price = money_text(fleet.cost.per_month, fleet.cost.currency)
    return devices if fleet.cost.per_month is None else f"{price}, {devices}"
