"""Accelerators without kernel tables that reach another share of their peaks than their relative; cache rates."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np

from simulator.kernels.engine_traits import traits_on, with_recipe
from simulator.kernels.library import STAND_IN_FORMAT, KernelLibrary, kernel_library
from simulator.kernels.roofline import ASSUMED_PARAMETERS
from simulator.kernels.timing import Provenance
from simulator.operators.work import Family, GemmShape, MatmulFormat, Work
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.engine.engine import EngineProfile
from simulator.specs.hardware.accelerator import AcceleratorSpec, ServerSpec, load_hardware
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import BITS_PER_BYTE

# The size at which throughput of matrix products is usually published; what it is hardly matters when it is large.
SIDE = 8192.0


def large_product(dtype: Dtype, *, rows: tuple[float, ...] = (SIDE,)) -> Work:
    """Products of SIDE columns and depth, one for each number of rows."""
    m = np.array(rows)
    nothing, elements = np.zeros(len(rows)), np.full(len(rows), SIDE * SIDE)
    stored = MatmulFormat(name=dtype.value, weight_bits=BITS[dtype], activation_bits=BITS[dtype], math=dtype)
    return Work(
        name="large_product",
        family=Family.GEMM,
        role="mlp",
        shape=GemmShape(m=m, n=SIDE, k=SIDE, format=stored),
        flops=2.0 * elements * m,
        weight_bytes=elements * BITS[dtype] / BITS_PER_BYTE,
        kv_bytes=nothing,
        activation_bytes=m * SIDE * (BITS[dtype] / BITS_PER_BYTE + 2),
    )


def sustained_peaks(library: KernelLibrary) -> dict[Dtype, float]:
    """Matrix peaks as large products are published to reach them [FLOP/s].

    A relative's fits carry over how much of its peak a relative's library reaches. Where it is published that this
    accelerator's own reaches less, its peaks are lowered in that ratio, for every kernel; where the fits say that
    something besides arithmetic holds a large product, it stays faster than published. A format of at
    most 16 bits of which nothing is published is lowered like the published one nearest to it in width. Valid for
    large products; small ones are bound by memory and launches, which stay those of the relative.

    Reference: [SemiAnalysis2024]
    """
    hardware = library.hardware
    peaks = dict(hardware.peak_flops_per_s)
    for dtype, reached in hardware.library_flops_per_s.items():
        peaks[dtype] *= min(1.0, reached / _reached(library, dtype))
    for dtype in peaks.keys() - hardware.library_flops_per_s.keys():
        near = _nearest_published(dtype, hardware)
        if near is not None:
            peaks[dtype] *= peaks[near] / hardware.peak_flops_per_s[near]
    return peaks


def _capped(hardware: AcceleratorSpec, lender: AcceleratorSpec) -> dict[Dtype, float]:
    """Formats that a unit of ``lender`` multiplies at least twice as fast beside its vector lanes, and how many times.
    Export rules and product lines cut the matrix rate of a chip and leave its units, caches and clocks as they were.
    Of an unlike lender the formats that it multiplies so much faster beside 16 bits."""
    if (hardware.architecture, hardware.memory_kind[:3]) != (lender.architecture, lender.memory_kind[:3]):
        return _not_doubled(hardware, lender)

    def beside_lanes(spec: AcceleratorSpec, dtype: Dtype) -> float:
        return spec.peak_flops_per_s[dtype] / spec.vector_flops_per_s[Dtype.FP32]

    shared = [dtype for dtype in hardware.peak_flops_per_s.keys() & lender.peak_flops_per_s.keys() if BITS[dtype] <= 16]
    times = {dtype: beside_lanes(lender, dtype) / beside_lanes(hardware, dtype) for dtype in shared}
    return {dtype: ratio for dtype, ratio in times.items() if round(ratio) >= 2}


def _not_doubled(hardware: AcceleratorSpec, lender: AcceleratorSpec) -> dict[Dtype, float]:
    """Formats of 8 bits that ``lender`` multiplies at least twice as fast beside 16 bits, and how many times. A chip
    that multiplies both at one rate feeds its units with half the bytes, as the lender's do."""
    times = {}
    for dtype in (Dtype.FP8, Dtype.INT8):
        if all({dtype, Dtype.BF16} <= spec.peak_flops_per_s.keys() for spec in (hardware, lender)):
            beside = [spec.peak_flops_per_s[dtype] / spec.peak_flops_per_s[Dtype.BF16] for spec in (lender, hardware)]
            if beside[1] >= 1 and round(beside[0] / beside[1]) >= 2:
                times[dtype] = beside[0] / beside[1]
    return times


