"""Where inputs of a plan come from, beyond the word for it. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.assumptions import ValueOrigin
from simulator.planner.workload_presets import WorkloadPreset


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceName:
    """Which recording a value was read from."""

    source: str
    requests: int
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFound:
    """What a trace says of an input that was left at its default; None where it cannot tell."""

    value: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthOrigins:
    """Where the mean and the variation of lengths come from: ``trace`` where one of them is a trace's; ``workload``
    and ``nearest`` are the kinds of demand that stand for a mean and for a variation that are not given.
    """

    mean: ValueOrigin
    cv: ValueOrigin
    trace: TraceName | None
    workload: WorkloadPreset
    nearest: WorkloadPreset


@dataclass(frozen=True, slots=True, kw_only=True)
class SparesWanted:
    """What the number of spares follows from, where it was not given itself."""

    server_spares: int | None
    availability: float | None
