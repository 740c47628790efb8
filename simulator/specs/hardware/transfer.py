"""What it costs to use one accelerator's kernel fits on another: measured by leaving accelerators out."""

from __future__ import annotations

from functools import lru_cache

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

from simulator.specs.base import Spec
from simulator.specs.documents import read_yaml, validate
from simulator.specs.profiles import profile_root


class TransferRow(Spec):
    """Error of one family on an accelerator priced with another's fits, over ``points`` held-out rows (fractions).

    mape : mean absolute percentage error; bias : mean signed error
    log_sigma : spread of log(measured / predicted) whose 80 % interval covers 80 % of the rows
    log_sigma_extra : what of it the transfer adds, in quadrature, to the spread on the relative itself
    """

    target: str
    relative: str
    family: str
    distance: NonNegativeFloat
    mape: NonNegativeFloat
    bias: float
    log_sigma: PositiveFloat
    log_sigma_extra: NonNegativeFloat
    points: PositiveInt


class TransferPoint(Spec):
    """Mean error of the ``pairs`` (target, relative, family) around one distance."""

    distance: NonNegativeFloat
    mape: NonNegativeFloat
    log_sigma_extra: NonNegativeFloat
    pairs: PositiveInt


class TransferTable(Spec):
    """Leave-one-GPU-out errors: ``curve`` over distance, and the rows of interest behind it.

    nearest : each target with the relative that the simulator takes among all others
    other_generation : the same with every accelerator of the target's generation left out as well
    """

    library: str
    date: str
    source: str
    curve: tuple[TransferPoint, ...] = Field(min_length=1)
    nearest: tuple[TransferRow, ...]
    other_generation: tuple[TransferRow, ...]

    @property
    def farthest_sibling(self) -> float:
        """The farthest that fits were carried within an architecture, where the accelerator had no part in them."""
        # Another architecture is at least one generation away.
        return max(row.distance for row in self.nearest if row.distance < 1)

    @field_validator("curve")
    @classmethod
    def _rises(cls, curve: tuple[TransferPoint, ...]) -> tuple[TransferPoint, ...]:
        distances = [point.distance for point in curve]
        sigmas = [point.log_sigma_extra for point in curve]
        if distances != sorted(set(distances)) or sigmas != sorted(sigmas):
            raise ValueError("distance must rise and log_sigma_extra never fall along the curve")
        return curve


@lru_cache(maxsize=1)
def load_transfer_table() -> TransferTable:
    """The table shipped with the package (hardware_profiles/calibration/transfer.yaml)."""
    path = profile_root("hardware_profiles") / "calibration" / "transfer.yaml"
    return validate(TransferTable, read_yaml(path), where=str(path), profile=True)