def uncapped_peaks(library: KernelLibrary) -> dict[Dtype, float]:
    """What the units of a capped chip would multiply, by format that is capped [FLOP/s].

    What holds a full chip below its peak (feeding its units, power, small tiles, what lies between the products of
    attention) takes a capped one as long, and its matrix units multiply no faster than their cap.
    """
    peaks, ratios = library.hardware.peak_flops_per_s, _capped(library.hardware, _lender(library))
    return {dtype: ratio * peaks[dtype] for dtype, ratio in ratios.items()}


def _lender(library: KernelLibrary) -> AcceleratorSpec:
    """Whose fits of products the library has."""
    fits = library.gemm or library.roofline
    return load_hardware(fits.relative.name, profiles=library.roofline.profiles)


def _nearest_published(dtype: Dtype, hardware: AcceleratorSpec) -> Dtype | None:
    """The published format nearest in width to a format that matrix units multiply; of two as near, the narrower."""
    if BITS[dtype] > BITS[Dtype.BF16]:
        return None
    order = sorted(hardware.library_flops_per_s, key=lambda item: (abs(BITS[item] - BITS[dtype]), BITS[item]))
    return order[0] if order else None


def _reached(library: KernelLibrary, dtype: Dtype) -> float:
    """Rate of a large product under the fits that the library has [FLOP/s]."""
    work = large_product(dtype)
    return float(work.flops[0] / library.price(work).seconds[0])


@lru_cache(maxsize=64)
def _at_sustained_peaks(facts: Same[AcceleratorSpec], library: str, profiles: str | None) -> AcceleratorSpec:
    hardware = facts.held
    kernels = kernel_library(hardware, library=library, profiles=profiles)
    if not hardware.library_flops_per_s:
        uncapped = uncapped_peaks(kernels)
        return hardware.model_copy(update={"uncapped_flops_per_s": uncapped}) if uncapped else hardware
    peaks = sustained_peaks(kernels)
    # Sparse products skip half of the same work on the same units.
    sparse = {
        dtype: peak * peaks[dtype] / hardware.peak_flops_per_s[dtype]
        for dtype, peak in hardware.sparse_peak_flops_per_s.items()
    }
    return hardware.model_copy(update={"peak_flops_per_s": peaks, "sparse_peak_flops_per_s": sparse})


@lru_cache(maxsize=64)
def _with_memory_rate(facts: Same[AcceleratorSpec], relative: str, profiles: str | None) -> AcceleratorSpec:
    """The memory rate at which the relative's share of its own is this accelerator's share: check bits are no data."""
    hardware = facts.held
    ratio = hardware.memory_data_share / load_hardware(relative, profiles=profiles).memory_data_share
    if ratio == 1.0:
        return hardware
    return hardware.model_copy(update={"memory_bytes_per_s": ratio * hardware.memory_bytes_per_s})


def with_sustained_rates(library: KernelLibrary) -> KernelLibrary:
    """``library`` with what the accelerator's own matrix library and memory reach, unless its user measured that."""
    if library.measured is not None:
        return library
    profiles = library.roofline.profiles
    hardware = _at_sustained_peaks(Same(library.hardware), library.library, profiles)
    hardware = _with_memory_rate(Same(hardware), _lender(library).name, profiles)
    return library if hardware is library.hardware else replace(library, hardware=hardware)


@lru_cache(maxsize=256)
def engine_kernels(
    profile: Same[EngineProfile],
    facts: Same[AcceleratorSpec],
    server: Same[ServerSpec | None],
    profiles: str | None,
    changed_ns: tuple[int, ...],
) -> KernelLibrary:
    """The kernels of an engine on an accelerator; chosen again when calibrations come or go (``changed_ns``)."""
    engine, hardware = profile.held, facts.held
    library = kernel_library(hardware, library=engine.kernel_library, server=server.held, profiles=profiles)
    traits = with_recipe(traits_on(engine, hardware), engine.recipe, hardware=hardware, profiles=profiles)
    return replace(with_sustained_rates(library), traits=traits)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRate:
    """Rate of passes whose operands stay in the last-level cache [B/s], and how it is known."""

    bytes_per_s: float
    provenance: Provenance


def cache_rate(library: KernelLibrary) -> CacheRate:
    """The fitted rate of memory passes that stay in the cache: datasheets do not state one.

    It is what measured passes reach, not a limit of the hardware; where nothing is calibrated, the medians of the
    fits on other accelerators.

    Reference: [AIC2026]
    """
    fits = library.elementwise
    fit = fits.find(family="elementwise", fmt=STAND_IN_FORMAT, variant="pass") if fits else None
    parameters = ASSUMED_PARAMETERS if fit is None else fit.parameters
    provenance = Provenance.ASSUMED if fit is None else Provenance.CALIBRATED
    if fits is not None:
        provenance = max(provenance, fits.relative.known)
    reached = parameters["l2_speedup"] * parameters["memory_fraction"]
    return CacheRate(bytes_per_s=reached * library.hardware.memory_bytes_per_s, provenance=provenance)
