"""Time of passes bound by memory: norms, activations, rotary, residuals, gathers, copies; copies from the host."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.kernels.timing import Provenance, Timing
from simulator.kernels.transfer import Relative
from simulator.operators.work import Array, ElementwiseShape, HostTransferShape
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import KernelFit
from simulator.units import MICRO

# Where nothing is calibrated: medians of the fits on eight NVIDIA GPUs (validation/fit/elementwise.py, vllm tables),
# and the largest error among them for kernels that the fit did not see.
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
    """
    each = np.maximum(np.asarray(pass_bytes, dtype=np.float64), 0.0) / launches
    fill = each / (parameters["l2_share"] * hardware.l2_bytes)
    # Far beyond the cache the power has no end, and all of the pass is cold.
    with np.errstate(over="ignore"):
        sharp = fill ** parameters["l2_sharpness"]
    cold = np.where(np.isfinite(sharp), sharp / (1 + np.where(np.isfinite(sharp), sharp, 0.0)), 1.0)
    memory_rate = parameters["memory_fraction"] * hardware.memory_bytes_per_s
    slowness = cold + (1 - cold) / parameters["l2_speedup"]
    seconds: Array = launches * (parameters["launch_s"] + each * slowness / memory_rate)
    return seconds


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


def host_transfer_timing(shape: HostTransferShape, *, hardware: AcceleratorSpec) -> Timing:
    """Time of a copy over the host link [s].

    Equation
    --------
    t = b / W

    Parameters
    ----------
    shape : bytes b of the copy [bytes]
    hardware : datasheet bandwidth W of the host link in one direction [bytes/s]

    Range of validity
    -----------------
    Large copies from pinned memory; nothing is fitted, so that the price is assumed. Leaves out latency and shared
    links.

    References
    ----------
    [Sheng2023]
    """
    moved = np.atleast_1d(np.asarray(shape.bytes, dtype=np.float64))
    seconds = moved / hardware.host_link.bytes_per_s_per_direction
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
