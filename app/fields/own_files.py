"""What an uploaded file is, by its content, and the library's gate that reads it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import streamlit as st

from app.fields.uploaded import (
    Folder,
    answer_from,
    next_folder,
    say_instead,
    session_profiles,
    uploaded_names,
    uploaded_paths,
)
from simulator.api.measurements import demand
from simulator.errors import RoofcastError, plain_word
from simulator.files import write_bytes
from simulator.fitting.engine_overheads import calibrate_engine
from simulator.fitting.kernel_calibration import calibrate_kernels
from simulator.reports.answers.calibration import EngineCalibrationAnswer, KernelCalibrationAnswer
from simulator.specs.hardware.accelerator import list_hardware, load_hardware, nearest_hardware
from simulator.specs.measured.kernel_times import load_measurements
from simulator.specs.measured.serving_results import ServedSpec, load_serving_runs
from simulator.specs.model.loading import list_models, load_model, nearest_model
from simulator.specs.uploads import (
    check_record_size,
    keep_hardware_upload,
    keep_model_upload,
    keep_prices_upload,
    keep_workload_upload,
    renamed_profile,
    upload_name,
)
from simulator.specs.writing import ProfileText

MODEL, HARDWARE, PRICES, DEMAND, KERNELS = "model", "accelerator", "prices", "demand", "kernels"
PLACES = {MODEL: "models", HARDWARE: ".", PRICES: "prices", DEMAND: "workloads", KERNELS: "measured"}
"""Where each kind of file stands in a folder of profiles."""
KINDS = ["json", "jsonl", "yaml", "yml", "csv", "txt", "prom"]
RECORDS, WORKLOADS = "records", PLACES[DEMAND]
_ONE_AT_A_TIME = threading.Lock()
"""Recorded traffic of a week takes some hundred megabytes while it is read."""
# What each kind of file has that the others have not.
_QUOTES = re.compile(r"\A[^\n]*\bprovider\b", re.IGNORECASE)
_KERNELS = re.compile(r"\A[^\n]*\btorch_version\b")
_PRICE_LIST = re.compile(r"^(extends|offers|currency)\s*:", re.MULTILINE)
_WORKLOAD = re.compile(r"^rate_per_s\s*:", re.MULTILINE)
_RECORD = re.compile(
    r'\A\s*\[\s*[{\[]|"(benchmarks|input_sequence_length|total_input_tokens|input_length|status|conc)"\s*:'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenUpload:
    """An upload that was taken: how it is called, and what pages do with it, in a sentence."""

    label: str
    said: str


def keep_file(data: bytes, *, filename: str, over: str | None, folder: Folder) -> TakenUpload:
    """Keep a file in ``folder``, read as strictly as on the command line.

    over : the time that counters of a server cover

    Raises
    ------
    RoofcastError
        It is refused: what and why, in a line.
    """
    check_record_size(data, filename=filename)
    found = _kept(data, filename=filename, over=over, folder=folder)
    before = {label(kind, name) for kind, place in PLACES.items() for name in uploaded_names(place)}
    if found.label not in before:
        return found
    return replace(found, said=f"{found.said} It replaces your earlier one; to keep both, rename that one first.")


def _kept(data: bytes, *, filename: str, over: str | None, folder: Folder) -> TakenUpload:
    lowered, text = filename.lower(), data.decode("utf-8", errors="replace")
    if lowered.endswith((".yaml", ".yml")):
        if _WORKLOAD.search(text):
            return _demand(keep_workload_upload(data, filename=filename, folder=folder.path))
        if _PRICE_LIST.search(text):
            return _prices(keep_prices_upload(data, filename=filename, folder=folder.path))
        name = keep_hardware_upload(data, filename=filename, folder=folder.path)
        return _profile(name, kind=HARDWARE, known=list_hardware())
    if lowered.endswith(".csv") and _KERNELS.search(text):
        name = _keep_measured(data, filename=filename, folder=folder)
        said = f"The kernels of an accelerator can now be fitted to {name}."
        return TakenUpload(label=label(KERNELS, name), said=said)
    if lowered.endswith(".csv") and _QUOTES.search(text):
        return _prices(keep_prices_upload(data, filename=filename, folder=folder.path))
    if lowered.endswith(".json") and not _RECORD.search(text):
        name = keep_model_upload(data, filename=filename, folder=folder.path)
        return _profile(name, kind=MODEL, known=list_models())
    return _demand(_keep_record(data, filename=filename, over=over, folder=folder))


def _keep_record(data: bytes, *, filename: str, over: str | None, folder: Folder) -> str:
    """Keep the workload file that ``roofcast demand`` makes of recorded traffic, and the record of a benchmark."""
    name = upload_name(filename)
    suffix = Path(filename.lower()).suffix
    known = suffix if suffix[1:] in KINDS else ""
    path = _written(data, folder.path.joinpath(RECORDS, f"{name}{known}"))
    with _ONE_AT_A_TIME, _named_as_uploaded(path):
        text = demand(str(path), over=over or None).to_text()
    _written(text.encode("utf-8"), folder.path.joinpath(WORKLOADS, f"{name}.yaml"))
    if not is_benchmark(str(path)):
        path.unlink()
    return name


def _keep_measured(data: bytes, *, filename: str, folder: Folder) -> str:
    """Keep the kernel times that ``python -m validation.measure`` wrote."""
    name = upload_name(filename)
    path = _written(data, folder.path.joinpath(PLACES[KERNELS], f"{name}.csv"))
    with _named_as_uploaded(path):
        load_measurements(path)
    return name


@contextmanager
def _named_as_uploaded(path: Path) -> Iterator[None]:
    """Where this server keeps a file is nobody's business."""
    try:
        yield
    except RoofcastError as error:
        error.message = error.message.replace(str(path), path.name)
        raise


