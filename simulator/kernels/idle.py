"""Rows of a step that some of its cases do not have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simulator.kernels.timing import Timing
from simulator.operators.work import CollectiveShape, Work


def without_idle(timing: Timing, work: Work) -> Timing:
    """``timing`` with nothing for the cases that have nothing to do."""
    # A collective moves its message over links, not through this device's memory.
    idle = (work.flops == 0) & (work.bytes == 0)
    if isinstance(work.shape, CollectiveShape) or not idle.any():
        return timing
    return replace(
        timing,
        seconds=np.where(idle, 0.0, timing.seconds),
        log_sigma=np.where(idle, 0.0, timing.log_sigma),
        provenance=np.where(idle, 0.0, timing.provenance),
    )
