"""A capacity plan as a sentence, a table, CSV and Markdown: formatting only."""

from __future__ import annotations

import csv
from io import StringIO
from typing import TYPE_CHECKING

from simulator.planner.explain import explanation
from simulator.planner.records import CapacityPlan, Fleet
from simulator.planner.studies.registry import has_studies
from simulator.reports.content.quantities import counted_text, kilowatts_text, price_text, seconds_text
from simulator.reports.content.text import StudySection, section_markdown, section_text, text_table

if TYPE_CHECKING:
    from simulator.planner.studies.choice_records import FleetShare, StockPlan


SHOWN_FLEETS = 10

CSV_COLUMNS = (
    "rank",
    "hardware",
    "setup",
    "devices",
    "devices_low",
    "devices_high",
    "replicas",
    "devices_per_replica",
    "spare_replicas",
    "idle_devices",
    "servers",
    "cost_per_hour",
    "price_kind",
    "currency",
    "cost_per_million_output_tokens",
    "cost_per_million_input_tokens",
    "power_typical_w",
    "power_max_w",
    "ttft_p95_s",
    "tpot_p95_s",
    "e2e_p95_s",
    "capacity_per_replica_per_s",
    "limited_by",
    "provenance",
    "prefill_replicas",
    "prefill_spare_replicas",
    "prefill_devices_per_replica",
)
TABLE_COLUMNS = (
    "hardware",
    "setup",
    "GPUs",
    "80 %",
    "replicas",
    "cost/h",
    "price",
    "per 1M out",
    "kW",
    "TTFT p95",
    "TPOT p95",
    "limited by",
    "known",
)


def device_word(fleet: Fleet) -> str:
    """What people call these accelerators."""
    return "GPUs" if fleet.replica.deployment.hardware.vendor in ("nvidia", "amd") else "accelerators"


def _devices(number: int, word: str) -> str:
    return f"{number} {word.removesuffix('s') if number == 1 else word}"


def sentence(plan: CapacityPlan) -> str:
    """GPUs = replicas x GPUs per replica + spares + idle, cost, power, limit; with stock, its shares."""
    return _new_fleet_sentence(plan) if plan.stock is None else _stock_sentence(plan.stock, plan.best.cost.currency)


def _existing(share: FleetShare) -> str:
    if not share.from_stock:
        return ""
    return f", {share.from_stock} of them stock" if share.bought else ", stock"


def _stock_sentence(stock: StockPlan, currency: str) -> str:
    parts = [
        f"{counted_text(share.replicas, 'replica')} + {share.spares} spare on {share.devices} {share.hardware} "
        f"({share.label}{_existing(share)})"
        for share in stock.shares
    ]
    cost, power = price_text(stock.cost_per_hour, currency), kilowatts_text(stock.typical_w)
    return f"{stock.devices} GPUs, {stock.bought} of them to obtain = {' + '.join(parts)}: {cost}/h, {power} kW"


def _new_fleet_sentence(plan: CapacityPlan) -> str:
    fleet, word = plan.best, device_word(plan.best)
    parts = _pool_parts(fleet, word=word)
    if fleet.idle_devices:
        parts.append(f"{_devices(fleet.idle_devices, f'idle {word}')} in whole servers")
    hourly = fleet.cost.per_hour
    cost = "price unknown" if hourly is None else f"{price_text(hourly, fleet.cost.currency)}/h"
    return (
        f"{_devices(fleet.devices, word)} = {' + '.join(parts)}: {cost}, {kilowatts_text(fleet.typical_w)} kW, "
        f"limited by {fleet.limit.resource}"
    )


def _pool_parts(fleet: Fleet, *, word: str) -> list[str]:
    """``250 replicas x 2 mi300x (TP2)`` and the spares of every pool."""
    pool, role, of_spares = fleet.prefill, "", "spare replica"
    parts, spare = [], [(fleet.spares, fleet.replica.devices, of_spares)]
    if pool is not None:
        name = counted_text(pool.replicas, "prefill replica")
        parts.append(f"{name} x {pool.replica.devices} {fleet.hardware} ({pool.label})")
        role = "decode "
        spare = [(pool.spares, pool.replica.devices, "spare for prefill"), (*spare[0][:2], "spare for decode")]
    own = f"({setup_text(fleet)})"
    parts.append(f"{counted_text(fleet.replicas, f'{role}replica')} x {fleet.replica.devices} {fleet.hardware} {own}")
    for count, devices, text in spare:
        if count:
            shown = f"{count} {text}" if role else counted_text(count, text)
            parts.append(f"{shown} ({_devices(count * devices, word)})")
    return parts


def setup_text(fleet: Fleet) -> str:
    """Set-up of the fleet's own replicas, without those of a prefill pool."""
    return fleet.label.partition(" + decode ")[2] if fleet.prefill is not None else fleet.label


def replicas_text(fleet: Fleet) -> str:
    """``250 + 1``: replicas and spares; of two pools ``88P + 1, 32D + 1``."""
    own = f"{fleet.replicas} + {fleet.spares}"
    pool = fleet.prefill
    return own if pool is None else f"{pool.replicas}P + {pool.spares}, {fleet.replicas}D + {fleet.spares}"


