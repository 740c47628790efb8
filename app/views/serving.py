"""Serving: what requests see as the load on one deployment grows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pandas as pd
import streamlit as st

from app import actions, display, glossary, inputs, question, widgets
from app.answers import Served, served, swept
from app.commands import SIMULATE, scenario_line
from app.uploaded import session_profiles
from app.variation import variation_inputs
from simulator.engine.runs.load_sweep import LoadSweep, at_rate, demand_of
from simulator.engine.runs.served_run import ServedRun
from simulator.errors import RoofcastError
from simulator.planner.workload_presets import WorkloadPreset
from simulator.reports.charts.load import batch_over_time_chart, kv_over_time_chart, load_latency_chart
from simulator.reports.content.quantities import percent_text, range_text, rate_text, seconds_text
from simulator.reports.tables.serving import (
    SWEEP_COLUMNS,
    ObjectiveChance,
    objective_chances,
    serving_headline,
    sweep_rows,
)
from simulator.specs.question.defaults import SERVED_RATE_PER_S
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec

_LARGEST_RATE = 10_000.0
_METRICS = {"Time to first token": "ttft", "Time per token": "tpot", "End to end": "e2e"}


def _workload(preset: WorkloadPreset) -> WorkloadSpec:
    isl, osl = inputs.length_inputs(preset)
    with st.expander("Variation and shared prompts"):
        isl_cv, osl_cv, prefix = variation_inputs(preset, highest_prefix=0.95)
    return demand_of(isl_tokens=isl, osl_tokens=osl, isl_cv=isl_cv, osl_cv=osl_cv, prefix_hit_fraction=prefix)


def _inputs() -> tuple[ScenarioSpec, float, dict[str, float]]:
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
    return inputs.scenario({"kind": "serve", **fields, "workload": workload}), rate, bounds


def _figures(answer: Served, chances: Sequence[ObjectiveChance]) -> None:
    by_metric = {item.metric: item for item in chances}

    overall, interval, load = (answer.document[name] for name in ("overall", "interval", "load"))

    def latency(name: str, label: str, help: str) -> display.Figure:
        ends = interval.get(f"{name}_p95_s")
        return display.Figure(
            label=f"{label} p95",
            text=seconds_text(overall[f"{name}_p95_s"]),
            help=f"{help} {glossary.PERCENTILE}",
            interval=range_text(ends, seconds_text) if ends else "",
            detail=display.target(item.bound_s, item.chance) if (item := by_metric.get(name)) else "",
        )

    display.figures(
        [
            latency("ttft", "TTFT", glossary.TTFT),
            latency("tpot", "TPOT", glossary.TPOT),
            latency("e2e", "End to end", glossary.E2E),
            display.Figure(
                label="Saturation",
                text=rate_text(load["saturation_per_s"], "req"),
                help=glossary.SATURATION,
                interval=range_text(load["interval"]["saturation_per_s"], partial(rate_text, noun="req")),
            ),
            display.Figure(
                label="Mean batch",
                text=_sequences(overall["mean_batch"]),
                help=glossary.BATCH,
                interval=range_text(load["interval"]["mean_batch"], _sequences),
            ),
            display.Figure(
                label="KV cache in use",
                text=percent_text(overall["kv_utilization"]),
                help=glossary.KV,
                interval=range_text(load["interval"]["kv_utilization"], percent_text),
            ),
        ],
        provenance=answer.document["provenance"],
    )


def _sequences(count: float) -> str:
    return f"{count:.1f}"


@st.fragment
def _latency_over_load(answer: Served, sweep: LoadSweep, rate: float, bounds: dict[str, float]) -> None:
    """One latency's percentiles over the rate; another one is drawn without asking anything else again."""
    metric = _METRICS[widgets.view("Latency", tuple(_METRICS), key="metric")]
    ends = answer.document["interval"].get(f"{metric}_p95_s")
    display.chart(
        load_latency_chart(sweep, metric=metric, at_per_s=rate, bound_s=bounds.get(metric)),
        key="load",
        provenance=answer.document["provenance"],
        interval=f"{metric.upper()} p95 at this load {range_text(ends, seconds_text)}" if ends else "",
    )


def _over_time(answer: Served) -> None:
    run = answer.result.run
    assert isinstance(run, ServedRun), "kind serve"
    trace, blocks = run.result.run.trace[0], run.memory.kv_blocks
    known, ranges = answer.document["provenance"], answer.document["load"]["interval"]
    left, right = st.columns(2, gap="large")
    with left:
        mean = f"mean batch {range_text(ranges['mean_batch'], _sequences)}"
        display.chart(batch_over_time_chart(trace), key="batch_time", provenance=known, interval=mean, height=300)
    with right:
        mean = f"mean {range_text(ranges['kv_utilization'], percent_text)}"
        described = kv_over_time_chart(trace, kv_blocks=blocks)
        display.chart(described, key="kv_time", provenance=known, interval=mean, height=300)


def page() -> None:
    """The page."""
    unloaded = None
    try:
        unloaded, rate, bounds = _inputs()
        question.show()
        with st.spinner("Serving requests at every rate", show_time=False):
            sweep = swept(unloaded, profiles=session_profiles())
            assert unloaded.workload is not None, "kind serve"
            workload = at_rate(unloaded.workload, rate_per_s=rate)
            scenario = unloaded.model_copy(update={"workload": workload})
            answer = served(scenario, profiles=session_profiles())
    except RoofcastError as error:
        actions.refusal(error, unloaded)
        return
    chances = objective_chances(answer.document, bounds)
    display.headline(
        serving_headline(rate, answer.document, chances),
        provenance=answer.document["provenance"],
        detail=f"Saturates at {rate_text(sweep.saturation_per_s, 'requests')}",
    )
    _figures(answer, chances)
    _latency_over_load(answer, sweep, rate, bounds)
    _over_time(answer)
    with st.expander("Every rate", icon=":material/table_rows:"):
        st.dataframe(pd.DataFrame(sweep_rows(sweep), columns=list(SWEEP_COLUMNS)), hide_index=True, width="stretch")
    display.notes(answer.document["notes"])
    display.assumptions(answer.document["assumptions"])
    display.reproduce(SIMULATE, standard_input=scenario_line(scenario))
