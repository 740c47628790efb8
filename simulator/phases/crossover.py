"""At which batch decoding stops waiting for memory: the crossover of the weight products."""

from __future__ import annotations

import numpy as np

from simulator.kernels.roofline import FLOOR, roofline_timing
from simulator.operators.step_shape import decode_step
from simulator.operators.work import Family
from simulator.phases.deployment import Deployment
from simulator.phases.step import estimate_step

_WEIGHT_FAMILIES = (Family.GEMM, Family.MOE, Family.LM_HEAD)
LARGEST_BATCH = 4096


def crossover_batch(deployment: Deployment, *, context_tokens: int) -> int | None:
    """The smallest number of decoding sequences whose weight products are bound by compute; None beyond 4096.

    Below it a further sequence is nearly free, because the weights are read anyway; above it each one costs. By the
    plain roofline of the datasheet: real kernels turn later and gradually. Attention is left out: its intensity does
    not depend on the batch.

    References
    ----------
    [Williams2009]
    """
    low, high = 0, LARGEST_BATCH
    if not _computes(deployment, np.array([float(high)]), context_tokens=context_tokens)[0]:
        return None
    while high - low > 1:
        # A few points a round: one vectorised estimate prices them all.
        tried = np.unique(np.linspace(low + 1, high, min(16, high - low)).astype(int))
        bound = _computes(deployment, tried.astype(float), context_tokens=context_tokens)
        first = int(np.argmax(bound))
        low, high = (int(tried[first - 1]) if first else low), int(tried[first])
    return high


def _computes(deployment: Deployment, batches: np.ndarray, *, context_tokens: int) -> np.ndarray:
    estimate = estimate_step(deployment, decode_step(sequences=batches, context=float(context_tokens)))
    compute_s, memory_s = np.zeros_like(batches), np.zeros_like(batches)
    for row in estimate.rows:
        if row.work.family in _WEIGHT_FAMILIES:
            floor = roofline_timing(row.work, hardware=deployment.hardware, parameters=FLOOR)
            compute_s += row.work.count * floor.compute_s
            memory_s += row.work.count * floor.memory_s
    return compute_s >= memory_s
