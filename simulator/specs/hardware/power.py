"""How much of a device's power range a busy phase draws: fits, kept apart from the datasheet facts."""

from __future__ import annotations

from functools import lru_cache

from pydantic import NonNegativeFloat, NonNegativeInt

from simulator.specs.base import Spec
from simulator.specs.documents import read_yaml, validate
from simulator.specs.profiles import profile_root


class PowerFit(Spec):
    """Shares of the range between idle and TDP: ``base`` whenever busy, plus ``compute`` times the share
    of the tensor units' peak that products take, padding included, plus ``memory`` times that of the time in which the
    memory works.

    architectures : that the fit stands for; fit_mape : mean absolute percentage error over the ``points`` measured runs
    score_mape : the same over kernels that the fit never saw, where any were held out
    """

    architectures: tuple[str, ...]
    base: NonNegativeFloat
    compute: NonNegativeFloat
    memory: NonNegativeFloat
    fit_mape: NonNegativeFloat
    score_mape: NonNegativeFloat | None = None
    points: NonNegativeInt
    date: str
    source: str


class PowerFits(Spec):
    """All fits; the first one is used for architectures without measurements."""

    fits: tuple[PowerFit, ...]

    def of(self, architecture: str) -> PowerFit:
        """The fit for an architecture."""
        return next((fit for fit in self.fits if architecture in fit.architectures), self.fits[0])


@lru_cache(maxsize=1)
def load_power_fits() -> PowerFits:
    """The fits shipped with the package (hardware_profiles/calibration/power.yaml)."""
    path = profile_root("hardware_profiles") / "calibration" / "power.yaml"
    return validate(PowerFits, read_yaml(path), where=str(path))
