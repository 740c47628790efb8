"""How an engine launches kernels, where that changes what they take: waits, streams, fused passes, other tables."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from math import ceil

import numpy as np

from simulator.kernels.fits import CollectiveFits, FitSet, collective_fits, fit_set
from simulator.kernels.timing import Provenance, Timing
from simulator.kernels.transfer import Relative, are_siblings, kernel_distance
from simulator.operators.work import (
    ActivationPasses,
    Array,
    AttentionShape,
    Collective,
    CollectiveShape,
    ElementwiseShape,
    GemmShape,
    KernelShape,
    MatmulFormat,
    MoeShape,
)
from simulator.records import dataclass
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineProfile
from simulator.specs.engine.releases import (
    KernelLibraryName,
    KernelRecipe,
    NarrowLatent,
    SlowerExperts,
    SlowProducts,
    SplitProducts,
    TableKernel,
    UndividedLatent,
    UntunedExperts,
)
from simulator.specs.hardware.accelerator import AcceleratorSpec, load_hardware
from simulator.specs.model.architecture import MlaSpec, ModelSpec, MoeSpec
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

SHARED_EXPERT = "shared_expert"

NORM_BYTES, WIDE_BYTES = 4.0, 2.0
"""A residual norm reads and writes the layer's output and the residual: bytes per byte of the all-reduce's message."""

SCALING = ActivationPasses(input_bytes=WIDE_BYTES, launches=1.0)
"""The pass that looks for the largest of a product's 16-bit activations."""


