"""Which fit prices a product in a format: measured kernels of it, or the 16-bit ones of the device.

Formats without measurements on a device are derived from its 16-bit product: bytes, rate, extra work. A weight-only
kernel streams narrow weights and widens each of them once per tile row that reads it [Frantar2024]; an 8-bit kernel
multiplies at the 8-bit rate and has to quantise its input first [Xiao2022]; a 2:4 kernel streams the kept half with its
indices and multiplies at the sparse rate [Mishra2021]. What differs between implementations is a handful of named
parameters (specs/model/precision), fitted on few published rows or measured kernels and tested on others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from simulator.errors import ProfileError, contradiction, did_you_mean
from simulator.kernels.engine_traits import WIDE_BYTES
from simulator.kernels.fits import FitSet, fit_set
from simulator.kernels.gemm import GemmMachine, gemm_machine, gemm_seconds, gemm_timing
from simulator.kernels.timing import (
    FLOPS_PER_INSTRUCTION,
    Lattice,
    Provenance,
    Terms,
    Timing,
    chosen,
    corrected_timing,
    log2_coordinates,
    matrix_vector_terms,
)
from simulator.operators.work import GemmShape, MatmulFormat, MoeShape
from simulator.specs.engine.releases import SplitProducts
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit
from simulator.specs.model.precision import BITS, Dtype, FormatKernelSpec, IntegerBlocks, load_format_kernels
from simulator.units import BITS_PER_BYTE

SPARSE_ON_TENSOR_CORES = (2, 4)
"""The pattern that sparse matrix units take [Mishra2021]."""


def derived_machine(hardware: AcceleratorSpec, format: MatmulFormat, family: FormatKernelSpec) -> GemmMachine:
    """Facts for the rate that applies: the sparse peak for 2:4 weights, that of blocks in integers where the family has
    them on the device, the dense one otherwise."""
    if format.sparsity != SPARSE_ON_TENSOR_CORES:
        blocks = multiplied_blocks(family, hardware)
        if blocks is None:
            return gemm_machine(hardware, format)
        machine = gemm_machine(hardware, replace(format, math=Dtype.INT8))
        return replace(machine, peak_flops_per_s=block_flops_per_s(blocks, hardware=hardware))
    peak = hardware.sparse_peak_flops_per_s.get(format.math)
    if peak is None:
        raise ProfileError(
            f"{hardware.name} has no 2:4 rate for {format.math.value}",
            field="techniques.sparsity",
            code="unsupported_option",
            hint="have: " + (", ".join(sorted(hardware.sparse_peak_flops_per_s)) or "none"),
        )
    dense = gemm_machine(hardware, format)
    faster = peak / hardware.peak_flops_per_s[format.math]
    # A cap is of the units, so that it cuts the sparse rate as it cuts the dense one.
    return replace(
        dense, peak_flops_per_s=faster * dense.peak_flops_per_s, cap_flops_per_s=faster * dense.cap_flops_per_s
    )


def multiplied_blocks(family: FormatKernelSpec, hardware: AcceleratorSpec) -> IntegerBlocks | None:
    """How the family multiplies blocks as integers on ``hardware``, or None where it does not."""
    blocks = family.integer_blocks
    runs = (
        blocks is not None and hardware.architecture in blocks.rate_shares and Dtype.INT8 in hardware.peak_flops_per_s
    )
    return blocks if runs else None


def block_flops_per_s(blocks: IntegerBlocks, *, hardware: AcceleratorSpec) -> float:
    """Most FLOPs a second of products whose sums over blocks are converted to floats and scaled one by one [FLOP/s].

    Equation
    --------
    1 / F = 1 / (s P) + (1 / (c u f) + o / V) / (2 b)

    Parameters
    ----------
    blocks : share s of the 8-bit peak, c conversions a clock and unit, o instructions to scale a sum, b elements each
    hardware : 8-bit peak P [FLOP/s], units u [-], clock f [Hz], vector rate V in instructions [1/s]

    Range of validity
    -----------------
    A warp waits for its own sums, so that the parts add up. Leaves out that other warps fill a part of the wait, and
    second sums of formats with a minimum per block.

    References
    ----------
    [Williams2009], [Luo2024]

    Examples
    --------
    Blocks of 32: each sum takes 1 / 8e12 s to convert and 2 / 32e12 s to scale, 64 FLOPs 64 / 600e12 s to multiply.

    >>> from types import SimpleNamespace as Record
    >>> blocks = Record(elements=32, scale_ops=2.0, converted_per_clock=16.0, rate_shares={"x": 1.0})
    >>> chip = Record(architecture="x", peak_flops_per_s={Dtype.INT8: 600e12}, compute_units=500, boost_clock_hz=1e9,
    ...     vector_flops_per_s={Dtype.FP32: 64e12})
    >>> round(block_flops_per_s(blocks, hardware=chip) / 1e12)
    218
    """
    multiplied_s = 1.0 / (blocks.rate_shares[hardware.architecture] * hardware.peak_flops_per_s[Dtype.INT8])
    converted_s = 1.0 / (blocks.converted_per_clock * hardware.compute_units * hardware.boost_clock_hz)
    scaled_s = blocks.scale_ops * FLOPS_PER_INSTRUCTION / hardware.vector_flops_per_s[Dtype.FP32]
    return 1.0 / (multiplied_s + (converted_s + scaled_s) / (FLOPS_PER_INSTRUCTION * blocks.elements))


def dequantise_seconds(
    format: MatmulFormat, *, family: FormatKernelSpec, hardware: AcceleratorSpec, fit: KernelFit
) -> float:
    """Time that one compute unit spends on widening one weight [s].

    Equation
    --------
    t = u (instructions / V + lookup bytes / feed rate)

    Parameters
    ----------
    format : lookup_bytes gathered per weight from tables too large for a unit's own memory [bytes]
    family : dequantise_ops, instructions per weight [-]
    hardware : compute units u [-], vector rate V in instructions [1/s], memory bandwidth [bytes/s]
    fit : of the 16-bit product; its unit bandwidth is the feed rate [bytes/s]

    Range of validity
    -----------------
    Weight-only formats. Leaves out that lookups of neighbours may meet in one cache line.

    References
    ----------
    [Frantar2024]

    Examples
    --------
    Four instructions a weight on one of 100 units that reach 1e12 a second together.

    >>> from types import SimpleNamespace as Record
    >>> chip = Record(vector_flops_per_s={Dtype.FP32: 2e12}, memory_bytes_per_s=1e12, parallel_units=100)
    >>> fit = Record(parameters={"unit_bandwidth": 1.0, "memory_fraction": 1.0})
    >>> four = Record(dequantise_ops=4.0)
    >>> dequantise_seconds(Record(lookup_bytes=0.0), family=four, hardware=chip, fit=fit)
    4e-10
    """
    instructions_per_s = hardware.vector_flops_per_s[Dtype.FP32] / FLOPS_PER_INSTRUCTION
    p = fit.parameters
    feed_bytes_per_s = p["unit_bandwidth"] * p["memory_fraction"] * hardware.memory_bytes_per_s
    each = family.dequantise_ops / instructions_per_s + format.lookup_bytes / feed_bytes_per_s
    return each * hardware.parallel_units


def with_family(fit: KernelFit, family: FormatKernelSpec) -> KernelFit:
    """The 16-bit fit with the family's shares of its rates and its further fixed time."""
    p = fit.parameters
    return fit.model_copy(
        update={
            "parameters": {
                **p,
                "memory_fraction": min(1.0, p["memory_fraction"] * family.memory_share),
                "compute_fraction": p["compute_fraction"] * family.compute_share,
                "launch_s": p["launch_s"] + family.launch_s,
            }
        }
    )


