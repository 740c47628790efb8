"""The roofline: as a floor, as the first estimate of any kernel, and what an operator's time waits for; passes that
memory alone bounds (norms, activations, rotary, residuals, gathers, copies, copies from the host)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.timing import Provenance, Timing
from simulator.kernels.transfer import Relative
from simulator.operators.work import (
    Array,
    AttentionShape,
    CollectiveShape,
    ElementwiseShape,
    GemmShape,
    GroupedGemmShape,
    HostTransferShape,
    MoeShape,
    Work,
)
from simulator.records import dataclass
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit
from simulator.specs.model.precision import BITS, Dtype
from simulator.units import MICRO


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineParameters:
    """The three parameters of a kernel family on one accelerator, and how far to trust them.

    launch_s : fixed time of a launch [s]
    compute_fraction, memory_fraction : reached share of the dense peak and of the datasheet bandwidth
    log_sigma : standard deviation of log(measured / predicted)
    """

    launch_s: float
    compute_fraction: float
    memory_fraction: float
    log_sigma: float
    provenance: Provenance


FLOOR = RooflineParameters(
    launch_s=0.0, compute_fraction=1.0, memory_fraction=1.0, log_sigma=0.0, provenance=Provenance.ASSUMED
)


def math_dtype(work: Work) -> Dtype | None:
    """The number format whose peak multiplies this work; None for passes without matrix products."""
    match work.shape:
        case GemmShape(format=fmt) | GroupedGemmShape(format=fmt) | MoeShape(format=fmt):
            return fmt.math
        case AttentionShape(compute_dtype=dtype):
            return dtype
        case _:
            return None


def peak_flops_per_s(work: Work, hardware: AcceleratorSpec) -> float:
    """Dense peak that applies to ``work`` [FLOP/s]; vector peak for work outside the matrix units."""
    dtype = math_dtype(work)
    if dtype is not None and dtype in hardware.peak_flops_per_s:
        return hardware.peak_flops_per_s[dtype]
    return hardware.vector_flops_per_s[Dtype.FP32]


def roofline_timing(work: Work, *, hardware: AcceleratorSpec, parameters: RooflineParameters) -> Timing:
    """Time of one execution under a roofline with three parameters [s].

    Equation
    --------
    t = t0 + max(F / (ec P), B / (em W))

    Parameters
    ----------
    work : FLOPs F [FLOP] and bytes B read and written [bytes] of one execution on one device
    hardware : dense peak P of the work's number format [FLOP/s] and memory bandwidth W [bytes/s]
    parameters : launch time t0 [s], reached shares ec of the peak and em of the bandwidth [-]

    Range of validity
    -----------------
    Kernels large enough to fill the device; work without bytes and FLOPs takes no time. Leaves out the rounding to
    whole tiles and waves, so that it misses real kernels by 12 to 40 %.

    References
    ----------
    [Williams2009]

    Examples
    --------
    An H100: 66.9 TFLOPs at half of its vector peak, 3.35 TB at its bandwidth.

    >>> from types import SimpleNamespace as Record
    >>> from simulator import load_hardware
    >>> half = Record(launch_s=0.5, compute_fraction=0.5, memory_fraction=1.0, log_sigma=0.0, provenance=1)
    >>> work = Record(shape=None, flops=np.array([66.9e12]), bytes=np.array([3.35e12]))
    >>> float(roofline_timing(work, hardware=load_hardware("h100"), parameters=half).seconds[0])
    2.5
    """
    if isinstance(work.shape, CollectiveShape):
        raise TypeError("a collective is priced by the network model")
    compute_s = work.flops / (parameters.compute_fraction * peak_flops_per_s(work, hardware))
    memory_s = work.bytes / (parameters.memory_fraction * hardware.memory_bytes_per_s)
    body_s = np.maximum(compute_s, memory_s)
    seconds = np.where(body_s > 0, parameters.launch_s + body_s, 0.0)
    return Timing(
        seconds=seconds,
        compute_s=compute_s,
        tensor_s=compute_s * parameters.compute_fraction,
        memory_s=memory_s,
        network_s=np.zeros_like(seconds),
        log_sigma=np.full_like(seconds, parameters.log_sigma),
        provenance=np.full_like(seconds, float(parameters.provenance)),
    )


def fitted_timing(
    work: Work,
    *,
    hardware: AcceleratorSpec,
    fit: KernelFit,
    provenance: Provenance = Provenance.CALIBRATED,
    log_sigma_extra: float = 0.0,
) -> Timing:
    """``roofline_timing`` with the three parameters of a fit; ``log_sigma_extra`` widens its spread in quadrature."""
    parameters = RooflineParameters(
        launch_s=fit.parameters["launch_s"],
        compute_fraction=fit.parameters["compute_fraction"],
        memory_fraction=fit.parameters["memory_fraction"],
        log_sigma=float(np.hypot(fit.error.log_sigma, log_sigma_extra)),
        provenance=provenance,
    )
    return roofline_timing(work, hardware=hardware, parameters=parameters)


def user_timing(work: Work, *, hardware: AcceleratorSpec, fit: KernelFit) -> Timing:
    """Time by the user's own fit: measured inside the sizes that were measured, calibrated beyond them."""
    timing = fitted_timing(work, hardware=hardware, fit=fit)
    low, high = fit.box.get("bytes", (np.inf, -np.inf))
    inside = (work.bytes >= low) & (work.bytes <= high)
    return replace(timing, provenance=np.where(inside, Provenance.MEASURED, timing.provenance).astype(np.float64))


