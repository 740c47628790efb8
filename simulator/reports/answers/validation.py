"""``roofcast validate``: errors of kernel fits and of whole runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Json, picked
from simulator.reports.charts.chart import Chart, bars_chart
from simulator.reports.tables.validation import end_to_end_lines, score_lines, transfer_lines
from simulator.specs.hardware.calibration import TransferRow, load_transfer_table
from simulator.specs.measured.scores import EndToEndScore, KernelScore, scored_values
from simulator.specs.measured.validation_rows import ValidationTable, load_validation_table


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorecardAnswer(Answer):
    """Stored errors of kernel fits and of whole runs, of one accelerator or of all (None); None for a part that was not
    asked for."""

    hardware: str | None
    kernels: list[KernelScore] | None
    left_out: list[TransferRow]
    runs: list[EndToEndScore] | None

    def to_text(self) -> str:
        """What ``roofcast validate`` prints: tables under headings."""
        name, parts = self.hardware, []
        if self.kernels:
            parts.append(
                ["Kernels: mean error on measured shapes that the fit never saw", "", *score_lines(self.kernels)]
            )
        elif self.kernels is not None:
            parts.append([f"Kernels: none of {name} was measured; they are priced with the fits of a relative"])
        if self.left_out:
            library = load_transfer_table().library
            heading = f"Priced as if never measured ({library}, 16 bit): fits of the nearest other accelerator"
            parts.append([heading, "", *transfer_lines(self.left_out)])
        if self.runs:
            parts.append([*_end_to_end_heading(self.runs), "", *end_to_end_lines(self.runs)])
        elif self.runs is not None:
            parts.append([f"End to end: no run on {name} is stored"])
        return "\n\n".join("\n".join(lines) for lines in parts) + "\n"

    def to_dict(self) -> Json:
        """The document of ``roofcast validate --json``."""
        document: Json = {"schema_version": SCHEMA_VERSION}
        if self.kernels is not None:
            document["kernels"] = [asdict(score) for score in self.kernels]
            document["left_out"] = [row.model_dump(mode="json") for row in self.left_out]
        if self.runs is not None:
            table = load_validation_table()
            document["end_to_end"] = {
                **picked(table, "date", "version", "is_current"),
                "scores": [
                    {"source": row.source, "hardware": row.hardware, "metric": row.metric, **asdict(row.score)}
                    for row in self.runs
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
