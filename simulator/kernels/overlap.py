"""How two limits meet in one kernel: a smooth maximum of their times, and the traffic that L2 takes off memory."""

from __future__ import annotations

import numpy as np

from simulator.operators.step_shape import Array

L2_SHARPNESS = 3.0
"""How abruptly the share of L2 hits falls when the working set outgrows the L2, where a fit does not say."""


def l2_hit_share(working_set_bytes: Array, *, l2_bytes: float, sharpness: float = L2_SHARPNESS) -> Array:
    """Share of the traffic that the L2 serves: near 1 below its capacity, falling off above [-]."""
    share: Array = 1.0 / (1.0 + (working_set_bytes / l2_bytes) ** sharpness)
    return share


def smooth_maximum(first: Array, second: Array | float, *, sharpness: float) -> Array:
    """(a**q + b**q)**(1/q): at least the larger of two positive terms, at most 2**(1/q) times it."""
    large = np.maximum(first, second)
    smooth: Array = large * (1.0 + (np.minimum(first, second) / large) ** sharpness) ** (1.0 / sharpness)
    return smooth
