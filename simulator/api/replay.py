"""Benchmark results beside what is predicted of the same load: ``roofcast validate --from``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from simulator.api.questions import ServedFields, served_spec
from simulator.api.results import Answer, Document
from simulator.fitting.replay import ReplayedRun, replay_results

if TYPE_CHECKING:
    from simulator.reports.charts.chart import Chart


@dataclass(frozen=True, slots=True)
class ReplayAnswer(Answer):
    """Every run of the result files as a scenario, its values beside their predictions."""

    runs: tuple[ReplayedRun, ...]

    def to_dict(self) -> Document:
        """Each run with its scenario, as ``roofcast simulate`` takes it, and its values."""
        from simulator.reports.answers.replay import replay_document

        return replay_document(self.runs)

    def rows(self) -> list[Document]:
        """One row a value."""
        return [{"result": run["id"], **value} for run in self.to_dict()["runs"] for value in run["values"]]

    def to_text(self) -> str:
        """A table for people."""
        from simulator.reports.answers.replay import replay_text

        return replay_text(self.runs)

    def chart(self) -> Chart:
        """Errors by metric."""
        from simulator.reports.answers.charts import bars_chart
        from simulator.reports.charts.chart import Axis

        rows = self.rows()
        return bars_chart(
            key="replay",
            title="Predicted over measured",
            y=Axis(title="Error", unit="%"),
            names=[f"{row['result']} {row['metric']}" for row in rows],
            bars={"error": [100 * row["error"] for row in rows]},
        )


def replay(
    results: Sequence[str], *, hardware: str, profiles: str | None = None, **served: Unpack[ServedFields]
) -> ReplayAnswer:
    """Import benchmark results as scenarios and predict them: ``roofcast validate --from``.

    results : files of InferenceX, vLLM bench, GuideLLM or AIPerf; the keywords say what served them

    Raises
    ------
    RoofcastError
        A file is of no known kind, lacks lengths or a load, or the deployment is refused.
    """
    return ReplayAnswer(replay_results(results, served=served_spec(hardware, served), profiles=profiles))
