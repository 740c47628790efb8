"""Measured runs beside their predictions, as a document and as text."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.fitting.replay import ReplayedRun
from simulator.reports.contract import SCHEMA_VERSION, Json


def replay_document(runs: Sequence[ReplayedRun]) -> Json:
    """Each run with its scenario, as ``roofcast simulate`` takes it, and its values."""
    return {
        "schema_version": SCHEMA_VERSION,
        "runs": [
            {
                "id": item.scenario.id,
                "tool": item.run.tool,
                "scenario": item.scenario.model_dump(mode="json", exclude_unset=True),
                "values": [
                    {
                        "metric": value.metric,
                        "measured": value.measured,
                        "predicted": value.predicted,
                        "error": value.error,
                        "interval": None if value.interval is None else list(value.interval),
                    }
                    for value in item.values
                ],
            }
            for item in runs
        ],
    }


def replay_text(runs: Sequence[ReplayedRun]) -> str:
    """A line for each value under each run."""
    lines = []
    for item in runs:
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
