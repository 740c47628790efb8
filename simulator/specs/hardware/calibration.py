"""Fits, dated and bounded, with their error and box; transfers between accelerators; power. Written by validation."""

import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Annotated, Literal, TypeVar
from zipfile import ZipFile

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
)

from simulator.errors import ProfileError
from simulator.specs.base import IsoDate, LogSigma, LogSpread, Spec
from simulator.specs.hardware.accelerator import AcceleratorSpec
from simulator.specs.profiles import (
    find_profile,
    list_profiles,
    load_file,
    load_spec,
    profile_root,
    profiles_changed_ns,
)
from simulator.units import MEGA

Fitted = TypeVar("Fitted")


class FitError(Spec):
    """Errors over shapes that the fit did not see (``score``) and those it did (``fit``); fractions, not percent.

    score_mape, fit_mape : mean absolute percentage error; score_bias : mean signed error
    log_sigma : robust standard deviation of log(measured / predicted) over the score shapes
    coverage_80 : share of score points inside the 80 % interval; score_points, fit_points : how many
    """

    score_mape: float
    fit_mape: float
    score_bias: float
    log_sigma: LogSigma
    coverage_80: float
    score_points: NonNegativeInt
    fit_points: NonNegativeInt


class LatticeSpec(Spec):
    """A correction on the residual log(measured / physics), kept in the .npz beside the YAML.

    ``axes`` name the log2 coordinates in order; values decay to 0 away from data, outside the box within
    ``reach`` octaves. The file holds ``key`` (values) and for each axis ``key.axis`` (sizes at the nodes) or ``axis``.
    """

    file: str
    key: str
    axes: tuple[str, ...]
    reach: PositiveFloat = 1.0


class RegimeSigma(Spec):
    """Interval by regime: log_sigma applies where ``axis`` (a named coordinate) is at most ``upper``."""

    axis: str
    upper: PositiveFloat
    log_sigma: LogSigma


class FittedValues(dict[str, Fitted]):
    """Fitted values by name: whoever asks for one that the file lacks hears of the file, not of a missing key."""

    def __missing__(self, name: str) -> Fitted:
        raise ProfileError(
            f"a fit has no {name!r}",
            field="calibration",
            code="invalid_profile",
            hint="files of fits are written by commands (roofcast calibrate): fit it again",
        )


LARGEST_CORRECTION = 10.0
"""Of log(measured / physics) as a parameter: 22,000 times as long."""


def _physical(parameters: dict[str, float]) -> FittedValues[float]:
    """Parameters by name. Raises ValueError: one is negative, what is divided by is not positive, or a correction is
    none."""
    for name, value in parameters.items():
        if name.endswith(("fraction", "speedup")) and value <= 0:
            raise ValueError(f"{name} is {value:g}; shares and speed-ups are above 0")
        if name.startswith("residual."):
            if abs(value) > LARGEST_CORRECTION:
                raise ValueError(f"{name} is {value:g}; corrections lie within {LARGEST_CORRECTION:g} of 0")
        elif value < 0:
            raise ValueError(f"{name} is {value:g}; parameters of the physics are at least 0")
    return FittedValues(parameters)


def _ordered(box: dict[str, tuple[float, float]]) -> FittedValues[tuple[float, float]]:
    """Ranges by coordinate. Raises ValueError: one that ends before it begins, or has no logarithm."""
    for name, (low, high) in box.items():
        if not 0 < low <= high:
            raise ValueError(f"{name} runs from {low:g} to {high:g}; ranges begin above 0 and end no earlier")
    return FittedValues(box)


class KernelFit(Spec):
    """One kernel model with its parameters for one family and number format.

    family : gemm, prefill_attention, decode_attention, moe, recurrent, quantise, all_reduce, ...
    format : the MatmulFormat name or dtype it holds for; ``variant`` tells kernels of one family apart
        ("mla", "d64", "nccl", "custom", "kda")
    parameters : of the physics, bounded and meaningful; box : fitted range of each coordinate
    physics_log_sigma : spread of log(measured / physics) without the correction, which is what is left far from data
    includes_quantisation : whether the pass that quantises the activations was timed with the kernel
    """

    family: str
    format: str
    variant: str = ""
    model: str
    parameters: Annotated[dict[str, float], AfterValidator(_physical)]
    correction: LatticeSpec | None = None
    box: Annotated[dict[str, tuple[float, float]], AfterValidator(_ordered)]
    error: FitError
    physics_log_sigma: LogSigma | None = None
    includes_quantisation: bool = True
    regimes: tuple[RegimeSigma, ...] = ()
    note: str = ""


