"""Deployments side by side, one row per number; and a comparison: its waterfall in order, and each change alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from simulator.planner.comparison import ComparedAnswer, Comparison
from simulator.planner.what_if import WhatIf, scenario_quality
from simulator.records import dataclass
from simulator.reports.answer import Answer, Cells, Json, picked, result_object
from simulator.reports.charts.chart import Chart, bars_chart
from simulator.reports.content import quantities as say
from simulator.reports.content.document import BEST
from simulator.reports.formats.text import text_table
from simulator.reports.tables.scenario_figures import (
    PHASES,
    least_known,
    memory_figures,
    phase_figures,
    power_text,
    scenario_figures,
)
from simulator.reports.words.fields import flagged, note_text, note_texts
from simulator.specs.question.scenario import ScenarioSpec
from simulator.techniques.quality import AnswerQuality

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


def compared_name(what_if: WhatIf) -> str:
    """``h100-sxm-80gb TP4 DP2 fp8``: what tells a deployment from its neighbours."""
    deployment = what_if.result.deployment
    degrees = deployment.parallelism
    formats = what_if.scenario.precision
    named = formats.scheme or (formats.weights.value if formats.weights else "")
    parts = (deployment.hardware.name, f"TP{degrees.tp_size}", *degrees.named("pp", "dp", "ep", "cp"), named)
    return " ".join(part for part in parts if part)


def named_apart(found: Sequence[tuple[WhatIf, Json]]) -> list[Compared]:
    """Deployments with their names, which a number tells apart where they are the same."""
    names = [compared_name(what_if) for what_if, _ in found]
    return [
        (name if names.count(name) == 1 else f"{name} ({names[: place + 1].count(name)})", what_if, document)
        for place, (name, (what_if, document)) in enumerate(zip(names, found, strict=True))
    ]


def compare_headline(compared: Sequence[Compared]) -> str:
    """The fastest, and the cheapest where prices are known; by the first token where there is no other."""
    field, noun = ("tpot_s", "per token") if all(item[2]["tpot_s"] for item in compared) else ("ttft_s", "to a token")
    fastest = min(compared, key=lambda item: item[2][field])
    sentence = f"{fastest[0]} is fastest at {say.seconds_text(fastest[2][field])} {noun}"
    priced = [item for item in compared if item[1].cost.per_million_output_tokens is not None]
    if not priced:
        return sentence
    cheapest = min(priced, key=lambda item: item[1].cost.per_million_output_tokens or 0.0)
    cost = cheapest[1].cost
    price = say.money_text(cost.per_million_output_tokens, cost.currency)
    if cheapest[0] == fastest[0]:
        return f"{sentence} and cheapest at {price} per million output tokens"
    return f"{sentence}, {cheapest[0]} is cheapest at {price} per million output tokens"


def compare_verdict(compared: Sequence[Compared], bounds_s: Mapping[str, float]) -> tuple[float, str]:
    """The probability that the cheapest of those which hold the objectives does, else the surest of all, and what it is
    called: ``2 of 3 likely hold the objectives in this batch, cheapest b200-sxm TP1 (99 % likely)``."""
    from simulator.planner.verification.confidence import LIKELY
    from simulator.reports.tables.serving import least_chance, objective_chances

    chances = [least_chance(objective_chances(document, bounds_s)) for _, _, document in compared]
    held = [place for place, chance in enumerate(chances) if chance >= LIKELY]
    said = f"{len(held)} of {len(compared)} likely hold the objectives in this batch"
    if not held:
        best = max(range(len(compared)), key=chances.__getitem__)
        return chances[best], f"{said}, surest {compared[best][0]} ({say.chance_text(chances[best])} likely)"
    costs = [item[1].cost.per_million_output_tokens for item in compared]
    best = min(held, key=lambda place: (costs[place] is None, costs[place] or 0.0))
    return chances[best], f"{said}, cheapest {compared[best][0]} ({say.chance_text(chances[best])} likely)"


def quality_text(quality: AnswerQuality) -> str:
    """``as published``, ``perplexity +65 %`` or ``unknown``."""
    if quality.loss is None:
        return "unknown: nothing published"
    return f"perplexity {say.signed_percent_text(quality.loss)}" if quality.loss else "as published"


def compare_provenance(compared: Sequence[Compared]) -> str:
    """How the least known of them is known."""
    return least_known(document["provenance"] for _, _, document in compared)


def compare_columns(compared: Sequence[Compared]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Rows of text and their heading."""
    figures = [scenario_figures(what_if, document) for _, what_if, document in compared]
    rows: list[tuple[str, ...]] = [("Deployment", *(deployment_text(what_if) for _, what_if, _ in compared))]
    rows += _rows_of(figures, ranked=True)
    for phase in PHASES:
        found = [phase_figures(document, phase=phase) for _, _, document in compared]
        if all(found):
            rows += _rows_of(found)
            rows.append((f"{phase.capitalize()} waits for", *(document[phase]["bound"] for _, _, document in compared)))
    memory = [memory_figures(document) for _, _, document in compared]
    rows += [
        ("Power", *(power_text(document) for _, _, document in compared)),
        ("Weights per device", *(say.bytes_text(document["memory"]["weights_bytes"]) for _, _, document in compared)),
        *_rows_of([found[:1] for found in memory]),
        ("Quality", *(quality_text(scenario_quality(what_if.result)) for _, what_if, _ in compared)),
        ("Known as", *(document["provenance"] for _, _, document in compared)),
    ]
    return rows, ("", *(name for name, _, _ in compared))


