"""What the event simulation says about a planned fleet, as text lines and as JSON. Formatting only."""

from __future__ import annotations

from typing import Any

from simulator.planner.verification import FleetVerification, Verification
from simulator.reports.contract import finite
from simulator.reports.quantities import seconds_text
from simulator.reports.text_table import text_table

COLUMNS = ("state", "rate/s", "objective", "bound", "simulated", "80 % of seeds", "steady state", "holds")


def _rows(state: str, verification: Verification) -> list[tuple[str, ...]]:
    return [
        (
            state,
            f"{verification.rate_per_s:.3g}",
            item.name,
            seconds_text(item.bound_s),
            seconds_text(item.simulated_s),
            f"{seconds_text(item.low_s)} to {seconds_text(item.high_s)}",
            seconds_text(item.steady_s),
            "yes" if item.holds else "NO",
        )
        for item in verification.objectives
    ]


def verification_lines(label: str, verification: FleetVerification) -> list[str]:
    """A sentence and a table; one sentence where nothing could be simulated."""
    if verification.reason:
        return [f"{label}: not simulated: {verification.reason}"]
    one = verification.at_peak
    verdict = "holds" if verification.holds else "DOES NOT HOLD"
    head = f"{label}: {verdict} in event simulation ({one.seeds} seeds of {one.requests} requests per replica)"
    growing = [name for name, item in _states(verification) if item.saturated]
    if growing:
        head += "; the queue keeps growing " + " and ".join(growing)
    rows = [row for state, item in _states(verification) for row in _rows(state, item)]
    return [head, *text_table(COLUMNS, rows).splitlines()]


def _states(verification: FleetVerification) -> tuple[tuple[str, Verification], ...]:
    return (("all up", verification.at_peak), ("spares down", verification.degraded))


def _object(verification: Verification) -> dict[str, Any]:
    names = ("rate_per_s", "holds", "saturated", "unanswered_fraction", "seeds", "requests")
    item: dict[str, Any] = {name: getattr(verification, name) for name in names}
    for name in (
        "ttft_mean_s",
        "tpot_mean_s",
        "e2e_mean_s",
        "ttft_p95_s",
        "tpot_p95_s",
        "e2e_p95_s",
        "mean_sequences",
        "kv_utilization",
    ):
        item[name] = finite(getattr(verification, name))
    item["objectives"] = [
        {
            "objective": entry.name,
            "bound_s": entry.bound_s,
            "simulated_s": finite(entry.simulated_s),
            "interval_s": [finite(entry.low_s), finite(entry.high_s)],
            "steady_s": finite(entry.steady_s),
            "holds": entry.holds,
        }
        for entry in verification.objectives
    ]
    return item


def verification_object(verification: FleetVerification) -> dict[str, Any]:
    """The JSON object of a plan's ``verification``; ``reason`` is empty where it was simulated."""
    return {
        "holds": verification.holds,
        "reason": verification.reason,
        **{
            name: _object(item)
            for name, item in (("at_peak", verification.at_peak), ("degraded", verification.degraded))
        },
    }
