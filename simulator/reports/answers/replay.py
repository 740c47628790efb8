"""Measured runs beside their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from simulator.fitting.replay import ReplayedRun, ReplayedValue
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Json, dump
from simulator.reports.charts.chart import Axis, Chart, bars_chart
from simulator.reports.content.document import EMPTY, Cell, ordered
from simulator.reports.content.quantities import range_text, rate_text, seconds_text, signed_percent_text


@dataclass(frozen=True, slots=True)
class ReplayAnswer(Answer):
    """Every run of the result files as a scenario, its values beside their predictions."""

    runs: tuple[ReplayedRun, ...]

    def to_dict(self) -> Json:
        """Each run with its scenario, as ``roofcast simulate`` takes it, and its values."""
        return {
            "schema_version": SCHEMA_VERSION,
            "runs": [
                {
                    "id": item.scenario.id,
                    "tool": item.run.tool,
                    "scenario": item.scenario.model_dump(mode="json", exclude_unset=True),
                    "values": [dump(value) | {"error": value.error} for value in item.values],
                }
                for item in self.runs
            ],
        }

    def rows(self) -> list[Json]:
        """One row a value."""
        return [{"result": run["id"], **value} for run in self.to_dict()["runs"] for value in run["values"]]

    def to_text(self) -> str:
        """A line for each value under each run."""
        lines = []
        for item in self.runs:
            asked = item.scenario
            load = f"{asked.concurrency} in flight" if asked.concurrency else "open arrivals"
            lines.append(f"{asked.id} ({item.run.tool}, {load})")
            for value in item.values:
                ends = f", 80 %: {value.interval[0]:.4g} to {value.interval[1]:.4g}" if value.interval else ""
                lines.append(
                    f"  {value.metric}: measured {value.measured:.4g}, predicted {value.predicted:.4g} "
                    f"({100 * value.error:+.1f} %{ends})"
                )
        return "\n".join(lines) + "\n"

    def chart(self) -> Chart:
        """Errors by metric."""
        rows = self.rows()
        return bars_chart(
            key="replay",
            title="Predicted over measured",
            y=Axis(title="Error", unit="%"),
            names=[f"{row['result']} {row['metric']}" for row in rows],
            bars={"error": [100 * row["error"] for row in rows]},
        )


REPLAY_COLUMNS = ("run", "metric", "measured", "predicted", "80 % interval", "error")


_METRIC_NAMES = {"ttft_s": "TTFT", "tpot_s": "TPOT", "output_tokens_per_s": "output"}


def replay_rows(runs: Sequence[ReplayedRun]) -> list[tuple[Cell | str, ...]]:
    """A row for each value, in the order of REPLAY_COLUMNS."""
    return [
        (
            f"{item.run.tool} {place}",
            _METRIC_NAMES[value.metric],
            ordered(_value_text(value, value.measured), value.measured),
            ordered(_value_text(value, value.predicted), value.predicted),
            range_text(value.interval, partial(_value_text, value)) if value.interval else EMPTY,
            ordered(signed_percent_text(value.error), value.error),
        )
        for place, item in enumerate(runs, start=1)
        for value in item.values
    ]


def _value_text(value: ReplayedValue, number: float) -> str:
    return rate_text(number, "tok") if value.metric == "output_tokens_per_s" else seconds_text(number)
