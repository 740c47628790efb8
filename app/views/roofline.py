"""Roofline: every operator of a step against the ceilings of its accelerator."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import display, glossary, inputs
from app.answers import Steps, crossover, stepped
from app.commands import step_command
from app.uploaded import session_profiles
from simulator.errors import RoofcastError
from simulator.reports.figures.roofline import RooflinePoint, roofline_chart, roofline_points
from simulator.reports.quantities import bytes_text, count_text, percent_text, range_text, seconds_text
from simulator.reports.scenario_figures import least_known
from simulator.reports.step_figures import step_time_figure, utilisation_figure
from simulator.specs.scenario import ScenarioSpec
from simulator.units import format_si

_HELP = {
    "decode": "One more token for every sequence of the batch.",
    "mbu": glossary.MBU,
    "prefill": "All prompt tokens of one request in one pass.",
    "mfu": glossary.MFU,
}


def _inputs() -> tuple[ScenarioSpec, int]:
    with st.sidebar:
        preset = inputs.preset_input()
        batch = st.slider(
            "Batch", 1, inputs.LARGEST_BATCH, preset.batch_size, key="batch", bind="query-params", help=glossary.BATCH
        )
        isl = inputs.tokens("Prompt tokens", key="isl", value=preset.isl_tokens, help=glossary.ISL)
        fields = inputs.deployment_inputs()
    lengths = {"batch_size": batch, "isl_tokens": isl, "osl_tokens": 2}
    return inputs.scenario({"kind": "batch", **fields, **lengths}), isl


def _row(point: RooflinePoint) -> tuple[str, ...]:
    return (
        point.name,
        point.phase,
        count_text(point.count),
        point.shape,
        format_si(point.flops, "FLOP"),
        bytes_text(point.bytes),
        f"{point.arithmetic_intensity:.3g}",
        format_si(point.flops_per_s, "FLOP/s"),
        seconds_text(point.seconds),
        seconds_text(point.floor_s),
        percent_text(point.share),
        point.provenance,
    )


_COLUMNS = (
    "operator",
    "phase",
    "runs",
    "shape of one",
    "work",
    "bytes",
    "FLOP/byte",
    "reached",
    "time",
    "roofline",
    "of the step",
    "known",
)


def _figures(found: Steps, turning: int | None) -> None:
    decode, prefill = found.decode_document, found.prefill_document
    display.figures(
        [
            *(
                display.Figure(
                    label=item.label,
                    text=item.text,
                    help=_HELP[item.key],
                    interval=item.interval,
                    provenance=document["provenance"],
                )
                for item, document in (
                    (step_time_figure(decode, key="decode", label="Decode step"), decode),
                    (utilisation_figure(decode, field="mbu", key="mbu", label="Decode MBU"), decode),
                    (step_time_figure(prefill, key="prefill", label="Prefill of one prompt"), prefill),
                    (utilisation_figure(prefill, field="mfu", key="mfu", label="Prefill MFU"), prefill),
                )
            ),
            display.Figure(
                label="Crossover batch",
                text="above 4,096" if turning is None else count_text(turning),
                help=glossary.CROSSOVER,
            ),
        ],
        provenance=decode["provenance"],
    )


def _chart(found: Steps) -> None:
    """The roofline, and what was clicked."""
    decode, prefill = found.decode_document, found.prefill_document
    described = roofline_chart(
        [("prefill", found.prefill), ("decode", found.decode)], deployment=found.deployment, all_ceilings=True
    )
    steps = ", ".join(
        f"{name} {range_text(document['interval']['step_s'], seconds_text)}"
        for name, document in (("prefill", prefill), ("decode", decode))
    )
    known = least_known((prefill["provenance"], decode["provenance"]))
    chosen = display.selectable_chart(described, key="roofline", provenance=known, interval=steps, height=480)
    if chosen:
        st.info(chosen, icon=":material/ads_click:")
    else:
        st.caption("Click a point for its shape, bytes and time.")


def page() -> None:
    """The page."""
    try:
        scenario, isl = _inputs()
        found = stepped(scenario, context_tokens=isl, profiles=session_profiles())
    except RoofcastError as error:
        display.refusal(error)
        return
    batch = scenario.batch_size or 1
    turning = crossover(scenario, found.deployment, context_tokens=isl, profiles=session_profiles())
    decode = found.decode_document
    display.headline(
        f"A step of {count_text(batch)} sequences takes {seconds_text(decode['step_s'])}: {decode['bound']} bound",
        provenance=decode["provenance"],
        detail=f"80 %: {range_text(decode['interval']['step_s'], seconds_text)}",
    )
    _figures(found, turning)
    _chart(found)
    points = [
        *roofline_points("prefill", found.prefill, deployment=found.deployment),
        *roofline_points("decode", found.decode, deployment=found.deployment),
    ]
    with st.expander("Every operator", icon=":material/table_rows:"):
        st.dataframe(
            pd.DataFrame([_row(point) for point in points], columns=list(_COLUMNS)), hide_index=True, width="stretch"
        )
    display.notes(decode["notes"])
    display.assumptions(decode["assumptions"])
    display.reproduce(step_command(scenario, phase="decode", batch=batch, context=isl))