def _written(data: bytes, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(data, str(path), force=True, flag="upload")
    return path


def fit_engine(record: str, *, served: ServedSpec) -> EngineCalibrationAnswer:
    """The engine's overheads as a benchmark says them; nothing is kept yet."""
    return EngineCalibrationAnswer(calibrate_engine((record,), served=served, profiles=session_profiles()), ())


def fit_kernels(measured: str, *, hardware: str) -> KernelCalibrationAnswer:
    """The kernels of an accelerator as they were measured; nothing is kept yet."""
    return KernelCalibrationAnswer(calibrate_kernels(measured, hardware=hardware, profiles=session_profiles()), ())


def keep_fit(profiles: Sequence[ProfileText], *, folder: Folder) -> str:
    """Keep what was fitted in ``folder``; what every page does with it."""
    for profile in profiles:
        _written(profile.text.encode("utf-8"), folder.path.joinpath(profile.path))
    return "Every page counts with what was fitted now."


_NAMED = (MODEL, HARDWARE, PRICES)
"""Files that say their own name."""


def _paths(kind: str, name: str) -> tuple[Path, ...]:
    """What is kept of an upload: of recorded demand the workload file, and the record where it is kept too."""
    places = (PLACES[kind], RECORDS) if kind == DEMAND else (PLACES[kind],)
    return tuple(path for place in places for path in uploaded_paths(place) if path.stem == name)


def remove_file(kind: str, name: str) -> None:
    """Answer without an upload from now on."""
    folder = next_folder()
    for path in _paths(kind, name):
        folder.path.joinpath(path).unlink()
    answer_from(folder)
    say_instead(label(kind, name), f"{name} was removed.")


def rename_file(kind: str, name: str, wanted: str) -> str:
    """Call an upload otherwise from now on; its name.

    Raises RoofcastError: it is no name, or another file's.
    """
    new = upload_name(wanted)
    if new != plain_word(wanted):
        hint = f"{new} is like it"
        raise RoofcastError("takes letters, digits, dots and hyphens", field="name", hint=hint)
    if new in uploaded_names(PLACES[kind]):
        raise RoofcastError(f"{new} is another of your files", field="name", hint="remove that one first")
    folder = next_folder()
    for path in _paths(kind, name):
        there, data = folder.path.joinpath(path), folder.path.joinpath(path).read_bytes()
        if kind in _NAMED:
            data = renamed_profile(data.decode("utf-8"), new).encode("utf-8")
        _written(data, there.with_name(f"{new}{there.suffix}"))
        there.unlink()
    answer_from(folder)
    say_instead(label(kind, name), f"{name} is called {new} now.", renamed=label(kind, new))
    return new


def is_benchmark(path: str) -> bool:
    """Whether a record says how fast it was answered."""
    try:
        return bool(load_serving_runs(path))
    except RoofcastError:
        return False


@st.cache_data(max_entries=50, show_spinner=False)
def most_like_model(name: str, profiles: str | None) -> str:
    """The built-in model that an uploaded one stands for or is most like."""
    return nearest_model(load_model(name, profiles=profiles))


@st.cache_data(max_entries=50, show_spinner=False)
def most_like_hardware(name: str, profiles: str | None) -> str:
    """The same of accelerators."""
    return nearest_hardware(load_hardware(name, profiles=profiles))


def label(kind: str, name: str) -> str:
    """How an upload is called on the page."""
    return f"{name} ({kind})"


def _profile(name: str, *, kind: str, known: tuple[str, ...]) -> TakenUpload:
    said = f"{name} can now be chosen on every page{', in place of the built-in one' if name in known else ''}."
    return TakenUpload(label=label(kind, name), said=said)


def _prices(name: str) -> TakenUpload:
    return TakenUpload(label=label(PRICES, name), said=f"Every page can now count with the prices of {name}.")


def _demand(name: str) -> TakenUpload:
    return TakenUpload(label=label(DEMAND, name), said=f"Every page can now ask with the demand of {name}.")
