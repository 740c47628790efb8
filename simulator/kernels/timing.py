"""What a kernel takes, what bound it, and how we know."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np

from simulator.operators.step_shape import Array


class Provenance(IntEnum):
    """How a number is known, best first; a sum is as good as its worst part."""

    MEASURED = 0
    CALIBRATED = 1
    EXTRAPOLATED = 2
    ASSUMED = 3

    @property
    def label(self) -> str:
        """The word shown to people."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Price of one execution of a kernel on one device (arrays over the cases of its shape).

    seconds : predicted time [s]
    compute_s, memory_s, network_s : the roofline terms inside it, for "what bound it" [s]
    log_sigma : standard deviation of log(measured / predicted) on shapes that the fit never saw
    provenance : Provenance value of each case
    """

    seconds: Array
    compute_s: Array
    memory_s: Array
    network_s: Array
    log_sigma: Array
    provenance: Array


def widened(timing: Timing, *, log_sigma_extra: float) -> Timing:
    """``timing`` with a spread added in quadrature, and known as extrapolated; unchanged where nothing is added."""
    if log_sigma_extra == 0:
        return timing
    return replace(
        timing,
        log_sigma=np.hypot(timing.log_sigma, log_sigma_extra),
        provenance=np.maximum(timing.provenance, float(Provenance.EXTRAPOLATED)),
    )
