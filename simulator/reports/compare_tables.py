"""Deployments side by side: one row per number, one column per deployment."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.what_if import AnswerQuality, WhatIf, answer_quality
from simulator.reports.contract import Json
from simulator.reports.quantities import bytes_text, count_text, money_text, seconds_text
from simulator.reports.scenario_figures import least_known, phase_texts, power_text, scenario_figures

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
    parts += [
        name.replace("_", " ")
        for name, value in scenario.techniques.model_dump(exclude_defaults=True).items()
        if value is not None
    ]
    return ", ".join(parts)


def compare_headline(compared: Sequence[Compared]) -> str:
    """The fastest, and the cheapest where prices are known."""
    fastest = min(compared, key=lambda item: item[2]["tpot_s"] or 0.0)
    sentence = f"{fastest[0]} is fastest at {seconds_text(fastest[2]['tpot_s'])} per token"
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
    return f"perplexity {100 * quality.loss:+.0f} %" if quality.loss else "as published"


def compare_provenance(compared: Sequence[Compared]) -> str:
    """How the least known of them is known."""
    return least_known(document["provenance"] for _, _, document in compared)


def compare_columns(compared: Sequence[Compared]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Rows of text and their heading."""
    figures = [scenario_figures(what_if, document) for _, what_if, document in compared]
    rows: list[tuple[str, ...]] = [("Deployment", *(deployment_text(what_if) for _, what_if, _ in compared))]
    for place, first in enumerate(figures[0]):
        cells = [
            f"{each[place].text} ({each[place].interval})" if each[place].interval else each[place].text
            for each in figures
        ]
        rows.append((first.label, *cells))
    phases = [phase_texts(document) for _, _, document in compared]
    for place in range(min(len(each) for each in phases)):
        rows.append(
            (
                f"{phases[0][place][0]} step",
                *(f"{each[place][1]}, {each[place][4]} bound, MBU {each[place][3]}" for each in phases),
            )
        )
    rows += [
        ("Power", *(power_text(document) for _, _, document in compared)),
        ("Weights per device", *(bytes_text(document["memory"]["weights_bytes"]) for _, _, document in compared)),
        ("Cached tokens", *(count_text(document["memory"]["kv_capacity_tokens"]) for _, _, document in compared)),
        ("Quality", *(quality_text(answer_quality(what_if.result)) for _, what_if, _ in compared)),
        ("Known as", *(document["provenance"] for _, _, document in compared)),
    ]
    return rows, ("", *(name for name, _, _ in compared))
