"""Deployments side by side: one row per number, one column per deployment."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.format_quality import AnswerQuality
from simulator.planner.what_if import WhatIf, scenario_quality
from simulator.reports.contract import Json
from simulator.reports.phase_figures import PHASES, memory_figures, phase_figures
from simulator.reports.quantities import bytes_text, money_text, seconds_text, signed_percent_text
from simulator.reports.scenario_figures import ScenarioFigure, least_known, power_text, scenario_figures

Compared = tuple[str, WhatIf, Json]
"""A name, a what-if and its contract object."""


def deployment_text(what_if: WhatIf) -> str:
    """``4 × h100-sxm-80gb``, with what differs from the published model."""
    scenario = what_if.scenario
    parts = [f"{what_if.devices} × {what_if.result.deployment.hardware.name}"]
    if scenario.precision.weights is not None:
        parts.append(f"{scenario.precision.weights.value} weights")
    if scenario.precision.scheme is not None:
        parts.append(scenario.precision.scheme)
    if scenario.precision.kv_cache is not None:
        parts.append(f"{scenario.precision.kv_cache.value} KV cache")
    parts += [
        name.replace("_", " ")
        for name, value in scenario.techniques.model_dump(exclude_defaults=True).items()
        if value is not None
    ]
    return ", ".join(parts)


def compare_headline(compared: Sequence[Compared]) -> str:
    """The fastest, and the cheapest where prices are known; by the first token where there is no other."""
    field, noun = ("tpot_s", "per token") if all(item[2]["tpot_s"] for item in compared) else ("ttft_s", "to a token")
    fastest = min(compared, key=lambda item: item[2][field])
    sentence = f"{fastest[0]} is fastest at {seconds_text(fastest[2][field])} {noun}"
    priced = [item for item in compared if item[1].cost.per_million_output_tokens is not None]
    if not priced:
        return sentence
    cheapest = min(priced, key=lambda item: item[1].cost.per_million_output_tokens or 0.0)
    cost = cheapest[1].cost
    price = money_text(cost.per_million_output_tokens, cost.currency)
    if cheapest[0] == fastest[0]:
        return f"{sentence} and cheapest at {price} per million output tokens"
    return f"{sentence}, {cheapest[0]} is cheapest at {price} per million output tokens"


def quality_text(quality: AnswerQuality) -> str:
    """``as published``, ``perplexity +65 %`` or ``unknown``."""
    if quality.loss is None:
        return "unknown: nothing published"
    return f"perplexity {signed_percent_text(quality.loss)}" if quality.loss else "as published"


def compare_provenance(compared: Sequence[Compared]) -> str:
    """How the least known of them is known."""
    return least_known(document["provenance"] for _, _, document in compared)


def compare_columns(compared: Sequence[Compared]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Rows of text and their heading."""
    figures = [scenario_figures(what_if, document) for _, what_if, document in compared]
    rows: list[tuple[str, ...]] = [("Deployment", *(deployment_text(what_if) for _, what_if, _ in compared))]
    rows += _rows_of(figures)
    for phase in PHASES:
        found = [phase_figures(document, phase=phase) for _, _, document in compared]
        if all(found):
            rows += _rows_of(found)
            rows.append((f"{phase.capitalize()} waits for", *(document[phase]["bound"] for _, _, document in compared)))
    memory = [memory_figures(document) for _, _, document in compared]
    rows += [
        ("Power", *(power_text(document) for _, _, document in compared)),
        ("Weights per device", *(bytes_text(document["memory"]["weights_bytes"]) for _, _, document in compared)),
        *_rows_of([found[:1] for found in memory]),
        ("Quality", *(quality_text(scenario_quality(what_if.result)) for _, what_if, _ in compared)),
        ("Known as", *(document["provenance"] for _, _, document in compared)),
    ]
    return rows, ("", *(name for name, _, _ in compared))


def _rows_of(figures: Sequence[Sequence[ScenarioFigure]]) -> list[tuple[str, ...]]:
    """One row per figure that every deployment has, the interval in brackets."""
    return [
        (each[0].label, *(f"{item.text} ({item.interval})" if item.interval else item.text for item in each))
        for each in zip(*figures, strict=True)
    ]


def room_text(compared: Sequence[Compared]) -> str:
    """The intervals of the caches, one after the other: ``A 430,000 – 472,000 tokens, B ...``."""
    return ", ".join(
        f"{name} {room.interval} tokens"
        for name, _, document in compared
        if (room := memory_figures(document)[0]).interval
    )