READ_SHARE = 0.94
"""Of the rate at which memory carries data, what reads reach at most: the highest of the tables' 16-bit products of
several rows and weights of over three L2s (RTX PRO 6000 0.93 to 0.94, L40S 0.89, H100 0.85, B200 0.84) [AIC2026]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeFits:
    """A kernel of the recipe with the fits of its table, and those of the slower kernel that it names."""

    kernel: TableKernel
    fits: FitSet
    slower: FitSet | None

    def filled(self, shape: MoeShape) -> MoeShape:
        """``shape`` with the widths of its experts filled up to the kernel's multiple."""
        multiple, widths = self.kernel.width_multiple, (shape.hidden_size, shape.intermediate_size)
        hidden, intermediate = (ceil(width / multiple) * float(multiple) for width in widths)
        return replace(shape, hidden_size=hidden, intermediate_size=intermediate)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTraits:
    """What the engine whose kernels are priced adds to their times.

    collective_lag_s : mean lag of a host that issues a collective; its devices wait for the slowest of them [s]
    side_stream_tokens : up to that many tokens in a step, shared experts run beside the routed ones; 0 for never
    fused_shared : they run in the routed ones' kernels, in steps of any size
    dense_short_prompts : sparse attention multiplies all keys where no query of a prompt sees more than are chosen
    sparse_decode_s : of small kernels around the choice of keys in a layer, of a decode step and of each sequence [s]
    packs_block_queries : where keys are chosen in blocks, queries of the same choice share a tile
    matrix_groups : query heads per KV head whose decode attention has a kernel for the matrix units; None for all
    vector_elements_per_s : keys' and values' numbers that the vector units of the device take in where there is none,
        once for every query head [1/s]
    untuned : the tile of 16-bit experts that nobody tuned; tuned : those that somebody did, as (experts, width)
    slow_products : kernels of products that no table timed, and the rate that large ones reach at most [FLOP/s]
    slower_experts : experts' kernels that no table timed, and the rows above which they run
    compute_units : of the accelerator [-]; undivided, block_flops_per_s : latent decode attention that gives
        each thread block all keys of a sequence, and the rate of one [FLOP/s]
    narrow_latent : how many heads latent decode attention takes at a time; quantised_before : formats whose activations
        the kernel before a product narrows
    split_products : products of few rows on kernels that divide the inner size; replaced : kernels that stand in
    fused : fits of all-reduces with the residual norm in them, up to ``fused_bytes`` by number of devices, in one shot
        up to ``one_shot_tokens``
    launch_gap_s : device time between a kernel of a step and the next [s]
    tuned_share : share of the rate of tuned kernels that products and experts reach [-]
    in_whole_runs : kinds of rows (`row_kind`) in the whole runs on this architecture that these numbers were fitted to
    read_bytes_per_s : rate at which nothing of a step comes from memory faster [bytes/s]
    on_host : below how many rows the host multiplies weights in its memory, and how fast it reads them [bytes/s]
    """

    collective_lag_s: float = 0.0
    side_stream_tokens: int = 0
    fused_shared: bool = False
    dense_short_prompts: bool = False
    sparse_decode_s: tuple[float, float] = (0.0, 0.0)
    packs_block_queries: bool = False
    matrix_groups: frozenset[int] | None = None
    vector_elements_per_s: float = float("inf")
    untuned: UntunedExperts | None = None
    tuned: tuple[tuple[int, int], ...] = ()
    slow_products: tuple[tuple[SlowProducts, float], ...] = ()
    slower_experts: tuple[tuple[SlowerExperts, int], ...] = ()
    compute_units: int = 1
    undivided: UndividedLatent | None = None
    block_flops_per_s: float = float("inf")
    narrow_latent: NarrowLatent | None = None
    quantised_before: frozenset[str] = frozenset()
    split_products: SplitProducts | None = None
    replaced: tuple[RecipeFits, ...] = ()
    fused: CollectiveFits | None = None
    fused_bytes: tuple[tuple[int, float], ...] = ()
    one_shot_tokens: int = 0
    launch_gap_s: float = 0.0
    tuned_share: float = 1.0
    in_whole_runs: frozenset[str] = frozenset()
    read_bytes_per_s: float = float("inf")
    on_host: tuple[int, float] = (0, float("inf"))

    def kernel_of(self, name: str, *, family: str, exchanged: bool = False, spread: bool = False) -> RecipeFits | None:
        """The fits that the engine's recipe names for a format; for experts first those that all-to-all feeds."""
        named = (one for one in self.replaced if (one.kernel.family, one.kernel.weights) == (family, name))
        found = (one for one in named if one.kernel.spread >= spread and one.kernel.exchanged <= exchanged)
        return max(found, key=lambda one: one.kernel.exchanged, default=None)

    def without_tiles(self, model: ModelSpec, ranks: ParallelismSpec, *, format_name: str) -> list[tuple[int, int]]:
        """Experts of a device in 16 bits for which the release has no tuned tiles, as (experts, width); none where
        ranks of attention exchange tokens, whose kernels are others."""
        if self.untuned is None or format_name != Dtype.BF16.value or ranks.dp_size > 1:
            return []
        return sorted(_experts_of_device(model, ranks) - set(self.tuned))

    def never_timed(
        self, model: ModelSpec, ranks: ParallelismSpec, *, experts: str, products: Collection[str]
    ) -> list[SlowerExperts | SlowProducts | UndividedLatent]:
        """Kernels of a replica's steps that no table timed, whose rate is inferred from whole runs.

        experts, products : names of the formats of its experts, and of all other products
        """
        widths = {width for _, width in _experts_of_device(model, ranks)}
        slower = [kernel for kernel, _ in self.slower_experts if kernel.weights == experts]
        slow = [kernel for kernel, _ in self.slow_products if kernel.weights in products]
        latents = (layer.mixer.num_attention_heads for layer in model.layers if isinstance(layer.mixer, MlaSpec))
        whole = [one for one in (self.undivided,) if one and max(latents, default=0) >= one.heads * ranks.tp_size]
        return [*(kernel for kernel in slower if any(map(kernel.takes, widths))), *slow, *whole]

    def lent(self, relative: Relative, *, kind: str) -> Relative:
        """``relative`` with its kernels known as parts of measured steps, where whole runs held such rows. What they
        are off by is in the numbers that were fitted to those runs; the spread stays that of the transfer."""
        return replace(relative, known=Provenance.CALIBRATED) if kind in self.in_whole_runs else relative

    def fused_up_to(self, shape: CollectiveShape) -> tuple[float, float]:
        """The largest message of this group that one kernel reduces and norms, and that in one shot [bytes]; or 0."""
        if self.fused is None or shape.operation is not Collective.ALL_REDUCE or not shape.block_token_bytes:
            return 0.0, 0.0
        return dict(self.fused_bytes).get(shape.participants, 0.0), self.one_shot_tokens * shape.block_token_bytes


