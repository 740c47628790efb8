"""Calibration files by accelerator, kernel library and group of operator families."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simulator.specs.calibration import CalibrationSpec
from simulator.specs.loading import find_profile, list_profiles, load_spec, profile_directories

CalibrationGroup = Literal["roofline", "gemm", "moe", "attention", "recurrent", "collective", "elementwise"]


def calibration_name(hardware: str, *, library: str, group: CalibrationGroup) -> str:
    """File stem of a calibration: ``h100-sxm-80gb--vllm.gemm``."""
    return f"{hardware}--{library}.{group}"


def has_calibration(hardware: str, *, library: str, group: CalibrationGroup, profiles: str | None = None) -> bool:
    """Whether `load_calibration` finds something, without reading it."""
    name = calibration_name(hardware, library=library, group=group)
    return find_profile("calibration", name, profiles=profiles) is not None


def calibrations_changed_ns(profiles: str | None = None) -> tuple[int, ...]:
    """When files were last added to or removed from each directory of calibrations [ns since the epoch]; 0 without."""
    roots = profile_directories("calibration", profiles=profiles)
    return tuple(root.stat().st_mtime_ns if root.is_dir() else 0 for root in roots)


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


class _StoredArrays(Mapping[str, NDArray[np.float64]]):
    """Arrays of a binary file, each unpacked when it is first asked for: a plan needs few of a file's many."""

    def __init__(self, path: Path) -> None:
        # The bytes are taken at once, so that no file stays open.
        self._archive = np.load(BytesIO(path.read_bytes()), allow_pickle=False)
        self._unpacked: dict[str, NDArray[np.float64]] = {}

    def __getitem__(self, key: str) -> NDArray[np.float64]:
        if key not in self._unpacked:
            self._unpacked[key] = np.asarray(self._archive[key], dtype=np.float64)
        return self._unpacked[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._archive.files)

    def __len__(self) -> int:
        return len(self._archive.files)


@lru_cache(maxsize=64)
def load_arrays(
    hardware: str, *, library: str, group: CalibrationGroup, profiles: str | None = None
) -> Mapping[str, NDArray[np.float64]]:
    """Arrays of the binary file beside a calibration (correction lattices); empty where there is none."""
    path = find_profile("calibration", calibration_name(hardware, library=library, group=group), profiles=profiles)
    binary = path.with_name(path.stem + ".npz") if path is not None else None
    if binary is None or not binary.is_file():
        return {}
    return _StoredArrays(binary)
