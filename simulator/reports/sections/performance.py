"""Section 6: latencies at the planned load, with everything up and after failures, and in the event simulation."""

from __future__ import annotations

from pathlib import Path

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.replica_load import PERCENTILES
from simulator.planner.verification.records import Finalist, Finalists, Verdict, Verification
from simulator.reports.charts.load import replica_load_chart
from simulator.reports.content import document as doc
from simulator.reports.content.quantities import counted_text, percent_text
from simulator.reports.sections.resilience import cases_blocks
from simulator.reports.studies import Studies, of_each
from simulator.specs.base import ValueOrigin
from simulator.specs.question.plan_values import LatencyMetric, watched
from simulator.units import bound_text


def _checked(run: Verification) -> list[tuple[doc.Cell | str, ...]]:
    """Objective by objective: bound, simulated with its interval, steady state, verdict."""
    return [
        (
            entry.name,
            doc.seconds(entry.bound_s),
            doc.seconds(entry.steady_s),
            doc.seconds(entry.simulated_s),
            doc.seconds(entry.low_s),
            doc.seconds(entry.high_s),
            "held" if entry.holds else "missed",
        )
        for entry in run.objectives
    ]


def _states(item: Finalist) -> list[tuple[int, Verification]]:
    """As planned, and where the simulation changed it, in the size that holds."""
    states = [(item.planned_replicas, item.planned)]
    return states if item.replicas == item.planned_replicas else [*states, (item.replicas, item.found)]


def finalist_blocks(plan: CapacityPlan) -> tuple[doc.Block, ...]:
    """A sentence and a table; nothing where no finalists were simulated."""
    found = plan.finalists
    if found is None:
        return ()
    skipped = [item.name for item in found.members if item.verdict is Verdict.NOT_SIMULATED]
    how = "under the replayed trace, over all its requests" if found.replayed else "at the planned peak"
    rows: list[tuple[doc.Cell | str, ...]] = [
        (item.name, doc.count(replicas), *line)
        for item in found.members
        for replicas, state in _states(item)
        for line in _checked(state)
    ]
    title, heads = (
        f"Finalists in the event simulation, {how}, spares down",
        "Finalist: | Replicas | Objective: | At most | Planned | Simulated | 80 % from | to | Verdict:",
    )
    note = f"Not simulated: {', '.join(skipped)}." if skipped else ""
    made = [doc.table("finalists", title, heads, rows, note=note)] if rows else []
    outcome = finalists_outcome(found)
    said = doc.Paragraph(text=f"{outcome[:1].upper()}{outcome[1:]}.", tone=doc.Tone.NOTE)
    return (said, *made)


def replay_text(plan: CapacityPlan) -> str:
    """What was replayed, as a sentence; empty where nothing was."""
    if plan.finalists is None or not plan.finalists.replayed:
        return ""
    found, name = plan.finalists.chosen.found, Path(str(plan.spec.trace)).name
    if not found.seeds:
        return ""
    known = any(item.key == "prefix_hit" and item.origin is ValueOrigin.MEASURED for item in plan.assumptions)
    prompts = "prompts begin alike where they do in the trace" if known else "every prompt is new"
    share = "where prompts that begin alike go to the same" if plan.spec.kv_tiers else "in turn"
    return (
        f"Replayed: {name} at {plan.demand.served_mean_rate_per_s:.4g} requests/s on average, every minute with its "
        f"own share of them and its own pairs of prompt and answer, at other moments in every replay; simulated were "
        f"{found.seeds} shares of {found.requests} requests, what one replica gets {share}; "
        f"{prompts}."
    )


def verification_blocks(plan: CapacityPlan) -> tuple[doc.Block, ...]:
    """The plan in the event simulation; nothing where it was not asked for."""
    found = plan.verification
    if found is None:
        return ()
    runs = (("all replicas up", found.at_peak), ("spares down", found.degraded))
    one, verdict = found.at_peak, "The plan holds" if found.holds else "THE PLAN DOES NOT HOLD"
    made = doc.table(
        "verification",
        "Replayed in the event simulation",
        "Case: | Objective: | At most | Steady state | Simulated | 80 % from | to | Verdict:",
        [(case, *line) for case, run in runs for line in _checked(run)],
        note=f"{verdict}: {one.requests:,} requests for each of {one.seeds} seeds, one replica at "
        f"{one.rate_per_s:.3g} requests/s, {found.degraded.rate_per_s:.3g} with the spares down.",
    )
    shown = [made] if made.rows else []
    if found.holds:
        return tuple(shown)
    why = [run.reason for _, run in runs if run.reason][:1]
    why += [f"the queue keeps growing, {case}" for case, run in runs if run.saturated]
    warning = f"The event simulation does not confirm the plan{': ' if why else ''}{'; '.join(why)}."
    return (*shown, doc.Paragraph(text=warning, tone=doc.Tone.WARNING))