def derived_gemm_timing(
    shape: GemmShape, *, hardware: AcceleratorSpec, fit: KernelFit, lattice: Lattice | None, family: FormatKernelSpec
) -> Timing:
    """Price one product in a format without measurements from the 16-bit ``fit``, vectorised over ``shape.m``.

    Up to ``family.fused_rows`` tokens the fused kernel runs; above, the weights are written out in 16 bit and the
    16-bit product follows. Weight-only products save the stream of what they do not read, and nothing else. The passes
    around the product are priced apart. The spread is that of the fit and of the family in quadrature.
    """
    m = np.atleast_1d(np.asarray(shape.m, dtype=np.float64))
    terms = _fused(shape, hardware=hardware, fit=fit, family=family)
    above = m > family.fused_rows if family.fused_rows is not None else np.zeros(len(m), dtype=bool)
    if above.any():
        terms = chosen(above, _materialised(shape, hardware=hardware, fit=fit), terms)
    points = log2_coordinates(m, shape.n * shape.batch, shape.k)
    timing = corrected_timing(terms, points, fit=fit, lattice=lattice, axes=("m", "n", "k"))
    known = Provenance.EXTRAPOLATED if family.known_as == "fitted" else Provenance.ASSUMED
    weight_only = family.dequantise_ops and shape.format.activation_bits == PLAIN.activation_bits
    if weight_only and multiplied_blocks(family, hardware) is None:
        wide = replace(shape, format=_wide_format(shape.format, hardware))
        plain = gemm_timing(wide, hardware=hardware, fit=fit, lattice=lattice, cold=True)
        unread_bytes = shape.n * shape.k * shape.batch * (PLAIN.weight_bits - shape.format.weight_bits) / BITS_PER_BYTE
        saved_s = unread_bytes / (fit.parameters["memory_fraction"] * hardware.memory_bytes_per_s)
        timing = replace(timing, seconds=np.maximum(timing.seconds, plain.seconds - saved_s))
    return replace(
        timing,
        log_sigma=np.hypot(timing.log_sigma, family.log_sigma),
        provenance=np.maximum(timing.provenance, float(known)),
    )


