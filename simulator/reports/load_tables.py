"""A load sweep as rows for people, and the workload that a few numbers describe."""

from __future__ import annotations

from simulator.engine.load_sweep import LoadSweep
from simulator.reports.quantities import percent_text, rate_text, seconds_text

SWEEP_COLUMNS = ("rate", "TTFT p50", "TTFT p95", "TTFT p99", "TPOT p95", "E2E p95", "mean batch", "KV in use", "state")


def sweep_rows(sweep: LoadSweep) -> list[tuple[str, ...]]:
    """One line per rate, in the order of SWEEP_COLUMNS."""
    return [
        (
            rate_text(point.rate_per_s, "requests"),
            seconds_text(point.stage.ttft.p50_s),
            seconds_text(point.stage.ttft.p95_s),
            seconds_text(point.stage.ttft.p99_s),
            seconds_text(point.stage.tpot.p95_s),
            seconds_text(point.stage.e2e.p95_s),
            f"{point.stage.mean_batch:.1f}",
            percent_text(point.stage.kv_utilization),
            "saturated" if point.stage.saturated else "keeps up",
        )
        for point in sweep.points
    ]
