"""Sections 6 and 7: latencies at the planned load, and what moves the answer."""

from __future__ import annotations

from simulator.engine.steady_state import LatencyMetric
from simulator.planner.replica_load import PERCENTILES
from simulator.reports.cells import count, fraction, money, number, seconds, text
from simulator.reports.content import Block, Bullets, Column, Figure, Paragraph, Row, Section, Table, Tone
from simulator.reports.figures.replica_load import replica_load_chart
from simulator.reports.figures.tornado import cost_tornado_chart, tornado_chart
from simulator.reports.sections.risks import breaks_text
from simulator.reports.studies import Studies


def _latency_table(studies: Studies, *, index: int, key: str, title: str) -> Table:
    metrics = len(LatencyMetric)
    points = studies.load.at[index * metrics : (index + 1) * metrics]
    at = (studies.plan.best.at_peak, studies.plan.best.degraded)[index]
    means = {LatencyMetric.TTFT: at.ttft_mean_s, LatencyMetric.TPOT: at.tpot_mean_s, LatencyMetric.E2E: at.e2e_mean_s}
    return Table(
        key=key,
        title=title,
        columns=(
            Column(title="Metric"),
            Column(title="Mean", numeric=True),
            *(Column(title=f"P{percentile:g}", numeric=True) for percentile in PERCENTILES),
        ),
        rows=tuple(
            Row(
                cells=(
                    text(point.metric.value.upper()),
                    seconds(means[point.metric]),
                    *(seconds(value) for value in point.values_s),
                )
            )
            for point in points
        ),
        note=f"{at.rate_per_s:,.3g} requests/s a replica, {at.load:.0%} of saturation, {at.mean_sequences:,.0f} "
        f"sequences "
        f"decoding on average, KV cache {at.kv_utilization:.0%} full.",
    )


def _cases(studies: Studies) -> list[Block]:
    found = studies.plan.resilience
    if found is None:
        return []
    return [
        Table(
            key="degraded_cases",
            title="After something fails, at the peak",
            columns=(
                Column(title="Lost"),
                Column(title="Replicas left", numeric=True),
                Column(title="Load", numeric=True),
                Column(title="TTFT p95", numeric=True),
                Column(title="TPOT p95", numeric=True),
                Column(title="E2E p95", numeric=True),
                Column(title="Objectives"),
            ),
            rows=tuple(
                Row(
                    cells=(
                        text(case.name),
                        count(case.replicas_left),
                        fraction(case.load),
                        seconds(case.ttft_p95_s),
                        seconds(case.tpot_p95_s),
                        seconds(case.e2e_p95_s),
                        text("held" if case.holds else "missed"),
                    )
                )
                for case in found.cases
            ),
        )
    ]


def performance_section(studies: Studies) -> Section:
    """Percentiles with everything up and with the spares down, and the curve they lie on."""
    plan = studies.plan
    fleet = plan.best
    up, down = fleet.replicas + fleet.spares, fleet.replicas
    held = " and ".join(
        f"{item.name} {value:,.3g} s of {item.bound_s:g} s"
        for item, value in zip(plan.objectives, fleet.degraded.objectives_s, strict=True)
    )
    degraded = (
        [_latency_table(studies, index=1, key="degraded", title=f"Spares down: {down} replicas carry the peak")]
        if fleet.spares
        else []
    )
    blocks: tuple[Block, ...] = (
        Paragraph(
            text=f"With {down} of {up} replicas up the peak takes {held or 'no stated objective'}.", tone=Tone.LEAD
        ),
        _latency_table(studies, index=0, key="at_peak", title=f"All {up} replicas up, at the planned peak"),
        *degraded,
        Figure(chart=replica_load_chart(studies.load, plan=plan)),
        *_cases(studies),
        *_verified(studies),
    )
    return Section(number=6, key="performance", title="Performance at the planned load", blocks=blocks)