class CalibrationSpec(Spec):
    """All fits of one accelerator under one kernel library (vllm, sglang, trtllm, torch)."""

    hardware: str
    library: str
    library_version: str
    date: IsoDate
    source: str
    fits: tuple[KernelFit, ...]

    @property
    def score_mape(self) -> float | None:
        """Mean of the fits' held-out errors [fraction]; None without fits."""
        errors = [fit.error.score_mape for fit in self.fits]
        return sum(errors) / len(errors) if errors else None


_NUMPY_MAGIC = b"\x93NUMPY\x01\x00"
_HEADING_START = len(_NUMPY_MAGIC) + 2
_PLAIN_HEADING = re.compile(rb"\{'descr': '([<|][fi][128])', 'fortran_order': False, 'shape': \(([0-9, ]*)\), \}\s*")
_ARRAY_SUFFIX = ".npy"
_LARGEST_ARRAY_BYTES = int(16 * MEGA)

CORRECTION_STEP = 0.01
"""What the corrections of a file are multiples of, in log(measured / physics)."""

CalibrationGroup = Literal["gemm", "attention", "moe", "recurrent", "collective", "elementwise", "roofline"]


def calibration_name(hardware: str, *, library: str, group: CalibrationGroup) -> str:
    """File stem of a calibration: ``h100-sxm-80gb--vllm.gemm``."""
    return f"{hardware}--{library}.{group}"


def has_calibration(hardware: str, *, library: str, group: CalibrationGroup, profiles: str | None = None) -> bool:
    """Whether `load_calibration` finds something, without reading it."""
    name = calibration_name(hardware, library=library, group=group)
    return find_profile("calibration", name, profiles=profiles) is not None


def calibrations_changed_ns(profiles: str | None = None) -> tuple[int, ...]:
    """When files were last added to or removed from each directory of calibrations [ns since the epoch]; 0 without."""
    return profiles_changed_ns("calibration", profiles=profiles)


@lru_cache(maxsize=512)
def load_calibration(
    hardware: str, *, library: str, group: CalibrationGroup, profiles: str | None = None
) -> CalibrationSpec | None:
    """The fits of one accelerator, library and group; None where nothing was measured."""
    if not has_calibration(hardware, library=library, group=group, profiles=profiles):
        return None
    name = calibration_name(hardware, library=library, group=group)
    return load_spec(CalibrationSpec, name, kind="calibration", profiles=profiles)


@lru_cache(maxsize=64)
def calibrated_hardware(library: str, *, group: CalibrationGroup, profiles: str | None = None) -> tuple[str, ...]:
    """Accelerators that have a calibration of this library and group, sorted."""
    ending = f"--{library}.{group}"
    names = list_profiles("calibration", profiles=profiles)
    return tuple(name.removesuffix(ending) for name in names if name.endswith(ending))


def _read_array(stored: bytes) -> NDArray[np.float64]:
    """An array from a .npy file's content. Of small ones NumPy's own reader spends most of its time on the heading."""
    start = _HEADING_START + int.from_bytes(stored[len(_NUMPY_MAGIC) : _HEADING_START], "little")
    heading = _PLAIN_HEADING.fullmatch(stored[_HEADING_START:start]) if stored.startswith(_NUMPY_MAGIC) else None
    if heading is not None:
        number = np.dtype(heading[1].decode())
        shape = tuple(int(size) for size in heading[2].split(b",") if size.strip())
        if len(stored) - start == prod(shape) * number.itemsize:
            numbers = np.frombuffer(stored, dtype=number, offset=start).reshape(shape)
            return _in_full(numbers)
    return _in_full(np.lib.format.read_array(BytesIO(stored), allow_pickle=False))


def _in_full(stored: NDArray[np.generic]) -> NDArray[np.float64]:
    """Numbers as they were before a file kept them as whole steps from node to node; others as they are."""
    numbers = stored.astype(np.float64, copy=False, casting="same_kind" if stored.dtype.kind in "fc" else "unsafe")
    if stored.dtype.kind != "i":
        return numbers
    for axis in neighbour_axes(numbers):
        numbers = np.cumsum(numbers, axis=axis)
    return numbers * CORRECTION_STEP


def neighbour_axes(values: NDArray[np.float64]) -> range:
    """The axes along which a file keeps how a node differs from the one before it: the last two."""
    return range(max(values.ndim - 2, 0), values.ndim)


