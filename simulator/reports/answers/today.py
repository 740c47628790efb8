"""``roofcast validate --today``: errors by accelerator, engine, class of model and mode, and every run behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from operator import attrgetter
from typing import Any

from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Answer, Json, finite
from simulator.reports.charts.chart import Chart
from simulator.reports.charts.validation import validation_scatter_chart
from simulator.reports.content.quantities import percent_text
from simulator.reports.formats.text import text_table
from simulator.reports.words.runs import MetricKind, metric_kind
from simulator.specs.measured.scores import ErrorScore, TodayScore, today_scores
from simulator.specs.measured.validation_rows import RunsOrigin, ValidationRow

METRICS = {"tpot_p50_s": "TPOT", "total_tokens_per_s": "tokens/s", "energy_per_output_token_j": "J/token"}
COLUMNS = ("accelerator", "engine", "models", "mode", "runs", *METRICS.values(), "in 80 %")
EXPLANATION = "mean absolute error (bias: mean signed error, positive where predictions are high)"


def score_row(score: TodayScore) -> tuple[str, ...]:
    """One score in the order of COLUMNS."""
    coverage = score.together.coverage
    return (
        *attrgetter("hardware", "engine", "model_class", "mode")(score),
        str(score.runs),
        *(_error(score.metrics.get(metric)) for metric in METRICS),
        "-" if coverage is None else percent_text(coverage),
    )


def _error(score: ErrorScore | None) -> str:
    return "-" if score is None else f"{100 * score.mean:.0f} % ({round(100 * score.bias) + 0:+} %)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TodayAnswer(Answer):
    """Errors by accelerator, engine, class of model and mode, and every run with its scenario.

    predicted_on : None where the rows were predicted now
    """

    LISTED = "values"
    origin: RunsOrigin
    predicted_on: str | None
    chosen: tuple[ValidationRow, ...]
    scenarios: Mapping[str, Mapping[str, Any]]

    def to_dict(self) -> Json:
        """The scores, every value, and the scenario of every run as ``roofcast simulate`` takes it."""
        return {
            "schema_version": SCHEMA_VERSION,
            "origin": asdict(self.origin),
            "predicted_on": self.predicted_on,
            "scores": [asdict(score) for score in today_scores(self.chosen)],
            "values": [
                {name: finite(value) if isinstance(value, float) else value for name, value in asdict(row).items()}
                | {"error": row.error}
                for row in self.chosen
            ],
            "scenarios": list(self.scenarios.values()),
        }

    def to_text(self) -> str:
        """The scores as a table under what they are."""
        predicted = {row.run for row in self.chosen}
        refused = [run for run in self.scenarios if run not in predicted]
        when = f"on {self.predicted_on} by this very library" if self.predicted_on else "now"
        origin = self.origin
        lines = [
            f"{len(predicted)} of {len(self.scenarios)} closed loops of today's models ({origin.source}, "
            f"{origin.date}), predicted {when}",
            f"({EXPLANATION}; the last column: measured values inside the 80 % interval)",
            "",
            text_table(COLUMNS, [score_row(score) for score in today_scores(self.chosen)]),
            "",
            f"{origin.published}; {origin.selection}",
            origin.fitted,
        ]
        if refused:
            lines.append(f"{len(refused)} runs are refused: roofcast simulate says why, --json holds their scenarios")
        return "\n".join(lines) + "\n"

    def chart(self) -> Chart:
        """Measured against predicted times."""
        latencies = [row for row in self.chosen if metric_kind(row.metric) is MetricKind.LATENCY]
        return validation_scatter_chart(latencies)
