"""Plans of several models side by side: one line each, what each step down saves and loses, or the sum of a mix."""

from __future__ import annotations

import json
from typing import Any

from simulator.planner.model_plans import ModelPlans, StepDown
from simulator.reports.content.document import (
    EMPTY,
    Block,
    Bullets,
    Paragraph,
    Section,
    Table,
    Tone,
    columns,
    count,
    fraction,
    kilowatts,
    price,
    row,
    seconds,
    table,
)
from simulator.reports.content.quantities import (
    change_text,
    count_text,
    percent_text,
    price_text,
    rate_text,
)
from simulator.reports.contract import SCHEMA_VERSION
from simulator.reports.sections.answer import replicas_text, sentence
from simulator.reports.tables.plan_document import plan_document
from simulator.reports.words.flags import flagged
from simulator.reports.words.warnings import warning_texts

_SAME = "unchanged"


def _headline(found: ModelPlans) -> str:
    currency = found.planned[0][1].best.cost.currency
    if found.mixed:
        rate = rate_text(sum(plan.demand.planned_rate_per_s for _, plan in found.planned), "requests")
        parts = (
            f"{count_text(plan.best.devices)} for {item.name} ({percent_text(item.share)})"
            for item, plan in found.planned
        )
        cost = price_text(found.cost_per_hour, currency)
        return f"{count_text(found.devices)} GPUs = {' + '.join(parts)}: {cost}/h for {rate}"
    priced = [pair for pair in found.planned if pair[1].best.cost.per_hour is not None]
    item, plan = min(priced or found.planned, key=lambda pair: pair[1].best.cost.per_hour or pair[1].best.devices)
    rate = rate_text(plan.demand.planned_rate_per_s, "requests")
    hourly = price_text(plan.best.cost.per_hour, currency)
    return f"{item.name} is the cheapest of {len(found.members)}: {hourly}/h for {rate}"


def _fleets(found: ModelPlans) -> Table:
    names = ("model", *(("share",) if found.mixed else ()), "hardware", "setup", "GPUs", "replicas", "cost/h")
    rows = [
        row(
            item.name,
            *((fraction(item.share),) if found.mixed else ()),
            plan.best.accelerators,
            plan.best.label,
            count(plan.best.devices),
            replicas_text(plan.best),
            price(plan.best.cost.per_hour),
            price(plan.best.cost.per_million_output_tokens),
            kilowatts(plan.best.typical_w),
            seconds(plan.best.degraded.ttft_p95_s),
            seconds(plan.best.degraded.tpot_p95_s),
            plan.best.provenance,
        )
        for item, plan in found.planned
    ]
    if found.mixed:
        total = ("all", fraction(1.0), EMPTY, EMPTY, count(found.devices), EMPTY, price(found.cost_per_hour), EMPTY)
        power = kilowatts(sum(plan.best.typical_w for _, plan in found.planned))
        rows.append(row(*total, power, EMPTY, EMPTY, EMPTY, total=True))
    heads = columns(
        *names,
        *("per 1M out", "kW", "TTFT p95", "TPOT p95", "known"),
        words=("model", "hardware", "setup", "known"),
    )
    return table("models", "", heads, rows, note="latencies at the planned peak with the spares down")


def _changes(step: StepDown) -> dict[str, tuple[float | None, float | None]]:
    before, after = step.fleets
    return {
        "cost": (before.cost.per_hour, after.cost.per_hour),
        "power": (before.typical_w, after.typical_w),
        "TTFT p95": (before.degraded.ttft_p95_s, after.degraded.ttft_p95_s),
        "TPOT p95": (before.degraded.tpot_p95_s, after.degraded.tpot_p95_s),
    }


def _step_text(step: StepDown) -> str:
    said = [f"{name} {change_text(now, then) or _SAME}" for name, (then, now) in _changes(step).items()]
    return f"{step.before.name} to {step.after.name}: {', '.join(said)}; answers: {step.quality}"


def models_sections(found: ModelPlans) -> tuple[Section, ...]:
    """The answer, the steps down, and each model's own sentence."""
    blocks: tuple[Block, ...] = (Paragraph(text=_headline(found), tone=Tone.LEAD), _fleets(found))
    steps = tuple(_step_text(step) for step in found.steps)
    own = tuple(f"{item.name}: {sentence(plan)}" for item, plan in found.planned)
    refused = tuple(f"{item.name}: no plan: {flagged(item.refusal)}" for item in found.members if item.plan is None)
    return (
        Section(key="models", title="", blocks=blocks),
        *((Section(key="steps", title="Each step down", blocks=(Bullets(items=steps),)),) if steps else ()),
        Section(key="fleets", title="Fleets", blocks=(Bullets(items=(*own, *refused)),)),
    )


def models_warnings(found: ModelPlans) -> tuple[str, ...]:
    """What each plan warns of, by model."""
    return tuple(f"{item.name}: {text}" for item, plan in found.planned for text in warning_texts(plan.warnings))


def models_document(found: ModelPlans) -> dict[str, Any]:
    """Every plan's own document, the steps down and the sum of a mix, SI units."""
    return {
        "schema_version": SCHEMA_VERSION,
        "answer": _headline(found),
        "mixed": found.mixed,
        "models": [
            {
                "model": item.model,
                "weights": item.weights or None,
                "share": item.share,
                "refusal": flagged(item.refusal) or None,
                "plan": None if item.plan is None else json.loads(plan_document(item.plan)),
            }
            for item in found.members
        ],
        "steps": [
            {
                "from": step.before.name,
                "to": step.after.name,
                "change_fraction": {
                    name: None if now is None or not then else now / then - 1
                    for name, (then, now) in _changes(step).items()
                },
                "quality": step.quality,
            }
            for step in found.steps
        ],
        "total": {"devices": found.devices, "cost_per_hour": found.cost_per_hour} if found.mixed else None,
    }