def _fused(shape: GemmShape, *, hardware: AcceleratorSpec, fit: KernelFit, family: FormatKernelSpec) -> Terms:
    """The narrow product and, for decomposed formats, of the 16-bit one beside it."""
    product = shape.format
    dequantise_s = dequantise_seconds(product, family=family, hardware=hardware, fit=fit)
    terms = _product(
        replace(shape, k=shape.k * (1.0 - product.outlier_fraction)),
        machine=derived_machine(hardware, product, family),
        parameters=with_family(fit, family).parameters,
        dequantise_s=dequantise_s,
    )
    m = np.atleast_1d(np.asarray(shape.m, dtype=np.float64))
    if np.min(m) <= family.vector_rows:
        few = matrix_vector_terms(
            np.asarray(shape.n * shape.k * shape.batch),
            m,
            bits=product.weight_bits,
            moved_bytes=WIDE_BYTES * m * (shape.n + shape.k) * shape.batch,
            widen_s=dequantise_s / hardware.parallel_units,
            hardware=hardware,
            parameters=with_family(fit, family).parameters,
        )
        terms = chosen((m <= family.vector_rows) & (few.seconds < terms.seconds), few, terms)
    if not product.outlier_fraction:
        return terms
    wide = _widened(shape, hardware=hardware, fit=fit, depth=product.outlier_fraction)
    return Terms(
        seconds=terms.seconds + wide.seconds,
        compute_s=terms.compute_s + wide.compute_s,
        memory_s=terms.memory_s + wide.memory_s,
    )


def _widened(shape: GemmShape, *, hardware: AcceleratorSpec, fit: KernelFit, depth: float = 1.0) -> Terms:
    """The product over a share ``depth`` of the input columns with weights as wide as its activations."""
    wide = _wide_format(shape.format, hardware)
    part = replace(shape, k=shape.k * depth, format=wide)
    return _product(part, machine=gemm_machine(hardware, wide), parameters=fit.parameters)


