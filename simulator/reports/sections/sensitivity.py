"""Section 7: what moves the fleet and its cost, in scenarios, and what breaks first."""

from __future__ import annotations

from simulator.planner.studies.risk_records import Uncertainty
from simulator.reports.charts.risk import cost_tornado_chart, tornado_chart
from simulator.reports.content.cells import count, known_as, money, number, text
from simulator.reports.content.document import Block, Bullets, Column, Figure, Paragraph, Row, Section, Table, Tone
from simulator.reports.content.quantities import signed_percent_text
from simulator.reports.sections.risks import breaks_text
from simulator.reports.studies import Studies

_SMALL_BILL = 100.0


def sensitivity_section(studies: Studies) -> Section:
    """Tornado, scenarios, what breaks first."""
    found = studies.plan.uncertainty
    blocks: list[Block] = []
    if found is not None:
        blocks += [*_tornado(studies, found), _tornado_table(studies, found)]
        first = tuple(breaks_text(item) for item in found.breaks_first)
        blocks += [Paragraph(text="What breaks first", tone=Tone.HEAD), Bullets(items=first)]
    blocks.append(_scenarios(studies))
    if studies.owning:
        blocks.append(_owning(studies))
    return Section(number=7, key="sensitivity", title="Sensitivity", blocks=tuple(blocks))


def _tornado(studies: Studies, found: Uncertainty) -> list[Block]:
    """The charts of what moves; a sentence where nothing does."""
    best = studies.plan.best
    blocks: list[Block] = []
    if any(bar.devices_low != bar.devices_high for bar in found.tornado):
        blocks.append(Figure(chart=tornado_chart(found, base_devices=best.devices)))
    else:
        same = (
            f"No input alone moves the fleet from {best.devices} accelerators: whole replicas and servers leave room."
        )
        blocks.append(Paragraph(text=same))
    base = best.cost.per_hour
    if base is not None and any(bar.swing > 0 for bar in found.tornado):
        blocks.append(Figure(chart=cost_tornado_chart(found, base_per_hour=base, currency=studies.currency)))
    return blocks


def _tornado_table(studies: Studies, found: Uncertainty) -> Table:
    currency, base = studies.currency, studies.plan.best.cost.per_hour or 0.0
    digits = 2 if base < _SMALL_BILL else 0
    names = ("Input", "From", "To", "Devices low", "Devices high", f"{currency}/h low", f"{currency}/h high")
    return Table(
        key="tornado",
        title="Each input alone",
        columns=tuple(Column(title=name, numeric=place > 2) for place, name in enumerate(names)),
        rows=tuple(
            Row(
                cells=(
                    text(bar.name),
                    text(bar.low),
                    text(bar.high),
                    count(bar.devices_low),
                    count(bar.devices_high),
                    number(bar.cost_per_hour_low, digits=digits),
                    number(bar.cost_per_hour_high, digits=digits),
                )
            )
            for bar in found.tornado
        ),
        note="MFU and MBU: kernels that reach a fifth more or less of the peaks; step time: its 80 % interval; prices "
        "run over the published offers, the other ends are chosen.",
    )


def _scenarios(studies: Studies) -> Table:
    """Low, base and high: of everything together, and of the step times alone at today's prices."""
    fleet, found = studies.plan.best, studies.plan.uncertainty
    per_device = fleet.cost.per_device_hour
    rows: list[tuple[str, float, float | None]] = []
    if found is not None:
        cost = found.cost_per_hour
        rows.append(("low: demand and step times, P10", found.devices.p10, cost.p10 if cost else None))
    fast, slow = ("low: fast kernels", "high: slow kernels")
    for name, devices in ((fast, fleet.devices_low), ("base: the plan", fleet.devices), (slow, fleet.devices_high)):
        rows.append((name, devices, devices * per_device if per_device is not None else None))
    if found is not None:
        rows.append(("high: demand and step times, P90", found.devices.p90, cost.p90 if cost else None))
    return Table(
        key="scenarios",
        title="Scenarios: low, base, high",
        columns=(
            Column(title="Scenario"),
            Column(title="Devices", numeric=True),
            Column(title=f"{studies.currency}/h", numeric=True),
            Column(title="Against the plan", numeric=True),
        ),
        rows=tuple(
            Row(
                cells=(
                    text(name),
                    count(devices, origin=known_as(fleet.provenance)),
                    money(cost_per_hour),
                    text(_against(devices, cost_per_hour, studies)),
                ),
                total=name.startswith("base"),
            )
            for name, devices, cost_per_hour in rows
        ),
        note="Fast and slow kernels: the ends of the 80 % interval of the step times. P10 and P90 are of the "
        "cheapest fleet sized for each draw, which may be of another accelerator.",
    )


def _against(devices: float, cost_per_hour: float | None, studies: Studies) -> str:
    """Change of cost, or of devices where nothing is priced."""
    fleet = studies.plan.best
    if cost_per_hour is not None and fleet.cost.per_hour:
        return signed_percent_text(cost_per_hour / fleet.cost.per_hour - 1)
    return signed_percent_text(devices / fleet.devices - 1)


def _owning(studies: Studies) -> Table:
    names = ("Figure of the bill", "From", "To", "A year at from", "A year at to")
    return Table(
        key="owning_sensitivity",
        title="Owning: each figure of the bill alone",
        columns=tuple(Column(title=name, numeric=place > 0) for place, name in enumerate(names)),
        rows=tuple(
            Row(
                cells=(
                    text(bar.name),
                    text(bar.low),
                    text(bar.high),
                    money(bar.annual_low, digits=0),
                    money(bar.annual_high, digits=0),
                )
            )
            for bar in studies.owning
        ),
        note="Equivalent annual cost of owning; a fifth below and above, shares by points. Widest first.",
    )
