"""Power of a running device from how busy its units are.

Where the energy goes: idle, being busy, arithmetic, memory; per FLOP and byte, per token, prefill beside decode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from simulator.operators.step_shape import Array
from simulator.phases.deployment import Deployment
from simulator.phases.step import StepEstimate
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import PowerFit, load_power_fits
from simulator.specs.model.precision import Dtype


def step_power_w(estimate: StepEstimate, *, hardware: AcceleratorSpec, fit: PowerFit) -> Array:
    """Mean power of one device during each case of a step [W].

    Equation
    --------
    P = idle + (TDP - idle) min(1, base + compute x T + memory x M)

    Parameters
    ----------
    estimate : share T of the tensor units' peak that the products of the step take, padding included, and share M of
        the step in which the memory works [-]
    hardware : idle power and TDP [W]
    fit : base, compute and memory shares of the range between them [-]

    Range of validity
    -----------------
    A running device. Tiles that few rows fill draw what full ones do, so that it is what the units execute that
    counts and not their useful work. Leaves out temperature, clocks, and what vector units and links draw.

    References
    ----------
    [Patel2024b]
    """
    activity = fit.base + fit.compute * estimate.tensor_share + fit.memory * estimate.memory_share
    return hardware.idle_w + (hardware.tdp_w - hardware.idle_w) * np.minimum(1.0, activity)


def average_power_w(
    deployment: Deployment, *, phases: tuple[tuple[Array, StepEstimate], ...], busy_fraction: float = 1.0
) -> float:
    """Mean power of all devices of a replica over weighted steps of several phases, idle the rest of the time [W]."""
    fit = load_power_fits().of(deployment.hardware.architecture)
    energy_j = 0.0
    total_s = 0.0
    for weights, estimate in phases:
        seconds = weights * estimate.step_s
        energy_j += float(seconds @ step_power_w(estimate, hardware=deployment.hardware, fit=fit))
        total_s += float(seconds.sum())
    idle_w = deployment.hardware.idle_w
    each_w = idle_w + busy_fraction * (energy_j / total_s - idle_w)
    return deployment.parallelism.devices * each_w


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyPrices:
    """What one operation costs above idle on an accelerator.

    flop_j : by number format [J/FLOP]; byte_j : of device memory, read or written [J/byte]
    busy_w : drawn whenever a kernel runs, idle_w : always
    """

    flop_j: Mapping[Dtype, float]
    byte_j: float
    busy_w: float
    idle_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergySplit:
    """Energy of a run of steps over all devices of a replica [J]; the four parts add up to ``total_j``."""

    idle_j: float
    busy_j: float
    compute_j: float
    memory_j: float

    @property
    def total_j(self) -> float:
        """Energy of the run [J]."""
        return self.idle_j + self.busy_j + self.compute_j + self.memory_j


def energy_prices(hardware: AcceleratorSpec, *, fit: PowerFit | None = None) -> EnergyPrices:
    """Energy per FLOP by format and per byte of device memory, from the power fit and the datasheet.

    The fit says which share of the range between idle and TDP running at the peak FLOPs or bandwidth draws; divided by
    that peak it is the energy of one operation. A byte from memory costs far more than a FLOP [Horowitz2014].
    """
    fit = fit or load_power_fits().of(hardware.architecture)
    span_w = hardware.tdp_w - hardware.idle_w
    return EnergyPrices(
        flop_j=MappingProxyType(
            {dtype: span_w * fit.compute / peak for dtype, peak in hardware.peak_flops_per_s.items()}
        ),
        byte_j=span_w * fit.memory / hardware.memory_bytes_per_s,
        busy_w=span_w * fit.base,
        idle_w=hardware.idle_w,
    )


def energy_split(deployment: Deployment, *, estimate: StepEstimate, weights: Array) -> EnergySplit:
    """Energy of ``weights`` steps of each case of ``estimate`` over all devices of a replica [J].

    Where the parts would exceed TDP, those above idle are scaled down to it, as clocks are.

    References
    ----------
    [Horowitz2014], [Patel2024b]
    """
    hardware = deployment.hardware
    fit = load_power_fits().of(hardware.architecture)
    span_w = hardware.tdp_w - hardware.idle_w
    tensor, memory = fit.compute * estimate.tensor_share, fit.memory * estimate.memory_share
    parts = np.stack((np.full_like(tensor, fit.base), tensor, memory))
    throttled = parts / np.maximum(1.0, parts.sum(axis=0))
    seconds = weights * estimate.step_s * deployment.parallelism.devices
    busy_j, compute_j, memory_j = (span_w * throttled) @ seconds
    return EnergySplit(
        idle_j=float(hardware.idle_w * seconds.sum()),
        busy_j=float(busy_j),
        compute_j=float(compute_j),
        memory_j=float(memory_j),
    )