class StoredArrays(Mapping[str, NDArray[np.float64]]):
    """Arrays of a binary file, each unpacked when it is first asked for: a plan needs few of a file's many."""

    def __init__(self, path: Path) -> None:
        # The bytes are taken at once, so that no file stays open.
        self._archive = ZipFile(BytesIO(path.read_bytes()))
        self._keys = [name.removesuffix(_ARRAY_SUFFIX) for name in self._archive.namelist()]
        self._unpacked: dict[str, NDArray[np.float64]] = {}

    def __getitem__(self, key: str) -> NDArray[np.float64]:
        if key not in self._unpacked:
            if self._archive.getinfo(key + _ARRAY_SUFFIX).file_size > _LARGEST_ARRAY_BYTES:
                raise ValueError(f"{key} has more than {_LARGEST_ARRAY_BYTES / MEGA:.0f} MB")
            self._unpacked[key] = _read_array(self._archive.read(key + _ARRAY_SUFFIX))
        return self._unpacked[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


def load_arrays(
    hardware: str, *, library: str, group: CalibrationGroup, profiles: str | None = None
) -> Mapping[str, NDArray[np.float64]]:
    """Arrays of the binary file beside a calibration (correction lattices); empty where there is none."""
    path = find_profile("calibration", calibration_name(hardware, library=library, group=group), profiles=profiles)
    binary = path.with_name(path.stem + ".npz") if path is not None else None
    if binary is None or not binary.is_file():
        return {}
    return _stored_arrays(binary, os.stat(binary).st_mtime_ns)


@lru_cache(maxsize=64)
def _stored_arrays(binary: Path, modified_ns: int) -> StoredArrays:
    """Of a file once, whatever folder of one's own is asked beside it; ``modified_ns`` retires what has changed."""
    return StoredArrays(binary)


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
    log_sigma: LogSigma
    log_sigma_extra: LogSpread
    points: PositiveInt


class TransferPoint(Spec):
    """Mean error of the ``pairs`` (target, relative, family) around one distance."""

    distance: NonNegativeFloat
    mape: NonNegativeFloat
    log_sigma_extra: LogSpread
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
    return load_file(TransferTable, profile_root("hardware_profiles") / "calibration" / "transfer.yaml")


class PowerRange(Spec):
    """The range between idle and TDP [W] that shares are of, on chips with ``compute_units`` of an architecture."""

    compute_units: PositiveInt
    watts: PositiveFloat

    def holds(self, hardware: AcceleratorSpec) -> bool:
        """Whether ``hardware`` is that chip, give or take the units that a part has switched off."""
        return abs(hardware.compute_units / self.compute_units - 1) <= SWITCHED_OFF


SWITCHED_OFF = 0.05
"""Of a chip's units, among parts of one die: 148 of B200 and 152 of GB200."""


class PowerFit(Spec):
    """Shares of the range between idle and TDP: ``base`` whenever busy, plus ``compute`` times the share
    of the tensor units' peak that products take, padding included, plus ``memory`` times that of the time in which the
    memory works.

    architectures : that the fit stands for; fit_mape : mean absolute percentage error over the ``points`` measured runs
    score_mape : the same over kernels that the fit never saw, where any were held out
    ranges : by architecture, of the chip whose other parts do the same work with the same watts, whatever their TDP
    """

    architectures: tuple[str, ...]
    ranges: dict[str, PowerRange] = Field(default_factory=dict)
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

    def of(self, hardware: AcceleratorSpec) -> PowerFit:
        """The fit for an accelerator, as shares of its own range: a higher TDP allows more power than another part of
        the same chip draws, and work takes none of it. Other chips of an architecture keep the shares.
        """
        fit = next((fit for fit in self.fits if hardware.architecture in fit.architectures), self.fits[0])
        known = fit.ranges.get(hardware.architecture)
        if known is None or not known.holds(hardware):
            return fit
        ratio = known.watts / (hardware.tdp_w - hardware.idle_w)
        scaled = {name: ratio * getattr(fit, name) for name in ("base", "compute", "memory")}
        return fit.model_copy(update=scaled)


@lru_cache(maxsize=1)
def load_power_fits() -> PowerFits:
    """The fits shipped with the package (hardware_profiles/calibration/power.yaml)."""
    return load_file(PowerFits, profile_root("hardware_profiles") / "calibration" / "power.yaml")