def _experts_of_device(model: ModelSpec, ranks: ParallelismSpec) -> set[tuple[int, int]]:
    """How many experts of each mixture's layer a device holds, and their width there."""
    blocks = (block for layer in model.layers for block in layer.feed_forward if isinstance(block, MoeSpec))
    together = ranks.tp_size * (ranks.dp_size if ranks.ep_size > 1 else 1)
    return {
        (block.num_experts // ranks.ep_size, block.moe_intermediate_size * ranks.ep_size // together)
        for block in blocks
    }


def traits_on(profile: EngineProfile, hardware: AcceleratorSpec) -> EngineTraits:
    """How an engine launches kernels on an accelerator, whatever its recipe replaces."""
    sparse, host = profile.sparse_decode, profile.host_products
    around = sparse if sparse is not None and hardware.architecture in sparse.architectures else None
    traits = EngineTraits(
        sparse_decode_s=(around.layer_s, around.sequence_s) if around else (0.0, 0.0),
        collective_lag_s=profile.overheads.collective_lag_s,
        side_stream_tokens=profile.side_stream_tokens,
        launch_gap_s=profile.overheads.launch_gap_s,
        tuned_share=profile.overheads.tuned_share,
        in_whole_runs=frozenset(profile.whole_runs.get(hardware.architecture, ())),
        packs_block_queries=hardware.architecture in profile.packs_block_queries,
        dense_short_prompts=hardware.architecture in profile.dense_short_prompts,
        compute_units=hardware.compute_units,
        read_bytes_per_s=READ_SHARE * hardware.memory_data_share * hardware.memory_bytes_per_s,
        on_host=(host.rows_below, host.reads_bytes_per_s(hardware)) if host else (0, float("inf")),
    )
    if not profile.matrix_groups:
        return traits
    return replace(
        traits,
        matrix_groups=frozenset(profile.matrix_groups),
        vector_elements_per_s=profile.overheads.vector_elements_per_clock
        * hardware.compute_units
        * hardware.boost_clock_hz,
    )


def _slow_products(recipe: KernelRecipe, hardware: AcceleratorSpec) -> tuple[tuple[SlowProducts, float], ...]:
    here = (named for named in recipe.slow_products if hardware.architecture in named.architectures)
    return tuple((named, named.peak_share * hardware.peak_flops_per_s[Dtype.FP8]) for named in here)


def _tuned(untuned: UntunedExperts, hardware: AcceleratorSpec) -> tuple[tuple[int, int], ...]:
    """Sizes of experts that have tuned tiles on ``hardware``. One that no release names is no device yet: it has those
    of the nearest with the same dies."""
    if hardware.name in untuned.tuned:
        return untuned.tuned[hardware.name]
    named = (load_hardware(name) for name in untuned.tuned)
    kin = [spec for spec in named if are_siblings(hardware, spec)]
    nearest = min(kin, key=lambda spec: kernel_distance(hardware, relative=spec), default=hardware)
    return untuned.tuned.get(nearest.name, ())


def with_recipe(
    traits: EngineTraits, recipe: KernelRecipe, *, hardware: AcceleratorSpec, profiles: str | None = None
) -> EngineTraits:
    """``traits`` with what of ``recipe`` holds on ``hardware``, and the fits that it names."""

    def fits_of(library: KernelLibraryName | None, kernel: TableKernel) -> FitSet | None:
        return fit_set(hardware, library=library, group=kernel.family, profiles=profiles) if library else None

    named = ((kernel, fits_of(kernel.library, kernel)) for kernel in recipe.kernels if kernel.runs_on(hardware))
    fused = recipe.fused_all_reduce
    if fused is not None and hardware.architecture not in fused.largest_bytes:
        fused = None
    latent = recipe.undivided_latent
    if latent is not None and hardware.architecture in latent.architectures:
        unit_flops_per_s = hardware.peak_flops_per_s[Dtype.BF16] / hardware.compute_units
        traits = replace(traits, undivided=latent, block_flops_per_s=latent.rate_share * unit_flops_per_s)
    narrow = recipe.narrow_latent
    if narrow is not None and hardware.architecture in narrow.architectures:
        traits = replace(traits, narrow_latent=narrow)
    untuned = recipe.untuned_experts
    if untuned is not None and hardware.architecture in untuned.architectures:
        traits = replace(traits, untuned=untuned, tuned=_tuned(untuned, hardware))
    slower_experts = (kernel for kernel in recipe.slower_experts if kernel.runs_on(hardware))
    split, norms, shared = recipe.split_products, recipe.fused_norms, recipe.fused_shared_experts
    if split is not None and hardware.architecture in split.architectures:
        traits = replace(traits, split_products=split)
    narrowing = norms.formats if norms is not None and hardware.architecture in norms.architectures else ()
    return replace(
        traits,
        fused_shared=shared is not None and hardware.architecture in shared.architectures,
        slow_products=_slow_products(recipe, hardware),
        slower_experts=tuple((one, one.rows_above[hardware.architecture]) for one in slower_experts),
        quantised_before=frozenset((*recipe.fused_quantisation, *narrowing)),
        replaced=tuple(
            RecipeFits(kernel=kernel, fits=fits, slower=fits_of(kernel.slower, kernel))
            for kernel, fits in named
            if fits
        ),
        fused=None if fused is None else collective_fits(hardware, library=fused.library, profiles=profiles),
        fused_bytes=() if fused is None else tuple(sorted(fused.largest_bytes[hardware.architecture].items())),
        one_shot_tokens=0 if fused is None else fused.one_shot_tokens,
    )


def norm_pass(shape: CollectiveShape) -> ElementwiseShape:
    """The residual norm behind an all-reduce as a pass of its own."""
    return ElementwiseShape(bytes=NORM_BYTES * np.asarray(shape.message_bytes, dtype=np.float64), launches=1.0)


def quantising_pass(shape: GemmShape) -> ElementwiseShape:
    """The pass that narrows a product's 16-bit activations."""
    each = WIDE_BYTES + shape.format.activation_bits / BITS_PER_BYTE
    return pass_shape(shape, ActivationPasses(input_bytes=each, launches=1.0))


def passes_of(format: MatmulFormat, *, contained: bool) -> ActivationPasses | None:
    """Passes to price beside a product; ``contained``: its fit was measured with the quantising pass."""
    if format.quantises_activations:
        narrow = BITS[format.math] / BITS_PER_BYTE
        return None if contained else ActivationPasses(input_bytes=WIDE_BYTES + narrow, launches=1.0)
    return format.passes


def pass_shape(shape: GemmShape, passes: ActivationPasses) -> ElementwiseShape:
    """The passes around a product as one row that is bound by memory."""
    moved: Array = np.asarray(shape.m, dtype=np.float64) * shape.batch
    elements = shape.k * passes.input_bytes + shape.n * passes.output_bytes
    return ElementwiseShape(bytes=moved * elements, launches=passes.launches)


def with_passes(timing: Timing, passes: Timing) -> Timing:
    """A product and the passes around it, one after the other."""
    return replace(
        timing,
        seconds=timing.seconds + passes.seconds,
        memory_s=timing.memory_s + passes.memory_s,
        provenance=np.maximum(timing.provenance, passes.provenance),
    )


def filling_passes(shape: MoeShape, *, filled: MoeShape) -> ElementwiseShape:
    """One pass that fills tokens up to the width of ``filled`` experts, one that cuts what comes out."""
    moved = np.asarray(shape.tokens, dtype=np.float64) * (shape.hidden_size + filled.hidden_size) * WIDE_BYTES
    return ElementwiseShape(bytes=2.0 * moved, launches=2.0)


def without(timing: Timing, part: Timing, *, floor_s: float = 0.0) -> Timing:
    """``timing`` less a part of it that another kernel does on the side, not below ``floor_s`` or its own wire time."""
    left_s = np.maximum(timing.seconds - part.seconds, np.maximum(timing.network_s, floor_s))
    seconds = np.minimum(timing.seconds, left_s)
    return replace(timing, seconds=seconds, memory_s=np.minimum(timing.memory_s, seconds))


NO_TRAITS = EngineTraits()


def row_kind(shape: KernelShape) -> str:
    """Kind of kernels that a row runs, as far as it matters for what whole runs say of them."""
    match shape:
        case AttentionShape(shared_kv=shared, head_dim=keys, v_head_dim=values):
            return "latent_attention" if shared or keys != values else "attention"
        case _:
            return type(shape).__name__.removesuffix("Shape").lower()


def slowest_lag(participants: int) -> float:
    """How far the slowest of several hosts is behind an average one, in units of the mean lag [-].

    Equation
    --------
    h = 1/2 + 1/3 + ... + 1/p

    Parameters
    ----------
    participants : hosts p that issue the same collective [-]

    Range of validity
    -----------------
    p >= 1, lags exponential and independent, so that the expected largest of p is the p-th harmonic number times the
    mean. Leaves out that a device which is far ahead of its host's queue hides a part.

    References
    ----------
    [David2003]

    Examples
    --------
    >>> round(slowest_lag(4), 4)
    1.0833
    """
    return sum(1 / place for place in range(2, participants + 1))


def with_wait(timing: Timing, *, traits: EngineTraits, participants: int) -> Timing:
    """A collective's price with the wait for the device whose host issued it last."""
    if not traits.collective_lag_s or participants == 1:
        return timing
    return replace(timing, seconds=timing.seconds + traits.collective_lag_s * slowest_lag(participants))
