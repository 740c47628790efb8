"""The host's processor as a place for a draft model: a roofline of one socket."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.operators.step_shape import Array
from simulator.units import GIGA


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCpu:
    """One socket: memory bandwidth [bytes/s] and 16-bit matrix peak [FLOP/s]."""

    name: str
    memory_bytes_per_s: float
    peak_flops_per_s: float

    def seconds(self, *, flops: Array, weight_bytes: Array) -> Array:
        """Roofline time of a pass: the slower of its arithmetic and its reads [s].

        References
        ----------
        [Williams2009]
        """
        return np.maximum(flops / self.peak_flops_per_s, weight_bytes / self.memory_bytes_per_s)


# Intel Xeon Platinum 8480C, the host of DGX H100: 8 channels of DDR5-4800 x 8 bytes; 56 cores x 1,024 bf16 FLOPs a
# clock (Intel, Advanced Matrix Extensions) x 2.0 GHz base clock.
XEON_8480C = HostCpu(
    name="Xeon Platinum 8480C", memory_bytes_per_s=8 * 4.8 * GIGA * 8, peak_flops_per_s=56 * 1024 * 2.0 * GIGA
)
"""Assumed host where the scenario runs a draft model on the CPU."""
