"""Roofline: every operator of a step against the ceilings of its accelerator."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import streamlit as st

from app.fields import glossary, inputs, question, widgets
from app.fields.uploaded import session_profiles
from app.parts import actions, charts, display, tables
from app.parts.answers import Steps, stepped
from app.parts.commands import step_command
from simulator.errors import RoofcastError
from simulator.phases.one_step import RooflinePoint, roofline_points
from simulator.reports.charts.roofline import passes_chart, point_label, roofline_chart, shape_text
from simulator.reports.content.document import EMPTY, Cell, count, fraction, number, ordered, seconds
from simulator.reports.content.quantities import bytes_text, count_text, range_text, seconds_text
from simulator.reports.tables.scenario_figures import (
    crossover_figure,
    least_known,
    step_time_figure,
    utilisation_figure,
)
from simulator.reports.tables.serving import objective_chances
from simulator.specs.question.plan_values import STEP_CONTEXT_TOKENS
from simulator.specs.question.scenario import ScenarioSpec
from simulator.units import format_si

_HELP = {
    "decode": "One more token for every sequence of the batch. The bar: this step alone against the objective of TPOT.",
    "mbu": glossary.MBU,
    "prefill": "All prompt tokens of one request in one pass. The bar: it alone against the objective of TTFT.",
    "mfu": glossary.MFU,
    "crossover": glossary.CROSSOVER,
}
_OPERATOR = "operator"
_PICKED = "Click a point of the chart or choose here: its shape, bytes and time stand below."
_FACT_WIDTH, _PASSES_HEIGHT = 130, 300
_MEANINGS = {
    "runs": "How often a step runs it on one accelerator.",
    "shape of one": "Of one run: m x k times k x n for a matrix product.",
    "FLOP/byte": "Arithmetic intensity: work over bytes moved; the horizontal axis.",
    "reached": "Work over predicted time; the vertical axis.",
    "memory": "Bytes over predicted time.",
    "roofline": "The time that peak and memory bandwidth alone would allow.",
    "of the step": "Share of the step's time.",
    "known": "How its time is known.",
}


def _context() -> int:
    """Prompts of the question; without one what a step of the command attends to."""
    return min(question.elsewhere("isl") or STEP_CONTEXT_TOKENS, inputs.LARGEST_TOKENS)


def asked() -> tuple[ScenarioSpec, int]:
    """The deployment that the sidebar asks about, and the tokens that each sequence attends to."""
    with st.sidebar:
        preset = inputs.preset_input()
        batch = inputs.batch_input(preset)
        context = inputs.tokens("Context", key="context", value=_context(), help=glossary.CONTEXT)
        fields = inputs.deployment_inputs(limits=False)
    lengths = {"batch_size": batch, "isl_tokens": context, "osl_tokens": 2}
    return inputs.scenario({"kind": "batch", **fields, **lengths}), context


def _row(point: RooflinePoint) -> tuple[Cell | str, ...]:
    computes = point.flops > 0
    return (
        point.name,
        point.phase,
        count(point.count),
        shape_text(point.work),
        ordered(format_si(point.flops, "FLOP") if computes else "none", point.flops),
        ordered(bytes_text(point.bytes), point.bytes),
        number(point.arithmetic_intensity if computes else None),
        _rate(point.flops_per_s if computes else None, "FLOP/s"),
        _rate(point.bytes_per_s if point.bytes else None, "B/s"),
        seconds(point.seconds),
        seconds(point.floor_s),
        fraction(point.share),
        point.provenance,
    )


def _rate(value: float | None, unit: str) -> Cell | str:
    return EMPTY if value is None else ordered(format_si(value, unit), value)


_COLUMNS = (
    "operator",
    "phase",
    "runs",
    "shape of one",
    "work",
    "bytes",
    "FLOP/byte",
    "reached",
    "memory",
    "time",
    "roofline",
    "of the step",
    "known",
)


def _figures(found: Steps) -> None:
    decode, prefill = found.decode_document, found.prefill_document
    shown = (
        (step_time_figure(decode, key="decode", label="Decode step"), decode),
        (utilisation_figure(decode, field="mbu", key="mbu", label="Decode MBU"), decode),
        (step_time_figure(prefill, key="prefill", label="Prefill of one prompt"), prefill),
        (utilisation_figure(prefill, field="mfu", key="mfu", label="Prefill MFU"), prefill),
        (crossover_figure(decode), decode["crossover"]),
    )
    known = {item.key: document["provenance"] for item, document in shown}
    # A step alone, and a prompt alone: what no load makes better.
    alone = {"ttft_s": prefill, "tpot_s": decode}
    least = {name: document["step_s"] for name, document in alone.items()}
    ends = {name: document["interval"]["step_s"] for name, document in alone.items()}
    gauges = display.gauges(objective_chances({**least, "interval": ends}, question.bounds_s()))
    display.figures(
        display.explained(
            [item for item, _ in shown],
            help=_HELP,
            known=known,
            gauges={"prefill": gauges["ttft_s"], "decode": gauges["tpot_s"]},
        ),
        provenance=decode["provenance"],
    )


def _pick(operators: Mapping[str, str], label: str) -> None:
    """Show the operator whose point was clicked."""
    st.session_state[_OPERATOR] = operators[label]


@st.fragment
def _chart(found: Steps, points: dict[str, RooflinePoint]) -> None:
    """The roofline, passes that have no place there, and the operator that was clicked or chosen: a click redraws
    nothing else.
    """
    decode, prefill = found.decode_document, found.prefill_document
    phases = [("prefill", found.prefill), ("decode", found.decode)]
    described = roofline_chart(phases, deployment=found.deployment, all_ceilings=True)
    steps = ", ".join(
        f"{name} {range_text(document['interval']['step_s'], seconds_text)}"
        for name, document in (("prefill", prefill), ("decode", decode))
    )
    known = least_known((prefill["provenance"], decode["provenance"]))
    pick = partial(_pick, {point_label(point): name for name, point in points.items()})
    charts.chart(described, key="roofline", provenance=known, interval=steps, height=480, picked=pick)
    passes = passes_chart(phases, deployment=found.deployment)
    if passes is not None:
        charts.chart(passes, key="passes", provenance=known, interval=steps, height=_PASSES_HEIGHT, picked=pick)
    names = tuple(points)
    chosen = widgets.choice("Operator", names, key=_OPERATOR, default=names[0], help=_PICKED)
    facts = dict(zip(_COLUMNS, _row(points[chosen]), strict=True))
    del facts["operator"], facts["phase"]
    with st.grid(len(facts), min_column_width=_FACT_WIDTH, gap="small"):
        for name, text in facts.items():
            shown = tables.cell_text(text) or EMPTY
            st.markdown(f"{name[:1].upper()}{name[1:]}  \n**{shown}**", help=_MEANINGS.get(name))


def page() -> None:
    """The page."""
    scenario = None
    try:
        scenario, context = asked()
        question.show()
        found = stepped(scenario, context_tokens=context, profiles=session_profiles())
    except RoofcastError as error:
        actions.refusal(error, scenario)
        actions.before(_answer)
        return
    actions.now(_answer, scenario, context, found)


def _answer(scenario: ScenarioSpec, context: int, found: Steps) -> None:
    batch = scenario.batch_size or 1
    decode = found.decode_document
    display.headline(
        f"A step of {count_text(batch)} sequences takes {seconds_text(decode['step_s'])}: {decode['bound']} bound",
        provenance=decode["provenance"],
        detail=f"80 %: {range_text(decode['interval']['step_s'], seconds_text)}",
    )
    _figures(found)
    points = {
        point.title: point
        for phase, estimate in (("decode", found.decode), ("prefill", found.prefill))
        for point in roofline_points(phase, estimate, deployment=found.deployment, every=True)
    }
    _chart(found, points)
    tables.table("Every operator", [_row(point) for point in points.values()], _COLUMNS, key="operators")
    display.notes(decode["notes"])
    display.assumptions(decode["assumptions"])
    display.reproduce(step_command(scenario, phase="decode", batch=batch, context=context))
