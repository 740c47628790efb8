"""Section 6: latencies at the planned load, with everything up and after failures.

The best fleets of the search in the event simulation: planned beside simulated percentiles, and what was changed.
"""

from __future__ import annotations

from math import isfinite

from simulator.engine.lanes.steady_state import LatencyMetric
from simulator.planner.records import CapacityPlan, Finalist, Verdict, Verification
from simulator.planner.serving.replica_load import PERCENTILES
from simulator.reports.charts.load import replica_load_chart
from simulator.reports.content.cells import count, fraction, known_as, seconds, text
from simulator.reports.content.document import Block, Column, Figure, Paragraph, Row, Section, Table, Tone
from simulator.reports.content.quantities import percent_text, seconds_text
from simulator.reports.studies import Studies
from simulator.reports.tables.verification import finalists_outcome
from simulator.units import bound_text

_NAMES = ("Finalist", "Replicas", "Objective", "At most", "Planned", "Simulated", "80 % from", "to", "Verdict")


def _states(item: Finalist) -> list[tuple[int, Verification]]:
    """As planned, and where the simulation changed it, in the size that holds."""
    states = [(item.planned_replicas, item.planned)]
    return states if item.replicas == item.planned_replicas else [*states, (item.replicas, item.found)]


def _rows(item: Finalist) -> list[Row]:
    return [
        Row(
            cells=(
                text(item.name),
                count(replicas),
                text(entry.name),
                seconds(entry.bound_s),
                seconds(entry.steady_s),
                seconds(entry.simulated_s),
                seconds(entry.low_s),
                seconds(entry.high_s),
                text("held" if entry.holds else "missed"),
            )
        )
        for replicas, state in _states(item)
        for entry in state.objectives
    ]


def finalist_blocks(plan: CapacityPlan) -> list[Block]:
    """A sentence and a table; nothing where no finalists were simulated."""
    found = plan.finalists
    if found is None:
        return []
    skipped = [item.name for item in found.members if item.verdict is Verdict.NOT_SIMULATED]
    rows = tuple(row for item in found.members for row in _rows(item))
    how = "under the replayed trace, over all its requests" if found.replayed else "at the planned peak"
    table = Table(
        key="finalists",
        title=f"Finalists in the event simulation, {how}, spares down",
        columns=tuple(Column(title=name, numeric=name not in ("Finalist", "Objective", "Verdict")) for name in _NAMES),
        rows=rows,
        note=f"Not simulated: {', '.join(skipped)}." if skipped else "",
    )
    outcome = finalists_outcome(found)
    said = Paragraph(text=f"{outcome[:1].upper()}{outcome[1:]}.", tone=Tone.NOTE)
    return [said, *([table] if rows else [])]


def _latency_table(studies: Studies, *, index: int, key: str, title: str) -> Table:
    metrics = len(LatencyMetric)
    points = studies.load.at[index * metrics : (index + 1) * metrics]
    at = (studies.plan.best.at_peak, studies.plan.best.degraded)[index]
    means = {LatencyMetric.TTFT: at.ttft_mean_s, LatencyMetric.TPOT: at.tpot_mean_s, LatencyMetric.E2E: at.e2e_mean_s}
    known = known_as(studies.plan.best.provenance)
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
                    seconds(means[point.metric], origin=known),
                    *(seconds(value) for value in point.values_s),
                )
            )
            for point in points
        ),
        note=f"{at.rate_per_s:,.3g} requests/s a replica, {percent_text(at.load)} of saturation, "
        f"{at.mean_sequences:,.0f} sequences decoding on average, KV cache {percent_text(at.kv_utilization)} full."
        + (_intervals(studies) if key == "degraded" else ""),
    )


def _intervals(studies: Studies) -> str:
    """The 80 % intervals of this very fleet."""
    found = studies.latencies
    ends = [
        f"{name} {_reached(low_s)} to {_reached(high_s)}"
        for name, (low_s, high_s) in (("TTFT p95", found.ttft_p95_s), ("TPOT p95", found.tpot_p95_s))
    ]
    return f" 80 % intervals by the errors of the step times: {' and '.join(ends)}."


def _reached(value_s: float) -> str:
    return seconds_text(value_s) if isfinite(value_s) else "overloaded"


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
        f"{item.name} {bound_text(value)} of {bound_text(item.bound_s)}"
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
        *finalist_blocks(plan),
    )
    return Section(number=6, key="performance", title="Performance at the planned load", blocks=blocks)


def _verified(studies: Studies) -> list[Block]:
    found = studies.plan.verification
    if found is None:
        text_ = "These percentiles come from the closed-form steady state; add --verify to plan-capacity to replay the "
        return [Paragraph(text=f"{text_}plan in the event simulation.", tone=Tone.NOTE)]
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
