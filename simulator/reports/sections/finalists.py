"""The best fleets of the search in the event simulation: planned beside simulated percentiles, and what was changed."""

from __future__ import annotations

from simulator.planner.finalist_records import Finalist, Verdict
from simulator.planner.records import CapacityPlan
from simulator.planner.verification import Verification
from simulator.reports.cells import count, seconds, text
from simulator.reports.content import Block, Column, Paragraph, Row, Table, Tone

_NAMES = ("Finalist", "Replicas", "Objective", "At most", "Planned", "Simulated", "80 % from", "to", "Verdict")


def _states(item: Finalist) -> list[tuple[int, Verification]]:
    """As planned, and where the simulation changed it, in the size that holds."""
    states = [(item.planned_replicas, item.planned)]
    return states if item.replicas == item.planned_replicas else [*states, (item.replicas, item.found)]


def _rows(item: Finalist) -> list[Row]:
    return [
        Row(
            cells=(
                text(item.name),
                count(replicas),
                text(entry.name),
                seconds(entry.bound_s),
                seconds(entry.steady_s),
                seconds(entry.simulated_s),
                seconds(entry.low_s),
                seconds(entry.high_s),
                text("held" if entry.holds else "missed"),
            )
        )
        for replicas, state in _states(item)
        for entry in state.objectives
    ]


def finalist_blocks(plan: CapacityPlan) -> list[Block]:
    """A sentence and a table; nothing where no finalists were simulated."""
    found = plan.finalists
    if found is None:
        return []
    skipped = [item.name for item in found.members if item.verdict is Verdict.NOT_SIMULATED]
    rows = tuple(row for item in found.members for row in _rows(item))
    how = "under the replayed trace, over all its requests" if found.replayed else "at the planned peak"
    table = Table(
        key="finalists",
        title=f"Finalists in the event simulation, {how}, spares down",
        columns=tuple(Column(title=name, numeric=name not in ("Finalist", "Objective", "Verdict")) for name in _NAMES),
        rows=rows,
        note=f"Not simulated: {', '.join(skipped)}." if skipped else "",
    )
    outcome = Paragraph(text=f"{found.outcome[:1].upper()}{found.outcome[1:]}.", tone=Tone.NOTE)
    return [outcome, *([table] if rows else [])]