def _product(
    shape: GemmShape, *, machine: GemmMachine, parameters: Mapping[str, float], dequantise_s: float = 0.0
) -> Terms:
    return gemm_seconds(
        shape.m,
        shape.n,
        shape.k,
        machine=machine,
        parameters=parameters,
        weight_bytes=shape.format.weight_bits / BITS_PER_BYTE,
        activation_bytes=shape.format.activation_bits / BITS_PER_BYTE,
        batch=shape.batch,
        cold=True,
        dequantise_s=dequantise_s,
    )


def _materialised(shape: GemmShape, *, hardware: AcceleratorSpec, fit: KernelFit) -> Terms:
    """All weights are widened in memory, then multiplied as wide ones."""
    terms = _widened(shape, hardware=hardware, fit=fit)
    wide_bits = _wide_format(shape.format, hardware).weight_bits
    moved = shape.n * shape.k * shape.batch * (shape.format.weight_bits + wide_bits) / BITS_PER_BYTE
    pass_s = moved / (fit.parameters["memory_fraction"] * hardware.memory_bytes_per_s)
    return Terms(
        seconds=terms.seconds + fit.parameters["launch_s"] + pass_s,
        compute_s=terms.compute_s,
        memory_s=terms.memory_s + pass_s,
    )


def _wide_format(format: MatmulFormat, hardware: AcceleratorSpec) -> MatmulFormat:
    """What widened weights are multiplied in: 16 bits on the device's matrix units; FP32 where activations are."""
    math = Dtype.BF16 if Dtype.BF16 in hardware.peak_flops_per_s else Dtype.FP16
    math = format.math if format.math is Dtype.FP32 else math
    return MatmulFormat(name="wide", weight_bits=BITS[math], activation_bits=BITS[math], math=math)


# fp16 runs on the same units at the same rate as bf16 and moves the same bytes. The matrix units multiply both 4-bit
# formats at one rate, Marlin widens both alike, and CUTLASS runs microscaled 8-bit products as other block-scaled ones.
SAME_KERNELS = {"fp16": "bf16", "mxfp4_w4a4": "nvfp4", "nvfp4_w4a16": "mxfp4", "mxfp8": "fp8_block"}
# Every library multiplies these with the same kernels (CUTLASS; DeepGEMM), so that one's table serves all. On relatives
# too: FP8 blocks carried within a generation err by 5.7 % and from another by 18, derived from the own 16-bit fits by
# 23 to 40 (Hopper and Blackwell, `validation.fit.left_out`; to 16 tokens 28 to 52 % too slow).
SHARED_PRODUCTS = {"int8": "trtllm", "fp8_block": "sglang"}
# Weights and activations of the same widths: what a library reaches with the measured one, it is not known to exceed
# with the other.
SAME_WIDTHS = {"int8": Dtype.FP8, "fp8": Dtype.INT8}
Multiplied = TypeVar("Multiplied", GemmShape, MoeShape)
PLAIN = MatmulFormat(name=Dtype.BF16.value, weight_bits=16.0, activation_bits=16.0, math=Dtype.BF16)


def find(fits: FitSet | None, *, family: str, fmt: str, variant: str = "") -> tuple[FitSet, KernelFit] | None:
    """The set and its fit for a family, format and variant, if any: its own before that of the same kernels."""
    if fits is None:
        return None
    tried = (fits.find(family=family, fmt=name, variant=variant) for name in (fmt, SAME_KERNELS.get(fmt, fmt)))
    return next(((fits, fit) for fit in tried if fit is not None), None)


def shared_products(hardware: AcceleratorSpec, *, profiles: str | None) -> tuple[tuple[str, FitSet], ...]:
    """Tables of the shared products, of this accelerator or its relative: (format, fits)."""
    named = (
        (name, fit_set(hardware, library=library, group="gemm", profiles=profiles))
        for name, library in SHARED_PRODUCTS.items()
    )
    return tuple((name, fits) for name, fits in named if fits)


