"""What the event simulation says about a planned fleet, as text lines and as JSON. Formatting only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulator.planner.records import CapacityPlan, Finalist, Finalists, FleetVerification, Verdict, Verification
from simulator.reports.content.quantities import percent_text, seconds_text
from simulator.reports.content.text import text_table
from simulator.reports.contract import finite

_NEARLY_ALL = 0.99
FINALIST_COLUMNS = (
    "finalist",
    "replicas",
    "GPUs",
    "objective",
    "bound",
    "planned",
    "simulated",
    "80 % of seeds",
    "verdict",
)
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


def _finalist_rows(item: Finalist) -> list[tuple[str, ...]]:
    if item.verdict is Verdict.NOT_SIMULATED:
        return [(item.name, str(item.replicas), str(item.devices), "", "", "", "", "", "not simulated")]
    states = [(item.planned_replicas, "", item.planned)]
    if item.replicas != item.planned_replicas:
        states.append((item.replicas, str(item.devices), item.found))
    else:
        states[0] = (item.replicas, str(item.devices), item.planned)
    return [
        (
            item.name,
            str(replicas),
            devices,
            entry.name,
            seconds_text(entry.bound_s),
            seconds_text(entry.steady_s),
            seconds_text(entry.simulated_s),
            f"{seconds_text(entry.low_s)} to {seconds_text(entry.high_s)}",
            "met" if entry.holds else "MISSED",
        )
        for replicas, devices, state in states
        for entry in state.objectives
    ]


def _why_not(item: Finalist) -> str:
    match item.verdict:
        case Verdict.RESIZED:
            return f"needs {item.replicas} replicas instead of {item.planned_replicas}"
        case Verdict.BEYOND_LIMITS:
            return "holds only beyond the limits of the fleet"
        case Verdict.NOT_SIMULATED:
            return f"was not simulated: {item.found.reason}"
        case _:
            return "misses an objective at any size tried"


def finalists_outcome(finalists: Finalists) -> str:
    """What the simulation changed about the plan, as a sentence without a full stop."""
    first, chosen = finalists.members[0], finalists.chosen
    if chosen.verdict is Verdict.NOT_SIMULATED:
        return f"{chosen.name} was not simulated: {chosen.found.reason}"
    if chosen.verdict not in (Verdict.HOLDS, Verdict.RESIZED):
        text = f"no finalist holds in the event simulation; {chosen.name} stays as it was planned"
        lost = chosen.found.unanswered_fraction
        unanswered = f"; {percent_text(lost)} of its requests get no answer, being longer than it takes"
        return f"{text}{unanswered}" if lost else text
    text = f"{chosen.name} holds"
    if chosen.replicas != chosen.planned_replicas:
        text += f" with {chosen.replicas} replicas where {chosen.planned_replicas} were planned"
    if chosen is first:
        return text
    return f"{text}, and is taken instead of {first.name}, which {_why_not(first)}"


def finalist_lines(finalists: Finalists) -> list[str]:
    """What the simulation changed, and a table of planned beside simulated percentiles with the spares down."""
    how = "under the replayed trace" if finalists.replayed else "at the planned rate"
    head = f"finalists {how}, spares down: {finalists_outcome(finalists)}"
    rows = [row for item in finalists.members for row in _finalist_rows(item)]
    return [head, *text_table(FINALIST_COLUMNS, rows).splitlines()]


def covered_text(finalists: Finalists) -> str:
    """Which requests the objectives of a replayed trace are over."""
    text = "The objectives are over all requests of the trace together, busy and quiet minutes alike, in nine replays "
    chance = finalists.chosen.found.chance
    if chance is None:
        return f"{text}of ten"
    shown = f"more than {percent_text(_NEARLY_ALL)}" if chance > _NEARLY_ALL else percent_text(chance)
    return f"{text}of ten (this fleet: in {shown})"


def replay_text(plan: CapacityPlan) -> str:
    """What was replayed, as a sentence without a full stop."""
    if plan.finalists is None:
        return ""
    found, name = plan.finalists.chosen.found, Path(str(plan.spec.trace)).name
    return (
        f"replayed: {name} at {plan.demand.served_mean_rate_per_s:.4g} requests/s on average, every minute with its "
        f"own share of them and its own pairs of prompt and answer, at other moments in every replay; simulated were "
        f"{found.seeds} shares of {found.requests} requests, what one replica gets in turn; every prompt is new"
    )


def finalists_object(finalists: Finalists) -> dict[str, Any]:
    """The JSON object of the finalists: as planned, and in the size that holds (the same where none does)."""
    members = []
    for item in finalists.members:
        names = ("hardware", "label", "chosen", "planned_replicas", "replicas", "spares", "devices", "cost_per_hour")
        found: dict[str, Any] = {name: getattr(item, name) for name in names}
        found |= {"verdict": item.verdict.value, "reason": item.found.reason}
        members.append({**found, "planned": _object(item.planned), "found": _object(item.found)})
    return {"outcome": finalists_outcome(finalists), "replayed": finalists.replayed, "members": members}


def _states(verification: FleetVerification) -> tuple[tuple[str, Verification], ...]:
    return (("all up", verification.at_peak), ("spares down", verification.degraded))


def _object(verification: Verification) -> dict[str, Any]:
    names = ("rate_per_s", "holds", "saturated", "unanswered_fraction", "seeds", "requests")
    item: dict[str, Any] = {name: getattr(verification, name) for name in names}
    item["chance"] = verification.chance
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
