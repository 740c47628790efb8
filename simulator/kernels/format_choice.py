"""Which fit prices a product or experts in a format: measured kernels of it, or the 16-bit ones of the device."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from simulator.errors import RoofcastError, did_you_mean
from simulator.kernels.derived_gemm import dequantise_seconds, derived_gemm_timing, derived_machine, with_family
from simulator.kernels.fits import FitSet, fit_set
from simulator.kernels.moe import EXPERT_PARALLEL, NOT_GATED_EXPERTS, moe_timing
from simulator.kernels.timing import Provenance, Timing, chosen
from simulator.operators.step_shape import Array
from simulator.operators.work import ActivationPasses, ElementwiseShape, GemmShape, MatmulFormat, MoeShape
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit
from simulator.specs.hardware.format_kernels import FormatKernelSpec, load_format_kernels
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

# fp16 runs on the same units at the same rate as bf16 and moves the same bytes. The matrix units multiply both 4-bit
# formats at one rate, Marlin widens both alike, and CUTLASS runs microscaled 8-bit products as other block-scaled ones.
SAME_KERNELS = {"fp16": "bf16", "mxfp4_w4a4": "nvfp4", "nvfp4_w4a16": "mxfp4", "mxfp8": "fp8_block"}
# Every library multiplies these with the same kernels (CUTLASS; DeepGEMM), so that one's table serves all, on the
# accelerator that was measured.
SHARED_PRODUCTS = {"int8": "trtllm", "fp8_block": "sglang"}
# Per-tensor and per-token FP8 experts run the grouped kernels of block-scaled ones where theirs were not measured.
STAND_IN_EXPERTS = {"fp8": "fp8_block"}
# vLLM's table of Hopper ran FlashInfer's kernel for per-tensor FP8 untuned: slower than 16-bit experts at any small
# batch. Tuned, the same kernel stands in the table of block-scaled experts that are spread over ranks.
UNTUNED_EXPERTS = {("vllm", "h100-sxm-80gb", "fp8"), ("vllm", "h200-sxm-141gb", "fp8")}
WIDE_BYTES = 2.0
# Weights and activations of the same widths: what a library reaches with the measured one, it is not known to exceed
# with the other.
SAME_WIDTHS = {"int8": Dtype.FP8, "fp8": Dtype.INT8}
Multiplied = TypeVar("Multiplied", GemmShape, MoeShape)


def find(fits: FitSet | None, *, family: str, fmt: str, variant: str = "") -> tuple[FitSet, KernelFit] | None:
    """The set and its fit for a family, format and variant, if any: its own before that of the same kernels."""
    if fits is None:
        return None
    tried = (fits.find(family=family, fmt=name, variant=variant) for name in (fmt, SAME_KERNELS.get(fmt, fmt)))
    return next(((fits, fit) for fit in tried if fit is not None), None)


def find_experts(fits: FitSet | None, *, shape: MoeShape, fmt: str) -> tuple[FitSet, KernelFit] | None:
    """The set and its fit for experts in ``fmt``: of the kernel that such a layer runs, where several were measured."""
    if fits is None:
        return None
    # Without a gate comes first: libraries that run it on a kernel of its own do so on every rank.
    parallel = shape.local_experts < shape.num_experts
    variants = [*([] if shape.gated else [NOT_GATED_EXPERTS]), *([EXPERT_PARALLEL] if parallel else []), ""]
    names = [fmt, *([STAND_IN_EXPERTS[fmt]] if fmt in STAND_IN_EXPERTS else [])]
    kernels = [(measured, variant) for measured in names for variant in variants]
    if (fits.library, fits.relative.name, fmt) in UNTUNED_EXPERTS:
        kernels.insert(0, (STAND_IN_EXPERTS[fmt], EXPERT_PARALLEL))
    tried = (find(fits, family="moe", fmt=measured, variant=variant) for measured, variant in kernels)
    return next((found for found in tried if found is not None), None)


def shared_products(hardware: AcceleratorSpec, *, profiles: str | None) -> tuple[tuple[str, FitSet], ...]:
    """Tables of the shared products that were measured on this very accelerator: (format, fits)."""
    named = (
        (name, fit_set(hardware, library=library, group="gemm", profiles=profiles))
        for name, library in SHARED_PRODUCTS.items()
    )
    return tuple((name, fits) for name, fits in named if fits is not None and fits.relative.name == hardware.name)


def format_family(format: MatmulFormat, *, library: str) -> FormatKernelSpec | None:
    """Implementation family of a format under a kernel library: the one it names, else the library's own."""
    table = load_format_kernels()
    if not format.kernel:
        return table.default(library=library, fmt=format.name)
    family = table.family(format.kernel)
    if format.name not in family.formats:
        raise RoofcastError(
            f"{format.kernel} kernels do not multiply {format.name}; they take {', '.join(family.formats)}",
            field="precision.kernel",
            code="contradiction",
            hint=did_you_mean(format.name, table.families_for(format.name)) if table.families_for(format.name) else "",
        )
    return family