def _rows_of(figures: Sequence[Sequence[say.Quantity]], *, ranked: bool = False) -> list[tuple[str, ...]]:
    """One row per figure that every deployment has, the interval in brackets; ``ranked`` marks the best of a row."""
    return [
        (
            each[0].label,
            *(
                f"{BEST} {text}" if ranked and item.value == _best_value(each) else text
                for item in each
                for text in (f"{item.text} ({item.interval})" if item.interval else item.text,)
            ),
        )
        for each in zip(*figures, strict=True)
    ]


def _best_value(figures: Sequence[say.Quantity]) -> float | None:
    """The best of one figure's values; none where they are all the same."""
    values = {item.value for item in figures if item.value is not None}
    if len(values) < 2:
        return math.nan
    return min(values) if figures[0].lower_is_better else max(values)


def room_text(compared: Sequence[Compared]) -> str:
    """The intervals of the caches, one after the other: ``A 430,000 – 472,000 tokens, B ...``."""
    return ", ".join(
        f"{name} {room.interval} tokens"
        for name, _, document in compared
        if (room := memory_figures(document)[0]).interval
    )


SCHEMA_VERSION = "1.0"
COLUMNS = ("TTFT", "TPOT", "E2E", "output", "weights/GPU", "KV tokens", "J/token", "cost/h", "per 1M out", "known as")
INTERVAL_COLUMNS = ("TTFT", "TPOT", "E2E", "output", "per 1M out", "J/token")
SAME, NOTHING = "=", "-"


def _values(outcome: ComparedAnswer, document: Json) -> tuple[str, ...]:
    found, currency = outcome.numbers, outcome.answered.cost.currency
    return (
        say.seconds_text(found.ttft_s),
        say.seconds_text(found.tpot_s) if found.tpot_s else NOTHING,
        say.seconds_text(found.e2e_s),
        say.rate_text(found.output_tokens_per_s, "tok"),
        say.bytes_text(found.weights_bytes),
        say.count_text(found.kv_capacity_tokens),
        say.joules_text(found.energy_per_output_token_j),
        say.money_text(found.cost_per_hour, currency),
        say.money_text(found.cost_per_million_output_tokens, currency),
        document["provenance"],
    )


def _difference(now: float | None, before: float | None) -> str:
    if now is None or not before or not math.isfinite(now) or not math.isfinite(before):
        return NOTHING
    return say.change_text(now, before) or SAME


