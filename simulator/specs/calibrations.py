"""Calibration files by accelerator, kernel library and group of operator families."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simulator.specs.calibration import CalibrationSpec
from simulator.specs.loading import find_profile, list_profiles, load_spec

CalibrationGroup = Literal["roofline", "gemm", "moe", "attention", "recurrent", "collective", "elementwise"]


def calibration_name(hardware: str, *, library: str, group: CalibrationGroup) -> str:
    """File stem of a calibration: ``h100-sxm-80gb--vllm.gemm``."""
    return f"{hardware}--{library}.{group}"


@lru_cache(maxsize=512)
def load_calibration(
    hardware: str, *, library: str, group: CalibrationGroup, profiles: str | None = None
) -> CalibrationSpec | None:
    """The fits of one accelerator, library and group; None where nothing was measured."""
    name = calibration_name(hardware, library=library, group=group)
    if find_profile("calibration", name, profiles=profiles) is None:
        return None
    return load_spec(CalibrationSpec, name, kind="calibration", profiles=profiles)


@lru_cache(maxsize=64)
def calibrated_hardware(library: str, *, group: CalibrationGroup, profiles: str | None = None) -> tuple[str, ...]:
    """Accelerators that have a calibration of this library and group, sorted."""
    ending = f"--{library}.{group}"
    names = list_profiles("calibration", profiles=profiles)
    return tuple(name.removesuffix(ending) for name in names if name.endswith(ending))


@lru_cache(maxsize=64)
def load_arrays(hardware: str, *, library: str, group: CalibrationGroup, profiles: str | None = None) -> Mapping[str, NDArray[np.float64]]:
    """Arrays of the binary file beside a calibration (correction lattices); empty where there is none."""
    path = find_profile("calibration", calibration_name(hardware, library=library, group=group), profiles=profiles)
    binary = path.with_name(path.stem + ".npz") if path is not None else None
    if binary is None or not binary.is_file():
        return {}
    with np.load(binary, allow_pickle=False) as archive:
        return {key: np.asarray(archive[key], dtype=np.float64) for key in archive.files}
