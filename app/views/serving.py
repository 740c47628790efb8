"""Serving: what requests see as the load on one deployment grows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from app.address import opening
from app.fields import glossary, inputs, pools, question, widgets
from app.fields.uploaded import session_profiles
from app.fields.variation import variation_inputs
from app.hosting.work import ServedAnswer
from app.parts import actions, charts, display, tables
from app.parts.answers import served, swept
from app.parts.commands import scenario_line, simulate_command
from app.parts.inside import inside
from simulator.engine.runs.load_sweep import LoadSweep, at_rate, demand_of
from simulator.engine.runs.served_run import ServedRun
from simulator.errors import RoofcastError
from simulator.reports.charts.load import load_latency_chart, rate_label
from simulator.reports.content.quantities import chance_text, range_text, rate_text, seconds_text
from simulator.reports.tables.serving import (
    SWEEP_COLUMNS,
    TIER_COLUMNS,
    ObjectiveChance,
    least_chance,
    objective_chances,
    serving_headline,
    serving_quantities,
    sweep_rows,
    tier_rows,
)
from simulator.specs.question.plan_values import SERVED_RATE_PER_S
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.workload_presets import WorkloadPreset

_LARGEST_RATE = 10_000.0
_HELP = {
    "ttft_p95_s": f"{glossary.TTFT} {glossary.PERCENTILE}",
    "tpot_p95_s": f"{glossary.TPOT} {glossary.PERCENTILE}",
    "e2e_p95_s": f"{glossary.E2E} {glossary.PERCENTILE}",
    "saturation_per_s": glossary.SATURATION,
    "mean_batch": glossary.BATCH,
    "kv_utilization": glossary.KV,
}
_LOOK, _LOOKED_FOR = "look_rate", "_looked_for"
_METRICS = {"Time to first token": "ttft", "Time per token": "tpot", "End to end": "e2e"}


def _workload(preset: WorkloadPreset) -> WorkloadSpec:
    isl, osl = inputs.length_inputs(preset)
    with st.expander("Variation and shared prompts"):
        isl_cv, osl_cv, prefix = variation_inputs(preset, highest_prefix=0.95)
        different = pools.repeated_prompts_input()
    return demand_of(
        isl_tokens=isl,
        osl_tokens=osl,
        isl_cv=isl_cv,
        osl_cv=osl_cv,
        prefix_hit_fraction=prefix,
        different_prompts=different,
    )


def asked() -> tuple[ScenarioSpec, float, dict[str, float]]:
    """The deployment and demand of the sidebar without a rate, the rate, and the bounds of its objectives [s]."""
    with st.sidebar:
        preset = inputs.preset_input()
        rate = widgets.number(
            "Requests per second",
            key="rate",
            low=0.001,
            high=_LARGEST_RATE,
            value=SERVED_RATE_PER_S,
            step=1.0,
            help="What arrives at this one deployment; of a planned fleet, its share of the peak with the spares down.",
        )
        workload = _workload(preset)
        objectives = inputs.objective_inputs(preset)
        bounds = {"ttft": objectives["ttft_p95"], "tpot": objectives["tpot_p95"]}
        fields = inputs.deployment_inputs()
        fields["engine"] |= pools.tier_inputs()
        fields |= pools.picture_inputs(fields["model"])
        fields |= pools.pools_inputs(fields["model"])
    return inputs.scenario({"kind": "serve", **fields, "workload": workload}), rate, bounds


def _figures(answer: ServedAnswer, chances: Sequence[ObjectiveChance]) -> None:
    shown = display.explained(serving_quantities(answer.document), help=_HELP, gauges=display.gauges(chances))
    display.figures(shown, provenance=answer.document["provenance"])


def _doors_of(sweep: LoadSweep, place: int) -> None:
    """The deployment under one of the swept loads, on the pages that ask about one."""
    point = sweep.points[place]
    batch = min(max(round(point.stage.mean_batch), 1), inputs.LARGEST_BATCH)
    opening.also("Open in", opening.ASKING, {"rate": float(f"{point.rate_per_s:.6g}"), "batch": batch})


@st.fragment
def _latency_over_load(answer: ServedAnswer, sweep: LoadSweep, rate: float, bounds: dict[str, float]) -> None:
    """One latency's percentiles over the rate; another one is drawn without asking anything else again."""
    metric = _METRICS[widgets.view("Latency", tuple(_METRICS), key="metric")]
    ends = answer.document["interval"].get(f"{metric}_p95_s")
    charts.chart(
        load_latency_chart(sweep, metric=metric, at_per_s=rate, bound_s=bounds.get(metric)),
        key="load",
        provenance=answer.document["provenance"],
        interval=f"{metric.upper()} p95 at this load {range_text(ends, seconds_text)}" if ends else "",
        picked=_LOOK,
    )
    names = tuple(rate_label(point.rate_per_s) for point in sweep.points)
    nearest = sweep.nearest(rate)
    if st.session_state.setdefault(_LOOKED_FOR, rate) != rate:
        st.session_state[_LOOKED_FOR], st.session_state[_LOOK] = rate, names[nearest]
    with st.container(horizontal=True, key="look_closer", vertical_alignment="bottom", gap="medium"):
        found = widgets.choice(
            "Look closer at", names, key=_LOOK, default=names[nearest], help="Click a point, or choose here."
        )
        _doors_of(sweep, names.index(found))


def page() -> None:
    """The page."""
    unloaded = None
    try:
        unloaded, rate, bounds = asked()
        question.show()
        with st.spinner("Serving requests at every rate", show_time=False):
            sweep = swept(unloaded, profiles=session_profiles())
            assert unloaded.workload is not None, "kind serve"
            workload = at_rate(unloaded.workload, rate_per_s=rate)
            scenario = unloaded.model_copy(update={"workload": workload})
            answer = served(scenario, profiles=session_profiles())
    except RoofcastError as error:
        actions.refusal(error, unloaded)
        actions.before(_answer)
        return
    actions.now(_answer, answer, scenario, sweep, rate, bounds)


def _answer(
    answer: ServedAnswer, scenario: ScenarioSpec, sweep: LoadSweep, rate: float, bounds: dict[str, float]
) -> None:
    chances = objective_chances(answer.document, bounds)
    chance = least_chance(chances)
    display.verdict(chance, f"{chance_text(chance)} likely to hold its objectives")
    if known := answer.document.get("load", {}).get("saturation_per_s"):
        # One number for one thing: of prompts that come again the caches hold what this run found.
        sweep = replace(sweep, saturation_per_s=known)
    display.headline(
        serving_headline(rate, answer.document, chances),
        provenance=answer.document["provenance"],
        detail=f"Saturates at {rate_text(sweep.saturation_per_s, 'requests')}",
    )
    _figures(answer, chances)
    if answer.result.kv_tiers:
        st.markdown("**Where prompts are found**")
        tables.read(tier_rows(answer.result.kv_tiers), TIER_COLUMNS)
    _latency_over_load(answer, sweep, rate, bounds)
    run = answer.result.run
    assert isinstance(run, ServedRun), "kind serve"
    st.markdown(f"**What happens inside, at {rate_text(rate, 'requests')}**")
    inside(run, answer.document)

    tables.table("Every rate", sweep_rows(sweep), SWEEP_COLUMNS, key="rates", picked=partial(_doors_of, sweep))
    display.notes(answer.document["notes"])
    display.assumptions(answer.document["assumptions"])
    display.reproduce(simulate_command(), standard_input=scenario_line(scenario))
