"""Power of a running device from how busy its units are, and where the energy goes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from simulator.errors import RoofcastError
from simulator.operators.work import Array
from simulator.records import dataclass
from simulator.specs.base import Same
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.hardware.calibration import PowerFit, load_power_fits
from simulator.specs.model.precision import Dtype

if TYPE_CHECKING:
    from simulator.phases.deployment import Deployment
    from simulator.phases.step import StepEstimate


def clock_share(dynamic_share: float) -> float:
    """Share of its clock at which a chip under full load draws ``dynamic_share`` of what it may above idle [-].

    Equation
    --------
    x ((1 + x) / 2)^2 = dynamic share

    Parameters
    ----------
    dynamic_share : power above idle over that at the full clock [-]; x : clock over the full clock [-]

    Range of validity
    -----------------
    Switching power, C V^2 f, of a voltage that falls with the clock to half of it at rest. Assumed; H100 at 500 W comes
    out at 0.82, published 0.81. Leaves out leakage, and steps between clocks.

    References
    ----------
    [Patel2024b], [Yang2024b]

    Examples
    --------
    >>> round(clock_share((500 - 70) / (700 - 70)), 2)
    0.82
    """
    low, high = 0.0, 1.0
    while high - low > CLOCK_STEP:
        middle = (low + high) / 2
        low, high = (middle, high) if middle * ((1 + middle) / 2) ** 2 < dynamic_share else (low, middle)
    return high


CLOCK_STEP = 2.0**-40
"""Width at which the search for a clock ends."""


def power_capped(hardware: AcceleratorSpec, power_cap_w: float | None) -> AcceleratorSpec:
    """``hardware`` limited to ``power_cap_w`` [W]: its units clock as a full load allows.

    What is bound by memory keeps its pace until moving bytes, at the voltage of that clock, takes all that is allowed.
    Leaves out that light loads below the cap keep their clocks. The same limit gives the same object.
    """
    return hardware if power_cap_w is None else _capped(Same(hardware), power_cap_w)


def power_limited(hardware: AcceleratorSpec, power_cap_w: float | None) -> AcceleratorSpec:
    """`power_capped`, but a limit that one accelerator never reaches may be meant for those beside it."""
    return power_capped(hardware, None if power_cap_w is None or power_cap_w >= hardware.tdp_w else power_cap_w)


@lru_cache(maxsize=256)
def _capped(full: Same[AcceleratorSpec], power_cap_w: float) -> AcceleratorSpec:
    hardware, fit = full.held, load_power_fits().of(full.held)
    least_w = hardware.idle_w + fit.base * (hardware.tdp_w - hardware.idle_w)
    if not least_w < power_cap_w < hardware.tdp_w:
        raise RoofcastError(
            f"{power_cap_w:g} W is no limit for {hardware.name}; allowed: above the {least_w:.4g} W that it draws "
            f"before any work and below its {hardware.tdp_w:g} W",
            field="power_cap_w",
            code="out_of_range" if power_cap_w <= least_w else "no_effect",
            hint="leave it out, or take a value between the two",
        )
    hardware = hardware.model_copy(update={"power_cap_w": power_cap_w})
    left = _left(hardware, fit)
    paced = {
        "boost_clock_hz": left.clock * hardware.boost_clock_hz,
        "memory_bytes_per_s": left.memory_pace * hardware.memory_bytes_per_s,
    }
    return hardware.model_copy(update={**hardware.arithmetic_at(left.clock), **paced})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Left:
    """What a limit leaves, as shares of what is without one.

    power : above idle, and of busy units; memory_power : of streaming memory; clock; memory_pace : of its bandwidth
    """

    power: float = 1.0
    memory_power: float = 1.0
    clock: float = 1.0
    memory_pace: float = 1.0


def _left(hardware: AcceleratorSpec, fit: PowerFit) -> _Left:
    """Busy units fill the limit. What a byte takes follows the square of the voltage: assumed of its way across the
    chip, and of the smaller part that the memory itself takes."""
    if hardware.power_cap_w is None:
        return _Left()
    power = (hardware.power_cap_w - hardware.idle_w) / (hardware.tdp_w - hardware.idle_w)
    clock = clock_share(power)
    of_a_byte = ((1 + clock) / 2) ** 2
    memory_power = min(of_a_byte, (power - fit.base) / fit.memory)
    return _Left(power=power, memory_power=memory_power, clock=clock, memory_pace=memory_power / of_a_byte)


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

    Examples
    --------
    100 + 600 x (0.1 + 0.6 x 0.5 + 0.4 x 0.25) W.

    >>> from types import SimpleNamespace as Record
    >>> chip = Record(idle_w=100.0, tdp_w=700.0, power_cap_w=None)
    >>> half = Record(tensor_share=0.5, memory_share=0.25)
    >>> float(step_power_w(half, hardware=chip, fit=Record(base=0.1, compute=0.6, memory=0.4)))
    400.0
    """
    left = _left(hardware, fit)
    busy = left.power * fit.compute * estimate.tensor_share + left.memory_power * fit.memory * estimate.memory_share
    return hardware.idle_w + (hardware.tdp_w - hardware.idle_w) * np.minimum(left.power, fit.base + busy)


