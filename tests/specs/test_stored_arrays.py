"""Arrays beside calibrations: what is read in a short way is what NumPy reads."""

from __future__ import annotations

import shutil
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import numpy as np
import pytest
from numpy.typing import NDArray

from simulator.api.steps import step
from simulator.errors import ProfileError
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


def _packed(arrays: dict[str, bytes]) -> bytes:
    packed = BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        for key, content in arrays.items():
            archive.writestr(f"{key}.npy", content)
    return packed.getvalue()


def _saved(array: NDArray[Any]) -> bytes:
    written = BytesIO()
    np.save(written, array, allow_pickle=True)
    return written.getvalue()


_GOOD = {"m": np.array([1.0, 2.0]), "n": np.array([8.0]), "k": np.array([4.0]), "gemm.bf16": np.zeros((2, 1, 1))}
_HEADING = b"\x93NUMPY\x01\x00v\x00{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999,), }"


def _with(**changed: NDArray[Any] | None) -> bytes:
    arrays = {**_GOOD, **{key.replace("bf16", "gemm.bf16"): value for key, value in changed.items()}}
    return _packed({key: _saved(value) for key, value in arrays.items() if value is not None})


_HOSTILE: dict[str, tuple[bytes, str]] = {
    "no archive": (b"hello", "not a zip file"),
    "cut short": (_with()[:-40], "not a zip file"),
    "no array": (_packed({key: b"hello" for key in _GOOD}), "magic"),
    "missing": (_with(m=None), "no item named"),
    "objects": (_with(m=np.array([{}, 1], dtype=object)), "pickle"),
    "text": (_with(m=np.array(["a", "b"])), "float"),
    "complex": (_with(bf16=np.zeros((2, 1, 1), dtype=complex)), "complex"),
    "one number": (_with(m=np.array(1.0)), "rise"),
    "falling": (_with(m=np.array([2.0, 1.0])), "rise"),
    "from nothing": (_with(m=np.array([0.0, 1.0])), "rise"),
    "endless": (_with(m=np.array([1.0, np.inf])), "rise"),
    "no numbers": (_with(bf16=np.full((2, 1, 1), np.nan)), "within 10"),
    "too far": (_with(bf16=np.full((2, 1, 1), 11.0)), "within 10"),
    "another shape": (_with(bf16=np.zeros((1, 1, 1))), "every node"),
    "a bomb": (_with(m=np.ones(3_000_000)), "more than 16 MB"),
    "a heading": (_packed({key: _HEADING + b" " * 40 + b"\n" for key in _GOOD}), "."),
}


@pytest.mark.parametrize("name", _HOSTILE)
def test_an_archive_of_ones_own_is_read_or_refused_in_a_line(name: str, tmp_path: Path) -> None:
    content, said = _HOSTILE[name]
    stem = "h100-sxm-80gb--sglang.gemm"
    (tmp_path / "calibration").mkdir()
    shutil.copy(profile_root("hardware_profiles") / "calibration" / f"{stem}.yaml", tmp_path / "calibration")
    (tmp_path / "calibration" / f"{stem}.npz").write_bytes(content)
    with pytest.raises(ProfileError, match=said) as refused:
        step(model="llama-3.1-8b", hardware="h100", profiles=str(tmp_path))
    assert f"the arrays of {stem} cannot be read" in str(refused.value)
    assert str(refused.value).isprintable()
