"""Power of a running device from how busy its units are."""

from __future__ import annotations

import numpy as np

from simulator.operators.step_shape import Array
from simulator.phases.deployment import Deployment
from simulator.phases.step import StepEstimate
from simulator.specs.hardware import AcceleratorSpec
from simulator.specs.power import PowerFit, load_power_fits


def step_power_w(estimate: StepEstimate, *, hardware: AcceleratorSpec, fit: PowerFit) -> Array:
    """Mean power of one device during each case of a step [W].

    ``idle + (TDP - idle) * min(1, base + compute * MFU + memory * MBU)``: a busy device draws a base above idle,
    and more the closer its matrix units and its memory run to their peaks. Leaves out temperature and clocks.

    References
    ----------
    [Patel2024b]
    """
    activity = fit.base + fit.compute * estimate.mfu + fit.memory * estimate.mbu
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