def _differences(now: ComparedAnswer, before: ComparedAnswer) -> tuple[str, ...]:
    pairs = zip(now.numbers, before.numbers, strict=True)
    return (
        *(_difference(value, other) for value, other in pairs),
        str(result_object(now.answered.result)["provenance"]),
    )


def _work_text(scenario: ScenarioSpec) -> str:
    """What is asked of every deployment of the comparison, in words."""
    kind = scenario.kind.replace("_", " ")
    if scenario.workload is not None:
        rates = ", ".join(f"{stage.rate_per_s:g}/s" for stage in scenario.workload.stages or ())
        return f"{kind}, {scenario.workload.arrival} arrivals" + (f" at {rates}" if rates else "")
    many = scenario.batch_size or scenario.concurrency or scenario.num_requests
    count = f" of {many}" if many else ""
    if scenario.lengths_trace is not None:
        return f"{kind}{count}, the lengths of {scenario.lengths_trace}"
    return f"{kind}{count}, {scenario.isl_tokens} tokens in, {scenario.osl_tokens} out"


def _headline(comparison: Comparison) -> str:
    base, final = comparison.base.numbers, comparison.final.numbers
    parts = (
        ("TPOT", final.tpot_s, base.tpot_s),
        ("TTFT", final.ttft_s, base.ttft_s),
        ("output", final.output_tokens_per_s, base.output_tokens_per_s),
        ("cost per output token", final.cost_per_million_output_tokens, base.cost_per_million_output_tokens),
    )
    changes = [(name, _difference(now, before)) for name, now, before in parts]
    moved = ", ".join(f"{name} {change}" for name, change in changes if change not in (NOTHING, SAME))
    together = f"All {len(comparison.steps)} changes" if len(comparison.steps) > 1 else "The change"
    return f"{together}: {moved or 'no change of latency, throughput or cost'}."


def _waterfall(comparison: Comparison) -> list[tuple[str, ...]]:
    rows = [("base", *_values(comparison.base, result_object(comparison.base.answered.result)))]
    before = comparison.base
    for step in comparison.steps:
        rows.append((f"+ {step.change.text}", *_differences(step.together, before)))
        before = step.together
    rows.append(("result", *_values(before, result_object(before.answered.result))))
    if len(comparison.steps) > 1:
        rows.append(("result against base", *_differences(before, comparison.base)))
    return rows


def _intervals(comparison: Comparison) -> str:
    rows = []
    for name, outcome in (("base", comparison.base), ("result", comparison.final)):
        document = result_object(outcome.answered.result)
        figures = scenario_figures(outcome.answered, document)
        rows.append((name, *(figure.interval if figure.value and figure.interval else NOTHING for figure in figures)))
    return text_table(("80 % interval", *INTERVAL_COLUMNS), rows)


def _qualities(comparison: Comparison) -> list[str]:
    """The base's quality, and that after every change which says something else."""
    lines = ["Quality of answers", f"  base: {note_text(comparison.base.quality)}"]
    before = comparison.base.quality
    for step in comparison.steps:
        if step.together.quality != before:
            lines.append(f"  + {step.change.text}: {note_text(step.together.quality)}")
        before = step.together.quality
    return lines


def _alone(comparison: Comparison) -> str:
    rows: Sequence[tuple[str, ...]] = [
        (step.change.text, *_differences(step.alone, comparison.base))
        for step in comparison.steps
        if step.alone is not None
    ]
    return text_table(("", *COLUMNS), rows)


_OF_THE_RESULT = (
    *("ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s", "memory", "power_w", "energy_per_output_token_j"),
)


def _object(outcome: ComparedAnswer | None, *, intervals: bool) -> Json | None:
    if outcome is None:
        return None
    document, cost = result_object(outcome.answered.result), outcome.answered.cost
    return {
        **{name: document[name] for name in _OF_THE_RESULT},
        "cost": picked(cost, "currency", "offer", "per_hour", "per_million_output_tokens"),
        **picked(outcome, "devices=answered.devices", "quality"),
        "provenance": document["provenance"],
        "interval": document["interval"] if intervals else None,
        "notes": document["notes"],
    }


