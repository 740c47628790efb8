"""Profiles: every number of hardware and models with its source, and a door for your own."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app.fields import inputs, widgets
from app.fields.uploaded import session_profiles
from app.parts import display, tables
from app.views.own import BROWSE, OWN, has_own_files, own_files, own_inputs
from simulator.api.models import count
from simulator.errors import RoofcastError
from simulator.reports.answers.profiles import (
    FACT_COLUMNS,
    MODEL_COLUMNS,
    hardware_facts,
    hardware_headline,
    model_facts,
    model_headline,
)
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import model_source, model_spellings

_CONTEXT = 4096
_SHORT_SOURCE = 10
"""Letters of a source that stands beside its number: ``assumed``."""


def _sourced(rows: Sequence[Sequence[str]]) -> tuple[list[tuple[str, str, str]], list[str]]:
    """Facts with the number of their source, and the sources with their dates in the order of these numbers: few
    sources give most facts, and sentences beside each of them are more than a phone has room for.
    """
    listed = dict.fromkeys((source, date) for _, _, source, date in rows if len(source) > _SHORT_SOURCE)
    numbers = {entry: str(number) for number, entry in enumerate(listed, start=1)}
    facts = [(name, value, numbers.get((source, date), source)) for name, value, source, date in rows]
    return facts, [f"{source}, {date}" for source, date in listed]


def _hardware() -> None:
    name = inputs.hardware_input()
    spec = load_hardware(name, profiles=session_profiles())
    st.markdown(f"### {hardware_headline(spec)}")
    facts, sources = _sourced(hardware_facts(spec))
    tables.read(facts, FACT_COLUMNS[:-1])
    st.markdown("**Sources**")
    st.markdown("\n".join(f"{number}. {tables.inert(source)}" for number, source in enumerate(sources, start=1)))
    display.notes(spec.notes)
    display.reproduce(f"roofcast profiles show {spec.name} --json")


def _model() -> None:
    name = inputs.model_input()
    try:
        document = count(name, context_tokens=_CONTEXT, profiles=session_profiles()).to_dict()
    except RoofcastError as error:
        display.refusal(error)
        return
    st.markdown(f"### {model_headline(document)}")
    tables.read(model_facts(document), MODEL_COLUMNS)
    source = model_source(name, profiles=session_profiles())
    if source:
        st.caption(f"Source: {source}")
    if others := model_spellings(name, profiles=session_profiles()):
        st.caption(f"Computes the same, and is asked about by this name: {', '.join(map(tables.inert, others))}.")
    display.notes(document["notes"])
    display.reproduce(f"roofcast model {name} --json")


def page() -> None:
    """The page."""
    display.headline("Every number has a source", detail="Datasheet facts and Hugging Face configurations, as shipped.")
    with st.container(border=True):
        own_inputs()
    views = {OWN: own_files} if has_own_files() else {}
    views |= {"Accelerators": _hardware, "Models": _model}
    views[widgets.view("Profiles", tuple(views), key=BROWSE)]()