def fleet_cells(fleet: Fleet) -> tuple[str, ...]:
    """One fleet as text, in the order of TABLE_COLUMNS; latencies hold with the spares down."""
    currency = fleet.cost.currency
    return (
        fleet.hardware,
        fleet.label,
        str(fleet.devices),
        f"{fleet.devices_low}-{fleet.devices_high}",
        replicas_text(fleet),
        price_text(fleet.cost.per_hour, currency),
        fleet.cost.kind,
        price_text(fleet.cost.per_million_output_tokens, currency),
        kilowatts_text(fleet.typical_w),
        seconds_text(fleet.degraded.ttft_p95_s),
        seconds_text(fleet.degraded.tpot_p95_s),
        fleet.limit.resource,
        fleet.provenance,
    )


def _fleets(plan: CapacityPlan) -> tuple[Fleet, ...]:
    return (plan.best, *plan.alternatives)


def assumption_lines(plan: CapacityPlan) -> list[str]:
    """Everything the plan rests on, with its source."""
    return [f"{item.name}: {item.value} ({item.source})" for item in plan.assumptions]


def study_sections(plan: CapacityPlan) -> list[StudySection]:
    """Sections of the studies that were asked for; their tables are imported only then."""
    if not has_studies(plan.spec) and plan.search is None:
        return []
    from simulator.reports.tables.plan_choice import choice_sections
    from simulator.reports.tables.plan_risk import risk_sections

    return [*choice_sections(plan), *risk_sections(plan)]


def _covered(plan: CapacityPlan) -> tuple[str, ...]:
    """Which requests the objectives are over, where that is not the planned peak."""
    if plan.finalists is None or not plan.finalists.replayed:
        return ()
    from simulator.reports.tables.verification import covered_text

    return (covered_text(plan.finalists),)


def plan_text(plan: CapacityPlan, *, explain: bool) -> str:
    """The answer for people: sentence, table, derivation if asked for, assumptions."""
    fleets = _fleets(plan)
    table = text_table(TABLE_COLUMNS, [fleet_cells(fleet) for fleet in fleets[:SHOWN_FLEETS]])
    parts = [sentence(plan), *_covered(plan), "", table]
    parts.append(
        f"({counted_text(len(fleets), 'option')} from {plan.candidates} candidates, cheapest first"
        + (f"; {len(fleets) - SHOWN_FLEETS} more with --output csv" if len(fleets) > SHOWN_FLEETS else "")
        + "; latencies at the planned peak with the spares down)"
    )
    for section in study_sections(plan):
        parts += section_text(section)
    if explain:
        parts += ["", "How it was derived", *(f"- {line}" for line in explanation(plan))]
    parts += ["", "Assumptions", *(f"- {line}" for line in assumption_lines(plan))]
    return "\n".join(parts) + "\n"


def plan_markdown(plan: CapacityPlan, *, explain: bool) -> str:
    """The same as Markdown."""
    rows = [fleet_cells(fleet) for fleet in _fleets(plan)[:SHOWN_FLEETS]]
    lines = [f"**{sentence(plan)}**", *(f"\n{line}" for line in _covered(plan)), ""]
    lines += [f"| {' | '.join(TABLE_COLUMNS)} |", "|" + " --- |" * len(TABLE_COLUMNS)]
    lines += [f"| {' | '.join(cells)} |" for cells in rows]
    for section in study_sections(plan):
        lines += section_markdown(section)
    if explain:
        lines += ["", "## How it was derived", "", *(f"- {line}" for line in explanation(plan))]
    lines += ["", "## Assumptions", "", *(f"- {line}" for line in assumption_lines(plan))]
    return "\n".join(lines) + "\n"


def _prefill_numbers(fleet: Fleet) -> tuple[int | None, int | None, int | None]:
    """Of the pool that computes the prompts; empty where replicas do both."""
    pool = fleet.prefill
    return (None, None, None) if pool is None else (pool.replicas, pool.spares, pool.replica.devices)


def plan_csv(plan: CapacityPlan) -> str:
    """Every fleet as one row of numbers in SI units; an unknown price is empty."""
    stream = StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for rank, fleet in enumerate(_fleets(plan), start=1):
        writer.writerow(
            (
                rank,
                fleet.hardware,
                fleet.label,
                fleet.devices,
                fleet.devices_low,
                fleet.devices_high,
                fleet.replicas,
                fleet.replica.devices,
                fleet.spares,
                fleet.idle_devices,
                fleet.servers,
                fleet.cost.per_hour,
                fleet.cost.kind,
                fleet.cost.currency,
                fleet.cost.per_million_output_tokens,
                fleet.cost.per_million_input_tokens,
                fleet.typical_w,
                fleet.maximum_w,
                fleet.degraded.ttft_p95_s,
                fleet.degraded.tpot_p95_s,
                fleet.degraded.e2e_p95_s,
                fleet.replica.capacity_per_s,
                fleet.limit.resource,
                fleet.provenance,
                *_prefill_numbers(fleet),
            )
        )
    return stream.getvalue()