def _latency_table(studies: Studies, *, index: int, key: str, title: str) -> doc.Table:
    at = (studies.plan.best.at_peak, studies.plan.best.degraded)[index]
    means = {LatencyMetric.TTFT: at.ttft_mean_s, LatencyMetric.TPOT: at.tpot_mean_s, LatencyMetric.E2E: at.e2e_mean_s}
    known = doc.known_as(studies.plan.best.provenance)
    heads = f"Metric: | Mean | {' | '.join(f'P{percentile:g}' for percentile in PERCENTILES)}"
    rows: list[tuple[doc.Cell | str, ...]] = [
        (point.metric.value.upper(), doc.seconds(means[point.metric], origin=known), *map(doc.seconds, point.values_s))
        for point in studies.load.at[index]
    ]
    note = (
        f"{at.rate_per_s:,.3g} requests/s a replica, {percent_text(at.load)} of saturation, {at.mean_sequences:,.0f} "
        f"sequences decoding on average, KV cache {percent_text(at.kv_utilization)} full."
    )
    return doc.table(key, title, heads, rows, note=note + (_intervals(studies) if key == "degraded" else ""))


def _intervals(studies: Studies) -> str:
    ranges = watched(studies.latencies, studies.plan.objectives)
    ends = [
        f"{name} {' to '.join(doc.cell_text(doc.seconds(end_s), currency='') for end_s in ends_s)}"
        for name, ends_s in ranges.items()
    ]
    return f" 80 % intervals by the errors of the step times: {' and '.join(ends)}."


def performance_content(studies: Studies) -> tuple[doc.Block, ...]:
    """Percentiles with everything up and with the spares down, and the curve they lie on."""
    plan, fleet = studies.plan, studies.plan.best
    up, down = fleet.replicas + fleet.spares, fleet.replicas
    held = " and ".join(
        f"{item.name} {bound_text(value)} of {bound_text(item.bound_s)}"
        for item, value in zip(plan.objectives, fleet.degraded.objectives_s, strict=True)
    )
    said = f"With {down} of {up} replicas up the peak takes {held or 'no stated objective'}."
    tables = [_latency_table(studies, index=0, key="at_peak", title=f"All {up} replicas up, at the planned peak")]
    if fleet.spares:
        title = f"Spares down, at the planned peak: {counted_text(down, 'replica')}"
        tables.append(_latency_table(studies, index=1, key="degraded", title=title))
    unchecked = doc.Paragraph(
        text="These percentiles come from the closed-form steady state; add --verify to plan-capacity to replay the "
        "plan in the event simulation.",
        tone=doc.Tone.NOTE,
    )
    return (
        doc.Paragraph(text=said, tone=doc.Tone.LEAD),
        *tables,
        doc.Figure(chart=replica_load_chart(studies.load, plan=plan)),
        *of_each(plan, cases_blocks),
        *(verification_blocks(plan) if plan.verification is not None else (unchecked,)),
        *finalist_blocks(plan),
    )


def _why_not(item: Finalist) -> str:
    match item.verdict:
        case Verdict.RESIZED:
            return f"needs {item.replicas} replicas instead of {item.planned_replicas}"
        case Verdict.BEYOND_LIMITS:
            return "holds only beyond the limits of the fleet"
        case Verdict.NOT_SIMULATED:
            return f"was not simulated: {item.found.reason}"
        case _:
            return "misses an objective at any size tried"


def finalists_outcome(finalists: Finalists) -> str:
    """What the simulation changed about the plan, as a sentence without a full stop."""
    first, chosen = finalists.members[0], finalists.chosen
    if chosen.verdict is Verdict.NOT_SIMULATED:
        return f"{chosen.name} was not simulated: {chosen.found.reason}"
    if chosen.verdict not in (Verdict.HOLDS, Verdict.RESIZED):
        text = f"no finalist holds in the event simulation; {chosen.name} stays as it was planned"
        lost = chosen.found.unanswered_fraction
        unanswered = f"; {percent_text(lost)} of its requests get no answer, being longer than it takes"
        return f"{text}{unanswered}" if lost else text
    text = f"{chosen.name} holds"
    if chosen.replicas != chosen.planned_replicas:
        text += f" with {chosen.replicas} replicas where {chosen.planned_replicas} were planned"
    if chosen is first:
        return text
    return f"{text}, and is taken instead of {first.name}, which {_why_not(first)}"
