"""Which fit prices routed experts: the kernel that a release takes, one measured in their format, or the 16-bit one.

Experts without measurements of their format are derived from the 16-bit ones, as products are (``format_choice``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from simulator.kernels import format_choice
from simulator.kernels.engine_traits import EngineTraits, RecipeFits, filling_passes, passes_of, with_passes
from simulator.kernels.fits import FitSet, fit_set
from simulator.kernels.moe import ELEMENT_BYTES, expert_load, moe_timing
from simulator.kernels.timing import Lattice, Provenance, Timing, matrix_vector_terms
from simulator.operators.work import ActivationPasses, ElementwiseShape, MatmulFormat, MoeShape
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit
from simulator.specs.model.precision import Dtype

NOT_GATED_EXPERTS, EXPERT_PARALLEL, EXCHANGED = "not_gated", "expert_parallel", "exchanged"
"""Variants of fits where libraries run another kernel for experts without gate, spread over ranks, or spread over
servers whose ranks of attention exchange tokens."""
# Per-tensor and per-token FP8 experts run the grouped kernels of block-scaled ones where theirs were not measured.
STAND_IN_EXPERTS = {"fp8": "fp8_block"}
# vLLM's table of Hopper ran FlashInfer's kernel for per-tensor FP8 untuned: slower than 16-bit experts at any small
# batch. Tuned, the same kernel stands in the table of block-scaled experts that are spread over ranks, all of them
# whole. Experts that are not spread take it (few and wide ones) or Triton's kernel, which the table of block-scaled
# ones ran (many, or narrow parts), whichever is faster.
UNTUNED_EXPERTS = {("vllm", "h100-sxm-80gb", "fp8"), ("vllm", "h200-sxm-141gb", "fp8")}
NARROWED: Mapping[str, tuple[float, Dtype]] = {"mxfp4_mxfp8": (8.25, Dtype.FP8)}
"""Expert kernels that narrow 16-bit activations themselves: bits of one with its scale, and its rate."""


PARTS = ("seconds", "compute_s", "memory_s")
"""What changes of a layer's price where vector units multiply its few rows."""


def find_experts(
    fits: FitSet | None, *, shape: MoeShape, fmt: str, across: bool = False
) -> tuple[FitSet, KernelFit] | None:
    """The set and its fit for experts in ``fmt``: of the kernel that such a layer runs, where several were measured;
    ``across``: all-to-all brings its tokens from other scale-up domains."""
    if fits is None:
        return None
    # Without a gate comes first: libraries that run it on a kernel of its own do so on every rank.
    parallel = shape.local_experts < shape.num_experts
    fitting = {NOT_GATED_EXPERTS: not shape.gated, EXCHANGED: across, EXPERT_PARALLEL: parallel, "": True}
    variants = [variant for variant, fits_shape in fitting.items() if fits_shape]
    names = [fmt, *([STAND_IN_EXPERTS[fmt]] if fmt in STAND_IN_EXPERTS else [])]
    kernels = [(measured, variant) for measured in names for variant in variants]
    if (fits.library, fits.relative.name, fmt) in UNTUNED_EXPERTS:
        if parallel and (whole := whole_experts(fits, shape=shape, fmt=fmt)) is not None:
            return whole
        kernels.insert(0, (STAND_IN_EXPERTS[fmt], ""))
    tried = (format_choice.find(fits, family="moe", fmt=measured, variant=variant) for measured, variant in kernels)
    return next((found for found in tried if found is not None), None)


def whole_experts(fits: FitSet, *, shape: MoeShape, fmt: str) -> tuple[FitSet, KernelFit] | None:
    """The tuned kernel of whole experts, where the fits of ``fmt`` are of one that nobody tuned and it takes parts as
    narrow as these; else None."""
    if (fits.library, fits.relative.name, fmt) not in UNTUNED_EXPERTS:
        return None
    found = format_choice.find(fits, family="moe", fmt=STAND_IN_EXPERTS[fmt], variant=EXPERT_PARALLEL)
    return found if found and shape.intermediate_size >= found[1].box["intermediate_size"][0] else None


def narrowed_format(format: MatmulFormat, *, kernel: str) -> MatmulFormat:
    """``format`` as an expert kernel multiplies it."""
    if kernel not in NARROWED:
        return format
    bits, math = NARROWED[kernel]
    return replace(format, name=kernel, activation_bits=bits, math=math, quantises_activations=False, passes=None)


def expert_pass_shape(shape: MoeShape, passes: ActivationPasses) -> ElementwiseShape:
    """The passes around both grouped products: over each token once before the first, else over the rows of every
    (token, expert) pair of the device."""
    pairs = np.asarray(shape.local_assignments, dtype=np.float64)
    inputs = np.minimum(shape.tokens, pairs) * shape.hidden_size + pairs * shape.intermediate_size
    outputs = pairs * (shape.hidden_size + shape.intermediate_size * (2.0 if shape.gated else 1.0))
    moved = inputs * passes.input_bytes + outputs * passes.output_bytes
    return ElementwiseShape(bytes=moved, launches=2.0 * passes.launches)


