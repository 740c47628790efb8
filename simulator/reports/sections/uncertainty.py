"""Section 7 and its study: what moves the fleet and its cost, in scenarios and draws, and what breaks first."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet
from simulator.planner.money.tco_records import OwningBar
from simulator.planner.studies.sensitivity import BreaksFirst, TornadoBar
from simulator.planner.studies.uncertainty import Uncertainty
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind, places
from simulator.reports.content import document as doc
from simulator.reports.content.quantities import percent_text, signed_percent_text
from simulator.reports.studies import Studies, of_each
from simulator.reports.words.fields import note_text

_SMALL_BILL = 100.0
_NO_MARGIN = 0.005
_PERCENTILES = attrgetter("p10", "p50", "p90")


def sensitivity_content(studies: Studies) -> tuple[doc.Block, ...]:
    """Tornado, what breaks first, scenarios, figures of owning."""
    return (*of_each(studies.plan, moving_blocks), _scenarios(studies), *owning_blocks(studies.owning))


def uncertainty_blocks(plan: CapacityPlan) -> tuple[doc.Block, ...]:
    """The whole study; nothing where it was not asked for."""
    found = plan.study(Uncertainty)
    owning = () if found is None else found.owning
    return (*drawn_blocks(plan), *moving_blocks(plan), *owning_blocks(owning))


def moving_blocks(plan: CapacityPlan) -> tuple[doc.Block, ...]:
    """What each input does alone, and what breaks the fleet first."""
    found, best = plan.study(Uncertainty), plan.best
    if found is None:
        return ()
    blocks: list[doc.Block] = []
    if any(bar.devices_low != bar.devices_high for bar in found.tornado):
        blocks.append(doc.Figure(chart=tornado_chart(found, base_devices=best.devices)))
    else:
        same = f"No input alone moves the fleet from {best.devices} accelerators: whole replicas and servers leave room"
        blocks.append(doc.Paragraph(text=f"{same}."))
    base = None if found.cost_per_hour is None else best.cost.per_hour
    if base is not None and any(bar.swing > 0 for bar in found.tornado):
        blocks.append(doc.Figure(chart=cost_tornado_chart(found, base_per_hour=base, currency=best.cost.currency)))
    first = tuple(breaks_text(item) for item in found.breaks_first)
    head = doc.Paragraph(text="What breaks first, where steps are as slow as the plan allows for", tone=doc.Tone.HEAD)
    return (*blocks, _tornado_table(best, found), head, doc.Bullets(items=first))


def _tornado_table(best: Fleet, found: Uncertainty) -> doc.Table:
    currency = best.cost.currency
    digits = 2 if (best.cost.per_hour or 0.0) < _SMALL_BILL else 0
    priced = found.cost_per_hour is not None
    costs = f" | {currency}/h low | {currency}/h high" if priced else ""
    rows: list[tuple[doc.Cell | str, ...]] = [
        (
            *(bar.name, bar.low, bar.high, doc.count(bar.devices_low), doc.count(bar.devices_high)),
            *(doc.number(cost, digits=digits) for cost in bar.costs_per_hour if priced),
        )
        for bar in found.tornado
    ]
    note = (
        "MFU and MBU: kernels that reach a fifth more or less of the peaks; step time: its 80 % interval, for all "
        "of which the plan's margin for slower steps is kept; prices run over the published offers, the other ends are "
        "chosen."
    )
    return doc.table(
        "tornado", "Each input alone", f"Input: | From: | To: | Devices low | Devices high{costs}", rows, note=note
    )


def breaks_text(item: BreaksFirst) -> str:
    """``Prompt length: 12 % longer prompts take the fleet past its objectives``."""
    detail = note_text(item.detail)
    lost = f"{percent_text(item.margin)} {detail} take the fleet past its objectives"
    said = f"{item.name}: {f'no room for {detail}' if item.margin < _NO_MARGIN else lost}"
    return f"{said[:1].upper()}{said[1:]}"


def drawn_blocks(plan: CapacityPlan) -> tuple[doc.Table, ...]:
    """Quantiles over demand and step times drawn together, and what choosing wrongly costs over those draws."""
    found = plan.study(Uncertainty)
    if found is None:
        return ()
    cost = found.cost_per_hour
    rows = [doc.row("accelerators", *map(doc.count, _PERCENTILES(found.devices)))]
    if cost is not None:
        rows.append(doc.row("cost an hour", *map(doc.money, _PERCENTILES(cost))))
    note = (
        f"{found.draws} draws, seed {found.seed}, demand log-normal with sigma {found.demand_sigma:g} "
        f"({'given' if 'demand_sigma' in plan.spec.model_fields_set else 'assumed: --demand-sigma sets it'}), each "
        f"with the cheapest fleet sized for it; "
        f"the planned fleet carries {percent_text(found.enough_share)} of them."
    )
    heads = ": | P10 | P50 | P90"
    drawn = doc.table("quantiles", "Monte Carlo over demand and step times", heads, rows, note=note)
    if len(found.regrets) < 2:
        return (drawn,)
    rows = [
        doc.row(f"{item.hardware} {item.label}", doc.money(item.mean_regret_per_hour), doc.fraction(item.best_share))
        for item in found.regrets
    ]
    heads = "Option: | Mean regret an hour | Best in"
    note = "Regret: cost above the best choice of each draw. Where two cost the same, both are best."
    return drawn, doc.table("regret", "What choosing wrongly costs", heads, rows, note=note)


def _scenarios(studies: Studies) -> doc.Table:
    """Low, base and high: of everything together, and of the step times alone at today's prices."""
    fleet, found = studies.plan.best, studies.plan.study(Uncertainty)
    hourly, drawn = fleet.cost.per_hour, found.cost_per_hour if found is not None else None
    low, high = fleet.ends_of(hourly) if hourly is not None else (None, None)
    rows: list[tuple[str, float, float | None]] = [
        ("low: fast kernels", fleet.devices_low, low),
        ("base: the plan", fleet.devices, hourly),
        ("high: slow kernels", fleet.devices_high, high),
    ]
    if found is not None:
        rows.insert(0, ("low: demand and step times, P10", found.devices.p10, drawn.p10 if drawn else None))
        rows.append(("high: demand and step times, P90", found.devices.p90, drawn.p90 if drawn else None))
    heads = f"Scenario: | Devices | {studies.currency}/h | Against the plan"
    known, shown = doc.known_as(fleet.provenance), []
    for name, devices, cost_per_hour in rows:
        change = signed_percent_text(fleet.changed_by(devices=devices, cost_per_hour=cost_per_hour))
        cells = (doc.count(devices, origin=known), doc.money(cost_per_hour), change)
        shown.append(doc.row(name, *cells, total=name.startswith("base")))
    note = (
        "Fast and slow kernels: the ends of the 80 % interval of the step times. P10 and P90 are of the cheapest fleet "
        "sized for each draw, which may be of another accelerator."
    )
    return doc.table("scenarios", "Scenarios: low, base, high", heads, shown, note=note)


def owning_blocks(bars: Iterable[OwningBar]) -> tuple[doc.Table, ...]:
    """What moves the cost of owning: a bill of its own, that rented hours do not carry; nothing where unpriced."""
    rows = [
        (bar.name, bar.low, bar.high, doc.money(bar.annual_low, digits=0), doc.money(bar.annual_high, digits=0))
        for bar in bars
    ]
    made = doc.table(
        "owning_sensitivity",
        "Owning: each figure of the bill alone",
        "Figure of the bill: | From | To | A year at from | A year at to",
        rows,
        note="Equivalent annual cost of owning; a fifth below and above, shares by points. Widest first.",
    )
    return (made,) if rows else ()


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
    at, labels = places(len(bars)), tuple(f"{bar.low} to {bar.high}" for bar in bars)
    ends = Series(name="", kind=SeriesKind.TORNADO, x=at, y=(base,) * len(bars), low=low, high=high, labels=labels)
    return Chart(
        key=key,
        title=f"{title[:1].upper()}{title[1:]}",
        x=axis,
        y=Axis(title="", categories=tuple(bar.name for bar in bars)),
        series=(ends,),
        annotations=(Annotation(text="", x=base),),
        caption="Each input alone moves from its low to its high end; the line is the plan.",
    )
