"""Sections 4 and 5: what else was considered, and how the size of the fleet follows."""

from __future__ import annotations

from simulator.planner.explain import explanation, nearest_rejections
from simulator.planner.records import Fleet
from simulator.reports.cells import count, money, number, seconds, text
from simulator.reports.content import Bullets, Cell, Column, Figure, Paragraph, Row, Section, Table, Tone
from simulator.reports.figures.pareto import pareto_chart
from simulator.reports.figures.roofline import roofline_chart
from simulator.reports.quantities import change_text, seconds_text
from simulator.reports.sections.choice_studies import choice_blocks
from simulator.reports.studies import Studies
from simulator.units import KILO

_SHOWN = 14


def _why_not(fleet: Fleet, best: Fleet) -> str:
    if fleet is best:
        return "recommended"
    if fleet.cost.per_hour is None or best.cost.per_hour is None:
        return "no price known"
    ratio = fleet.cost.per_hour / best.cost.per_hour
    if ratio >= 2:
        return f"costs {ratio:.1f} times as much"
    change = change_text(fleet.cost.per_hour, best.cost.per_hour)
    return f"costs {change}" if change else "costs the same"


def _option(fleet: Fleet, best: Fleet) -> Row:
    return Row(
        cells=(
            text(f"{fleet.hardware} {fleet.label}"),
            count(fleet.devices),
            money(fleet.cost.per_hour, digits=0),
            number(fleet.typical_w / KILO, digits=0),
            seconds(fleet.degraded.ttft_p95_s),
            seconds(fleet.degraded.tpot_p95_s),
            text(fleet.provenance),
            text(_why_not(fleet, best)),
        ),
        total=fleet is best,
    )


def options_section(studies: Studies) -> Section:
    """Every accelerator with the best that it can do, and those that cannot serve."""
    plan = studies.plan
    fleets = (plan.best, *plan.alternatives)
    columns = ("Option", "Devices", f"{studies.currency}/h", "kW", "TTFT p95", "TPOT p95", "Known", "Verdict")
    table = Table(
        key="options",
        title=f"{len(fleets)} options from {plan.candidates:,} candidates, cheapest first",
        columns=tuple(Column(title=name, numeric=name in columns[1:6]) for name in columns),
        rows=tuple(_option(fleet, plan.best) for fleet in fleets[:_SHOWN]),
        note="Each sized for the whole demand with the same spares; latencies at the peak with the spares down."
        + (f" {len(fleets) - _SHOWN} dearer ones are left out." if len(fleets) > _SHOWN else ""),
    )
    refused = Table(
        key="refused",
        title="Cannot serve",
        columns=(Column(title="Option"), Column(title="Why", wide=True)),
        rows=tuple(
            Row(cells=(text(f"{item.hardware} {item.label}"), text(item.message))) for item in nearest_rejections(plan)
        ),
    )
    blocks = [table, Figure(chart=pareto_chart(plan)), *([refused] if refused.rows else []), *choice_blocks(plan)]
    return Section(number=4, key="options", title="Options considered", blocks=tuple(blocks))


def _derivation(studies: Studies) -> Table:
    plan = studies.plan
    fleet, replica, demand = plan.best, plan.best.replica, plan.demand
    steps: tuple[tuple[str, Cell, str], ...] = (
        ("planned peak", number(demand.planned_rate_per_s, "requests/s"), "mean x peak over mean x headroom - cache"),
        ("rate that saturates a replica", number(replica.saturation_per_s, "requests/s"), "steady state of batching"),
        ("share of it that is planned", number(100 * replica.utilization, "%", digits=0), fleet.limit.detail),
        ("planned rate of a replica", number(replica.capacity_per_s, "requests/s"), "product of the two"),
        ("replicas for the peak", count(fleet.replicas), "peak over planned rate, rounded up"),
        ("spare replicas", count(fleet.spares), "for failure and maintenance"),
        ("devices of a replica", count(replica.devices), fleet.label),
        ("idle devices", count(fleet.idle_devices), "fill up whole servers"),
        ("devices in all", count(fleet.devices), "(replicas + spares) x devices + idle"),
    )
    return Table(
        key="sizing",
        title="From demand to devices",
        columns=(Column(title="Step"), Column(title="Value", numeric=True), Column(title="How", wide=True)),
        rows=tuple(
            Row(cells=(text(name), cell, text(how)), total=name.endswith("in all")) for name, cell, how in steps
        ),
    )


def sizing_section(studies: Studies) -> Section:
    """The derivation, the bottleneck and what failures do."""
    fleet = studies.plan.best
    roofline = roofline_chart(
        [("prefill", studies.prefill), ("decode", studies.decode)], deployment=fleet.replica.deployment
    )
    blocks = (
        Paragraph(text=f"Bottleneck: {fleet.limit.resource}; {fleet.limit.detail}.", tone=Tone.LEAD),
        _derivation(studies),
        Figure(chart=roofline),
        *_resilience(studies),
        Paragraph(text="The same in full"),
        Bullets(items=explanation(studies.plan)),
    )
    return Section(number=5, key="sizing", title="Sizing", blocks=tuple(blocks))


def _resilience(studies: Studies) -> list[Table | Paragraph]:
    found = studies.plan.resilience
    if found is None:
        text_ = (
            "Loss of a server, rolling maintenance and start-up were not studied; add --resilience to plan-capacity."
        )
        return [Paragraph(text=text_, tone=Tone.MISSING)]
    rows = (
        (
            "spares that survive a server",
            f"{found.spares_for_one_server} ({found.replicas_per_server} replicas a server)",
        ),
        ("start of a replica", f"{found.startup.delay_s:,.0f} s ({found.startup.source})"),
        ("rolling restart", f"{found.maintenance.at_once} at a time, {seconds_text(found.maintenance.total_s)} in all"),
        ("load allowed by the objectives", f"{found.load_target.by_objectives:.0%} ({found.load_target.binding})"),
    )
    pairs = list(rows)
    if found.availability is not None:
        up = found.availability
        pairs.append((f"availability {up.target:.4%}", f"{up.spares} spares needed, {up.achieved:.5%} reached"))
    return [
        Table(
            key="resilience",
            title="Failure and maintenance",
            columns=(Column(title="Question"), Column(title="Answer", wide=True)),
            rows=tuple(Row(cells=(text(name), text(value))) for name, value in pairs),
        )
    ]