def runs_measured_kernel(format: MatmulFormat, *, library: str) -> bool:
    """Whether tables of ``library`` measured the kernel that this format asks for."""
    if not format.kernel:
        return True
    own = load_format_kernels().default(library=library, fmt=format.name)
    return own is not None and own.name == format.kernel


def peer_of(shape: Multiplied, *, hardware: AcceleratorSpec) -> Multiplied | None:
    """The same product in the format of the same widths that the device multiplies at least as fast, or None.

    None for a named kernel too, which has figures of its own.
    """
    format, peaks = shape.format, hardware.peak_flops_per_s
    peer = SAME_WIDTHS.get(format.name)
    if peer is None or format.kernel or peaks.get(peer, 0.0) < peaks.get(format.math, 0.0):
        return None
    return replace(shape, format=replace(format, name=peer.value, math=peer))


def no_faster_than(peer: Timing, derived: Timing) -> Timing:
    """``derived`` where it takes at least as long as ``peer``, whose times stand elsewhere; known as it was."""
    slower = chosen(peer.seconds > derived.seconds, peer, derived)
    return replace(slower, log_sigma=derived.log_sigma, provenance=derived.provenance)


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


def expert_pass_shape(shape: MoeShape, passes: ActivationPasses) -> ElementwiseShape:
    """The passes around both grouped products: over each token once before the first, else over the rows of every
    (token, expert) pair of the device."""
    pairs = np.asarray(shape.local_assignments, dtype=np.float64)
    inputs = np.minimum(shape.tokens, pairs) * shape.hidden_size + pairs * shape.intermediate_size
    outputs = pairs * (shape.hidden_size + shape.intermediate_size * (2.0 if shape.gated else 1.0))
    moved = inputs * passes.input_bytes + outputs * passes.output_bytes
    return ElementwiseShape(bytes=moved, launches=2.0 * passes.launches)


def with_passes(timing: Timing, passes: Timing) -> Timing:
    """A product and the passes around it, one after the other."""
    return replace(
        timing,
        seconds=timing.seconds + passes.seconds,
        memory_s=timing.memory_s + passes.memory_s,
        provenance=np.maximum(timing.provenance, passes.provenance),
    )


def derived_product(
    shape: GemmShape, *, hardware: AcceleratorSpec, library: str, plain: FitSet | None
) -> Timing | None:
    """Price of a product without measurements from the 16-bit fit, or None where no kernel family is known for it."""
    family = format_family(shape.format, library=library)
    found = find(plain, family="gemm", fmt=Dtype.BF16.value)
    if family is None or found is None:
        return None
    fits, fit = found
    timing = derived_gemm_timing(shape, hardware=hardware, fit=fit, lattice=fits.lattice(fit), family=family)
    return fits.transferred(timing)


def derived_experts(shape: MoeShape, *, hardware: AcceleratorSpec, library: str, plain: FitSet | None) -> Timing | None:
    """Price of routed experts without measurements of their format from the 16-bit experts, or None.

    Leaves out the 16-bit product over outlier columns.
    """
    found = find_experts(plain, shape=shape, fmt=Dtype.BF16.value)
    family = format_family(shape.format, library=found[0].library if found else library)
    if family is None or found is None:
        return None
    fits, fit = found
    timing = moe_timing(
        shape,
        hardware=hardware,
        fit=with_family(fit, family),
        lattice=fits.lattice(fit),
        machine=derived_machine(hardware, shape.format),
        dequantise_s=dequantise_seconds(shape.format, family=family, hardware=hardware, fit=fit),
    )
    known = Provenance.EXTRAPOLATED if family.known_as == "fitted" else Provenance.ASSUMED
    timing = replace(
        timing,
        log_sigma=np.hypot(timing.log_sigma, family.log_sigma),
        provenance=np.maximum(timing.provenance, float(known)),
    )
    return fits.transferred(timing)
