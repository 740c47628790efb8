"""Section 5: how the size of the fleet follows from the demand, and what limits a replica."""

from __future__ import annotations

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.fleet.records import Fleet, FleetPool
from simulator.planner.studies.measured_rate import MeasuredObjective, MeasuredRate
from simulator.reports.charts.roofline import roofline_chart
from simulator.reports.content import document as doc
from simulator.reports.content.document import Block, Bullets, count, kilowatts, price, table
from simulator.reports.content.quantities import counted_text, kilowatts_text, price_text, seconds_text, served_unit
from simulator.reports.sections.resilience import operation_blocks
from simulator.reports.studies import Studies, of_each
from simulator.reports.words.derivation import derivation, detail_text
from simulator.reports.words.fields import flag_of
from simulator.reports.words.plan_inputs import resource_text
from simulator.units import plain_text


def _whole_servers(fleet: Fleet) -> str:
    if fleet.server is None or fleet.servers is None:
        return "single accelerators, nothing to fill up"
    filled = (
        f"{item.servers} whole servers of {item.server.accelerators_per_server} ({item.server.name})"
        for item in fleet.housing
        if item.server is not None
    )
    return f"fill up {' and '.join(filled)}"


_Step = tuple[str, doc.Cell, str]


def _replica_steps(studies: Studies, pool: FleetPool) -> tuple[_Step, ...]:
    """From the rate that saturates a replica to the replicas of its pool."""
    peak_per_s, known = studies.plan.demand.planned_rate_per_s, doc.known_as(studies.plan.best.provenance)
    replica, name = pool.replica, f"{pool.role} replica".strip()
    needed = f"{replica.needed_for(peak_per_s):,.2f}"
    quotient = f"{plain_text(peak_per_s)} / {plain_text(replica.capacity_per_s)} = {needed}"
    saturating, planned = (
        doc.number(rate_per_s, served_unit(studies.plan.demand), origin=known)
        for rate_per_s in (replica.saturation_per_s, replica.capacity_per_s)
    )
    return (
        (f"rate that saturates a {name}", saturating, "steady state of batching"),
        ("share of it that is planned", doc.number(100 * replica.utilization, "%", digits=0), detail_text(pool.limit)),
        (f"planned rate of a {name}", planned, "product of the two"),
        (f"{name}s for the peak", doc.count(pool.replicas), f"{quotient}, rounded up"),
        (f"spare {name}s", doc.count(pool.spares), "for failure and maintenance"),
        (f"devices of a {name}", doc.count(replica.devices), pool.label),
    )


def _derivation(studies: Studies) -> doc.Table:
    fleet = studies.plan.best
    of_pools = [step for pool in fleet.pools for step in _replica_steps(studies, pool)]
    counted = " + ".join(f"({pool.replicas} + {pool.spares}) x {pool.replica.devices}" for pool in fleet.pools)
    peak = doc.number(studies.plan.demand.planned_rate_per_s, served_unit(studies.plan.demand))
    steps: tuple[_Step, ...] = (
        ("planned peak", peak, "mean x peak over mean x headroom - cache"),
        *of_pools,
        ("idle devices", doc.count(fleet.idle_devices), _whole_servers(fleet)),
    )
    total: _Step = ("devices in all", doc.count(fleet.devices), f"{counted} + {fleet.idle_devices}")
    heads = "Step: | Value | How::"
    rows = [*(doc.row(*step) for step in steps), doc.row(*total, total=True)]
    return doc.table("sizing", "From demand to devices", heads, rows)


def sizing_content(studies: Studies) -> tuple[doc.Block, ...]:
    """The derivation, the bottleneck and what failures do."""
    fleet = studies.plan.best
    roofline = roofline_chart(studies.steps, deployment=fleet.replica.deployment)
    return (
        doc.Paragraph(
            text=f"Bottleneck: {resource_text(fleet.limit)}; {detail_text(fleet.limit)}.", tone=doc.Tone.LEAD
        ),
        _derivation(studies),
        doc.Figure(chart=roofline),
        *of_each(studies.plan, operation_blocks),
        doc.Paragraph(text="The same in full", tone=doc.Tone.HEAD),
        doc.Bullets(items=derivation(studies.plan)),
    )


KNOWN = "measured by you"


def measured_sentence(found: MeasuredRate, currency: str) -> str:
    """GPUs = those that the measured rate needs + spare + idle, cost and power."""
    parts = [f"{found.needed_devices} at {found.rate_per_gpu_per_s:g} requests/s each ({KNOWN})"]
    parts += [f"{found.spare_devices} spare"] if found.spare_devices else []
    parts += [f"{found.idle_devices} idle in whole servers"] if found.idle_devices else []
    hourly, power = price_text(found.cost_per_hour, currency), kilowatts_text(found.typical_w)
    gpus = f"{counted_text(found.devices, 'GPU')} {found.hardware}"
    over = f", {found.gpus_over:,} more than {flag_of('max_gpus')} allows" if found.gpus_over else ""
    return f"{gpus} ({found.label}) = {' + '.join(parts)}: {hourly}/h, {power} kW{over}"


def _objective(item: MeasuredObjective) -> str:
    if item.measured_s is None:
        return f"{item.name}: not said what was measured ({flag_of('measured_at')}), taken to hold"
    verdict = "within" if item.holds else "measure at a lower rate: above"
    return f"{item.name}: {seconds_text(item.measured_s)} {KNOWN}, {verdict} {seconds_text(item.bound_s)}"


def measured_blocks(plan: CapacityPlan) -> tuple[Block, ...]:
    """Both fleets and what became of the objectives; nothing where no rate was measured."""
    found, best = plan.study(MeasuredRate), plan.best
    if found is None:
        return ()
    heads = "known as: | setup: | GPUs | cost/h | per 1M requests | kW"
    fleets = (
        (KNOWN, found.label, found.devices, found.cost_per_hour, found.cost_per_million_requests, found.typical_w),
        (best.provenance, best.label, best.devices, best.cost.per_hour, best.cost.per_million_requests, best.typical_w),
    )
    rows = [
        (known, label, count(devices), price(hourly), price(by_request), kilowatts(power_w))
        for known, label, devices, hourly, by_request, power_w in fleets
    ]
    said = [
        f"{found.rate_per_gpu_per_s:g} requests/s a GPU where prediction plans for {found.predicted_per_gpu_per_s:.3g} "
        f"({found.label})",
        *map(_objective, found.objectives),
    ]
    said.append("everything else said of this plan is about the predicted fleet")
    return (table("measured_rate", "By the measured rate", heads, rows), Bullets(items=tuple(said)))
