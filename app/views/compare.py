"""Compare: the deployment of the question and up to three others under the same work, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import streamlit as st

from app.address import opening
from app.address.named import named_questions
from app.fields import glossary, inputs, question, widgets
from app.fields.techniques import sparsity_input, speculation_input, structure_input
from app.fields.uploaded import session_profiles
from app.parts import charts, display, tables
from app.parts.answers import WhatIfAnswer, answered
from app.parts.commands import scenario_line, simulate_command
from simulator.errors import RoofcastError
from simulator.planner.what_if import scenario_quality
from simulator.reports.charts.latency_breakdown import memory_stack_chart
from simulator.reports.charts.what_if import cost_speed_chart, quality_cost_chart
from simulator.reports.content.document import BEST
from simulator.reports.content.quantities import chance_text
from simulator.reports.tables.comparison import (
    compare_columns,
    compare_headline,
    compare_provenance,
    compare_verdict,
    named_apart,
    room_text,
)
from simulator.reports.tables.scenario_figures import least_known, scenario_figures
from simulator.reports.tables.serving import least_chance, objective_chances
from simulator.specs.question.plan_values import COMPARED_HARDWARE, MODEL

_PLACES = ("", "_b", "_c", "_d")
"""Ends of the keys of each column; the first one is the deployment of the question."""


_DEPLOYED_KEYS = ("model", "gpu", "tp", "pp", "dp", "ep", "cp", "weights", "kv")
_TECHNIQUE_KEYS = ("sparsity", "zeros_sparsity", "speculation", "k", "acceptance", "draft", "kv_heads")
_UNUSED = ("none", "as published")
_COLUMN_KEYS = (*_DEPLOYED_KEYS, *_TECHNIQUE_KEYS)
"""What of a kept question a column can ask."""
_DECISIVE = {"tpot_s": glossary.TPOT, "per_million_output_tokens": glossary.COST}
"""What is read first of a deployment, and what it means."""
_BESIDE = "_beside"
_NARROWEST = 185


def deployment_asked(place: str, hardware: str, first: dict[str, Any]) -> dict[str, Any]:
    """One column of widgets; what ``first`` chose is where the others start."""
    model = widgets.choice(
        "Model",
        inputs.model_names(),
        key=f"model{place}",
        default=first.get("model", MODEL),
        help="Model profile.",
        spelled=inputs.known_model,
    )
    fields: dict[str, Any] = {"model": model}
    fields["hardware"] = widgets.choice(
        "Accelerator",
        inputs.hardware_names(),
        key=f"gpu{place}",
        default=inputs.profile_name(hardware),
        help="Accelerator profile.",
        spelled=inputs.known_hardware,
    )
    degrees = inputs.parallelism_inputs(model, place=place, first=first.get("degrees", {}))
    left, right = st.columns(2)
    formats = first.get("formats", {})
    with left:
        weights = inputs.weights_input(f"weights{place}", formats.get("weights", inputs.NATIVE))
    with right:
        cache = inputs.kv_cache_input(f"kv{place}", formats.get("kv_cache", inputs.NATIVE))
    fields["precision"] = weights | cache
    fields["formats"] = {"weights": next(iter(weights.values()), inputs.NATIVE), **cache}
    with st.expander("Techniques", icon=":material/bolt:"):
        found = {
            "sparsity": sparsity_input(f"sparsity{place}"),
            "speculation": speculation_input(place),
            "structure": structure_input(model, place),
        }
    fields |= degrees
    fields["degrees"] = degrees
    fields["techniques"] = {name: value for name, value in found.items() if value is not None}
    return fields


def _place_kept() -> None:
    """Let kept questions be the columns behind the first."""
    chosen = [item for item in named_questions() if item.name in st.session_state[_BESIDE]]
    for place, item in zip(_PLACES[1:], chosen, strict=False):
        for key in _COLUMN_KEYS:
            st.session_state.pop(f"{key}{place}", None)
            if key in item.asked:
                st.session_state[f"{key}{place}"] = item.asked[key]
    if chosen:
        st.session_state["columns"] = len((*chosen, _PLACES[0]))


def _kept_columns() -> None:
    """Choose kept questions to stand beside the present one, each with its deployment under the same work."""
    names = [item.name for item in named_questions() if "gpu" in item.asked]
    if names:
        st.multiselect(
            "Kept questions",
            names,
            key=_BESIDE,
            on_change=_place_kept,
            max_selections=len(_PLACES[1:]),
            placeholder="put beside it",
            help="Their deployments become the columns behind the first, under the same batch and lengths.",
        )


def asked() -> tuple[dict[str, Any], int]:
    """The work that the sidebar asks about, and how many deployments do it."""
    with st.sidebar:
        _kept_columns()
        preset = inputs.preset_input()
        count = widgets.whole(
            "Deployments", key="columns", low=2, high=len(_PLACES), value=3, help="How many stand side by side."
        )
        batch = inputs.batch_input(preset)
        isl, osl = inputs.length_inputs(preset)
        engine = inputs.engine_input()
    work = {"kind": "batch", "batch_size": batch, "isl_tokens": isl, "osl_tokens": osl, "engine": engine}
    return work, count


def places(count: int) -> Iterator[tuple[str, str, Any, Any]]:
    """The end of each deployment's keys, the accelerator that it starts with, where it is shown and where asked."""
    grid = st.grid(count, min_column_width=_NARROWEST, gap="medium", border=True)
    for place, hardware in islice(zip(_PLACES, COMPARED_HARDWARE, strict=True), count):
        with grid, st.container(gap="xsmall"):
            shown = st.container(gap="xxsmall")
            form = st.popover("Change it", icon=":material/tune:", width="stretch", key=f"change{place or '_a'}")
            with form:
                container = st.container(key=f"deployment{place or '_a'}")
        yield place, hardware, shown, container


