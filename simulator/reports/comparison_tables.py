"""A comparison as people and programs read it: the waterfall in order, and each change alone."""

from __future__ import annotations

from dataclasses import asdict

from simulator.planner.comparison import Comparison, Outcome
from simulator.reports.contract import Json
from simulator.reports.quantities import (
    bytes_text,
    change_text,
    count_text,
    joules_text,
    money_text,
    rate_text,
    seconds_text,
)
from simulator.reports.text_table import text_table

SCHEMA_VERSION = "1.0"
COLUMNS = ("TTFT", "TPOT", "E2E", "output", "weights/GPU", "KV tokens", "J/token", "per 1M out")


def _values(outcome: Outcome) -> tuple[str, ...]:
    return (
        seconds_text(outcome.ttft_s),
        seconds_text(outcome.tpot_s),
        seconds_text(outcome.e2e_s),
        rate_text(outcome.output_tokens_per_s, "tok"),
        bytes_text(outcome.weights_bytes),
        count_text(outcome.kv_capacity_tokens),
        joules_text(outcome.energy_per_output_token_j),
        money_text(outcome.cost_per_million_output_tokens, outcome.currency),
    )


def _differences(now: Outcome, before: Outcome) -> tuple[str, ...]:
    return tuple(
        change_text(None if value is None else float(value), None if other is None else float(other)) or "="
        for value, other in zip(now.numbers, before.numbers, strict=True)
    )


def comparison_text(comparison: Comparison) -> str:
    """Base, one line per change on top of those before it, the result; then each change alone; then quality."""
    rows = [("base", *_values(comparison.base))]
    before = comparison.base
    for step in comparison.steps:
        rows.append((f"+ {step.change.text}", *_differences(step.together, before)))
        before = step.together
    rows.append(("result", *_values(comparison.final)))
    rows.append(("against base", *_differences(comparison.final, comparison.base)))
    lines = ["Each change on top of those before it", "", text_table(("", *COLUMNS), rows)]
    if len(comparison.steps) > 1:
        lines += ["", "Each change alone, against the base", "", text_table(("", *COLUMNS), _alone(comparison))]
    lines += [
        f"cannot stand alone: {step.change.text}: {step.alone_refusal}"
        for step in comparison.steps
        if step.alone is None
    ]
    lines += ["", f"Quality: base {comparison.base.quality}; result {comparison.final.quality}"]
    return "\n".join(lines)


def _alone(comparison: Comparison) -> list[tuple[str, ...]]:
    return [
        (step.change.text, *_differences(step.alone, comparison.base))
        for step in comparison.steps
        if step.alone is not None
    ]


def comparison_object(comparison: Comparison) -> Json:
    """The same as one JSON document."""
    return {
        "schema_version": SCHEMA_VERSION,
        "id": comparison.scenario.id,
        "kind": comparison.scenario.kind,
        "base": asdict(comparison.base),
        "steps": [
            {
                "change": step.change.text,
                "together": asdict(step.together),
                "alone": None if step.alone is None else asdict(step.alone),
                "alone_refusal": step.alone_refusal or None,
            }
            for step in comparison.steps
        ],
    }
