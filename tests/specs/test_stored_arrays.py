"""Arrays beside a calibration: unpacked one by one, the same as the file holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulator.specs.calibrations import calibrations_changed_ns, has_calibration, load_arrays, load_calibration
from simulator.specs.loading import profile_root


def test_stored_arrays_are_those_of_the_file() -> None:
    arrays = load_arrays("h100-sxm-80gb", library="vllm", group="gemm")
    path = profile_root("hardware_profiles") / "calibration" / "h100-sxm-80gb--vllm.gemm.npz"
    with np.load(path, allow_pickle=False) as archive:
        assert set(arrays) == set(archive.files)
        assert len(arrays) == len(archive.files) > 1
        for key in archive.files:
            np.testing.assert_array_equal(arrays[key], archive[key])
            assert arrays[key].dtype == np.float64
    assert arrays[key] is arrays[key]
    with pytest.raises(KeyError):
        arrays["nothing"]


def test_has_calibration_says_what_loading_finds() -> None:
    for hardware in ("h100-sxm-80gb", "t4"):
        found = load_calibration(hardware, library="vllm", group="attention")
        assert has_calibration(hardware, library="vllm", group="attention") == (found is not None)
    assert not load_arrays("t4", library="vllm", group="attention")


def test_a_new_file_changes_the_stamp(tmp_path: Path) -> None:
    before = calibrations_changed_ns(str(tmp_path))
    folder = tmp_path / "calibration"
    folder.mkdir()
    (folder / "x--torch.roofline.yaml").write_text("{}", encoding="utf-8")
    assert calibrations_changed_ns(str(tmp_path)) != before