def _card(name: str, answer: WhatIfAnswer) -> None:
    """What a deployment is called and what decides between them."""
    st.markdown(f"**{name}**")
    shown = [item for item in scenario_figures(answer.what_if, answer.document) if item.key in _DECISIVE]
    display.figures(
        display.explained(shown, help=_DECISIVE), provenance=answer.document["provenance"], a_row=2, framed=False
    )


def _objectives(answer: WhatIfAnswer) -> str:
    """Which objectives of the question the batch misses in its mean, and how likely it holds them."""
    chances = objective_chances(answer.document, question.bounds_s())
    missed = [item.metric.upper() for item in chances if item.value_s > item.bound_s]
    odds = chance_text(least_chance(chances))
    return f"{' and '.join(missed)} missed ({odds} likely held)" if missed else f"held ({odds} likely)"


def _answers(work: dict[str, Any], count: int) -> tuple[list[WhatIfAnswer], dict[str, Any]]:
    """The deployments that can be answered and their places, by the end of their keys; others are refused there."""
    found: list[WhatIfAnswer] = []
    places_shown: dict[str, Any] = {}
    first: dict[str, Any] = {}
    for place, hardware, shown, container in places(count):
        # Beside an accelerator stands another one, until somebody asks for the same.
        beside = COMPARED_HARDWARE[0] if place and first.get("hardware") == inputs.profile_name(hardware) else hardware
        try:
            with container:
                fields = deployment_asked(place, beside, first)
            first = first or fields
            given = {name: value for name, value in fields.items() if name not in ("formats", "degrees")}
            answer = answered(inputs.scenario({**work, **given}), profiles=session_profiles())
            found.append(answer)
            places_shown[place] = shown
        except RoofcastError as error:
            with shown:
                display.refusal(error)
    return found, places_shown


def _doors(columns: Mapping[str, str]) -> None:
    """One of the columns on a page of its own. columns : the end of its keys by its name"""
    chosen = widgets.choice(
        "Look closer at", tuple(columns), key="closer", default=next(iter(columns)), help="Opens it on another page."
    )
    place = columns[chosen]
    values = {key: st.session_state.get(f"{key}{place}") for key in _DEPLOYED_KEYS}
    techniques = {key: st.session_state.get(f"{key}{place}") for key in _TECHNIQUE_KEYS}
    used = any(techniques[key] not in (None, *_UNUSED) for key in _TECHNIQUE_KEYS)
    opening.open_in(values, techniques if used else {}, but="Without its techniques", here="Compare")


def page() -> None:
    """The page."""
    work, count = asked()
    top = st.container()
    found, places_shown = _answers(work, count)
    question.show()
    if not found:
        return
    compared = named_apart([(answer.what_if, answer.document) for answer in found])
    known = compare_provenance(compared)
    with top:
        display.verdict(*compare_verdict(compared, question.bounds_s()))
        display.headline(compare_headline(compared), provenance=known, detail="Same batch and lengths for all.")
    for (name, _, _), answer, shown in zip(compared, found, places_shown.values(), strict=True):
        with shown:
            _card(name, answer)
    changed = [what_if for _, what_if, _ in compared if scenario_quality(what_if.result).loss != 0]
    grid = charts.side_by_side(3 if changed else 2)
    with grid, st.container():
        charts.chart(cost_speed_chart(compared), key="cost_speed", provenance=known)
    if changed:
        with grid, st.container():
            charts.chart(quality_cost_chart(compared), key="quality_cost", provenance=known)
    with grid, st.container():
        memories = [(name, what_if.result.run.memory) for name, what_if, _ in compared]
        stored = least_known(answer.document["memory"]["provenance"] for answer in found)
        used = [answer.document["memory"]["kv_utilization"] for answer in found]
        stack = memory_stack_chart(memories, used=used)
        charts.chart(stack, key="memories", provenance=stored, interval=room_text(compared))
    (deployment, *rows), columns = compare_columns(compared)
    rows = [deployment, ("Objectives", *map(_objectives, found)), *rows]
    tables.read(rows, columns)
    said = f"{BEST}: the best of its row. Objectives: the question's, by the mean of the batch."
    st.caption(f"{said} In brackets: {glossary.INTERVAL}")
    _doors({name: place for (name, _, _), place in zip(compared, places_shown, strict=True)})
    lines = "\n".join(scenario_line(answer.what_if.scenario) for answer in found)
    display.reproduce(simulate_command(), standard_input=lines)
