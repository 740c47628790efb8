"""Section 11: demand to come, the capacity that it needs, and by when that has to be ordered."""

from __future__ import annotations

from itertools import pairwise

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.studies.growth import Growth
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind
from simulator.reports.content import document as doc
from simulator.reports.content.quantities import money_text, signed_percent_text
from simulator.reports.studies import Studies, of_each
from simulator.reports.words.fields import note_text

_SHOWN_EVERY_MONTHS = 3


def _illustration(studies: Studies) -> tuple[doc.Paragraph, ...]:
    if not studies.illustrates_growth:
        return ()
    said = (
        "No growth was given: this section shows what an assumed one would ask for, and enters no total. Give --growth "
        "5%/month, --horizon, --start and --lead-time to plan-capacity for your own."
    )
    return (doc.Paragraph(text=said, tone=doc.Tone.WARNING),)


def _needed(growth: Growth) -> doc.Table:
    """Rate and accelerators of every third month in every band."""
    titles = [f"{band.name}, {what}" for band in growth.bands for what in ("requests/s", "devices")]
    rows = [
        doc.row(
            month.date,
            *(
                cell
                for rate, devices in zip(month.rates_per_s, month.devices, strict=True)
                for cell in (doc.number(rate), doc.count(devices))
            ),
        )
        for month in growth.months[::_SHOWN_EVERY_MONTHS]
    ]
    return doc.table("demand_bands", "Demand and what it needs", f"From: | {' | '.join(titles)}", rows)


def _steps(growth: Growth) -> doc.Table:
    rows = [
        (
            *(step.date, step.order_by, doc.count(step.devices_before), doc.count(step.devices_after)),
            "late" if step.late else "in time",
        )
        for step in growth.steps
    ]
    lead = f"{growth.lead_time_days:g} days ({note_text(growth.lead_time_source)})"
    note = f"Order dates are of what is bought: lead time {lead}; orders for a quarter at a time."
    carried = "" if growth.steps else " The fleet carries the base band to the end: no step."
    heads = "Needed from: | Order by: | Before | After | Status:"
    there = f" {growth.in_stock:,} exist and serve first." if growth.in_stock else ""
    if growth.beside_per_s:
        there += f" The other fleets go on with {growth.beside_per_s:,.3g} requests/s: rates here are those beyond it."
    if growth.bridge_devices:
        carried += (
            f" Nothing ordered at the start arrives before {growth.bridge_until}: rent up to {growth.bridge_devices}."
        )
    return doc.table("capacity_steps", "Capacity steps", heads, rows, note=f"{note}{there}{carried}")


def rent_text(growth: Growth, currency: str) -> str:
    """What the forecast costs to rent, beside the fleet of the start; empty without a price."""
    if growth.rent is None:
        return ""
    low, base, high = (money_text(value, currency) for value in growth.rent)
    return (
        f"Renting what each of {growth.horizon_months} months needs comes to {base} ({low} to {high} over the bands), "
        f"this fleet alone to {money_text(growth.rent_now, currency)}."
    )


def growth_blocks(plan: CapacityPlan) -> tuple[doc.Block, ...]:
    """Bands, their chart, what they need, and when to order it; nothing where no growth was given."""
    growth = plan.study(Growth)
    if growth is None:
        return ()
    bands = ", ".join(f"{band.name} {signed_percent_text(band.rate_per_month)} a month" for band in growth.bands)
    return (
        doc.Paragraph(
            text=f"Bands from {growth.start}: {bands}. {rent_text(growth, plan.best.cost.currency)}".rstrip()
        ),
        doc.Figure(chart=capacity_demand_chart(growth, devices_now=plan.best.devices)),
        _needed(growth),
        _steps(growth),
    )


def growth_content(studies: Studies) -> tuple[doc.Block, ...]:
    """Demand to come, capacity steps, order-by dates."""
    return (*_illustration(studies), *of_each(studies.plan, growth_blocks)) if studies.growth is not None else ()


def capacity_demand_chart(growth: Growth, *, devices_now: int) -> Chart:
    """Devices that each month's demand needs, as a band over the growth bands, and the planned steps."""
    months = tuple(float(item.month) for item in growth.months)
    base = len(growth.bands) // 2
    # A month's need holds until the next one: corners, as of the capacity that it is compared with.
    corners = tuple(month for month in months[1:] for _ in range(2))
    edges = (months[0], *corners)
    owned = [float(growth.in_place(item.date, now=devices_now)) for item in growth.months]
    low, high = (_held([float(end(item.devices)) for item in growth.months]) for end in (min, max))
    expected = tuple(float(item.devices[base]) for item in growth.months)
    names = [
        f"needed, {name}" for name in (f"{growth.bands[0].name} to {growth.bands[-1].name}", growth.bands[base].name)
    ]
    series = (
        Series(name=names[0], kind=SeriesKind.BAND, x=edges, low=low, high=high, color=1),
        Series(name=names[1], kind=SeriesKind.STEP, x=months, y=expected, color=1, dashed=True),
        Series(name="capacity", kind=SeriesKind.STEP, x=months, y=tuple(owned), color=0),
    )
    late = [Annotation(text=f"order at once: needed {step.date}", x=0.0) for step in growth.steps if step.late]
    return Chart(
        key="capacity_demand",
        title=_growth_title(growth),
        x=Axis(title=f"Months from {growth.start}", low=0.0, high=months[-1]),
        y=Axis(title="Accelerators", low=0.0),
        series=series,
        annotations=tuple(late[:1]),
        caption=f"Lead time {growth.lead_time_days:g} days ({note_text(growth.lead_time_source)}).",
    )


def _held(values: list[float]) -> tuple[float, ...]:
    """Each value until the next month, at the corners of the steps."""
    return (values[0], *(value for pair in pairwise(values) for value in pair))


def _growth_title(growth: Growth) -> str:
    if not growth.steps:
        return "The fleet carries the expected demand to the end of the horizon"
    first = growth.steps[0]
    ordered = "to be ordered at once" if first.late else f"ordered by {first.order_by}"
    return f"Next step on {first.date}: {first.devices_after} accelerators, {ordered}"
