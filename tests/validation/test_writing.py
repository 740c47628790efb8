"""Files of the fits are there in full or not at all."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from validation.writing import write_whole


def test_a_file_is_replaced_in_full_and_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "fits.yaml"
    write_whole(path, "one: 1\n")
    path.chmod(0o640)
    write_whole(path, "µ: 2\n")
    assert path.read_text(encoding="utf-8") == "µ: 2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["fits.yaml"]


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "fits.npz"
    write_whole(path, b"old")

    def refuse(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["fits.npz"]
