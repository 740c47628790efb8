"""Inputs of a capacity plan with their origins, the demand, and summaries of the search."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from simulator.records import dataclass
from simulator.specs.base import Assumption, Note, ValueOrigin
from simulator.traffic.lengths import RequestMix, WorkloadPreset


def total_of(costs: Sequence[float | None]) -> float | None:
    """All of them together; None where one is not known."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceName:
    """Which recording a value was read from; cache_tokens : of the cache whose hits the value is."""

    source: str
    requests: int
    duration_s: float
    cache_tokens: float | None = None


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
class FieldValue:
    """A field of the question and a value for it: None stands for any value, () for leaving the field out."""

    field: str
    value: object = None

    def __str__(self) -> str:
        if self.value == ():
            return f"no `{self.field}`"
        return f"`{self.field}`" if self.value is None else f"`{self.field}` {self.value}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Requests that arrive, and those that reach accelerators.

    mean_rate_per_s : of all answers, ``answers_per_request`` to a request; peak_to_mean : busiest over mean
    cache_hit_fraction : answered elsewhere; headroom_fraction : growth that capacity is kept free for
    warnings : what was put right in a trace
    """

    mean_rate_per_s: float
    peak_to_mean: float
    cache_hit_fraction: float
    headroom_fraction: float
    mix: RequestMix
    assumptions: tuple[Assumption, ...]
    warnings: tuple[Note, ...] = ()
    answers_per_request: int = 1

    @property
    def requests_per_s(self) -> float:
        """Mean rate of requests, each with all of its answers [1/s]."""
        return self.mean_rate_per_s / self.answers_per_request

    @property
    def served_mean_rate_per_s(self) -> float:
        """Mean rate that accelerators serve [1/s]."""
        return self.mean_rate_per_s * self.computed_fraction

    @property
    def computed_fraction(self) -> float:
        """Share of the requests that accelerators compute, the rest being answered from a cache [-]."""
        return 1 - self.cache_hit_fraction

    @property
    def headroom_factor(self) -> float:
        """Rate that the fleet is sized for over the peak rate [-]."""
        return 1 + self.headroom_fraction

    @property
    def planned_rate_per_s(self) -> float:
        """Peak rate that accelerators must sustain, headroom included [1/s]."""
        return self.served_mean_rate_per_s * self.peak_to_mean * self.headroom_factor

    @property
    def mean_load(self) -> float:
        """Mean rate over the planned rate [-]; tokens, energy and rented hours are counted at this load."""
        return self.served_mean_rate_per_s / self.planned_rate_per_s


class SearchFamily(StrEnum):
    """Deployments that are searched beside replicas of one kind under the engine's own limits."""

    LIMITS = "engine limits"
    EXPERTS = "data-parallel attention and expert parallelism"
    POOLS = "pools for prompts and for answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyFound:
    """The best fleet of a family on the accelerators that were searched for it.

    saving : share of the cost (of the devices where no price is known) that it saves against the best fleet of the same
        accelerator outside the family; negative where it needs more
    kept : whether it is listed among the options
    """

    family: SearchFamily
    hardware: str
    label: str
    devices: int
    saving: float
    kept: bool


TECHNIQUES_SAVE = 4.0
"""Largest factor by which techniques are assumed to cut costs. They are not tried on an accelerator whose fleet, fully
loaded and made cheaper by this factor, would still cost more than the best fleet of another accelerator."""

FORMATS_DIFFER = 2.0
"""A number format whose lowest cost is only estimated, from that of another format, is compared while the estimate is
at most this many times the cost of the best fleet: it is not exact, and techniques save more with some formats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSummary:
    """How wide the search was.

    candidates : replica set-ups screened with the vectorised steady state; feasible : of them that can serve
    finalists : of them that were priced again exactly, one by one, and sized as fleets
    axes : what was varied, with the number of values of each
    platforms : accelerators that were searched; combined, in_all_formats : those of them on which techniques, and on
        which all number formats were tried
    """

    candidates: int
    feasible: int
    finalists: int
    axes: tuple[str, ...]
    combined: int
    in_all_formats: int
    platforms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What a plan says beside its fleets, in answer to one question about them.

    key : its name in the JSON document, in the registry of studies and in the list of a report's sections
    """

    key: ClassVar[str]

    @property
    def warnings(self) -> tuple[Note, ...]:
        """What the plan warns of because of it."""
        return ()
