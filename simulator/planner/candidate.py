"""One replica that a search may choose, and why one cannot serve."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from simulator.errors import InfeasibleError, RoofcastError
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.techniques import TechniquesSpec
from simulator.units import percent_text

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
    """Why a candidate cannot serve: ``refusal`` says by how much, ``excess`` the same as a share of the bound.

    candidate : what was refused; label : of it or of its part, to show
    """

    candidate: Candidate
    label: str
    refusal: RoofcastError
    excess: float

    @property
    def code(self) -> str:
        """Kind of reason: memory, slots, objective, limit (of the fleet), or that of a refusal to deploy."""
        return self.refusal.code

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


def refuse(candidate: Candidate, refusal: RoofcastError, *, excess: float = float("inf")) -> Rejection:
    """A candidate that cannot serve: why, and by how much."""
    return Rejection(candidate=candidate, label=candidate.label, refusal=refusal, excess=excess)


def refused_for_prompts(candidate: Candidate, prefill: Rejection) -> Rejection:
    """The refusal of two pools for what is wrong with the one that computes the prompts."""
    found = prefill.refusal
    refusal = InfeasibleError(f"prefill: {found.message}", field=found.field, code=found.code, hint=found.hint)
    return refuse(candidate, refusal, excess=prefill.excess)


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
