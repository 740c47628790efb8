"""Files of one's own on the page of profiles: taken, shown as they were understood, asked with, and given back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import streamlit as st

from app.address import opening
from app.fields import controls, inputs, question, widgets
from app.fields.own_files import (
    DEMAND,
    HARDWARE,
    KERNELS,
    KINDS,
    MODEL,
    PLACES,
    PRICES,
    RECORDS,
    WORKLOADS,
    fit_engine,
    fit_kernels,
    is_benchmark,
    keep_file,
    keep_fit,
    label,
    most_like_hardware,
    most_like_model,
    remove_file,
    rename_file,
)
from app.fields.uploaded import (
    LARGEST_UPLOADS,
    has_room,
    next_folder,
    remember,
    said_of,
    session_folder,
    session_profiles,
    uploaded_file,
    uploaded_names,
    uploaded_paths,
)
from app.fields.widgets import quoted
from app.parts import display, tables
from app.parts.commands import OWN_FOLDER
from app.parts.sections import section_body
from simulator.api.models import count
from simulator.errors import RoofcastError, closest
from simulator.fitting.replay import replay_results
from simulator.reports.answer import Answer
from simulator.reports.answers.calibration import REPLAY_COLUMNS, replay_rows
from simulator.reports.answers.demand import demand_columns, demand_rows, peak_fields
from simulator.reports.answers.prices import PriceFilter, quotes_table
from simulator.reports.answers.profiles import beside, hardware_facts, model_facts
from simulator.reports.content.document import Section
from simulator.reports.words.fields import note_texts
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import list_hardware, load_hardware
from simulator.specs.measured.serving_results import ServedSpec
from simulator.specs.model.loading import list_models, named_model
from simulator.specs.money.prices import load_prices
from simulator.specs.parsing import read_text
from simulator.specs.question.plan import plan_spec
from simulator.specs.writing import ProfileText

if TYPE_CHECKING:
    from streamlit.runtime.uploaded_file_manager import UploadedFile

_CHOSEN, _NEW_NAME, _REFUSED = "mine", "new_name", "_rename_refused"
BROWSE, OWN = "browse", "Your files"
"""Key of what the page of profiles shows, and the part of it that is a session's own."""
_CONTEXT = 4096
_LONGEST_NAME = 60
_ASKED_OF = {
    "model": ("Plan", "What-if", "Serving", "Roofline", "Compare"),
    "gpu": opening.ASKING,
    "gpus": ("Plan",),
    "prices": ("Plan", "What-if", "Sweep", "Compare"),
    "rps": ("Plan", "What-if", "Serving"),
}
"""Pages that ask with an upload, by the key that it sets."""


def own_inputs() -> None:
    """Where files are taken, and a model by the name that the Hub has for it."""
    st.markdown("### Bring your own")
    st.caption(
        "A Hugging Face config.json; an accelerator or a price list as YAML; quotes as CSV; recorded demand: a trace "
        "(Azure, BurstGPT, Mooncake), vLLM metrics, a result of vLLM bench, GuideLLM or AIPerf, or a workload file; "
        "kernel times of `python -m validation.measure`. Read as strictly as on the command line, kept by this server "
        "for this session and its links, never sent on."
    )
    left, right = st.columns((3, 2), gap="large")
    with left:
        found = st.file_uploader("A file", type=KINDS, key="upload")
    with right:
        over = widgets.text(
            "Time that /metrics cover",
            key="over",
            placeholder="6h",
            help="Of vLLM's counters alone, which do not say it.",
        )
        _hub()
    if found is not None:
        _taken(found, over)


def _taken(found: UploadedFile, over: str) -> None:
    said = said_of(found.file_id)
    if said is None and not has_room():
        text = (
            f"This session has uploaded {LARGEST_UPLOADS} files, or as much as it may: reload the page to start again."
        )
        st.warning(text, icon=":material/warning:")
        return
    try:
        if said is None:
            folder = next_folder()
            kept = keep_file(found.getvalue(), filename=found.name, over=over, folder=folder)
            remember(folder, file_id=found.file_id, said=(said := kept.said), label=kept.label)
            # What was understood is shown at once.
            st.session_state[_CHOSEN], st.session_state[BROWSE] = kept.label, OWN
        st.success(said, icon=":material/check_circle:")
    except RoofcastError as error:
        # One line: a file has many fields, and which one is meant belongs to the message.
        st.error(controls.named(f"{error}"), icon=":material/block:")


