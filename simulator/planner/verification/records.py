"""What the event simulation said about the best fleets of a search. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from simulator.planner.verification.fleets import Verification
from simulator.units import percent_text


class Verdict(StrEnum):
    """What became of a finalist. RESIZED holds with another number of replicas than planned."""

    HOLDS = "holds"
    RESIZED = "holds resized"
    MISSES = "misses"
    BEYOND_LIMITS = "beyond the limits"
    NOT_SIMULATED = "not simulated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalist:
    """One fleet with its spares down: as it was planned, and in the size that holds.

    planned_replicas, planned : of the plan, and what was simulated there; replicas, found : of the size that holds, the
    same where none does; devices, cost_per_hour : of that size with its spares; chosen : this fleet is recommended
    """

    hardware: str
    label: str
    planned_replicas: int
    replicas: int
    spares: int
    devices: int
    cost_per_hour: float | None
    verdict: Verdict
    planned: Verification
    found: Verification
    chosen: bool

    @property
    def name(self) -> str:
        """``h100-sxm-80gb TP4``."""
        return f"{self.hardware} {self.label}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finalists:
    """Best first as they were planned. ``replayed``: under the trace itself, and not under its mix at a steady rate."""

    members: tuple[Finalist, ...]
    replayed: bool

    @property
    def chosen(self) -> Finalist:
        """The recommended one."""
        return next(item for item in self.members if item.chosen)

    @property
    def outcome(self) -> str:
        """What the simulation changed about the plan, as a sentence without a full stop."""
        first, chosen = self.members[0], self.chosen
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
