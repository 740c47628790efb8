"""Options against each other: cost over latency.

What each accelerator would cost for the same demand.
"""

from __future__ import annotations

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet
from simulator.reports.charts.chart import Axis, Chart, Series, SeriesKind
from simulator.reports.content.quantities import money_text
from simulator.units import KILO

_FAR = 6.0
"""Options that cost more than this many times the chosen one are left out: they squeeze the rest together."""

_HEADROOM = 1.15
"""Room above the dearest option for its text."""


def pareto_chart(plan: CapacityPlan) -> Chart:
    """Every option by TTFT p95 (spares down) and cost an hour; what nothing beats in both is joined."""
    fleets = [fleet for fleet in (plan.best, *plan.alternatives) if fleet.cost.per_hour is not None]
    limit = (plan.best.cost.per_hour or 0.0) * _FAR
    shown = [fleet for fleet in fleets if (fleet.cost.per_hour or 0.0) <= limit or not limit]
    highest = max((fleet.cost.per_hour or 0.0 for fleet in shown), default=0.0)
    front = _front(shown)
    others = [fleet for fleet in shown if fleet not in front and fleet is not plan.best]
    series = [
        _points("other options", others, color=4),
        _points("cheapest or fastest", [fleet for fleet in front if fleet is not plan.best], color=0),
        _points("recommended", [plan.best], color=3),
    ]
    if len(front) > 1:
        line = sorted(front, key=lambda fleet: fleet.degraded.ttft_p95_s)
        series.insert(
            0,
            Series(
                name="",
                kind=SeriesKind.STEP,
                x=tuple(fleet.degraded.ttft_p95_s for fleet in line),
                y=tuple(fleet.cost.per_hour or 0.0 for fleet in line),
                color=0,
                dashed=True,
            ),
        )
    return Chart(
        key="pareto",
        title=f"{plan.best.hardware} is the cheapest of {len(fleets)} priced options",
        x=Axis(title="TTFT p95, spares down", unit="s"),
        y=Axis(title="Cost", unit=f"{plan.best.cost.currency}/h", low=0.0, high=_HEADROOM * highest or None),
        series=tuple(item for item in series if item.x),
        caption="Each option sized for the whole demand, the best of every accelerator.",
    )


def _points(name: str, fleets: list[Fleet], *, color: int) -> Series:
    return Series(
        name=name,
        kind=SeriesKind.SCATTER,
        x=tuple(fleet.degraded.ttft_p95_s for fleet in fleets),
        y=tuple(fleet.cost.per_hour or 0.0 for fleet in fleets),
        labels=tuple(f"{fleet.devices} {fleet.hardware}" for fleet in fleets),
        color=color,
    )


def _front(fleets: list[Fleet]) -> list[Fleet]:
    """Fleets that no other beats in both cost and TTFT."""
    found: list[Fleet] = []
    for fleet in sorted(fleets, key=lambda item: (item.cost.per_hour or 0.0, item.degraded.ttft_p95_s)):
        if not found or fleet.degraded.ttft_p95_s < found[-1].degraded.ttft_p95_s:
            found.append(fleet)
    return found


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
