"""A physics fit with its correction, as every table's fit ends: scored, rounded, printed and written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.fitting.kernel_fits import fit_error
from simulator.kernels.fits import lattice_of
from simulator.kernels.timing import Lattice
from simulator.specs.base import read_yaml, validate
from simulator.specs.hardware.calibration import (
    CORRECTION_STEP,
    CalibrationGroup,
    CalibrationSpec,
    KernelFit,
    StoredArrays,
)
from validation.fit.files import lattice_arrays, write_calibration
from validation.silicon.tables import SOURCE

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """One KernelFit with the lattice of its correction, if it has one, and the error of its physics alone."""

    fit: KernelFit
    lattice: Lattice | None
    physics_mape: float

    @property
    def key(self) -> str:
        """Name of the lattice's arrays beside the calibration."""
        return self.fit.correction.key if self.fit.correction else f"{self.fit.family}.{self.fit.format}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Fits that are not made again, with the arrays of their lattices."""

    fits: tuple[KernelFit, ...]
    arrays: Mapping[str, NDArray[np.generic]]


def kept_fits(path: Path, *, made_again: Callable[[KernelFit], bool]) -> Kept | None:
    """The fits of a calibration file other than those ``made_again``; None where there is no file."""
    if not path.exists():
        return None
    before = validate(CalibrationSpec, read_yaml(path), where=str(path))
    fits = tuple(fit for fit in before.fits if not made_again(fit))
    stored = StoredArrays(path.with_suffix(".npz"))
    arrays: dict[str, NDArray[np.generic]] = {}
    for fit in fits:
        lattice = lattice_of(fit.correction, stored)
        if fit.correction is not None and lattice is not None:
            arrays |= lattice_arrays(lattice, key=fit.correction.key)
    return Kept(fits=fits, arrays=arrays)


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Seconds and stated log_sigma of every measured row, and its seconds without the lattice."""

    seconds: Array
    log_sigma: Array
    physics_s: Array


def scored(
    draft: KernelFit, *, lattice: Lattice | None, measured: Array, predicted: Predicted, is_score: NDArray[np.bool_]
) -> Fitted:
    """``draft`` with its errors on rows that it saw and did not see."""
    error = fit_error(measured, predicted.seconds, log_sigma=predicted.log_sigma, is_score=is_score)
    return Fitted(
        fit=draft.model_copy(update={"error": error}),
        lattice=lattice,
        physics_mape=float(np.mean(np.abs(predicted.physics_s[is_score] / measured[is_score] - 1.0))),
    )


def rounded(lattice: Lattice) -> Lattice:
    """The lattice as its file keeps it."""
    return replace(lattice, values=np.round(lattice.values / CORRECTION_STEP) * CORRECTION_STEP)


def box_of(points: Array, *, axes: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Range of each coordinate in the fitted rows, in its own unit; six digits keep 131072 whole."""
    low, high = np.exp2(points.min(axis=0)), np.exp2(points.max(axis=0))
    return {axis: (float(f"{low[i]:.6g}"), float(f"{high[i]:.6g}")) for i, axis in enumerate(axes)}


def lattice_nodes(points: Array, *, axes: tuple[str, ...]) -> tuple[Array, ...]:
    """A node per octave; of the number of sequences, which matters least, one in three."""
    nodes = []
    for axis, name in enumerate(axes):
        step = 3.0 if name == "sequences" else 1.0
        low, high = np.floor(points[:, axis].min()), np.ceil(points[:, axis].max())
        nodes.append(np.arange(low, max(high, low + step) + step - 0.01, step))
    return tuple(nodes)


def report(fitted: Fitted, *, hardware: str, library: str, points: int) -> None:
    """One line on the screen."""
    error = fitted.fit.error
    print(
        f"{hardware:15} {library:7} {fitted.key:32} {points:5d} points: physics {fitted.physics_mape:6.2%} "
        f"score {error.score_mape:6.2%} fit {error.fit_mape:6.2%} bias {error.score_bias:+.2%} "
        f"coverage {error.coverage_80:.1%} {fitted.fit.note}",
        flush=True,
    )


def write_fits(
    fitted: Sequence[Fitted],
    *,
    hardware: str,
    library: str,
    version: str,
    group: CalibrationGroup,
    split: str,
    directory: Path,
    kept: Kept | None = None,
    source: str = SOURCE,
) -> None:
    """Write the calibration of one accelerator and library with its lattices; nothing where nothing was fitted.

    version : of the library; split : which tables were read and what was held out
    kept : fits of an earlier run that stay beside the new ones
    """
    if not fitted and kept is None:
        return
    calibration = CalibrationSpec(
        hardware=hardware,
        library=library,
        library_version=version,
        date=datetime.now(UTC).date().isoformat(),
        source=f"{source}, {split}",
        fits=(*(kept.fits if kept else ()), *(item.fit for item in fitted)),
    )
    arrays: dict[str, NDArray[np.generic]] = dict(kept.arrays) if kept else {}
    for item in fitted:
        if item.lattice is not None:
            arrays |= lattice_arrays(item.lattice, key=item.key)
    write_calibration(calibration, group=group, arrays=arrays, directory=directory)
