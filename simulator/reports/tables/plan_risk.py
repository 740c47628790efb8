"""Resilience, growth, rental and uncertainty of a plan as sections of text. Formatting only."""

from __future__ import annotations

from math import isfinite

from simulator.planner.fleet.availability import availability_text
from simulator.planner.records import CapacityPlan
from simulator.planner.studies.risk_records import Growth, RentalMix, Resilience, TornadoBar, Uncertainty
from simulator.reports.content.quantities import counted_text, percent_text, price_text, seconds_text
from simulator.reports.content.text import StudySection
from simulator.units import SECONDS_PER_HOUR, SECONDS_PER_MINUTE, plain_text


def _latency(seconds: float) -> str:
    return seconds_text(seconds) if isfinite(seconds) else "overloaded"


def resilience_section(found: Resilience) -> StudySection:
    """Loss cases as a table; availability, restarts, ramps and load as sentences."""
    columns = ("lost", "replicas left", "load", "TTFT p95", "TPOT p95", "E2E p95", "objectives")
    rows = tuple(
        (
            case.name,
            str(case.replicas_left),
            percent_text(case.load) if isfinite(case.load) else "-",
            _latency(case.ttft_p95_s),
            _latency(case.tpot_p95_s),
            _latency(case.e2e_p95_s),
            "hold" if case.holds else "MISSED",
        )
        for case in found.cases
    )
    start, rest, target = found.startup, found.maintenance, found.load_target
    lines = [
        f"load: the objectives allow {percent_text(target.by_objectives)} of saturation ({target.binding}); "
        f"planned are {percent_text(target.planned)}",
        f"by server: {counted_text(found.spares_for_one_server, 'spare replica')} for N+1, "
        f"{found.spares_for_two_servers} for N+2; planned: {found.spares}",
        f"rolling restart, {rest.at_once} at a time: {rest.rounds} rounds, "
        f"{rest.round_s / SECONDS_PER_MINUTE:.1f} min each, {rest.total_s / SECONDS_PER_HOUR:.1f} h in all; "
        f"{'objectives hold meanwhile' if rest.holds else 'at the peak objectives are missed meanwhile'}",
        f"a new replica answers after {start.delay_s:.0f} s ({start.source}); replicas that run ahead of "
        f"{plain_text(start.ramp_per_s2 * SECONDS_PER_MINUTE, digits=3)} requests/s more a minute: "
        f"{start.headroom_replicas:,}",
    ]
    if found.availability is not None:
        item = found.availability
        both = "" if item.spares_each is None else " of both pools"
        lines.insert(
            0,
            f"availability {availability_text(item.target)}: {counted_text(item.spares, 'spare')}{both} "
            f"({item.devices:,} GPUs) reach {availability_text(item.achieved)}; the plan's {item.present_spares} reach "
            f"{availability_text(item.present_achieved)}; a replica is down "
            f"{percent_text(item.unavailability, digits=3)} of the time ({item.source})",
        )
    return StudySection(title="Resilience", lines=tuple(lines), columns=columns, rows=rows)


def growth_section(growth: Growth) -> StudySection:
    """Orders as a table; the horizon as sentences."""
    last = growth.months[-1]
    ends = ", ".join(
        f"{band.name} ({percent_text(band.rate_per_month)} a month) {plain_text(rate)} requests/s on {count:,} GPUs"
        for band, rate, count in zip(growth.bands, last.rates_per_s, last.devices, strict=True)
    )
    rows = tuple(
        (
            step.date,
            str(step.devices_before),
            str(step.devices_after),
            step.order_by + (" (past)" if step.late else ""),
        )
        for step in growth.steps
    )
    lead = f"lead time {growth.lead_time_days:.0f} days ({growth.lead_time_source}); "
    lead += "orders for a quarter at a time, base band"
    lines = [f"after {last.month} months from {growth.start}: {ends}", lead]
    if growth.bridge_devices:
        there = growth.months[0].devices[1]
        rented = f"rent up to {growth.bridge_devices:,} until then beside the first {there:,}, which count as in place"
        lines.append(f"nothing that is ordered at the start arrives before {growth.bridge_until}: {rented}")
    return StudySection(
        title="Growth", lines=tuple(lines), columns=("in use", "GPUs before", "GPUs after", "order by"), rows=rows
    )


