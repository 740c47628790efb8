"""Profiles: every number of hardware and models with its source, and a door for your own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from app import display, inputs, widgets
from app.uploaded import LARGEST_UPLOADS, has_room, next_folder, remember, session_profiles, uploaded_as
from simulator.api.models import count
from simulator.errors import RoofcastError
from simulator.reports.tables.profiles import (
    FACT_COLUMNS,
    MODEL_COLUMNS,
    hardware_facts,
    hardware_headline,
    model_facts,
    model_headline,
)
from simulator.specs.loading import list_hardware, load_hardware
from simulator.specs.model.loading import list_models, model_source
from simulator.specs.uploads import LARGEST_UPLOAD_BYTES, keep_hardware_upload, keep_model_upload

if TYPE_CHECKING:
    from streamlit.runtime.uploaded_file_manager import UploadedFile

_MEGABYTES = 1
_CONTEXT = 4096
_VIEWS = ("Accelerators", "Models")


def _hardware() -> None:
    name = inputs.hardware_input()
    spec = load_hardware(name, profiles=session_profiles())
    st.markdown(f"### {hardware_headline(spec)}")
    display.frame(hardware_facts(spec), FACT_COLUMNS, wide=("source",))
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
    display.frame(model_facts(document), MODEL_COLUMNS)
    source = model_source(name, profiles=session_profiles())
    if source:
        st.caption(f"Source: {source}")
    display.notes(document["notes"])
    display.reproduce(f"roofcast model {name} --json")


def _upload() -> None:
    st.markdown("### Bring your own")
    st.caption(
        "A Hugging Face config.json, or an accelerator as YAML in the form of the built-in ones. Files are read "
        "strictly, kept for this session only, and never leave this machine."
    )
    found = st.file_uploader(
        "config.json or accelerator YAML", type=["json", "yaml", "yml"], max_upload_size=_MEGABYTES, key="upload"
    )
    if found is None:
        return
    name = uploaded_as(found.file_id)
    if name is None and not has_room():
        text = f"This session has uploaded {LARGEST_UPLOADS} files: reload the page to start again."
        st.warning(text, icon=":material/warning:")
        return
    try:
        st.success(_kept(found) if name is None else _welcome(name), icon=":material/check_circle:")
    except RoofcastError as error:
        # One line: a file has many fields, and which one is meant belongs to the message.
        st.error(f"{error}", icon=":material/block:")


def _kept(found: UploadedFile) -> str:
    """Read a new file as strictly as any profile, keep it for this session, and say what it is now."""
    if found.size > LARGEST_UPLOAD_BYTES:
        raise RoofcastError(f"{found.name} is too large: configurations have a few kilobytes", field="upload")
    is_model = found.name.lower().endswith(".json")
    known = {*list_models(), *list_hardware()}
    folder = next_folder()
    keep = keep_model_upload if is_model else keep_hardware_upload
    name = keep(found.getvalue(), filename=found.name, folder=folder.path)
    remember(folder, file_id=found.file_id, name=name)
    return _welcome(name, replaces=name in known)


def _welcome(name: str, *, replaces: bool = False) -> str:
    return f"{name} can now be chosen on every page{', in place of the built-in one' if replaces else ''}."


def page() -> None:
    """The page."""
    display.headline("Every number has a source", detail="Datasheet facts and Hugging Face configurations, as shipped.")
    with st.container(border=True):
        _upload()
    if widgets.view("Profiles", _VIEWS, key="browse") == "Models":
        _model()
    else:
        _hardware()
