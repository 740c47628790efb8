"""What a release of an engine takes by itself: limits by the device that it runs on, kernels by architecture.

Engines choose their limits when they start, from the memory and the name of the device: rules of the profile. Kernels
that a release runs where the tables of its library were measured on others are its recipe. No code knows a release.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from math import inf
from typing import Literal, NamedTuple, Self, get_args

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from simulator.records import dataclass
from simulator.specs.base import Spec
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.units import GIB, MIB

KernelLibraryName = Literal["vllm", "sglang", "trtllm", "aiter", "torch"]
LimitField = Literal[
    "max_num_batched_tokens",
    "max_num_seqs",
    "gpu_memory_utilization",
    "block_size_tokens",
    "cuda_graph_max_sequences",
    "chunked_prefill",
]
LIMIT_FIELDS: tuple[LimitField, ...] = get_args(LimitField)
_SHARE_DIGITS = 3  # of a share that an engine works out, as SGLang rounds it


class MemoryShare(Spec):
    """A share of the memory that an engine works out from what it sets aside for activations and CUDA graphs.

    fixed_mib, per_token_mib, per_graph_sequence_mib, per_device_mib : set aside [MiB], and [MiB] per token of the
        largest step, per sequence of the largest CUDA graph and per device of the replica
    least_tokens : fewer tokens of a step count as that many
    least_mib : at least that much on devices of least_from_gib and more
    """

    fixed_mib: NonNegativeFloat
    per_token_mib: NonNegativeFloat
    least_tokens: PositiveInt
    per_graph_sequence_mib: NonNegativeFloat
    per_device_mib: NonNegativeFloat
    least_mib: NonNegativeFloat
    least_from_gib: PositiveFloat

    def share(self, *, memory_bytes: float, tokens: int, graph_sequences: int, devices: int) -> float:
        """Fraction of ``memory_bytes`` that is left for weights and cache."""
        aside_mib = (
            self.fixed_mib
            + self.per_token_mib * max(tokens, self.least_tokens)
            + self.per_graph_sequence_mib * graph_sequences
            + self.per_device_mib * devices
        )
        if memory_bytes >= self.least_from_gib * GIB:
            aside_mib = max(aside_mib, self.least_mib)
        return round(1 - aside_mib * MIB / memory_bytes, _SHARE_DIGITS)


class LimitRule(Spec):
    """Limits that an engine takes where every condition holds; of the rules that hold, the last one decides a limit.

    memory_gib_at_least, memory_gib_below : what software sees of the device's memory [GiB]
    accelerators : profile names; name_without : a part that the profile's name must not have
    architectures : of the device; tp_size_at_least, tp_size_below : tensor-parallel degree of the replica
    memory_share : in place of a number for gpu_memory_utilization
    """

    memory_gib_at_least: PositiveFloat | None = None
    memory_gib_below: PositiveFloat | None = None
    accelerators: tuple[str, ...] = ()
    name_without: str | None = None
    architectures: tuple[str, ...] = ()
    tp_size_at_least: PositiveInt | None = None
    tp_size_below: PositiveInt | None = None
    max_num_batched_tokens: PositiveInt | None = None
    max_num_seqs: PositiveInt | None = None
    gpu_memory_utilization: float | None = Field(default=None, gt=0, le=1)
    block_size_tokens: PositiveInt | None = None
    cuda_graph_max_sequences: PositiveInt | None = None
    chunked_prefill: bool | None = None
    memory_share: MemoryShare | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.memory_share is None and all(getattr(self, name) is None for name in LIMIT_FIELDS):
            raise ValueError("a rule needs a limit: " + ", ".join((*LIMIT_FIELDS, "memory_share")))
        if self.memory_share is not None and self.gpu_memory_utilization is not None:
            raise ValueError("memory_share stands in place of gpu_memory_utilization")
        return self

    def holds(self, hardware: AcceleratorSpec, parallelism: ParallelismSpec) -> bool:
        """Whether every condition does."""
        memory, degree = hardware.memory_visible_bytes / GIB, parallelism.tp_size
        return (
            (self.memory_gib_at_least is None or memory >= self.memory_gib_at_least)
            and (self.memory_gib_below is None or memory < self.memory_gib_below)
            and (not self.accelerators or hardware.name in self.accelerators)
            and (self.name_without is None or self.name_without not in hardware.name)
            and (not self.architectures or hardware.architecture in self.architectures)
            and (self.tp_size_at_least is None or degree >= self.tp_size_at_least)
            and (self.tp_size_below is None or degree < self.tp_size_below)
        )

    def decides(self, field: LimitField) -> bool:
        """Whether it says anything about a limit."""
        by_share = field == "gpu_memory_utilization" and self.memory_share is not None
        return by_share or getattr(self, field) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSource:
    """Where a limit that nobody gave comes from.

    engine, release : whose rules; asked : the release that was asked for, where its own rules are not known
    rule : the one that decided; None where the engine takes the same everywhere
    """

    engine: str
    release: str
    asked: str | None = None
    rule: LimitRule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """Limits of an engine on a device; ``sources`` of all of them, in the order of LIMIT_FIELDS."""

    max_num_batched_tokens: int
    max_num_seqs: int
    gpu_memory_utilization: float
    block_size_tokens: int
    cuda_graph_max_sequences: int
    chunked_prefill: bool
    sources: tuple[LimitSource, ...]

    def source(self, field: LimitField) -> LimitSource:
        """Where the value of one limit comes from."""
        return self.sources[LIMIT_FIELDS.index(field)]


def ruled(
    base: EngineLimits, rules: Iterable[LimitRule], *, given_tokens: int | None, devices: int, memory_bytes: float
) -> EngineLimits:
    """``base`` with what ``rules`` that hold say; a share of the memory goes with the tokens of a step, as given."""
    found = base
    for rule in rules:
        decided = {name: getattr(rule, name) for name in LIMIT_FIELDS if getattr(rule, name) is not None}
        own = replace(found.sources[0], rule=rule)  # sources differ in their rules alone
        each = zip(LIMIT_FIELDS, found.sources, strict=True)
        sources = tuple(own if rule.decides(name) else source for name, source in each)
        found = replace(found, **decided, sources=sources)
    share = found.source("gpu_memory_utilization").rule
    if share is None or share.memory_share is None:
        return found
    utilization = share.memory_share.share(
        memory_bytes=memory_bytes,
        tokens=given_tokens or found.max_num_batched_tokens,
        graph_sequences=found.cuda_graph_max_sequences,
        devices=devices,
    )
    return replace(found, gpu_memory_utilization=utilization)


@lru_cache(maxsize=256)
def release_number(version: str) -> tuple[int, ...]:
    """(0, 15, 1) of "v0.15.1.post1", (6000,) of "b6000"; empty for a branch or a build without a number."""
    found = re.match(r"[vb]?(\d+(?:\.\d+)*)", version.strip())
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def came_before(version: str | None, release: str) -> bool:
    """Whether ``version`` came before ``release``; one without a number (a branch, a build) counts as a later one."""
    asked = release_number(version or "")
    return bool(asked) and asked < release_number(release)


@lru_cache(maxsize=256)
def nearest_release(version: str, known: tuple[str, ...]) -> str:
    """The one of ``known`` that is ``version``, or the nearest to it; a version without a number is the latest."""

    def place(name: str) -> tuple[float, ...]:
        return release_number(name) or (float("inf"),)

    def apart(name: str) -> tuple[float, ...]:
        wide = max(len(place(name)), len(asked))
        pairs = zip(*(part + (0.0,) * (wide - len(part)) for part in (place(name), asked)), strict=True)
        return tuple(0.0 if first == second else abs(first - second) for first, second in pairs)

    asked, ordered = place(version), sorted(known, key=place)
    before = [name for name in ordered if place(name) <= asked][-1:]
    after = [name for name in ordered if place(name) > asked][:1]
    return min(before + after, key=apart)


class TableKernel(Spec):
    """Matrix products or routed experts of weights in the format ``weights``, on accelerators of ``architectures``, run
    the kernel that the table of ``library`` measured under the format ``kernel``.

    slower, slower_share : a library that measured a slower kernel of the same products, and how far the release's own
        lies from the first to it; slower_until : the release that runs the first alone
    since : the first release that runs it
    exchanged : only for experts whose tokens all-to-all brings, from ranks with attention of their own
    spread : also for experts that are spread over ranks, not only for those that one device holds or all divide
    width_multiple : to which experts' widths are filled up, by passes over the tokens before and behind them
    domain_at_least : only where the scale-up link joins that many accelerators
    """

    architectures: tuple[str, ...]
    family: Literal["gemm", "moe"]
    weights: str
    library: KernelLibraryName
    kernel: str
    slower: KernelLibraryName | None = None
    slower_share: float = Field(default=0.0, ge=0, le=1)
    slower_until: str | None = None
    since: str | None = None
    exchanged: bool = False
    spread: bool = True
    domain_at_least: PositiveInt = 1
    width_multiple: PositiveInt = 1

    def runs_on(self, hardware: AcceleratorSpec) -> bool:
        """Whether ``hardware`` is one that runs this kernel."""
        joined = hardware.scale_up.domain_size
        return hardware.architecture in self.architectures and joined >= self.domain_at_least

    def runs_in(self, version: str) -> bool:
        """Whether the release ``version`` has this kernel already."""
        return self.since is None or not came_before(version, self.since)

    def at(self, version: str) -> Self:
        """The kernel as ``version`` runs it."""
        if self.slower_until is None or came_before(version, self.slower_until):
            return self
        return self.model_copy(update={"slower": None, "slower_share": 0.0})


class FusedAllReduce(Spec):
    """All-reduces of a step that add the residual and take the norm in one kernel, whose table is the ``library``'s.

    largest_bytes : by architecture and number of devices the message up to which it runs; where none stands, never
    one_shot_tokens : of a step, up to which every device reads all the others' messages, whatever else were faster
    """

    library: KernelLibraryName
    largest_bytes: dict[str, dict[int, PositiveFloat]]
    one_shot_tokens: NonNegativeInt = 0


class UndividedLatent(Spec):
    """Latent decode attention that leaves the keys of a sequence to one thread block for ``heads`` query rows.

    rate_share : what such a block reaches of the dense 16-bit rate of its compute unit; kernels of fewer heads divide
    """

    architectures: tuple[str, ...]
    heads: PositiveInt
    rate_share: float = Field(gt=0, le=1)


class NarrowLatent(Spec):
    """Latent decode attention whose kernel takes ``heads`` at a time, so that more of them read the cache again each
    time, up to ``native_heads``, for which there is a kernel of its own.
    """

    architectures: tuple[str, ...]
    heads: PositiveInt
    native_heads: PositiveInt


class FusedNorms(Spec):
    """Norms that write the narrow activations of the product behind them, on these architectures.

    formats : of those activations; latent_attention_only : the engine fuses so in its models of latent attention alone
    """

    architectures: tuple[str, ...]
    formats: tuple[str, ...]
    latent_attention_only: bool = False


class SplitProducts(Spec):
    """Products of few rows on kernels that divide the inner size over thread blocks, where the table's do not.

    rows : most rows of such a product; shapes : (outputs, inputs) of one device that the release brings them for, by
    format. Nobody timed them here: they take no longer than the 16-bit product of the same sizes, whose table did.
    """

    architectures: tuple[str, ...]
    rows: PositiveInt
    shapes: dict[str, tuple[tuple[PositiveInt, PositiveInt], ...]]


class UntunedExperts(Spec):
    """The tile of 16-bit experts' products in releases before ``until`` where a step has more tokens than experts.

    tile : rows, columns and depth of one load; resident_tiles : that a compute unit works on at a time
    load_s : time from one load of a tile to the next, which a lack of tiles leaves unhidden [s]
    tuned : (experts, their width) on a device that the release takes tuned tiles for, by accelerator
    """

    architectures: tuple[str, ...]
    until: str
    tile: tuple[PositiveInt, PositiveInt, PositiveInt]
    resident_tiles: PositiveInt
    load_s: PositiveFloat
    tuned: dict[str, tuple[tuple[int, int], ...]]


class ServedModel(NamedTuple):
    """What recipes ask: ``spread``, experts lie on several ranks; ``prefill_pool``, only prompts are computed here."""

    model_type: str
    latent_attention: bool
    spread: bool
    prefill_pool: bool = False


class FusedSharedExperts(Spec):
    """Shared experts that run as one more routed expert, in the same kernels, where no all-to-all feeds those."""

    architectures: tuple[str, ...]
    model_types: tuple[str, ...]


class SlowProducts(Spec):
    """Products on a kernel that no table timed: as tables say, but at most at ``peak_share`` of the FP8 matrix rate."""

    architectures: tuple[str, ...]
    weights: str
    peak_share: float = Field(gt=0, le=1)


class SlowerExperts(Spec):
    """Experts of weights in the format ``weights`` on kernels that no table here timed.

    rate_share : of the tuned kernels' rate that they reach; rows_above : in a step, fewer run as tables say
    width_multiple : for which alone the release brings a kernel as fast as the table's
    domain_below : only where the scale-up link joins fewer accelerators; prefill_pool : only where prompts alone run
    """

    weights: str
    rows_above: dict[str, NonNegativeInt]
    rate_share: float = Field(gt=0, le=1)
    width_multiple: PositiveInt | None = None
    domain_below: PositiveInt | None = None
    prefill_pool: bool = False

    def runs_on(self, hardware: AcceleratorSpec) -> bool:
        """Whether ``hardware`` is one that runs this kernel."""
        return hardware.architecture in self.rows_above and hardware.scale_up.domain_size < (self.domain_below or inf)

    def takes(self, width: float) -> bool:
        """Whether experts of that width on a device run on it, not on a kernel as fast as the table's."""
        return not self.width_multiple or width % self.width_multiple != 0