def rental_section(rental: RentalMix, *, currency: str) -> StudySection:
    """How to rent over a day or a week."""
    rows = tuple(
        (
            share.kind,
            str(share.devices),
            f"{share.mean_devices:.1f}",
            price_text(share.per_device_hour, currency),
            price_text(share.per_month, currency),
        )
        for share in rental.shares
    )
    saved = 1 - rental.per_month / rental.flat_per_month
    lines = (
        f"{price_text(rental.per_month, currency)} a month against {price_text(rental.flat_per_month, currency)} "
        f"for the peak all the time ({rental.flat_kind}): {percent_text(saved)} less",
        f"{price_text(rental.per_million_input_tokens, currency)} per 1M input and "
        f"{price_text(rental.per_million_output_tokens, currency)} per 1M output tokens",
        f"load over the {rental.period}: {rental.profile_source}; {min(rental.devices)} to {max(rental.devices)} GPUs",
        *rental.notes,
    )
    columns = ("kind", "GPUs", "on average", "per GPU-h", "per month")
    return StudySection(title=f"Renting over the {rental.period}", lines=lines, columns=columns, rows=rows)


def _tornado_row(bar: TornadoBar, currency: str) -> tuple[str, ...]:
    return (
        bar.name,
        bar.low,
        str(bar.devices_low),
        price_text(bar.cost_per_hour_low, currency),
        bar.high,
        str(bar.devices_high),
        price_text(bar.cost_per_hour_high, currency),
    )


def uncertainty_section(found: Uncertainty, *, currency: str) -> StudySection:
    """Quantiles, what breaks first and regret as sentences; the tornado as a table."""
    lines = [
        f"GPUs P10 {found.devices.p10:.0f}, P50 {found.devices.p50:.0f}, P90 {found.devices.p90:.0f} "
        f"({found.draws} draws, seed {found.seed}; step times within their interval, "
        f"demand spread {percent_text(found.demand_sigma)})"
    ]
    if found.cost_per_hour is not None:
        cost = found.cost_per_hour
        named = (("P10", cost.p10), ("P50", cost.p50), ("P90", cost.p90))
        lines.append("cost/h " + ", ".join(f"{name} {price_text(value, currency)}" for name, value in named))
    lines.append(f"the planned replicas, spares down, carry {percent_text(found.enough_share)} of the draws")
    if found.breaks_first:
        first = found.breaks_first[0]
        others = "; ".join(f"{item.name} {percent_text(item.margin)}" for item in found.breaks_first[1:])
        lines.append(f"breaks first: {first.name}, at {percent_text(first.margin)} {first.detail}; then {others}")
    lines += [
        f"regret of {item.hardware} {item.label}: {price_text(item.mean_regret_per_hour, currency)}/h on average above "
        f"the best of each draw, itself the best in {percent_text(item.best_share)}"
        for item in found.regrets[:3]
    ]
    columns = ("input", "low", "GPUs", "cost/h", "high", "GPUs", "cost/h")
    rows = tuple(_tornado_row(bar, currency) for bar in found.tornado)
    return StudySection(title="Uncertainty", lines=tuple(lines), columns=columns, rows=rows)


def owning_section(found: Uncertainty, *, currency: str) -> StudySection:
    """What moves the cost of owning: a bill of its own, that rented hours do not carry."""
    line = "a year of owning the fleet, each figure of the bill alone (rent holds the provider's power and space)"
    columns = ("figure", "low", "cost/y", "high", "cost/y")
    rows = tuple(
        (
            bar.name,
            bar.low,
            price_text(bar.annual_low, currency),
            bar.high,
            price_text(bar.annual_high, currency),
        )
        for bar in found.owning
    )
    return StudySection(title="Owning", lines=(line,), columns=columns, rows=rows)


def risk_sections(plan: CapacityPlan) -> list[StudySection]:
    """Those that were asked for."""
    currency, found = plan.best.cost.currency, []
    if plan.resilience is not None:
        found.append(resilience_section(plan.resilience))
    if plan.growth is not None:
        found.append(growth_section(plan.growth))
    if plan.rental is not None:
        found.append(rental_section(plan.rental, currency=currency))
    if plan.uncertainty is not None:
        found.append(uncertainty_section(plan.uncertainty, currency=currency))
        if plan.uncertainty.owning:
            found.append(owning_section(plan.uncertainty, currency=currency))
    if plan.verification is not None:
        from simulator.reports.tables.verification import finalist_lines, replay_text, verification_lines

        lines = verification_lines(f"{plan.best.hardware} {plan.best.label}", plan.verification)
        found.append(StudySection(title="Checked by event simulation", lines=(lines[0],), laid_out=tuple(lines[1:])))
        if plan.finalists is not None:
            head, *table = finalist_lines(plan.finalists)
            lines = [head, replay_text(plan)] if plan.finalists.replayed else [head]
            found.append(StudySection(title="Finalists", lines=tuple(lines), laid_out=tuple(table)))
    return found
