"""Arrays beside calibrations: what is read in a short way is what NumPy reads."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.specs.hardware.calibration import CORRECTION_STEP, StoredArrays, _read_array
from simulator.specs.profiles import profile_root
from tests.for_every import for_every

SHIPPED = sorted((profile_root("hardware_profiles") / "calibration").glob("h100-sxm-80gb--*.npz"))
ARRAYS: tuple[NDArray[np.float64], ...] = (
    np.arange(6.0).reshape(2, 3),
    np.arange(5.0),
    np.array(1.5),
    np.zeros((0, 3)),
    np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    np.arange(4).astype(np.float64).astype(">f8"),
    np.arange(4, dtype=np.int64).astype(np.float64),
)


def whole(stored: NDArray[np.generic]) -> NDArray[np.float64]:
    """What a file's array stands for: sizes as they are, corrections as steps from node to node."""
    if stored.dtype.kind != "i":
        return stored.astype(np.float64)
    steps = np.asarray(stored, dtype=np.int64)
    for axis in range(stored.ndim)[-2:]:
        steps = steps.cumsum(axis=axis)
    return steps * CORRECTION_STEP


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_arrays_are_those_that_numpy_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with np.load(path) as archive:
        expected = {key: whole(archive[key]) for key in archive.files}

    def slowly(*_: object) -> None:
        raise AssertionError("a shipped array is not read in the short way")

    monkeypatch.setattr(np.lib.format, "read_array", slowly)
    stored = StoredArrays(path)
    assert list(stored) == list(expected)
    assert len(stored) == len(expected)
    for key in stored:
        assert np.array_equal(stored[key], expected[key])
        assert stored[key].dtype == np.float64
        assert stored[key] is stored[key]


@for_every(ARRAYS)
def test_any_array_that_numpy_writes_is_read(array: NDArray[np.float64]) -> None:
    written = BytesIO()
    np.save(written, array)
    read = _read_array(written.getvalue())
    assert read.shape == array.shape
    assert read.dtype == np.float64
    assert np.array_equal(read, array)


def test_a_file_cut_short_is_refused() -> None:
    written = BytesIO()
    np.save(written, np.arange(8.0))
    with pytest.raises(ValueError, match="array"):
        _read_array(written.getvalue()[:-8])


def test_an_unknown_array_is_a_missing_key() -> None:
    with pytest.raises(KeyError):
        StoredArrays(SHIPPED[0])["nothing of this name"]
