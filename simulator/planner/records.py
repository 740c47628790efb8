"""What a plan chooses from and is asked: one replica and why it cannot serve, inputs with their origins, the demand,
and summaries of the search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import ClassVar

from simulator.errors import RoofcastError
from simulator.records import dataclass
from simulator.specs.base import Assumption, Note, ValueOrigin
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.traffic.lengths import RequestMix
from simulator.traffic.workload_presets import WorkloadPreset
from simulator.units import percent_text


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
    def peak_requests_per_s(self) -> float:
        """Requests that come at the peak, before caches and headroom [1/s]."""
        return self.requests_per_s * self.peak_to_mean

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


NO_TECHNIQUES = TechniquesSpec()


def technique_label(techniques: TechniquesSpec) -> str:
    """``eagle sparse 2:4 h2o 1024``; empty where nothing is changed."""
    parts: list[str] = []
    if techniques.speculation is not None:
        parts.append(techniques.speculation.method)
        if techniques.speculation.k is not None:
            parts.append(f"k{techniques.speculation.k}")
    if techniques.sparsity is not None:
        parts.append(f"sparse {techniques.sparsity.pattern}")
    if techniques.kv_policy is not None:
        parts.append(str(techniques.kv_policy).replace(":", " "))
    if techniques.weight_offload is not None:
        parts.append(f"{percent_text(techniques.weight_offload.fraction)} of weights in host")
    if techniques.two_batch_overlap:
        parts.append("two batches")
    return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Platform:
    """An accelerator and the server it is bought in (None where no profile says).

    Equal where both profiles are the same objects, which is how loaders hand out one file twice: comparing their
    contents would take as long as evaluating.
    """

    hardware: AcceleratorSpec
    server: ServerSpec | None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Platform) and self.hardware is other.hardware and self.server is other.server

    def __hash__(self) -> int:
        return hash((id(self.hardware), id(self.server)))

    @property
    def linked_devices(self) -> int:
        """Accelerators that one replica may spread over with tensor parallelism."""
        in_server = self.server.accelerators_per_server if self.server else 1
        return max(self.hardware.scale_up.domain_size, in_server)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One replica to try. ``prefill`` : of another pool, which computes its prompts where this one only decodes."""

    platform: Platform
    parallelism: ParallelismSpec
    precision: PrecisionSpec
    engine: EngineSpec
    techniques: TechniquesSpec = NO_TECHNIQUES
    prefill: Candidate | None = None

    @property
    def label(self) -> str:
        """``TP8 PP2 fp8``: what tells it from the other candidates on the same hardware; two with two pools."""
        own = f"TP{self.parallelism.tp_size} {self.family}".rstrip()
        return own if self.prefill is None else f"prefill {self.prefill.label} + decode {own}"

    @property
    def parts(self) -> tuple[Candidate, ...]:
        """Each kind of replica, in the order of a request's way."""
        return (self,) if self.prefill is None else (self.prefill, replace(self, prefill=None))

    @property
    def hardware(self) -> str:
        """Profile name of the accelerator; of both in the order of a request's way where the pools are unlike."""
        return " + ".join((*self.prefill_hardware, self.platform.hardware.name))

    @property
    def prefill_hardware(self) -> tuple[str, ...]:
        """Profile name of the accelerator that computes the prompts, where it is another one."""
        own = self.platform.hardware.name
        return () if self.prefill is None or self.prefill.hardware == own else (self.prefill.hardware,)

    def on_platforms(self, changed: Callable[[Platform], Platform]) -> Candidate:
        """This candidate on changed accelerators."""
        first = None if self.prefill is None else self.prefill.on_platforms(changed)
        return replace(self, platform=changed(self.platform), prefill=first)

    @property
    def family(self) -> str:
        """The label without the tensor-parallel degree."""
        parts = list(self.parallelism.named("pp", "dp", "ep", "cp"))
        if self.precision.scheme or self.precision.weights:
            parts.append(str(self.precision.scheme or self.precision.weights))
        if self.precision.kv_cache:
            parts.append(f"kv {self.precision.kv_cache}")
        techniques = technique_label(self.techniques)
        if techniques:
            parts.append(techniques)
        if self.engine.kv_allocation:
            parts.append("unpaged")
        if self.platform.hardware.power_cap_w:
            parts.append(f"<= {self.platform.hardware.power_cap_w:g} W")
        if self.engine.max_num_seqs:
            parts.append(f"batch <= {self.engine.max_num_seqs}")
        if self.engine.max_num_batched_tokens:
            parts.append(f"step <= {self.engine.max_num_batched_tokens} tokens")
        return " ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why a candidate cannot serve: ``reason`` names by how much, ``excess`` the same as a share of the bound.

    candidate : what was refused; label : of it or of its part, to show
    code : kind of reason: memory, slots, objective, limit (of the fleet), or that of a refusal to deploy
    field : what asks for too much
    """

    candidate: Candidate
    label: str
    code: str
    field: str
    reason: Note
    excess: float

    @property
    def hardware(self) -> str:
        """Profile names of the accelerators."""
        return self.candidate.hardware

    @property
    def distance(self) -> tuple[int, float]:
        """How far from serving, for ordering: a fleet limit, then a missed objective, then memory, the unsupported."""
        nearest_first = ("limit", "objective", "slots", "memory")
        order = nearest_first.index(self.code) if self.code in nearest_first else len(nearest_first)
        return order, self.excess


def reject(candidate: Candidate, code: str, reason: Note, *, field: str, excess: float = float("inf")) -> Rejection:
    """A candidate that cannot serve: why, and by how much."""
    return Rejection(candidate=candidate, label=candidate.label, code=code, field=field, reason=reason, excess=excess)


def refused(candidate: Candidate, error: RoofcastError) -> Rejection:
    """A candidate that cannot be deployed."""
    return reject(candidate, error.code, Note("not_deployed", {"error": error}), field=error.field)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A number format with the techniques that go with it."""

    precision: PrecisionSpec
    techniques: TechniquesSpec = NO_TECHNIQUES


def shared_by_pools(techniques: TechniquesSpec) -> TechniquesSpec:
    """The techniques that two pools share: all but two-batch overlap, which leaves the layout of the cache as it is."""
    return techniques.model_copy(update={"two_batch_overlap": None}) if techniques.two_batch_overlap else techniques


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpace:
    """Values of every axis; a candidate is one of each."""

    platforms: tuple[Platform, ...]
    parallelisms: tuple[ParallelismSpec, ...]
    variants: tuple[Variant, ...]
    sequences: tuple[int, ...]
    tokens: tuple[int, ...]

    @property
    def candidates(self) -> int:
        """Set-ups in all, also those that a platform is too small for."""
        each = len(self.parallelisms) * len(self.variants) * len(self.sequences) * len(self.tokens)
        return len(self.platforms) * each
