"""What each fitted number may physically be, and where each search for it ended.

A name means the same in every model: a share of the peak of the format that multiplies or of the bandwidth lies in
(0, 1], a share of one unit's even part may pass 1 as long as one unit can draw it, times lie between nothing and what
a launch or a merge can take. Collectives name their parameters ``algorithm.quantity``.
"""

from __future__ import annotations

import re
from collections import ChainMap
from dataclasses import dataclass

from simulator.specs.hardware.calibration import KernelFit
from validation.fit.kernels import gemm, moe, recurrent
from validation.fit.kernels.attention_models import DECODE_BOUNDS, LATENT_BOUNDS, PREFILL_BOUNDS
from validation.fit.physics import Bound


@dataclass(frozen=True, slots=True, kw_only=True)
class PhysicalRange:
    """Low and high end that a number may take, and why."""

    low: float
    high: float
    reason: str

    def holds(self, value: float) -> bool:
        """Whether a value, stored with five digits, lies inside."""
        return self.low <= value <= self.high * (1.0 + 1e-4)


_SHARE = PhysicalRange(low=1e-3, high=1.0, reason="share of a datasheet rate")
_COUNT = PhysicalRange(low=0.0, high=1.0, reason="between none and all")
_SPEEDUP = PhysicalRange(low=1.0, high=14.0, reason="the L2 over the memory behind it")
_CYCLES = PhysicalRange(low=0.0, high=1e5, reason="cycles of one thread block")
_SECONDS = PhysicalRange(low=0.0, high=5e-4, reason="a launch, a hop or a merge")

RANGES: dict[str, PhysicalRange] = {
    "tensor_fraction": _SHARE,
    "compute_fraction": _SHARE,
    "memory_fraction": _SHARE,
    "conv_fraction": _SHARE,
    "quantise_fraction": _SHARE,
    "fraction": PhysicalRange(low=1e-3, high=1.0, reason="share of the link"),
    "exponential_rate": PhysicalRange(low=0.0, high=1.25, reason="special function units and polynomials beside them"),
    "pass_speedup": PhysicalRange(low=1e-3, high=3.0, reason="of the bandwidth; above 1 where passes are fused"),
    "unit_bandwidth": PhysicalRange(low=0.5, high=20.0, reason="one unit's L2 port over its even share of the memory"),
    "wave_quantisation": _COUNT,
    "droop": PhysicalRange(low=0.0, high=0.6, reason="loss of clock"),
    "l2_share": PhysicalRange(low=0.05, high=3.0, reason="of the L2, with what a set beyond it still hits"),
    "l2_speedup": _SPEEDUP,
    "conv_l2_speedup": _SPEEDUP,
    "overlap": PhysicalRange(low=1.0, high=12.0, reason="sharpness of a maximum"),
    "lone_factor": PhysicalRange(low=0.5, high=4.0, reason="a tile alone over one among others"),
    "query_passes": PhysicalRange(low=0.0, high=6.0, reason="passes over queries and outputs"),
}
"""Parameter -> range; times and cycles follow from their unit, traits and residuals have none."""

BOUNDS: dict[str, dict[str, Bound]] = {
    "tiled_prefill_attention": PREFILL_BOUNDS,
    "split_decode_attention": DECODE_BOUNDS,
    "latent_decode_attention": LATENT_BOUNDS,
    "tiled_gemm": gemm.BOUNDS | gemm.QUANTISE_BOUNDS,
    "grouped_gemm": moe.BOUNDS,
    "chunked_scan": dict(ChainMap(recurrent.CONV_BOUNDS, recurrent.SCAN_BOUNDS, *recurrent.PHASE_BOUNDS.values())),
}
"""Model -> bounds of its search."""

AT_A_BOUND = 0.005
"""Closer than this to a bound, as a share of it, the data did not choose the value."""


def range_of(parameter: str) -> PhysicalRange | None:
    """The physical range of a parameter; None for traits, switches and residuals."""
    name = parameter.rsplit(".", 1)[-1] if not re.search(r"\.p?\d+$", parameter) else ""
    if name in RANGES:
        return RANGES[name]
    if name.endswith("_cycles"):
        return _CYCLES
    return _SECONDS if name.endswith("_s") and name != "droop_s" else None


def outside(fit: KernelFit) -> tuple[str, ...]:
    """Names of the parameters that lie outside their physical range."""
    found = ((name, range_of(name)) for name in fit.parameters)
    return tuple(name for name, allowed in found if allowed and not allowed.holds(fit.parameters[name]))


def at_bounds(fit: KernelFit) -> tuple[str, ...]:
    """Names of the fitted parameters at a bound of their search."""
    bounds = BOUNDS.get(fit.model, {})
    return tuple(
        name
        for name, value in fit.parameters.items()
        if name in bounds
        and (value <= bounds[name].low * (1.0 + AT_A_BOUND) or value >= bounds[name].high * (1.0 - AT_A_BOUND))
    )