def _degrees_text(scenario: ScenarioSpec) -> str:
    """``TP1 DP8 EP8``; of two pools ``2 x TP8 for prompts and 1 x TP1 DP8 EP8 for answers``."""

    def text(asked: ScenarioSpec) -> str:
        return " ".join((f"TP{asked.tp_size}", *asked.parallelism.named("pp", "dp", "ep", "cp")))

    pools = scenario.disaggregation
    if pools is None:
        return text(scenario)
    prompts, answers = (text(scenario.model_copy(update=pools.degrees(name))) for name in ("prefill", "decode"))
    return f"{pools.prefill_replicas} x {prompts} for prompts and {pools.decode_replicas} x {answers} for answers"


@dataclass(frozen=True, slots=True)
class ComparisonAnswer(Answer):
    """A deployment, and what each change to it is worth.

    printed : speedups that papers printed for what the result runs, one line each
    """

    comparison: Comparison
    printed: tuple[str, ...] = ()

    def to_text(self) -> str:
        """What ``roofcast compare`` prints. Base, one line per change on top of those before it, the result; each
        change alone; intervals; quality."""
        comparison, base = self.comparison, self.comparison.base.answered
        lines = [
            f"{base.result.deployment.model.name} on {deployment_text(base)}, {_degrees_text(comparison.scenario)}, "
            f"{base.result.deployment.engine.name}; {_work_text(comparison.scenario)}",
            _headline(comparison),
            "",
            "In order: each change on top of those before it, percent against the line above",
            text_table(*self.cells()),
        ]
        if len(comparison.steps) > 1:
            lines += ["", "Alone: each change on the base, percent against the base", _alone(comparison)]
        lines += [
            f"cannot stand alone: {step.change.text}: {flagged(step.alone_refusal)}"
            for step in comparison.steps
            if step.alone is None
        ]
        lines += ["", _intervals(comparison), "", *_qualities(comparison)]
        if self.printed:
            lines += ["Speedups as published, in set-ups of their own", *(f"  {line}" for line in self.printed)]
        both = (("base", comparison.base), ("result", comparison.final))
        lines.append(f"Price: {'; then '.join(dict.fromkeys(outcome.answered.cost.offer for _, outcome in both))}")
        for name, outcome in both:
            lines += [f"note, {name}: {text}" for text in note_texts(outcome.answered.result.notes)]
        return "\n".join(lines) + "\n"

    def cells(self) -> Cells:
        """The base, each change on top of those before it, and the result."""
        return ("", *COLUMNS), _waterfall(self.comparison)

    def to_dict(self) -> Json:
        """The document of ``roofcast compare --json``."""
        comparison, scenario = self.comparison, self.comparison.scenario
        uniform = scenario.kind != "serve"
        last = comparison.steps[-1]
        return {
            "schema_version": SCHEMA_VERSION,
            **picked(scenario, "id", "kind"),
            **picked(comparison.base.answered.result.deployment, "model=model.name", "hardware=hardware.name"),
            "base": _object(comparison.base, intervals=True),
            "steps": [
                {
                    "change": step.change.text,
                    "together": _object(step.together, intervals=uniform or step is last),
                    "alone": _object(step.alone, intervals=uniform),
                    "alone_refusal": flagged(step.alone_refusal) or None,
                }
                for step in comparison.steps
            ],
            "printed_speedups": list(self.printed),
        }

    def rows(self) -> list[Json]:
        """The base, then each change on top of those before it."""
        document = self.to_dict()
        steps = [{"change": step["change"], **step["together"]} for step in document["steps"]]
        return [{"change": "base", **document["base"]}, *steps]

    def chart(self) -> Chart:
        """TPOT after each change."""
        rows = [row for row in self.rows() if row["tpot_s"] is not None]
        title = "Time per output token, each change on top of those before it"
        names, times = [str(row["change"]) for row in rows], {"TPOT": [row["tpot_s"] for row in rows]}
        return bars_chart("comparison", title, y="TPOT [s]", names=names, of=times)