def floor_seconds(work: Work, *, hardware: AcceleratorSpec) -> Array:
    """`roofline_timing` at the datasheet's rates: no kernel is faster while its operands come from memory [s]. Leaves
    out launches and L2 hits."""
    return roofline_timing(work, hardware=hardware, parameters=FLOOR).seconds


def ridge_point(hardware: AcceleratorSpec, *, dtype: Dtype) -> float:
    """Arithmetic intensity at which compute and memory time are equal [FLOP/byte].

    Equation
    --------
    I = P / W

    Parameters
    ----------
    hardware : dense peak P of the number format [FLOP/s], memory bandwidth W [bytes/s]
    dtype : number format of the matrix product

    Range of validity
    -----------------
    Formats that the hardware multiplies. Leaves out the shares of both rates that kernels reach: they turn later.

    References
    ----------
    [Williams2009]

    Examples
    --------
    An H100 SXM: 989.4 TFLOP/s in bf16 over 3.35 TB/s.

    >>> from simulator import load_hardware
    >>> round(ridge_point(load_hardware("h100"), dtype=Dtype.BF16))
    295
    """
    return hardware.peak_flops_per_s[dtype] / hardware.memory_bytes_per_s


MEMORY, TENSOR_CORE, DEQUANTISATION, OCCUPANCY, LINK, HOST = BOUNDS = (
    "memory",
    "tensor core",
    "dequantisation",
    "occupancy",
    "link",
    "host",
)

MAIN_SHARE = 0.5
"""A limit of the datasheet that explains at least this share of the time is what the operator waits for."""

LEAST_SHARE = 0.2
"""Below this share of the peak the matrix units are not what is waited for."""