class KernelRecipe(Spec):
    """What a release of an engine does with the kernels of its library, and with the experts of a replica.

    fused_quantisation : formats whose activations the kernel before narrows, without the tables' pass for it
    even_ranks : expert-parallel ranks from which on placement balances experts, by architecture and format of weights
    """

    even_ranks: dict[str, dict[str, PositiveInt]] = Field(default_factory=dict)
    fused_quantisation: tuple[str, ...] = ()
    fused_norms: FusedNorms | None = None
    split_products: SplitProducts | None = None
    fused_all_reduce: FusedAllReduce | None = None
    undivided_latent: UndividedLatent | None = None
    narrow_latent: NarrowLatent | None = None
    untuned_experts: UntunedExperts | None = None
    fused_shared_experts: FusedSharedExperts | None = None
    slow_products: tuple[SlowProducts, ...] = ()
    slower_experts: tuple[SlowerExperts, ...] = ()
    kernels: tuple[TableKernel, ...] = ()

    def serving(self, model: ServedModel) -> Self:
        """The recipe for such a model."""
        slower = tuple(kernel for kernel in self.slower_experts if model.prefill_pool or not kernel.prefill_pool)
        changed: dict[str, object] = {"slower_experts": slower} if slower != self.slower_experts else {}
        norms, shared = self.fused_norms, self.fused_shared_experts
        if norms is not None and norms.latent_attention_only and not model.latent_attention:
            changed["fused_norms"] = None
        if shared is not None and (model.spread or model.model_type not in shared.model_types):
            changed["fused_shared_experts"] = None
        return self.model_copy(update=changed) if changed else self

    def at(self, version: str) -> Self:
        """The recipe as ``version`` runs it."""
        tile = self.untuned_experts
        untuned = tile if tile is not None and came_before(version, tile.until) else None
        kernels = tuple(one.at(version) for one in self.kernels if one.runs_in(version))
        return self.model_copy(update={"kernels": kernels, "untuned_experts": untuned})
