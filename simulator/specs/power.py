"""How much of a device's power range a busy phase draws: a fit, kept apart from the datasheet facts."""

from __future__ import annotations

from functools import lru_cache

from pydantic import NonNegativeFloat, NonNegativeInt

from simulator.specs.base import Spec
from simulator.specs.documents import read_yaml, validate
from simulator.specs.loading import profile_root


class PowerFit(Spec):
    """Shares of the range between idle and TDP: ``base`` whenever busy, plus ``compute`` x MFU and ``memory`` x MBU.

    fit_mape : mean absolute percentage error over the ``points`` measured runs
    """

    base: NonNegativeFloat
    compute: NonNegativeFloat
    memory: NonNegativeFloat
    fit_mape: NonNegativeFloat
    points: NonNegativeInt
    date: str
    source: str


@lru_cache(maxsize=1)
def load_power_fit() -> PowerFit:
    """The fit shipped with the package (hardware_profiles/calibration/power.yaml)."""
    path = profile_root("hardware_profiles") / "calibration" / "power.yaml"
    return validate(PowerFit, read_yaml(path), where=str(path))