def bound_indices(rows: Sequence[tuple[Work, Timing]], *, hardware: AcceleratorSpec) -> NDArray[np.intp]:
    """Place in BOUNDS of what each case of each operator waits for [rows, cases] [-].

    Equation
    --------
    memory where B / W reaches half of t and F / P less of it; tensor core where F / P does;
    dequantisation where a weight-only product's own work outweighs its traffic; occupancy where neither explains t

    Parameters
    ----------
    rows : FLOPs F [FLOP] and bytes B [bytes] of one execution, and its time t with the parts inside it [s]
    hardware : dense peak P of the format that multiplies [FLOP/s], memory bandwidth W [bytes/s]

    Range of validity
    -----------------
    Datasheet rates. Occupancy stands for launches, waves that leave units idle and latencies that nothing hides. Leaves
    out other kernels at the same time.

    References
    ----------
    [Williams2009]

    Examples
    --------
    3.35 TB on an H100 take 1 s of 1.5; of 10 they explain nothing.

    >>> from types import SimpleNamespace as Record
    >>> from simulator import load_hardware
    >>> work, second = Record(shape=None, flops=np.zeros(2), bytes=np.full(2, 3.35e12)), np.ones(2)
    >>> timing = Record(seconds=np.array([1.5, 10.0]), compute_s=0 * second, memory_s=second)
    >>> [BOUNDS[place] for place in bound_indices([(work, timing)], hardware=load_hardware("h100"))[0]]
    ['memory', 'occupancy']
    """
    seconds = np.maximum([timing.seconds for _, timing in rows], np.finfo(np.float64).tiny)
    compute_s, memory_s, floor_s, product_s = np.empty((4, *seconds.shape))
    for row, (work, timing) in enumerate(rows):
        compute_s[row], memory_s[row] = timing.compute_s, timing.memory_s
        floor_s[row] = work.bytes / hardware.memory_bytes_per_s
        product_s[row] = work.flops / peak_flops_per_s(work, hardware)
    # Data that stays in the L2 moves faster than the memory's datasheet says: no share passes the whole.
    memory, tensor = np.minimum(floor_s / seconds, 1.0), np.minimum(product_s / seconds, 1.0)
    works_longer = compute_s > memory_s
    explained = np.where(works_longer, tensor >= LEAST_SHARE, memory_s >= MAIN_SHARE * seconds)
    longer = np.where(works_longer, BOUNDS.index(TENSOR_CORE), BOUNDS.index(MEMORY))
    widens = np.array([[_widens(work)] for work, _ in rows])
    fallback = np.where(explained, longer, BOUNDS.index(OCCUPANCY))
    fallback = np.where(widens & works_longer & (tensor < MAIN_SHARE), BOUNDS.index(DEQUANTISATION), fallback)
    found: NDArray[np.intp] = np.where(tensor >= MAIN_SHARE, BOUNDS.index(TENSOR_CORE), fallback)
    found = np.where((memory >= MAIN_SHARE) & (memory >= tensor), BOUNDS.index(MEMORY), found)
    found[[isinstance(work.shape, CollectiveShape | HostTransferShape) for work, _ in rows]] = BOUNDS.index(LINK)
    return found


def _widens(work: Work) -> bool:
    """Whether a product widens its weights before it multiplies them."""
    if not isinstance(work.shape, GemmShape | MoeShape):
        return False
    return work.shape.format.weight_bits < BITS[work.shape.format.math]


# Where nothing is calibrated: medians of the fits on eight NVIDIA GPUs (validation/fit/kernels/elementwise.py, vllm
# tables), and the largest error among them for kernels that the fit did not see.
ASSUMED_PARAMETERS: Mapping[str, float] = {
    "launch_s": 2.2 * MICRO,
    "memory_fraction": 0.85,
    "l2_speedup": 1.5,
    "l2_share": 0.9,
    "l2_sharpness": 6.0,
}
ASSUMED_LOG_SIGMA = 0.5
HOST_LINK_LOG_SIGMA = 0.35
"""As of every other price that rests on a datasheet alone (STAND_IN_LOG_SIGMA of the kernel library)."""


def pass_seconds(
    pass_bytes: Array, *, launches: float, parameters: Mapping[str, float], hardware: AcceleratorSpec
) -> Array:
    """Time of kernels that read and write memory and compute next to nothing [s].

    Equation
    --------
    t = n (launch_s + b / rate(b)), b = bytes / n

    Parameters
    ----------
    pass_bytes : bytes that all launches read and write together [bytes]
    launches : kernels n [-]
    parameters : launch_s [s], memory_fraction of the datasheet bandwidth [-], l2_speedup of the cache over it [-],
        l2_share of the L2 around which the rate falls from one to the other [-], l2_sharpness of that fall [-]
    hardware : memory bandwidth [bytes/s] and L2 capacity [bytes]

    Range of validity
    -----------------
    The fit keeps l2_speedup >= 1, so that more bytes never take less time. In a serving step the kernel before has just
    written what a pass reads, as in the measurement loop. Leaves out row shapes: one block a row makes very short and
    very long rows slower.

    References
    ----------
    [Williams2009], [AIC2026]

    Examples
    --------
    Two launches of 1 us and 3.35 GB at 3.35 TB/s.

    >>> from simulator import load_hardware
    >>> fit = {"launch_s": 1e-6, **dict.fromkeys(("memory_fraction", "l2_speedup", "l2_share", "l2_sharpness"), 1.0)}
    >>> round(float(pass_seconds(np.array([3.35e9]), launches=2, parameters=fit, hardware=load_hardware("h100"))[0]), 6)
    0.001002
    """
    each = np.maximum(np.asarray(pass_bytes, dtype=np.float64), 0.0) / launches
    fill = each / (parameters["l2_share"] * hardware.l2_bytes)
    # Far beyond the cache the power has no end, and all of the pass is cold.
    with np.errstate(over="ignore"):
        sharp = fill ** parameters["l2_sharpness"]
    cold = np.where(np.isfinite(sharp), sharp / (1 + np.where(np.isfinite(sharp), sharp, 0.0)), 1.0)
    memory_rate = parameters["memory_fraction"] * hardware.memory_bytes_per_s
    slowness = cold + (1 - cold) / parameters["l2_speedup"]
    return launches * (parameters["launch_s"] + each * slowness / memory_rate)


