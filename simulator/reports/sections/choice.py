"""Sections 4 and 5: what else was considered, and how the size of the fleet follows."""

from __future__ import annotations

from simulator.planner.explain import explanation, nearest_rejections
from simulator.planner.fleet.availability import availability_text
from simulator.planner.records import Fleet, Replica
from simulator.reports.charts.options import pareto_chart
from simulator.reports.charts.roofline import roofline_chart
from simulator.reports.content.cells import count, known_as, money, number, seconds, text
from simulator.reports.content.document import (
    Block,
    Bullets,
    Cell,
    Column,
    Figure,
    Paragraph,
    Row,
    Section,
    Table,
    Tone,
)
from simulator.reports.content.quantities import change_text, percent_text, seconds_text
from simulator.reports.sections.choice_studies import choice_blocks
from simulator.reports.sections.stock_money import stock_money_blocks
from simulator.reports.studies import Studies
from simulator.reports.tables.plan import setup_text
from simulator.units import KILO, plain_text

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
            text(f"{fleet.devices_low:,}–{fleet.devices_high:,}"),
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
    columns = ("Option", "Devices", "80 %", f"{studies.currency}/h", "kW", "TTFT p95", "TPOT p95", "Known", "Verdict")
    table = Table(
        key="options",
        title=f"{len(fleets)} options from {plan.candidates:,} candidates, cheapest first",
        columns=tuple(Column(title=name, numeric=name in columns[1:7]) for name in columns),
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
    shown: tuple[Block, ...] = (table, Figure(chart=pareto_chart(plan)), *([refused] if refused.rows else []))
    blocks = (*shown, *choice_blocks(plan), *stock_money_blocks(studies))
    return Section(number=4, key="options", title="Options considered", blocks=blocks)


def _rounded(peak_per_s: float, capacity_per_s: float) -> str:
    return f"{plain_text(peak_per_s)} / {plain_text(capacity_per_s)} = {peak_per_s / capacity_per_s:,.2f}, rounded up"


def _whole_servers(fleet: Fleet) -> str:
    if fleet.server is None or fleet.servers is None:
        return "single accelerators, nothing to fill up"
    return f"fill up {fleet.servers} whole servers of {fleet.server.accelerators_per_server} ({fleet.server.name})"


_Step = tuple[str, Cell, str]


def _replica_steps(
    studies: Studies, replica: Replica, *, needed: int, spares: int, label: str, limit: str, role: str = ""
) -> tuple[_Step, ...]:
    """From the rate that saturates a replica to the replicas of its pool."""
    peak_per_s, known = studies.plan.demand.planned_rate_per_s, known_as(studies.plan.best.provenance)
    name = f"{role}replica"
    return (
        (
            f"rate that saturates a {name}",
            number(replica.saturation_per_s, "requests/s", origin=known),
            "steady state of batching",
        ),
        ("share of it that is planned", number(100 * replica.utilization, "%", digits=0), limit),
        (f"planned rate of a {name}", number(replica.capacity_per_s, "requests/s", origin=known), "product of the two"),
        (f"{name}s for the peak", count(needed), _rounded(peak_per_s, replica.capacity_per_s)),
        (f"spare {name}s", count(spares), "for failure and maintenance"),
        (f"devices of a {name}", count(replica.devices), label),
    )


def _derivation(studies: Studies) -> Table:
    fleet, pool = studies.plan.best, studies.plan.best.prefill
    role = "" if pool is None else "decode "
    total = f"({fleet.replicas} + {fleet.spares}) x {fleet.replica.devices} + {fleet.idle_devices}"
    prompts: tuple[_Step, ...] = ()
    if pool is not None:
        prompts = _replica_steps(
            studies,
            pool.replica,
            needed=pool.replicas,
            spares=pool.spares,
            label=pool.label,
            limit=pool.limit.detail,
            role="prefill ",
        )
        total = f"({pool.replicas} + {pool.spares}) x {pool.replica.devices} + {total}"
    own = _replica_steps(
        studies,
        fleet.replica,
        needed=fleet.replicas,
        spares=fleet.spares,
        label=setup_text(fleet),
        limit=fleet.limit.detail,
        role=role,
    )
    peak = number(studies.plan.demand.planned_rate_per_s, "requests/s")
    steps: tuple[_Step, ...] = (
        ("planned peak", peak, "mean x peak over mean x headroom - cache"),
        *prompts,
        *own,
        ("idle devices", count(fleet.idle_devices), _whole_servers(fleet)),
        ("devices in all", count(fleet.devices), total),
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
        Paragraph(text="The same in full", tone=Tone.HEAD),
        Bullets(items=tuple(line for line in explanation(studies.plan) if not line.startswith("refused "))),
    )
    return Section(number=5, key="sizing", title="Sizing", blocks=tuple(blocks))


def _resilience(studies: Studies) -> list[Table | Paragraph]:
    found = studies.plan.resilience
    if found is None:
        return []
    rows = (
        (
            "spares that survive a server, two servers",
            f"{found.spares_for_one_server}, {found.spares_for_two_servers} ({found.replicas_per_server} replicas a "
            f"server); planned: {found.spares}",
        ),
        ("start of a replica", f"{found.startup.delay_s:,.0f} s ({found.startup.source})"),
        (
            "rolling restart",
            f"{found.maintenance.at_once} at a time, {seconds_text(found.maintenance.total_s)} in all; at the peak the "
            f"objectives are {'held' if found.maintenance.holds else 'missed'} meanwhile",
        ),
        (
            "load allowed by the objectives",
            f"{percent_text(found.load_target.by_objectives)} ({found.load_target.binding})",
        ),
    )
    pairs = list(rows)
    if found.availability is not None:
        up = found.availability
        reached = f"{up.spares} spares needed, {availability_text(up.achieved)} reached ({up.source})"
        pairs.append((f"availability {availability_text(up.target)}", reached))
    return [
        Table(
            key="resilience",
            title="Failure and maintenance",
            columns=(Column(title="Question"), Column(title="Answer", wide=True)),
            rows=tuple(Row(cells=(text(name), text(value))) for name, value in pairs),
        )
    ]
