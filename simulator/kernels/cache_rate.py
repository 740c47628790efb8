"""How fast the last-level cache feeds a pass, as the calibrations know it."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.kernels.library import STAND_IN_FORMAT, KernelLibrary
from simulator.kernels.memory import ASSUMED_PARAMETERS
from simulator.kernels.timing import Provenance


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRate:
    """Rate of passes whose operands stay in the last-level cache [B/s], and how it is known."""

    bytes_per_s: float
    provenance: Provenance


def cache_rate(library: KernelLibrary) -> CacheRate:
    """The fitted rate of memory passes that stay in the cache: datasheets do not state one.

    It is what measured passes reach, not a limit of the hardware; where nothing is calibrated, the medians of the
    fits on other accelerators.

    References
    ----------
    [AIC2026]
    """
    fits = library.elementwise
    fit = fits.find(family="elementwise", fmt=STAND_IN_FORMAT, variant="pass") if fits else None
    parameters = ASSUMED_PARAMETERS if fit is None else fit.parameters
    provenance = Provenance.ASSUMED if fit is None else Provenance.CALIBRATED
    if fits is not None and fits.relative.log_sigma_extra > 0:
        provenance = max(provenance, Provenance.EXTRAPOLATED)
    reached = parameters["l2_speedup"] * parameters["memory_fraction"]
    return CacheRate(bytes_per_s=reached * library.hardware.memory_bytes_per_s, provenance=provenance)