def elementwise_timing(
    shape: ElementwiseShape, *, hardware: AcceleratorSpec, fit: KernelFit | None, relative: Relative | None = None
) -> Timing:
    """Price of one memory pass [s]; no bytes take no time.

    fit : of family ``elementwise``, or None for the documented assumption
    relative : set where ``fit`` comes from another accelerator

    Reference: [Williams2009], [AIC2026]
    """
    moved = np.atleast_1d(np.asarray(shape.bytes, dtype=np.float64))
    parameters = ASSUMED_PARAMETERS if fit is None else fit.parameters
    seconds = pass_seconds(moved, launches=shape.launches, parameters=parameters, hardware=hardware)
    log_sigma = _log_sigma(moved / shape.launches, fit=fit, l2_bytes=hardware.l2_bytes)
    provenance = Provenance.ASSUMED if fit is None else Provenance.CALIBRATED
    if relative is not None and relative.log_sigma_extra > 0:
        log_sigma = np.hypot(log_sigma, relative.log_sigma_extra)
        provenance = max(provenance, relative.known)
    busy = moved > 0
    zeros = np.zeros_like(moved)
    return Timing(
        seconds=np.where(busy, seconds, 0.0),
        compute_s=zeros,
        memory_s=np.where(busy, moved / hardware.memory_bytes_per_s, 0.0),
        network_s=zeros,
        tensor_s=zeros,
        log_sigma=np.where(busy, log_sigma, 0.0),
        provenance=np.where(busy, float(provenance), float(Provenance.MEASURED)),
    )


def _log_sigma(each: Array, *, fit: KernelFit | None, l2_bytes: float) -> Array:
    """Sigma of the regime that each pass falls in, by its share of the L2; the fit's own above the last regime."""
    if fit is None:
        return np.full_like(each, ASSUMED_LOG_SIGMA)
    log_sigma = np.full_like(each, fit.error.log_sigma)
    for regime in sorted(fit.regimes, key=lambda regime: regime.upper, reverse=True):
        log_sigma = np.where(each / l2_bytes <= regime.upper, regime.log_sigma, log_sigma)
    return log_sigma


def host_transfer_timing(shape: HostTransferShape, *, hardware: AcceleratorSpec, on_host: tuple[int, float]) -> Timing:
    """Time of a copy over the host link at its datasheet bandwidth in one direction, or with few rows that of reading
    it on the host, ``on_host`` as ``EngineTraits`` has it [s].

    Of large copies from pinned memory; nothing is fitted, so that the price is assumed. Leaves out latency, shared
    links, and that the device is spared what the host computes. Reference: [Sheng2023]
    """
    moved, rows = (np.atleast_1d(np.asarray(value, dtype=np.float64)) for value in (shape.bytes, shape.rows))
    link = hardware.host_link.bytes_per_s_per_direction
    seconds = moved / np.where(rows < on_host[0], on_host[1], link)
    nothing = np.zeros_like(seconds)
    return Timing(
        seconds=seconds,
        compute_s=nothing,
        memory_s=nothing,
        network_s=seconds,
        tensor_s=nothing,
        log_sigma=np.where(moved > 0, HOST_LINK_LOG_SIGMA, 0.0),
        provenance=np.where(moved > 0, float(Provenance.ASSUMED), 0.0),
    )
