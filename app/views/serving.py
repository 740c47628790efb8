"""Serving: what requests see as the load on one deployment grows."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from app import display, glossary, inputs
from app.answers import Served, served, swept
from app.commands import SIMULATE, scenario_line
from app.uploaded import session_profiles
from app.variation import variation_inputs
from simulator.engine.runs.load_sweep import LoadSweep, at_share, demand_of
from simulator.engine.runs.served_run import ServedRun
from simulator.errors import RoofcastError
from simulator.planner.workload_presets import WorkloadPreset
from simulator.reports.charts.load import batch_over_time_chart, kv_over_time_chart, load_latency_chart
from simulator.reports.content.quantities import percent_text, range_text, rate_text, seconds_text
from simulator.reports.tables.serving import SWEEP_COLUMNS, sweep_rows
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec

_METRICS = {"Time to first token": "ttft", "Time per token": "tpot", "End to end": "e2e"}


def _workload(preset: WorkloadPreset) -> WorkloadSpec:
    isl, osl = inputs.length_inputs(preset)
    with st.expander("Variation and shared prompts"):
        isl_cv, osl_cv, prefix = variation_inputs(preset, highest_prefix=0.95)
    return demand_of(isl_tokens=isl, osl_tokens=osl, isl_cv=isl_cv, osl_cv=osl_cv, prefix_hit_fraction=prefix)


def _inputs() -> tuple[ScenarioSpec, float]:
    with st.sidebar:
        preset = inputs.preset_input()
        share = st.slider(
            "Load",
            0.1,
            1.2,
            0.7,
            0.05,
            format="percent",
            key="load_share",
            bind="query-params",
            help="Arrival rate as a share of the rate that saturates the deployment.",
        )
        workload = _workload(preset)
        fields = inputs.deployment_inputs()
    return inputs.scenario({"kind": "serve", **fields, "workload": workload}), share


def _figures(answer: Served) -> None:
    overall, interval, load = (answer.document[name] for name in ("overall", "interval", "load"))

    def latency(name: str, label: str, help: str) -> display.Figure:
        ends = interval.get(f"{name}_p95_s")
        return display.Figure(
            label=f"{label} p95",
            text=seconds_text(overall[f"{name}_p95_s"]),
            help=f"{help} {glossary.PERCENTILE}",
            interval=range_text(ends, seconds_text) if ends else "",
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
def _latency_over_load(answer: Served, sweep: LoadSweep) -> None:
    """One latency's percentiles over the rate; another one is drawn without asking anything else again."""
    metric = _METRICS[display.view("Latency", tuple(_METRICS), key="metric")]
    ends = answer.document["interval"].get(f"{metric}_p95_s")
    display.chart(
        load_latency_chart(sweep, metric=metric),
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
    try:
        unloaded, share = _inputs()
        with st.spinner("Serving requests at every rate", show_time=False):
            sweep = swept(unloaded, profiles=session_profiles())
            assert unloaded.workload is not None, "kind serve"
            workload = at_share(unloaded.workload, share=share, saturation_per_s=sweep.saturation_per_s)
            scenario = unloaded.model_copy(update={"workload": workload})
            answer = served(scenario, profiles=session_profiles())
    except RoofcastError as error:
        display.refusal(error)
        return
    overall = answer.document["overall"]
    rate = workload.stages[0].rate_per_s
    state = "its queue keeps growing" if overall["saturated"] else f"TTFT p95 {seconds_text(overall['ttft_p95_s'])}"
    display.headline(
        f"At {rate_text(rate, 'requests')} ({percent_text(share)} load): {state}",
        provenance=answer.document["provenance"],
        detail=f"Saturates at {rate_text(sweep.saturation_per_s, 'requests')}",
    )
    _figures(answer)
    _latency_over_load(answer, sweep)
    _over_time(answer)
    with st.expander("Every rate", icon=":material/table_rows:"):
        st.dataframe(pd.DataFrame(sweep_rows(sweep), columns=list(SWEEP_COLUMNS)), hide_index=True, width="stretch")
    display.notes(answer.document["notes"])
    display.assumptions(answer.document["assumptions"])
    display.reproduce(SIMULATE, standard_input=scenario_line(scenario))
