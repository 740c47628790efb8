"""What-if: one deployment, changed one thing at a time."""

from __future__ import annotations

import streamlit as st

from app import baseline, display, glossary, inputs
from app.answers import Answer, answered, technique_answers
from app.commands import SIMULATE, scenario_line
from app.techniques import technique_inputs
from app.uploaded import session_profiles
from simulator.engine.uniform_runs import UniformRun
from simulator.errors import RoofcastError
from simulator.planner.what_if import native_scenario
from simulator.reports.figures.latency_breakdown import latency_breakdown_chart
from simulator.reports.figures.memory_stack import memory_stack_chart
from simulator.reports.figures.technique_waterfall import technique_waterfall_chart
from simulator.reports.scenario_figures import phase_texts, power_text, scenario_figures, scenario_headline
from simulator.specs.scenario import ScenarioSpec

_HELP = {
    "ttft_s": f"{glossary.TTFT} Here all prompts of the batch start together.",
    "tpot_s": glossary.TPOT,
    "e2e_s": glossary.E2E,
    "output_tokens_per_s": "Generated tokens per second of all accelerators together.",
    "per_million_output_tokens": f"{glossary.COST} All of the bill on the output tokens, always busy.",
    "energy_per_output_token_j": glossary.ENERGY,
}
_BASELINE = "baseline"


def _inputs() -> ScenarioSpec:
    with st.sidebar:
        preset = inputs.preset_input()
        batch = st.slider(
            "Batch", 1, inputs.LARGEST_BATCH, preset.batch_size, key="batch", bind="query-params", help=glossary.BATCH
        )
        isl, osl = inputs.length_inputs(preset)
        fields = inputs.deployment_inputs()
        with st.expander("Techniques", expanded=True, icon=":material/bolt:"):
            techniques = technique_inputs(fields["model"])
    lengths = {"batch_size": batch, "isl_tokens": isl, "osl_tokens": osl}
    return inputs.scenario({"kind": "batch", **fields, **lengths, "techniques": techniques})


def _baseline(scenario: ScenarioSpec) -> tuple[Answer | None, str]:
    """What the numbers are compared with: the pinned deployment, else the same one without techniques."""
    fields = baseline.pinned(_BASELINE)
    try:
        pinned = inputs.shared_scenario(fields) if fields is not None else None
        against, name = (pinned, "baseline") if pinned is not None else (native_scenario(scenario), "native")
        if against == scenario:
            return None, ""
        return answered(against, profiles=session_profiles()), name
    except RoofcastError:
        return None, ""


def _figures(answer: Answer, compared: Answer | None, name: str) -> None:
    before = (
        {item.key: item.value for item in scenario_figures(compared.what_if, compared.document)} if compared else {}
    )
    display.figures(
        [
            display.Figure(
                label=item.label,
                text=item.text,
                help=_HELP[item.key],
                interval=item.interval,
                now=item.value,
                before=before.get(item.key),
                lower_is_better=item.lower_is_better,
            )
            for item in scenario_figures(answer.what_if, answer.document)
        ],
        provenance=answer.document["provenance"],
        baseline=name,
    )


def _phases(answer: Answer) -> None:
    found = phase_texts(answer.document)
    for column, (name, step, mfu, mbu, bound) in zip(st.columns(len(found)), found, strict=True):
        with column:
            st.markdown(
                f"**{name} step** {step}, {bound} bound · MFU {mfu} · MBU {mbu}",
                help=f"{glossary.MFU} {glossary.MBU}",
            )


def _charts(answer: Answer, scenario: ScenarioSpec) -> None:
    run = answer.what_if.result.run
    assert isinstance(run, UniformRun), "kind batch"
    known = answer.document["provenance"]
    spread = ", ".join(
        f"{item.label} {item.interval}"
        for item in scenario_figures(answer.what_if, answer.document)
        if item.key in ("ttft_s", "tpot_s") and item.interval
    )
    left, right = st.columns(2, gap="large")
    with left:
        phases = [("Prefill", run.prefill), *([("Decode", run.decode)] if run.decode else [])]
        display.chart(latency_breakdown_chart(phases), key="breakdown", provenance=known, interval=spread)
    with right:
        label = f"{scenario.hardware} TP{scenario.tp_size}"
        display.chart(memory_stack_chart([(label, run.memory)]), key="memory", provenance=known)
    if scenario == native_scenario(scenario):
        st.caption("Choose a number format or a technique on the left to see what it is worth here.")
        return
    try:
        steps = technique_answers(scenario, profiles=session_profiles())
    except RoofcastError as error:
        st.caption(f"No comparison with the published model: {error}")
        return
    display.chart(technique_waterfall_chart(steps), key="waterfall", provenance=known, interval=spread, height=300)


def page() -> None:
    """The page."""
    try:
        scenario = _inputs()
        answer = answered(scenario, profiles=session_profiles())
    except RoofcastError as error:
        display.refusal(error)
        return
    before, name = _baseline(scenario)
    document = answer.document
    display.headline(
        scenario_headline(answer.what_if, document),
        provenance=document["provenance"],
        detail=f"{power_text(document)} while running · {answer.what_if.cost.offer}",
    )
    _figures(answer, before, name)
    _phases(answer)
    with st.container(horizontal=True, gap="small"):
        baseline.pin_button(_BASELINE, scenario.model_dump(mode="json", exclude_unset=True, exclude_none=True))
    display.notes(document["notes"])
    _charts(answer, scenario)
    display.assumptions(document["assumptions"])
    display.reproduce(SIMULATE, standard_input=scenario_line(scenario))
