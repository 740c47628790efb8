"""One library of kernels for all replicas on an accelerator: degrees, formats and batches choose no other fits."""

from __future__ import annotations

from functools import lru_cache

from simulator.kernels.library import KernelLibrary, kernel_library
from simulator.specs.calibrations import calibrations_changed_ns
from simulator.specs.hardware import AcceleratorSpec, LinkSpec
from simulator.specs.same_object import Same


def shared_library(
    hardware: AcceleratorSpec, *, library: str, network: LinkSpec | None = None, profiles: str | None = None
) -> KernelLibrary:
    """`kernel_library`, chosen once; again when calibrations come or go."""
    return _shared(Same(hardware), library, Same(network), profiles, calibrations_changed_ns(profiles))


@lru_cache(maxsize=256)
def _shared(
    facts: Same[AcceleratorSpec],
    library: str,
    network: Same[LinkSpec | None],
    profiles: str | None,
    changed_ns: tuple[int, ...],
) -> KernelLibrary:
    return kernel_library(facts.held, library=library, network=network.held, profiles=profiles)