def derived_experts(shape: MoeShape, *, hardware: AcceleratorSpec, library: str, plain: FitSet | None) -> Timing | None:
    """Price of routed experts without measurements of their format from the 16-bit experts, or None. Leaves out the
    16-bit product over outlier columns."""
    found = find_experts(plain, shape=shape, fmt=Dtype.BF16.value)
    family = format_choice.format_family(shape.format, library=found[0].library if found else library)
    if family is None or found is None:
        return None
    fits, fit = found

    def price(fit: KernelFit, lattice: Lattice | None) -> Timing:
        dequantise_s = format_choice.dequantise_seconds(shape.format, family=family, hardware=hardware, fit=fit)
        timing = moe_timing(
            shape,
            hardware=hardware,
            fit=format_choice.with_family(fit, family),
            lattice=lattice,
            machine=format_choice.derived_machine(hardware, shape.format, family),
            dequantise_s=dequantise_s,
        )
        load, matrices = expert_load(shape), 3.0 if shape.gated else 2.0
        if np.min(load.tokens) > family.vector_rows:
            return timing
        few = matrix_vector_terms(
            load.reached * load.hidden_size * load.intermediate_size * matrices,
            load.rows_per_expert,
            bits=shape.format.weight_bits,
            moved_bytes=ELEMENT_BYTES * load.local_assignments * (load.hidden_size + load.intermediate_size) * matrices,
            widen_s=dequantise_s / hardware.parallel_units,
            hardware=hardware,
            parameters=fit.parameters,
        )
        faster = (load.tokens <= family.vector_rows) & (few.seconds < timing.seconds)
        return replace(timing, **{part: np.where(faster, getattr(few, part), getattr(timing, part)) for part in PARTS})

    timing = fits.priced(fit, price)
    known = Provenance.EXTRAPOLATED if family.known_as == "fitted" else Provenance.ASSUMED
    return replace(
        timing,
        log_sigma=np.hypot(timing.log_sigma, family.log_sigma),
        provenance=np.maximum(timing.provenance, float(known)),
    )


def experts_timing(
    shape: MoeShape,
    *,
    hardware: AcceleratorSpec,
    library: str,
    traits: EngineTraits,
    tables: FitSet | None,
    memory_pass: Callable[[ElementwiseShape], Timing],
) -> Timing | None:
    """Price of a routed layer on one device, or None where nobody measured its kernels and nothing tells how they
    follow from others.

    Parameters
    ----------
    library : kernels of which engine; traits : of the engine's release
    tables : fits of experts on this accelerator or its relative; memory_pass : prices a pass bound by memory
    """
    name = shape.format.name
    spread = shape.local_experts < shape.num_experts
    recipe = traits.kernel_of(name, family="moe", exchanged=shape.exchanged, spread=spread)
    if recipe is not None and not shape.format.kernel:
        narrowed = replace(shape, format=narrowed_format(shape.format, kernel=recipe.kernel.kernel))
        named = _of_recipe(recipe, shape=narrowed, hardware=hardware)
        filled = recipe.filled(narrowed)
        timing = _measured(filled, *named, hardware=hardware) if named is not None else None
        if named is None and filled != shape:
            own = replace(traits, replaced=())
            timing = experts_timing(
                filled, hardware=hardware, library=library, traits=own, tables=tables, memory_pass=memory_pass
            )
        if timing is not None:
            if filled.hidden_size == shape.hidden_size:
                return timing
            return with_passes(timing, memory_pass(filling_passes(shape, filled=filled)))
    across = shape.exchanged and shape.num_experts > shape.local_experts * hardware.scale_up.domain_size
    found = find_experts(tables, shape=shape, fmt=name, across=across)
    if found is not None and format_choice.runs_measured_kernel(shape.format, library=found[0].library):
        timing, contained = _measured(shape, *found, hardware=hardware), found[1].includes_quantisation
        if not spread and (whole := whole_experts(found[0], shape=shape, fmt=name)) is not None:
            timing = format_choice.faster(timing, _measured(shape, *whole, hardware=hardware))
        if (wide := format_choice.wide_rival(shape, hardware=hardware, fits=found[0], fit=found[1])) is not None:
            plain = find_experts(tables, shape=wide, fmt=wide.format.name, across=across)
            timing = format_choice.faster(timing, _measured(wide, *plain, hardware=hardware) if plain else None)
    else:
        derived = derived_experts(shape, hardware=hardware, library=library, plain=tables)
        if derived is None:
            return None
        timing, contained = derived, False
    passes = passes_of(shape.format, contained=contained)
    timing = timing if passes is None else with_passes(timing, memory_pass(expert_pass_shape(shape, passes)))
    peer = format_choice.peer_of(shape, hardware=hardware) if found is None else None
    if peer is None or find_experts(tables, shape=peer, fmt=peer.format.name) is None:
        return timing
    alike = experts_timing(
        peer, hardware=hardware, library=library, traits=traits, tables=tables, memory_pass=memory_pass
    )
    return timing if alike is None else format_choice.no_faster_than(alike, timing)


def _of_recipe(recipe: RecipeFits, *, shape: MoeShape, hardware: AcceleratorSpec) -> tuple[FitSet, KernelFit] | None:
    """The set and its fit for the kernel that a recipe names; where its table lacks that, the nearest's of one
    generation that has it."""
    kernel, lacking = recipe.kernel, list[str]()
    fits: FitSet | None = recipe.fits
    while fits is not None and fits.library == recipe.fits.library:
        if lacking and not fits.relative.same_generation:
            return None
        if (found := find_experts(fits, shape=shape, fmt=kernel.kernel)) is not None:
            return found
        lacking.append(fits.relative.name)
        fits = fit_set(hardware, library=kernel.library, group="moe", profiles=fits.profiles, lacking=tuple(lacking))
    return None


def _measured(shape: MoeShape, fits: FitSet, fit: KernelFit, *, hardware: AcceleratorSpec) -> Timing:
    return fits.priced(fit, lambda fit, lattice: moe_timing(shape, hardware=hardware, fit=fit, lattice=lattice))
