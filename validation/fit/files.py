"""Writing calibrations: a small YAML of fits and a compressed .npz of their correction lattices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.kernels.correction import Lattice
from simulator.specs.calibration import CalibrationSpec
from simulator.specs.writing import json_yaml_text

HEADING = "Written by validation/fit; do not edit."
HEADER = f"# {HEADING}\n"


def lattice_arrays(lattice: Lattice, *, key: str) -> dict[str, NDArray[np.generic]]:
    """Arrays of one lattice as ``lattice_of`` reads them back; values in half precision (3 significant digits)."""
    arrays: dict[str, NDArray[np.generic]] = {key: lattice.values.astype(np.float16)}
    for axis, nodes in zip(lattice.axes, lattice.nodes, strict=True):
        arrays[f"{key}.{axis}"] = np.exp2(nodes).round(9)
    return arrays


def write_calibration(
    calibration: CalibrationSpec, *, group: str, arrays: Mapping[str, NDArray[np.generic]], directory: Path
) -> Path:
    """Write ``<hardware>--<library>.<group>.yaml`` and, if there are arrays, the .npz beside it; returns the YAML."""
    stem = f"{calibration.hardware}--{calibration.library}.{group}"
    path = directory / f"{stem}.yaml"
    path.write_text(json_yaml_text(calibration, heading=HEADING), encoding="utf-8")
    if arrays:
        np.savez_compressed(directory / f"{stem}.npz", **dict(arrays))
    return path
