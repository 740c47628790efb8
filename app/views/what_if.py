"""What-if: one deployment, changed one thing at a time."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.address import baseline
from app.fields import glossary, inputs, question, widgets
from app.fields.techniques import technique_inputs
from app.fields.uploaded import session_profiles
from app.parts import actions, charts, display
from app.parts.answers import WhatIfAnswer, answered, technique_answers
from app.parts.commands import scenario_line, simulate_command
from app.parts.inside import inside
from simulator.engine.uniform.record import UniformRun
from simulator.errors import RoofcastError
from simulator.planner.what_if import native_scenario
from simulator.reports.charts.latency_breakdown import latency_breakdown_chart, memory_stack_chart
from simulator.reports.charts.what_if import WATERFALL_METRICS, technique_waterfall_chart
from simulator.reports.content.quantities import Quantity, chance_text
from simulator.reports.tables.scenario_figures import (
    PHASES,
    memory_figures,
    phase_figures,
    power_text,
    scenario_figures,
    scenario_headline,
)
from simulator.reports.tables.serving import least_chance, objective_chances
from simulator.specs.question.scenario import ScenarioSpec

_AGAINST = "The bar: the batch against the objective of the question, and how likely it holds."
_HELP = {
    "ttft_s": f"{glossary.TTFT} Here all prompts of the batch start together; Serving has them under load. {_AGAINST}",
    "tpot_s": f"{glossary.TPOT} {_AGAINST}",
    "e2e_s": glossary.E2E,
    "output_tokens_per_s": "Generated tokens per second of all accelerators together.",
    "per_million_output_tokens": f"{glossary.COST} All of the bill on the output tokens, always busy.",
    "energy_per_output_token_j": glossary.ENERGY,
    "prefill_step_s": "Mean pass over prompts, and what most of its time waits for.",
    "decode_step_s": "Mean step over the batch, and what most of its time waits for. With speculation, a round.",
    "prefill_mfu": glossary.MFU,
    "decode_mfu": glossary.MFU,
    "prefill_mbu": glossary.MBU,
    "decode_mbu": glossary.MBU,
    "kv_capacity_tokens": f"{glossary.KV} This many tokens of them fit a replica.",
    "kv_utilization": "Share of the KV cache that the batch holds when its answers are complete.",
}
_BASELINE = "baseline"
_WAYS = {metric.name: metric for metric in WATERFALL_METRICS}


def asked() -> ScenarioSpec:
    """The static batch that the sidebar asks about."""
    with st.sidebar:
        preset = inputs.preset_input()
        batch = inputs.batch_input(preset)
        isl, osl = inputs.length_inputs(preset)
        fields = inputs.deployment_inputs()
        with st.expander("Techniques", expanded=True, icon=":material/bolt:"):
            techniques = technique_inputs(fields["model"])
    lengths = {"batch_size": batch, "isl_tokens": isl, "osl_tokens": osl}
    return inputs.scenario({"kind": "batch", **fields, **lengths, "techniques": techniques})


def _baseline(scenario: ScenarioSpec) -> tuple[WhatIfAnswer | None, str]:
    """What the numbers are compared with: the pinned deployment, else the same one without techniques."""
    fields = baseline.pinned(_BASELINE)
    try:
        pinned = baseline.shared_scenario(fields) if fields is not None else None
        against, name = (pinned, "baseline") if pinned is not None else (native_scenario(scenario), "native")
        if against == scenario:
            return None, ""
        return answered(against, profiles=session_profiles()), name
    except RoofcastError:
        return None, ""


def _top(answer: WhatIfAnswer) -> tuple[Quantity, ...]:
    return scenario_figures(answer.what_if, answer.document)


def _below(answer: WhatIfAnswer) -> tuple[Quantity, ...]:
    """Each phase with a number of the memory at its end: two rows of four."""
    prefill, decode = (phase_figures(answer.document, phase=name) for name in PHASES)
    room, *used = memory_figures(answer.document)
    return (*prefill, room, *decode, *used)


def _figures(
    shown: Sequence[Quantity], before: Sequence[Quantity], *, answer: WhatIfAnswer, name: str, a_row: int | None = None
) -> None:
    document = answer.document
    memory = document["memory"]["provenance"]
    bounds = {f"{phase}_step_s": f"({found['bound']} bound)" for phase in PHASES if (found := document[phase])}
    gauges = display.gauges(objective_chances(document, question.bounds_s()))
    known = {item.key: memory for item in shown if item.key.startswith("kv_")}
    display.figures(
        display.explained(shown, help=_HELP, before=before, details=bounds, known=known, gauges=gauges),
        provenance=document["provenance"],
        baseline=name,
        a_row=a_row,
    )


def _charts(answer: WhatIfAnswer, scenario: ScenarioSpec) -> None:
    run = answer.what_if.result.run
    assert isinstance(run, UniformRun), "kind batch"
    spread = {item.key: item.interval for item in (*_top(answer), *_below(answer))}
    grid = charts.side_by_side()
    with grid, st.container():
        phases = [("Prefill", run.prefill), *([("Decode", run.decode)] if run.decode else [])]
        steps = ", ".join(
            f"{name.lower()} {spread[key]}" for name, _ in phases if (key := f"{name.lower()}_step_s") in spread
        )
        charts.chart(
            latency_breakdown_chart(phases), key="breakdown", provenance=answer.document["provenance"], interval=steps
        )
    with grid, st.container():
        charts.chart(
            memory_stack_chart(
                [(f"{scenario.hardware} TP{scenario.tp_size}", run.memory)],
                used=(answer.document["memory"]["kv_utilization"],),
                ranks=scenario.dp_size,
            ),
            key="memory",
            provenance=answer.document["memory"]["provenance"],
            interval=f"{room} tokens" if (room := spread["kv_capacity_tokens"]) else "",
        )


@st.fragment
def _worth(answer: WhatIfAnswer, scenario: ScenarioSpec) -> None:
    """What each technique adds; another metric redraws this chart alone."""
    try:
        steps = technique_answers(scenario, profiles=session_profiles())
    except RoofcastError as error:
        st.caption(f"No comparison with the published model: {error}")
        return
    metric = _WAYS[widgets.view("What the techniques change", tuple(_WAYS), key="worth")]
    intervals, memory = {item.key: item.interval for item in _top(answer)}, answer.document["memory"]
    charts.chart(
        technique_waterfall_chart(steps, metric=metric),
        key="waterfall",
        provenance=answer.document["provenance"] if metric.key in intervals else memory["provenance"],
        interval=intervals.get(metric.key, ""),
        note="" if metric.key in intervals else "Counted from the model's tensors, not estimated.",
        height=300,
    )


def page() -> None:
    """The page."""
    scenario = None
    try:
        scenario = asked()
        question.show()
        answer = answered(scenario, profiles=session_profiles())
    except RoofcastError as error:
        actions.refusal(error, scenario)
        actions.before(_answer)
        return
    actions.now(_answer, answer, scenario)


def _answer(answer: WhatIfAnswer, scenario: ScenarioSpec) -> None:
    before, name = _baseline(scenario)
    document, offer = answer.document, answer.what_if.cost.offer.replace("_", " ")
    chance = least_chance(objective_chances(document, question.bounds_s()))
    held = f"{chance_text(chance)} likely to hold its objectives in this batch"
    display.verdict(chance, f"{held} · Serving has it under load")
    with st.container(horizontal=True, gap="small", key="answer"):
        with st.container():
            display.headline(
                scenario_headline(answer.what_if, document),
                provenance=document["provenance"],
                detail=f"{power_text(document)} while running, no interval known · {offer}",
            )
        baseline.pin_button(_BASELINE, scenario.model_dump(mode="json", exclude_unset=True, exclude_none=True))
    _figures(_top(answer), _top(before) if before else (), answer=answer, name=name)
    display.notes(document["notes"])
    _charts(answer, scenario)
    if scenario == native_scenario(scenario):
        st.caption("Choose a number format or a technique in the sidebar to see what it is worth here.")
    else:
        _worth(answer, scenario)
    assert isinstance(answer.what_if.result.run, UniformRun), "kind batch"
    inside(answer.what_if.result.run, document)
    st.markdown(f"**Phases and memory{f', against {name}' if before else ''}**")
    _figures(_below(answer), _below(before) if before else (), answer=answer, name=name, a_row=4)
    display.assumptions(document["assumptions"])
    display.reproduce(simulate_command(), standard_input=scenario_line(scenario))