def average_power_w(
    deployment: Deployment, *, phases: tuple[tuple[Array, StepEstimate], ...], busy_fraction: float = 1.0
) -> float:
    """Mean power of all devices of a replica over weighted steps of several phases, idle the rest of the time [W]."""
    fit = load_power_fits().of(deployment.hardware)
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

    @property
    def shares(self) -> dict[str, float]:
        """Each part's share of the total."""
        parts_j = {"memory": self.memory_j, "compute": self.compute_j, "busy": self.busy_j, "idle": self.idle_j}
        return {name: part_j / self.total_j for name, part_j in parts_j.items()}


def energy_prices(hardware: AcceleratorSpec, *, fit: PowerFit | None = None) -> EnergyPrices:
    """Energy per FLOP by format and per byte of device memory, from the power fit and the datasheet.

    The fit says which share of the range between idle and TDP running at the peak FLOPs or bandwidth draws; divided by
    that peak it is the energy of one operation. A byte from memory costs far more than a FLOP [Horowitz2014].
    """
    fit = fit or load_power_fits().of(hardware)
    span_w, left = hardware.tdp_w - hardware.idle_w, _left(hardware, fit)
    compute_w, memory_w = span_w * left.power * fit.compute, span_w * left.memory_power * fit.memory
    return EnergyPrices(
        flop_j=MappingProxyType({dtype: compute_w / peak for dtype, peak in hardware.peak_flops_per_s.items()}),
        byte_j=memory_w / hardware.memory_bytes_per_s,
        busy_w=span_w * fit.base,
        idle_w=hardware.idle_w,
    )


def energy_split(deployment: Deployment, *, estimate: StepEstimate, weights: Array) -> EnergySplit:
    """Energy of ``weights`` steps of each case of ``estimate`` over all devices of a replica [J].

    Where the parts would exceed TDP, those above idle are scaled down to it, as clocks are.

    Reference: [Horowitz2014], [Patel2024b]
    """
    hardware = deployment.hardware
    fit = load_power_fits().of(hardware)
    span_w = hardware.tdp_w - hardware.idle_w
    left = _left(hardware, fit)
    tensor = left.power * fit.compute * estimate.tensor_share
    memory = left.memory_power * fit.memory * estimate.memory_share
    parts = np.stack((np.full_like(tensor, fit.base), tensor, memory))
    throttled = parts / np.maximum(1.0, parts.sum(axis=0) / left.power)
    seconds = weights * estimate.step_s * deployment.parallelism.devices
    busy_j, compute_j, memory_j = (span_w * throttled) @ seconds
    return EnergySplit(
        idle_j=float(hardware.idle_w * seconds.sum()),
        busy_j=float(busy_j),
        compute_j=float(compute_j),
        memory_j=float(memory_j),
    )