def _verified(studies: Studies) -> list[Block]:
    found = studies.plan.verification
    if found is None:
        text_ = "These percentiles come from the closed-form steady state; add --verify to plan-capacity to replay the "
        return [Paragraph(text=f"{text_}plan in the event simulation.", tone=Tone.MISSING)]
    runs = (("all replicas up", found.at_peak), ("spares down", found.degraded))
    names = ("Case", "Objective", "At most", "Simulated", "80 % from", "to", "Steady state", "Verdict")
    table = Table(
        key="verification",
        title="Replayed in the event simulation",
        columns=tuple(Column(title=name, numeric=1 < place < 7) for place, name in enumerate(names)),
        rows=tuple(
            Row(
                cells=(
                    text(case),
                    text(item.name),
                    seconds(item.bound_s),
                    seconds(item.simulated_s),
                    seconds(item.low_s),
                    seconds(item.high_s),
                    seconds(item.steady_s),
                    text("held" if item.holds else "missed"),
                )
            )
            for case, run in runs
            for item in run.objectives
        ),
        note=f"{found.at_peak.requests:,} requests for each of {found.at_peak.seeds} seeds, one replica.",
    )
    if found.holds:
        return [table]
    reasons = [run.reason for _, run in runs if run.reason]
    warning = f"The event simulation does not confirm the plan{': ' + reasons[0] if reasons else ''}."
    return [*([table] if table.rows else []), Paragraph(text=warning, tone=Tone.WARNING)]


def sensitivity_section(studies: Studies) -> Section:
    """Tornado, scenarios, what breaks first."""
    plan = studies.plan
    found = plan.uncertainty
    blocks: list[Block] = []
    if found is None:
        blocks.append(
            Paragraph(
                text="Inputs were not varied; add --uncertainty to plan-capacity for the tornado and what breaks "
                "first.",
                tone=Tone.MISSING,
            )
        )
    else:
        blocks.append(Figure(chart=tornado_chart(found, base_devices=plan.best.devices)))
        if plan.best.cost.per_hour is not None:
            base = plan.best.cost.per_hour
            blocks.append(Figure(chart=cost_tornado_chart(found, base_per_hour=base, currency=studies.currency)))
        blocks.append(_tornado_table(studies))
        first = tuple(breaks_text(item) for item in found.breaks_first)
        blocks += [Paragraph(text="What breaks first"), Bullets(items=first)]
    blocks.append(_scenarios(studies))
    return Section(number=7, key="sensitivity", title="Sensitivity", blocks=tuple(blocks))


def _tornado_table(studies: Studies) -> Table:
    found = studies.plan.uncertainty
    bars = found.tornado if found is not None else ()
    names = (
        "Input",
        "From",
        "To",
        "Devices low",
        "Devices high",
        f"{studies.currency}/h low",
        f"{studies.currency}/h high",
    )
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
                    number(bar.cost_per_hour_low, digits=0),
                    number(bar.cost_per_hour_high, digits=0),
                )
            )
            for bar in bars
        ),
    )


def _scenarios(studies: Studies) -> Table:
    """Low, base and high: the 80 % interval of the step times at today's prices."""
    fleet = studies.plan.best
    per_device = fleet.cost.per_device_hour
    rows = (("fast", fleet.devices_low), ("base", fleet.devices), ("slow", fleet.devices_high))
    return Table(
        key="scenarios",
        title="Scenarios of the forecast: the ends of the 80 % interval of the step times",
        columns=(
            Column(title="Hardware turns out"),
            Column(title="Devices", numeric=True),
            Column(title=f"{studies.currency}/h", numeric=True),
            Column(title="Against the plan", numeric=True),
        ),
        rows=tuple(
            Row(
                cells=(
                    text(name),
                    count(devices),
                    money(devices * per_device if per_device is not None else None),
                    text(f"{devices / fleet.devices - 1:+.0%}"),
                ),
                total=name == "base",
            )
            for name, devices in rows
        ),
    )