def _hub() -> None:
    """A model by its Hugging Face id: known here, or to be uploaded."""
    name = widgets.text(
        "Hugging Face id",
        key="hub",
        placeholder="RedHatAI/Qwen3-32B-NVFP4",
        help="A model, or a quantized checkpoint of one, by the name that the Hub has for it. Nothing is fetched.",
    )
    if not name:
        return
    try:
        model = named_model(name, profiles=session_profiles())
    except RoofcastError as error:
        like = closest(name.rpartition("/")[2], list_models())
        known_as = f" {like[:1].upper()}{like[1:]}" if like else ""
        text = f"`{quoted(name)}` is no model known here.{known_as} Upload its config.json: nothing is fetched."
        st.error(text if error.code == "unknown_profile" else f"{error}", icon=":material/block:")
        return
    known = model.profile or model.name
    st.success(f"{name} is known as {known}.", icon=":material/check_circle:")
    display.notes(note_texts(model.notes))
    named = model.quantization.method if model.quantization else ""
    _open_in({"model": known} | ({"weights": named} if named in inputs.WEIGHTS else {}))


def _open_in(values: Mapping[str, object]) -> None:
    opening.also("Ask with it in", _ASKED_OF[next(iter(values))], values)


def _model(name: str) -> None:
    other = widgets.choice(
        "Beside",
        list_models(),
        key="beside_model",
        default=most_like_model(name, session_profiles()),
        help="A built-in model to compare with; at first the one most like it.",
    )
    mine, built_in = (
        model_facts(count(item, context_tokens=_CONTEXT, profiles=profiles).to_dict())
        for item, profiles in ((name, session_profiles()), (other, None))
    )
    tables.read(beside(mine, built_in), ("quantity", name, f"{other}, built in"))
    _open_in({"model": name})


def _hardware(name: str) -> None:
    other = widgets.choice(
        "Beside",
        list_hardware(),
        key="beside_gpu",
        default=most_like_hardware(name, session_profiles()),
        help="A built-in accelerator to compare with; at first the one most like it.",
    )
    mine, built_in = (
        hardware_facts(load_hardware(item, profiles=profiles))
        for item, profiles in ((name, session_profiles()), (other, None))
    )
    tables.read(beside(mine, built_in), ("quantity", name, f"{other}, built in"))
    _open_in({"gpu": name})
    _open_in({"gpus": name})


def _prices(name: str) -> None:
    listed = load_prices()
    shown = quotes_table(listed, asked=PriceFilter(), quotes=load_prices(name, profiles=session_profiles()))
    section_body(Section(key="quotes", title="", blocks=(shown,)), currency=listed.currency)
    st.caption("Per accelerator-hour beside the built-in offers; what the list leaves open is taken from them.")
    _open_in({"prices": name})


def _demand(name: str) -> None:
    path = uploaded_file(f"{WORKLOADS}/{name}.yaml")
    workload = plan_spec({}, workload=path)
    tables.frame(demand_rows(workload), demand_columns(workload))
    found = peak_fields(workload)
    keys = {"rate_per_s": "rps", "isl_tokens": "isl", "osl_tokens": "osl", "prefix_hit": "prefix"}
    hours: dict[str, object] = {"hours": name} if workload.load_profile else {}
    _open_in({keys.get(field, field): value for field, value in found.items()} | hours)
    with st.expander("As a workload file, with what the record leaves open", icon=":material/description:"):
        st.code(read_text(path), language="yaml", wrap_lines=True)
    for record in uploaded_paths(RECORDS):
        if record.stem == name and is_benchmark(uploaded_file(record.as_posix())):
            _benchmark(record.name)


def _benchmark(record: str) -> None:
    """A measured run beside what is predicted of it, and the engine's overheads fitted to it."""
    with st.sidebar:
        st.caption("What served the benchmark")
        fields = inputs.deployment_inputs(capped=False)
    served = validate(ServedSpec, fields, where="")
    path = uploaded_file(f"{RECORDS}/{record}")
    runs = replay_results((path,), served=served, profiles=session_profiles())
    st.markdown("**Measured and predicted**")
    tables.frame(replay_rows(runs), REPLAY_COLUMNS)
    if not widgets.switch("Fit the engine to it", key="fit", help="Its time per step and per request."):
        return
    answer = fit_engine(path, served=served)
    _fitted(answer, () if answer.found.profile is None else (answer.found.profile,), of=record)


