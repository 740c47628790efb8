"""What an uploaded file is, by its content, and the library's gate that reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from app.uploaded import Folder, session_profiles
from simulator.api.measurements import demand
from simulator.errors import RoofcastError
from simulator.fitting.engine_calibration import calibrate_engine
from simulator.reports.answers.calibration import EngineCalibrationAnswer
from simulator.specs.loading import list_hardware
from simulator.specs.measured.result_file import ServedSpec
from simulator.specs.measured.serving_results import load_serving_runs
from simulator.specs.model.loading import list_models
from simulator.specs.uploads import (
    LARGEST_UPLOAD_BYTES,
    keep_hardware_upload,
    keep_model_upload,
    keep_prices_upload,
    keep_workload_upload,
    upload_name,
)

MODEL, HARDWARE, PRICES, DEMAND = "model", "accelerator", "prices", "demand"
PLACES = {MODEL: "models", HARDWARE: ".", PRICES: "prices", DEMAND: "workloads"}
"""Where each kind of file stands in a folder of profiles."""
KINDS = ["json", "jsonl", "yaml", "yml", "csv", "txt", "prom"]
RECORDS, WORKLOADS = "records", PLACES[DEMAND]
# What each kind of file has that the others have not.
_QUOTES = re.compile(r"\A[^\n]*\bprovider\b", re.IGNORECASE)
_PRICE_LIST = re.compile(r"^(extends|offers|currency)\s*:", re.MULTILINE)
_WORKLOAD = re.compile(r"^rate_per_s\s*:", re.MULTILINE)
_RECORD = re.compile(
    r'\A\s*\[\s*[{\[]|"(benchmarks|input_sequence_length|total_input_tokens|input_length|status|conc)"\s*:'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """An upload that was taken: how it is called, and what pages do with it, in a sentence."""

    label: str
    said: str


def keep_file(data: bytes, *, filename: str, over: str | None, folder: Folder) -> Kept:
    """Keep a file in ``folder``, read as strictly as on the command line.

    over : the time that counters of a server cover

    Raises
    ------
    RoofcastError
        It is refused: what and why, in a line.
    """
    if len(data) > LARGEST_UPLOAD_BYTES:
        raise RoofcastError(
            f"{filename} is too large: a megabyte at most",
            field="upload",
            hint="of a long trace upload what `roofcast demand FILE --out workload.yaml` writes",
        )
    lowered, text = filename.lower(), data.decode("utf-8", errors="replace")
    if lowered.endswith((".yaml", ".yml")):
        if _WORKLOAD.search(text):
            return _demand(keep_workload_upload(data, filename=filename, folder=folder.path))
        if _PRICE_LIST.search(text):
            return _prices(keep_prices_upload(data, filename=filename, folder=folder.path))
        name = keep_hardware_upload(data, filename=filename, folder=folder.path)
        return _profile(name, kind=HARDWARE, known=list_hardware())
    if lowered.endswith(".csv") and _QUOTES.search(text):
        return _prices(keep_prices_upload(data, filename=filename, folder=folder.path))
    if lowered.endswith(".json") and not _RECORD.search(text):
        name = keep_model_upload(data, filename=filename, folder=folder.path)
        return _profile(name, kind=MODEL, known=list_models())
    return _demand(_keep_record(data, filename=filename, over=over, folder=folder))


def _keep_record(data: bytes, *, filename: str, over: str | None, folder: Folder) -> str:
    """Keep recorded traffic and the workload file that ``roofcast demand`` makes of it."""
    name = upload_name(filename)
    suffix = "".join(letter for letter in filename.lower().rpartition(".")[2] if letter.isalnum())
    path = folder.path.joinpath(RECORDS, f"{name}.{suffix}")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    try:
        text = demand(str(path), over=over or None).to_text()
    except RoofcastError as error:
        # Where this server keeps it is nobody's business.
        error.message = error.message.replace(str(path), path.name)
        raise
    workload = folder.path.joinpath(WORKLOADS, f"{name}.yaml")
    workload.parent.mkdir(exist_ok=True)
    workload.write_text(text, "utf-8")
    return name


def fit_engine(record: str, *, served: ServedSpec) -> EngineCalibrationAnswer:
    """The engine's overheads as a benchmark says them; nothing is kept yet."""
    return EngineCalibrationAnswer(calibrate_engine((record,), served=served, profiles=session_profiles()), ())


def keep_fit(answer: EngineCalibrationAnswer, *, folder: Folder) -> str:
    """Keep fitted overheads in ``folder``; what every page does with them."""
    profile = answer.found.profile
    assert profile is not None, "offered only then"
    path = folder.path.joinpath(profile.path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(profile.text, "utf-8")
    return f"Every page counts with these overheads of {answer.found.engine} now."


def is_benchmark(path: str) -> bool:
    """Whether a record says how fast it was answered."""
    try:
        return bool(load_serving_runs(path))
    except RoofcastError:
        return False


def label(kind: str, name: str) -> str:
    """How an upload is called on the page."""
    return f"{name} ({kind})"


def _profile(name: str, *, kind: str, known: tuple[str, ...]) -> Kept:
    said = f"{name} can now be chosen on every page{', in place of the built-in one' if name in known else ''}."
    return Kept(label=label(kind, name), said=said)


def _prices(name: str) -> Kept:
    return Kept(label=label(PRICES, name), said=f"Every page can now count with the prices of {name}.")


def _demand(name: str) -> Kept:
    return Kept(label=label(DEMAND, name), said=f"Every page can now ask with the demand of {name}.")
