"""The numbers of one deployment that stand on top of a page: text, value, 80 % interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from simulator.kernels.timing import Provenance
from simulator.planner.what_if import WhatIf
from simulator.reports.contract import Json
from simulator.reports.quantities import (
    joules_text,
    money_text,
    range_text,
    rate_text,
    seconds_text,
    watts_text,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioFigure:
    """One number: ``key`` of the contract's result, its text, the 80 % interval as text or nothing."""

    key: str
    label: str
    value: float | None
    text: str
    interval: str = ""
    lower_is_better: bool = True


def _latency(document: Json, key: str, label: str) -> ScenarioFigure:
    value = document[key]
    return ScenarioFigure(
        key=key, label=label, value=value, text=seconds_text(value), interval=_interval(document, key, seconds_text)
    )


def _tokens(value: float) -> str:
    return rate_text(value, "tok")


def _interval(document: Json, key: str, text: Callable[[float], str]) -> str:
    found = document["interval"].get(key)
    return range_text(found, text) if found else ""


def per_token_ends(document: Json, value: float | None) -> tuple[float, float] | None:
    """80 % interval of what is spent per token at a known rate of spending: that of the throughput, upside down."""
    found, now = document["interval"].get("output_tokens_per_s"), document["output_tokens_per_s"]
    return (value * now / found[1], value * now / found[0]) if found and value is not None else None


def _per_token(document: Json, value: float | None, text: Callable[[float], str]) -> str:
    ends = per_token_ends(document, value)
    return range_text(ends, text) if ends else ""


def scenario_figures(what_if: WhatIf, document: Json) -> tuple[ScenarioFigure, ...]:
    """Latencies, throughput, price and energy of a scenario, as ``roofcast simulate`` prints them.

    document : ``result_object`` of the same result
    """
    cost = what_if.cost
    energy = document["energy_per_output_token_j"]
    return (
        _latency(document, "ttft_s", "TTFT"),
        _latency(document, "tpot_s", "TPOT"),
        _latency(document, "e2e_s", "End to end"),
        ScenarioFigure(
            key="output_tokens_per_s",
            label="Throughput",
            value=document["output_tokens_per_s"],
            text=_tokens(document["output_tokens_per_s"]),
            interval=_interval(document, "output_tokens_per_s", _tokens),
            lower_is_better=False,
        ),
        ScenarioFigure(
            key="per_million_output_tokens",
            label="Per 1M tokens out",
            value=cost.per_million_output_tokens,
            text=money_text(cost.per_million_output_tokens, cost.currency),
            interval=_per_token(document, cost.per_million_output_tokens, lambda usd: money_text(usd, cost.currency)),
        ),
        ScenarioFigure(
            key="energy_per_output_token_j",
            label="Energy per token",
            value=energy,
            text=joules_text(energy),
            interval=_per_token(document, energy, joules_text),
        ),
    )


def least_known(words: Iterable[str]) -> str:
    """The worst of several provenances."""
    return max(Provenance[word.upper()] for word in words).label


def scenario_headline(what_if: WhatIf, document: Json) -> str:
    """``llama-3.1-70b on 4 × h100-sxm-80gb: 18.4 ms per token``."""
    deployment = what_if.result.deployment
    where = f"{what_if.devices} × {deployment.hardware.name}"
    if document["tpot_s"] is None:
        return f"{deployment.model.name} on {where}: first token after {seconds_text(document['ttft_s'])}"
    per_token = f"{seconds_text(document['tpot_s'])} per token"
    return f"{deployment.model.name} on {where}: {per_token}, {_tokens(document['output_tokens_per_s'])}"


def power_text(document: Json) -> str:
    """Mean power of all replicas."""
    return watts_text(document["power_w"])