def _fitted(answer: Answer, profiles: Sequence[ProfileText], *, of: str) -> None:
    """What a fit came to, each error before and after, and the button that counts with it."""
    st.code(answer.to_text(), language=None, wrap_lines=True)
    if profiles and has_room() and st.button("Count with it on every page", key="keep_fit", icon=":material/tune:"):
        folder = next_folder()
        remember(folder, file_id=f"fit of {of}", said=keep_fit(profiles, folder=folder))
        st.rerun()


def _kernels(name: str) -> None:
    """Kernel times of an accelerator, fitted to what was measured."""
    hardware = inputs.hardware_input()
    if not widgets.switch("Fit the kernels to it", key="fit", help="Errors before and after stand below."):
        return
    answer = fit_kernels(uploaded_file(f"{PLACES[KERNELS]}/{name}.csv"), hardware=hardware)
    _fitted(answer, answer.found.profiles, of=name)


def own_files() -> None:
    """What this session has uploaded, one at a time, and all of it as files for the command line."""
    files = [(kind, name) for kind, place in PLACES.items() for name in uploaded_names(place)]
    shown = {label(kind, name): (kind, name) for kind, name in files}
    names = tuple(shown)
    if _REFUSED in st.session_state:
        st.error(st.session_state.pop(_REFUSED), icon=":material/block:")
    kind, name = shown[
        widgets.choice("Look at", names, key=_CHOSEN, default=names[-1], help="One of the files of this session.")
    ]
    _managed(kind, name)
    try:
        _BODIES[kind](name)
    except RoofcastError as error:
        error.message = error.message.replace(uploaded_file(""), "")
        display.refusal(error)
    _given_back()


_KEYS = {MODEL: ("model",), HARDWARE: question.GPU_KEYS, PRICES: ("prices",), DEMAND: ("hours",), KERNELS: ()}
"""Of the question, those that may name a file of each kind."""


def _rename(kind: str, name: str) -> None:
    try:
        new = rename_file(kind, name, st.session_state[_NEW_NAME])
    except RoofcastError as error:
        st.session_state[_REFUSED] = controls.named(f"{error}")
        return
    question.rename(name, new, keys=_KEYS[kind])
    st.session_state[_CHOSEN] = label(kind, new)


def _remove(kind: str, name: str) -> None:
    remove_file(kind, name)
    question.rename(name, None, keys=_KEYS[kind])
    st.session_state.pop(_CHOSEN, None)
    if not has_own_files():
        st.session_state.pop(BROWSE, None)


def has_own_files() -> bool:
    """Whether there is a file of this session to look at."""
    return any(map(uploaded_names, PLACES.values()))


def _managed(kind: str, name: str) -> None:
    """Call a file otherwise, or take it away."""
    with st.popover("Rename or remove", icon=":material/edit:"):
        st.text_input("New name", key=_NEW_NAME, max_chars=_LONGEST_NAME, placeholder=name)
        with st.container(horizontal=True, gap="small"):
            st.button("Rename", key="rename", on_click=_rename, args=(kind, name), icon=":material/edit:")
            st.button("Remove", key="remove", on_click=_remove, args=(kind, name), icon=":material/delete:")


_BODIES = {MODEL: _model, HARDWARE: _hardware, PRICES: _prices, DEMAND: _demand, KERNELS: _kernels}


def _given_back() -> None:
    folder = session_folder()
    assert folder is not None, "something was uploaded"
    st.download_button(
        "All files of this session",
        folder.archive,
        f"{OWN_FOLDER}.zip",
        "application/zip",
        on_click="ignore",
        icon=":material/download:",
        key="get_files",
        help="A folder for --profiles, with price lists for --prices and workload files for --workload.",
    )
    st.caption(
        f"On the command line: unzip it into a folder `{OWN_FOLDER}`, then add --profiles {OWN_FOLDER} to any command; "
        "commands that these pages print have it."
    )
