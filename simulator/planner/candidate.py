"""One replica that a search may choose: the accelerator and its server, the degrees, formats, techniques and limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

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
        parts.append(f"{techniques.kv_policy.method} {techniques.kv_policy.budget_tokens}")
    if techniques.weight_offload is not None:
        parts.append(f"{percent_text(techniques.weight_offload.fraction)} of weights in host")
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

    def on_platforms(self, changed: Callable[[Platform], Platform]) -> Candidate:
        """The same on changed accelerators."""
        first = None if self.prefill is None else self.prefill.on_platforms(changed)
        return replace(self, platform=changed(self.platform), prefill=first)

    @property
    def family(self) -> str:
        """The label without the tensor-parallel degree."""
        parts = []
        if self.parallelism.pp_size > 1:
            parts.append(f"PP{self.parallelism.pp_size}")
        if self.parallelism.dp_size > 1:
            parts.append(f"DP{self.parallelism.dp_size}")
        if self.parallelism.ep_size > 1:
            parts.append(f"EP{self.parallelism.ep_size}")
        if self.precision.scheme or self.precision.weights:
            parts.append(str(self.precision.scheme or self.precision.weights))
        if self.precision.kv_cache:
            parts.append(f"kv {self.precision.kv_cache}")
        techniques = technique_label(self.techniques)
        if techniques:
            parts.append(techniques)
        if self.engine.kv_allocation:
            parts.append("unpaged")
        if self.engine.max_num_seqs:
            parts.append(f"batch <= {self.engine.max_num_seqs}")
        if self.engine.max_num_batched_tokens:
            parts.append(f"step <= {self.engine.max_num_batched_tokens} tokens")
        return " ".join(parts)