def format_family(format: MatmulFormat, *, library: str) -> FormatKernelSpec | None:
    """Implementation family of a format under a kernel library: the one it names, else the library's own."""
    table = load_format_kernels()
    if not format.kernel:
        return table.default(library=library, fmt=format.name)
    family = table.family(format.kernel)
    if format.name not in family.formats:
        raise contradiction(
            f"{format.kernel} kernels do not multiply {format.name}; they take {', '.join(family.formats)}",
            field="precision.kernel",
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
    """A product in the format of the same widths that the device multiplies at least as fast, or None. None for
    a named kernel too, which has figures of its own."""
    format, peaks = shape.format, hardware.peak_flops_per_s
    peer = SAME_WIDTHS.get(format.name)
    if peer is None or format.kernel or peaks.get(peer, 0.0) < peaks.get(format.math, 0.0):
        return None
    return replace(shape, format=replace(format, name=peer.value, math=peer))


def no_faster_than(peer: Timing, derived: Timing) -> Timing:
    """``derived`` where it takes at least as long as ``peer``, whose times stand elsewhere; known as it was."""
    slower = chosen(peer.seconds > derived.seconds, peer, derived)
    return replace(slower, log_sigma=derived.log_sigma, provenance=derived.provenance)


def wide_rival(shape: Multiplied, *, hardware: AcceleratorSpec, fits: FitSet, fit: KernelFit) -> Multiplied | None:
    """A product in 16 bit, where ``fit`` does not tell which of both is faster: it is carried from another
    generation, or stands in from another format. None where 16-bit numbers multiply faster.

    Block-scaled experts of Blackwell's tables take up to twice the time of 16-bit ones, those of Hopper's four fifths.
    SGLang's on H100 err by 33 % with the fits of B200, by 22 where the faster of both formats counts.
    """
    format, peaks = shape.format, hardware.peak_flops_per_s
    own_kernel = fits.relative.same_generation and fit.format in (format.name, SAME_KERNELS.get(format.name))
    # Turing and Volta multiply no bf16.
    wide = next((dtype for dtype in (Dtype.BF16, Dtype.FP16) if dtype in peaks), None)
    if own_kernel or wide is None or BITS[format.math] >= BITS[wide] or peaks[format.math] < peaks[wide]:
        return None
    return replace(shape, format=replace(PLAIN, name=wide.value, math=wide))


def faster(timing: Timing, rival: Timing | None) -> Timing:
    """Each case by the kernel that takes less."""
    return timing if rival is None else chosen(rival.seconds < timing.seconds, rival, timing)


def on_split_kernels(
    timing: Timing, shape: GemmShape, *, split: SplitProducts | None, product: Callable[[GemmShape], Timing | None]
) -> Timing:
    """``timing``, or that of the 16-bit product of the same sizes where it takes less and the release has kernels for
    such a product that divide the inner size; inferred then."""
    if split is None or shape.format.name not in split.shapes or np.min(shape.m) > split.rows:
        return timing
    wide = product(replace(shape, format=PLAIN))
    if wide is None:
        return timing
    n, k = np.broadcast_arrays(shape.n, shape.k)
    listed = np.isin(n + 1j * k, [outputs + 1j * inputs for outputs, inputs in split.shapes[shape.format.name]])
    takes = listed & (np.asarray(shape.m) <= split.rows) & (wide.seconds < timing.seconds)
    inferred = np.maximum(wide.provenance, int(Provenance.EXTRAPOLATED))
    return chosen(takes, replace(wide, provenance=inferred), timing)


def derived_product(
    shape: GemmShape, *, hardware: AcceleratorSpec, library: str, plain: FitSet | None
) -> Timing | None:
    """Price of a product without measurements from the 16-bit fit, or None where no kernel family is known for it."""
    family = format_family(shape.format, library=library)
    found = find(plain, family="gemm", fmt=Dtype.BF16.value)
    if family is None or found is None:
        return None
    fits, fit = found
    return fits.priced(
        fit, lambda fit, lattice: derived_gemm_timing(shape, hardware=hardware, fit=fit, lattice=lattice, family=family)
    )
