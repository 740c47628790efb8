"""Work -> Timing on one accelerator under one kernel library: which model and which fit price what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simulator.kernels.fits import CollectiveFits, FitSet, collective_fits, fit_set
from simulator.kernels.network import collective_timing
from simulator.kernels.roofline import RooflineParameters, math_dtype, roofline_timing
from simulator.kernels.timing import Provenance, Timing
from simulator.operators.work import AttentionShape, CollectiveShape, GemmShape, MoeShape, Work
from simulator.specs.hardware import AcceleratorSpec, LinkSpec

# The family and format whose fit stands in for one without measurements, and what that adds to the spread.
STAND_IN_FORMAT = "bf16"
STAND_IN_LOG_SIGMA = 0.35
# A pass over memory without any fit: launch inside a CUDA graph and the share of bandwidth of large copies.
PASS_ASSUMED = RooflineParameters(
    launch_s=2.0e-6, compute_fraction=0.5, memory_fraction=0.8, log_sigma=0.35, provenance=Provenance.ASSUMED
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLibrary:
    """Prices of every kernel on one accelerator.

    network : one device's share of the NICs, for collectives that leave the scale-up domain
    """

    hardware: AcceleratorSpec
    library: str
    roofline: FitSet
    collectives: CollectiveFits
    network: LinkSpec | None

    def price(self, work: Work) -> Timing:
        """Time of one execution of ``work`` on one device [s]."""
        match work.shape:
            case CollectiveShape():
                return self._collective(work.shape)
            case GemmShape():
                return self._roofline(work, family="gemm", fmt=work.shape.format.name)
            case MoeShape():
                return self._roofline(work, family="gemm", fmt=work.shape.format.name)
            case AttentionShape(is_decode=is_decode):
                return self._roofline(work, family="decode_attention" if is_decode else "prefill_attention", fmt="bf16")
            case _:
                return roofline_timing(work, hardware=self.hardware, parameters=PASS_ASSUMED)

    def _collective(self, shape: CollectiveShape) -> Timing:
        return collective_timing(
            shape,
            hardware=self.hardware,
            fits=self.collectives.fits,
            network=self.network,
            relative=self.collectives.relative,
        )

    def _roofline(self, work: Work, *, family: str, fmt: str) -> Timing:
        """Three parameters of this family and format, or of the same family in bf16 with a wider spread."""
        fit = self.roofline.find(family=family, fmt=fmt)
        provenance, extra = Provenance.CALIBRATED, 0.0
        if fit is None:
            fit = self.roofline.find(family=family, fmt=STAND_IN_FORMAT)
            provenance, extra = Provenance.ASSUMED, STAND_IN_LOG_SIGMA
        assert fit is not None, "every roofline calibration holds the bf16 families"
        parameters = RooflineParameters(
            launch_s=fit.parameters["launch_s"],
            compute_fraction=fit.parameters["compute_fraction"],
            memory_fraction=fit.parameters["memory_fraction"],
            log_sigma=float(np.hypot(fit.error.log_sigma, extra)),
            provenance=provenance,
        )
        timing = roofline_timing(work, hardware=self.hardware, parameters=parameters)
        return self.roofline.transferred(timing)


def kernel_library(
    hardware: AcceleratorSpec, *, library: str, network: LinkSpec | None = None, profiles: str | None = None
) -> KernelLibrary:
    """The fits that price ``hardware`` under ``library``, its own or those of its nearest calibrated relative."""
    roofline = fit_set(hardware, library=library, group="roofline", profiles=profiles)
    assert roofline is not None, "roofline calibrations ship with the package"
    return KernelLibrary(
        hardware=hardware,
        library=library,
        roofline=roofline,
        collectives=collective_fits(hardware, library=library, profiles=profiles),
        network=network,
    )
