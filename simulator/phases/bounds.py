"""What an operator's time waits for: a limit of the datasheet where one explains it, or what keeps it from one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.roofline import peak_flops_per_s
from simulator.kernels.timing import Timing
from simulator.operators.work import CollectiveShape, GemmShape, HostTransferShape, MoeShape, Work
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.model.precision import BITS

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


def bound_indices(work: Work, timing: Timing, *, hardware: AcceleratorSpec) -> NDArray[np.intp]:
    """Place in BOUNDS of what each case of an operator waits for [-].

    Equation
    --------
    memory where B / W reaches half of t and F / P less of it; tensor core where F / P does;
    dequantisation where a weight-only product's own work outweighs its traffic; occupancy where neither explains t

    Parameters
    ----------
    work : FLOPs F [FLOP] and bytes B [bytes] of one execution
    timing : its time t and the parts inside it [s]
    hardware : dense peak P of the format that multiplies [FLOP/s], memory bandwidth W [bytes/s]

    Range of validity
    -----------------
    Datasheet rates. Occupancy stands for launches, waves that leave units idle and latencies that nothing hides.

    References
    ----------
    [Williams2009]
    """
    if isinstance(work.shape, CollectiveShape | HostTransferShape):
        return np.full(len(timing.seconds), BOUNDS.index(LINK))
    seconds = np.maximum(timing.seconds, np.finfo(np.float64).tiny)
    # Data that stays in the L2 moves faster than the memory's datasheet says: no share passes the whole.
    memory = np.minimum(work.bytes / hardware.memory_bytes_per_s / seconds, 1.0)
    tensor = np.minimum(work.flops / peak_flops_per_s(work, hardware) / seconds, 1.0)
    works_longer = timing.compute_s > timing.memory_s
    fallback = np.where(
        works_longer,
        np.where(tensor >= LEAST_SHARE, BOUNDS.index(TENSOR_CORE), BOUNDS.index(OCCUPANCY)),
        np.where(timing.memory_s >= MAIN_SHARE * seconds, BOUNDS.index(MEMORY), BOUNDS.index(OCCUPANCY)),
    )
    if _widens(work):
        fallback = np.where(works_longer & (tensor < MAIN_SHARE), BOUNDS.index(DEQUANTISATION), fallback)
    found: NDArray[np.intp] = np.select(
        [(memory >= MAIN_SHARE) & (memory >= tensor), tensor >= MAIN_SHARE],
        [BOUNDS.index(MEMORY), BOUNDS.index(TENSOR_CORE)],
        default=fallback,
    )
    return found


def _widens(work: Work) -> bool:
    """Whether a product widens its weights before it multiplies them."""
    if not isinstance(work.shape, GemmShape | MoeShape):
        return False
    return work.shape.format.weight_bits < BITS[work.shape.format.math]
