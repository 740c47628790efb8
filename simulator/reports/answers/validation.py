"""``roofcast validate``: errors of kernel fits and of whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from simulator.errors import RoofcastError, did_you_mean, ignored_option
from simulator.kernels.transfer import calibrated_relative
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Json, picked
from simulator.reports.charts.chart import Chart, bars_chart
from simulator.reports.tables.validation import end_to_end_lines, score_lines, transfer_lines
from simulator.reports.words.fields import note_text
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.hardware.calibration import TransferRow, calibrated_hardware, load_transfer_table
from simulator.specs.measured.scores import EndToEndScore, KernelScore, end_to_end_scores, kernel_scores, scored_values
from simulator.specs.measured.validation_rows import ValidationTable, load_validation_table

LIBRARIES = ("vllm", "sglang", "trtllm", "aiter", "nccl", "torch", "xla", "xpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scorecard:
    """What is asked for and known, of one accelerator or of all (None); None for a part that was not asked for."""

    hardware: str | None
    kernels: list[KernelScore] | None
    left_out: list[TransferRow]
    runs: list[EndToEndScore] | None


def scorecard(
    *, hardware: str | None, libraries: Sequence[str], kernels: bool, end_to_end: bool, profiles: str | None
) -> Scorecard:
    """Stored errors of one or every accelerator: kernels under the named or all libraries, and whole runs.

    Raises RoofcastError: a library that nothing is fitted for, one beside end-to-end errors alone, or an accelerator of
    which neither kernels (named with its stand-in) nor whole runs were measured.
    """
    _check_libraries(libraries, kernels=kernels)
    name = load_hardware(hardware, profiles=profiles).name if hardware is not None else None
    runs = [row for row in load_validation_table().rows if name in (None, row.hardware)] if end_to_end else []
    found = Scorecard(
        hardware=name,
        kernels=_kernels(name, libraries=libraries, profiles=profiles) if kernels else None,
        left_out=[row for row in load_transfer_table().nearest if name in (None, row.target)] if kernels else [],
        runs=end_to_end_scores(runs) if end_to_end else None,
    )
    if not found.kernels and not found.runs:
        if not kernels:
            _refuse_runs(name)
        _refuse(name, libraries=libraries, profiles=profiles)
    return found


def _check_libraries(libraries: Sequence[str], *, kernels: bool) -> None:
    if libraries and not kernels:
        raise ignored_option("has no effect on end-to-end errors", field="--library")
    for library in libraries:
        if library not in LIBRARIES:
            raise RoofcastError(
                f"unknown kernel library {library!r}", field="--library", hint=did_you_mean(library, LIBRARIES)
            )


def _kernels(name: str | None, *, libraries: Sequence[str], profiles: str | None) -> list[KernelScore]:
    return [
        score
        for library in libraries or LIBRARIES
        for score in kernel_scores(library, hardware=name, profiles=profiles)
    ]


def _refuse_runs(name: str | None) -> None:
    measured = ", ".join(sorted({row.hardware for row in load_validation_table().rows}))
    raise RoofcastError(
        f"no end-to-end run on {name} is stored; measured: {measured}", field="--hardware", code="not_measured"
    )


def _refuse(name: str | None, *, libraries: Sequence[str], profiles: str | None) -> None:
    """Say that nothing was fitted, and for one accelerator whose fits stand in."""
    where = f" under {', '.join(libraries)}" if libraries else ""
    if name is None:
        raise RoofcastError(f"no kernel fits{where}", field="--library", code="not_calibrated")
    known = calibrated_hardware(LIBRARIES[0], group="roofline", profiles=profiles)
    if name in known:
        raise RoofcastError(
            f"no kernel of {name} was measured{where}",
            field="--library",
            code="not_calibrated",
            hint=f"leave --library out to see what was; all libraries: {', '.join(LIBRARIES)}",
        )
    specs = [load_hardware(other, profiles=profiles) for other in known]
    lent = note_text(calibrated_relative(load_hardware(name, profiles=profiles), available=specs).reason)
    raise RoofcastError(
        f"no kernel of {name} was measured{where}; measured: {', '.join(known)}",
        field="--hardware",
        code="not_calibrated",
        hint=f"kernels without fits are priced with {lent}; measure your own with roofcast calibrate",
    )


def _end_to_end_heading(runs: Sequence[EndToEndScore]) -> list[str]:
    return [
        f"End to end: errors of {scored_values(runs)} values that others published or measured, "
        f"{predicted_words(load_validation_table())}",
        "(bias: positive where the prediction is higher; engine overheads were fitted on some of these runs, "
        "all of vllm under load among them: roofcast profiles show ENGINE names which)",
    ]


def predicted_words(table: ValidationTable) -> str:
    """When and by what the stored rows were predicted."""
    made = f"predicted on {table.date} by roofcast {table.version}"
    return made if table.is_current else f"{made}, which has changed since"


@dataclass(frozen=True, slots=True)
class ScorecardAnswer(Answer):
    """Stored errors of kernel fits and of whole runs."""

    card: Scorecard

    def to_text(self) -> str:
        """What ``roofcast validate`` prints: tables under headings."""
        found, name, parts = self.card, self.card.hardware, []
        if found.kernels:
            parts.append(
                ["Kernels: mean error on measured shapes that the fit never saw", "", *score_lines(found.kernels)]
            )
        elif found.kernels is not None:
            parts.append([f"Kernels: none of {name} was measured; they are priced with the fits of a relative"])
        if found.left_out:
            library = load_transfer_table().library
            heading = f"Priced as if never measured ({library}, 16 bit): fits of the nearest other accelerator"
            parts.append([heading, "", *transfer_lines(found.left_out)])
        if found.runs:
            parts.append([*_end_to_end_heading(found.runs), "", *end_to_end_lines(found.runs)])
        elif found.runs is not None:
            parts.append([f"End to end: no run on {name} is stored"])
        return "\n\n".join("\n".join(lines) for lines in parts) + "\n"

    def to_dict(self) -> Json:
        """The document of ``roofcast validate --json``."""
        found = self.card
        document: Json = {"schema_version": SCHEMA_VERSION}
        if found.kernels is not None:
            document["kernels"] = [asdict(score) for score in found.kernels]
            document["left_out"] = [row.model_dump(mode="json") for row in found.left_out]
        if found.runs is not None:
            table = load_validation_table()
            document["end_to_end"] = {
                **picked(table, "date", "version", "is_current"),
                "scores": [
                    {"source": row.source, "hardware": row.hardware, "metric": row.metric, **asdict(row.score)}
                    for row in found.runs
                ],
            }
        return document

    def rows(self) -> list[Json]:
        """One row a kernel's score, then one a source of whole runs."""
        document = self.to_dict()
        return [*document.get("kernels", []), *document.get("end_to_end", {}).get("scores", [])]

    def chart(self) -> Chart:
        """Mean errors."""
        rows = [row for row in self.rows() if row.get("mape") is not None]
        said = ("hardware", "family", "metric")
        names = [" ".join(str(row[name]) for name in said if name in row) for row in rows]
        errors = {"error": [100 * row["mape"] for row in rows]}
        return bars_chart("scorecard", "Mean error", y="Error [%]", names=names, of=errors)
