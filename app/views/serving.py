"""Serving: what requests see as the load on one deployment grows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from app import actions, charts, display, glossary, inputs, opening, question, tables, widgets
from app.answers import served, swept
from app.commands import scenario_line, simulate_command
from app.inside import inside
from app.uploaded import session_profiles
from app.variation import variation_inputs
from app.work import Served
from simulator.engine.runs.load_sweep import LoadSweep, at_rate, demand_of
from simulator.engine.runs.served_run import ServedRun
from simulator.errors import RoofcastError
from simulator.planner.records import WorkloadPreset
from simulator.planner.replica_setup import MOST_POOLED
from simulator.reports.charts.gauge import Gauge
from simulator.reports.charts.load import load_latency_chart, rate_label
from simulator.reports.content.quantities import range_text, rate_text, seconds_text
from simulator.reports.tables.serving import (
    SWEEP_COLUMNS,
    ObjectiveChance,
    objective_chances,
    serving_headline,
    serving_quantities,
    sweep_rows,
)
from simulator.specs.question.plan_values import SERVED_RATE_PER_S
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec

_LARGEST_RATE = 10_000.0
_HELP = {
    "ttft_p95_s": f"{glossary.TTFT} {glossary.PERCENTILE}",
    "tpot_p95_s": f"{glossary.TPOT} {glossary.PERCENTILE}",
    "e2e_p95_s": f"{glossary.E2E} {glossary.PERCENTILE}",
    "saturation_per_s": glossary.SATURATION,
    "mean_batch": glossary.BATCH,
    "kv_utilization": glossary.KV,
}
_LOOK = "look_rate"
_METRICS = {"Time to first token": "ttft", "Time per token": "tpot", "End to end": "e2e"}


def _replicas(pool: str) -> int | None:
    return widgets.optional_count(
        f"{pool.capitalize()} replicas",
        key=f"{pool}_replicas",
        low=1,
        high=MOST_POOLED,
        placeholder="no pool",
        help=glossary.POOLS,
    )


def _pools_input(model: str) -> dict[str, Any]:
    """A pool for prompts before the deployment's replicas, which only decode then; nothing where they do both."""
    with st.expander("Pools of their own for prompts and answers"):
        left, right = st.columns(2)
        with left:
            ahead = _replicas("prefill")
        with right:
            after = _replicas("decode")
        names = (inputs.SAME_KIND, *inputs.hardware_names())
        kind = widgets.choice(
            "Prefill accelerator", names, key="prefill_gpu", default=inputs.SAME_KIND, help=glossary.PREFILL_GPU
        )
        degrees = inputs.parallelism_inputs(model, pool="prefill")
        step = widgets.optional_count(
            "Tokens a prefill step",
            key="prefill_step_tokens",
            low=2,
            high=inputs.LARGEST_STEP,
            placeholder=inputs.OWN_LIMIT,
            help=glossary.MAX_BATCHED,
        )
        link = widgets.choice(
            "Link between pools", inputs.LINKS, key="link", default=inputs.OWN_LIMIT, help=glossary.POOL_LINK
        )
    if ahead is None and after is None:
        return {}
    given = {
        "prefill_replicas": ahead or 1,
        "decode_replicas": after or 1,
        "prefill_hardware": None if kind == inputs.SAME_KIND else kind,
        "prefill_max_num_batched_tokens": step,
        "link": None if link == inputs.OWN_LIMIT else link,
    }
    return {"disaggregation": degrees | {name: value for name, value in given.items() if value is not None}}


def _workload(preset: WorkloadPreset) -> WorkloadSpec:
    isl, osl = inputs.length_inputs(preset)
    with st.expander("Variation and shared prompts"):
        isl_cv, osl_cv, prefix = variation_inputs(preset, highest_prefix=0.95)
    return demand_of(isl_tokens=isl, osl_tokens=osl, isl_cv=isl_cv, osl_cv=osl_cv, prefix_hit_fraction=prefix)


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
        pools = _pools_input(fields["model"])
    return inputs.scenario({"kind": "serve", **fields, **pools, "workload": workload}), rate, bounds


def _figures(answer: Served, chances: Sequence[ObjectiveChance]) -> None:
    ends = answer.document["interval"]
    gauges = {}
    for item in chances:
        key = f"{item.metric}_p95_s"
        low, high = ends.get(key) or (item.value_s, item.value_s)
        gauges[key] = Gauge(bound_s=item.bound_s, value_s=item.value_s, ends_s=(low, high), chance=item.chance)
    shown = display.explained(serving_quantities(answer.document), help=_HELP, gauges=gauges)
    display.figures(shown, provenance=answer.document["provenance"])


def _look_at(name: str) -> None:
    """Offer the rate whose point was clicked."""
    st.session_state[_LOOK] = name


def _doors_of(sweep: LoadSweep, place: int) -> None:
    """The deployment under one of the swept loads, on the pages that ask about one."""
    point = sweep.points[place]
    batch = min(max(round(point.stage.mean_batch), 1), inputs.LARGEST_BATCH)
    opening.also("Open in", opening.ASKING, {"rate": float(f"{point.rate_per_s:.6g}"), "batch": batch})


@st.fragment
def _latency_over_load(answer: Served, sweep: LoadSweep, rate: float, bounds: dict[str, float]) -> None:
    """One latency's percentiles over the rate; another one is drawn without asking anything else again."""
    metric = _METRICS[widgets.view("Latency", tuple(_METRICS), key="metric")]
    ends = answer.document["interval"].get(f"{metric}_p95_s")
    charts.chart(
        load_latency_chart(sweep, metric=metric, at_per_s=rate, bound_s=bounds.get(metric)),
        key="load",
        provenance=answer.document["provenance"],
        interval=f"{metric.upper()} p95 at this load {range_text(ends, seconds_text)}" if ends else "",
        picked=_look_at,
    )
    names = tuple(rate_label(point.rate_per_s) for point in sweep.points)
    with st.container(horizontal=True, key="look_closer", vertical_alignment="bottom", gap="medium"):
        found = widgets.choice(
            "Look closer at", names, key=_LOOK, default=names[0], help="Click a point, or choose here, then open it."
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


def _answer(answer: Served, scenario: ScenarioSpec, sweep: LoadSweep, rate: float, bounds: dict[str, float]) -> None:
    chances = objective_chances(answer.document, bounds)
    display.headline(
        serving_headline(rate, answer.document, chances),
        provenance=answer.document["provenance"],
        detail=f"Saturates at {rate_text(sweep.saturation_per_s, 'requests')}",
    )
    _figures(answer, chances)
    _latency_over_load(answer, sweep, rate, bounds)
    run = answer.result.run
    assert isinstance(run, ServedRun), "kind serve"
    inside(run, answer.document)

    tables.table("Every rate", sweep_rows(sweep), SWEEP_COLUMNS, key="rates", picked=partial(_doors_of, sweep))
    display.notes(answer.document["notes"])
    display.assumptions(answer.document["assumptions"])
    display.reproduce(simulate_command(), standard_input=scenario_line(scenario))
