"""Compare: up to four deployments under the same work, side by side."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from app import display, glossary, inputs
from app.answers import Answer, answered
from app.commands import SIMULATE, scenario_line
from app.techniques import sparsity_input, speculation_input, structure_input
from app.uploaded import session_profiles
from simulator.errors import RoofcastError
from simulator.reports.charts.memory_stack import memory_stack_chart
from simulator.reports.charts.what_if import cost_speed_chart, quality_cost_chart
from simulator.reports.tables.comparison import compare_columns, compare_headline, compare_provenance, room_text
from simulator.reports.tables.scenario_figures import least_known
from simulator.specs.loading import list_hardware

_DEGREES = ("1", "2", "4", "8")
_PLACES = ("a", "b", "c", "d")
_STARTS = {"a": ("h100-sxm-80gb", 4), "b": ("h200-sxm-141gb", 2), "c": ("b200-sxm", 2), "d": ("mi300x", 2)}


def _deployment(place: str) -> dict[str, Any]:
    """One column of widgets; their URL keys carry the column's letter."""
    hardware, tp = _STARTS[place]
    model = inputs.choice(
        "Model", inputs.model_names(), key=f"model_{place}", default=inputs.DEFAULT_MODEL, help="Model profile."
    )
    fields: dict[str, Any] = {"model": model}
    left, right = st.columns((5, 2), gap="xsmall")
    with left:
        fields["hardware"] = inputs.choice(
            "Accelerator",
            list_hardware(profiles=session_profiles()),
            key=f"gpu_{place}",
            default=hardware,
            help="Accelerator profile.",
        )
    with right:
        fields["tp_size"] = int(inputs.choice("TP", _DEGREES, key=f"tp_{place}", default=str(tp), help=glossary.TP))
    left, right = st.columns(2)
    with left:
        weights = inputs.weights_input(f"weights_{place}")
    with right:
        fields["precision"] = weights | inputs.kv_cache_input(f"kv_{place}")
    with st.expander("Techniques", icon=":material/bolt:"):
        found = {
            "sparsity": sparsity_input(f"sparsity_{place}"),
            "speculation": speculation_input(f"_{place}"),
            "structure": structure_input(model, f"_{place}"),
        }
    fields["techniques"] = {name: value for name, value in found.items() if value is not None}
    return fields


def _shared() -> tuple[dict[str, Any], int]:
    with st.sidebar:
        preset = inputs.preset_input()
        count = st.slider(
            "Deployments", 2, len(_PLACES), 3, key="columns", bind="query-params", help="How many stand side by side."
        )
        batch = inputs.batch_input(preset)
        isl, osl = inputs.length_inputs(preset)
        engine = inputs.choice("Engine", inputs.ENGINES, key="engine", default="vllm", help=glossary.ENGINE)
    work = {"kind": "batch", "batch_size": batch, "isl_tokens": isl, "osl_tokens": osl, "engine": {"name": engine}}
    return work, count


def _answers(work: dict[str, Any], count: int) -> list[tuple[str, Answer]]:
    """The deployments that can be answered, by their letter; the others show their refusal in place."""
    found = []
    for place, column in zip(_PLACES, st.columns(count, gap="medium", border=True), strict=False):
        with column, st.container(key=f"deployment_{place}"):
            st.markdown(f"**{place.upper()}**")
            try:
                scenario = inputs.scenario({**work, **_deployment(place)})
                found.append((place.upper(), answered(scenario, profiles=session_profiles())))
            except RoofcastError as error:
                display.refusal(error)
    return found


def page() -> None:
    """The page."""
    work, count = _shared()
    top = st.container()
    found = _answers(work, count)
    if not found:
        return
    compared = [(name, answer.what_if, answer.document) for name, answer in found]
    known = compare_provenance(compared)
    with top:
        display.headline(compare_headline(compared), provenance=known, detail="Same batch and lengths for all.")
    left, middle, right = st.columns(3, gap="medium")
    with left:
        display.chart(cost_speed_chart(compared), key="cost_speed", provenance=known)
    with middle:
        display.chart(quality_cost_chart(compared), key="quality_cost", provenance=known)
    with right:
        memories = [(name, answer.what_if.result.run.memory) for name, answer in found]
        stored = least_known(answer.document["memory"]["provenance"] for _, answer in found)
        used = [answer.document["memory"]["kv_utilization"] for _, answer in found]
        stack = memory_stack_chart(memories, used=used)
        display.chart(stack, key="memories", provenance=stored, interval=room_text(compared))
    rows, columns = compare_columns(compared)
    st.dataframe(pd.DataFrame(rows, columns=list(columns)), hide_index=True, width="stretch", height="content")
    st.caption(f"In brackets: {glossary.INTERVAL}")
    lines = "\n".join(scenario_line(answer.what_if.scenario) for _, answer in found)
    display.reproduce(SIMULATE, standard_input=lines)
