"""Measurement files: what is wrong is refused by row and column."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.errors import FileError, RoofcastError
from simulator.specs.measured.kernel_times import REQUIRED_COLUMNS, load_measurements

GOOD = {
    "family": "gemm",
    "kernel": "linear",
    "format": "bf16",
    "m": "16",
    "n": "1024",
    "k": "1024",
    "seconds": "1e-05",
    "mode": "graph",
    "device": "GPU A",
    "driver": "1",
    "torch_version": "2.13",
    "date": "2026-11-21",
}


def write(tmp_path: Path, *rows: dict[str, str], columns: tuple[str, ...] = REQUIRED_COLUMNS) -> Path:
    path = tmp_path / "measured.csv"
    lines = [",".join(columns)] + [",".join(row.get(column, "") for column in columns) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_good_file_reads_with_empty_coordinates_as_zero(tmp_path: Path) -> None:
    table = load_measurements(write(tmp_path, GOOD, {**GOOD, "m": "32", "date": "2026-11-22"}))
    assert (table.device, table.date) == ("GPU A", "2026-11-22")
    first, second = table.rows
    assert (first.line, second.line) == (2, 3)
    assert (first.m, first.head_dim, first.seconds) == (16.0, 0.0, 1e-5)


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("seconds", "nan", "finite"),
        ("seconds", "inf", "finite"),
        ("seconds", "-1e-5", "negative"),
        ("seconds", "0", "positive"),
        ("seconds", "", "positive"),
        ("seconds", "fast", "not a number"),
        ("n", "nan", "finite"),
        ("k", "-4", "negative"),
        ("device", "GPU B", "mixed"),
        ("driver", "2", "mixed"),
        ("torch_version", "2.12", "mixed"),
        ("device", "", "empty"),
        ("date", "yesterday", "ISO"),
        ("format", "", "empty"),
    ],
)
def test_a_bad_cell_is_named_by_row_and_column(tmp_path: Path, column: str, value: str, words: str) -> None:
    path = write(tmp_path, GOOD, {**GOOD, column: value})
    with pytest.raises(RoofcastError, match=words) as caught:
        load_measurements(path)
    assert caught.value.field == column
    assert "row 3" in caught.value.message


@pytest.mark.parametrize("column", REQUIRED_COLUMNS)
def test_a_missing_column_is_named(tmp_path: Path, column: str) -> None:
    columns = tuple(name for name in REQUIRED_COLUMNS if name != column)
    with pytest.raises(RoofcastError) as caught:
        load_measurements(write(tmp_path, GOOD, columns=columns))
    assert (caught.value.field, caught.value.code) == (column, "missing_column")
    assert "row 1" in caught.value.message


def test_torn_and_empty_files_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.write_text(path.read_text() + "gemm,linear,bf16\n")
    with pytest.raises(RoofcastError, match="row 3: 3 cells") as caught:
        load_measurements(path)
    assert caught.value.field == REQUIRED_COLUMNS[3]
    path.write_text("")
    with pytest.raises(RoofcastError, match="row 1"):
        load_measurements(path)
    with pytest.raises(RoofcastError, match="row 2"):
        load_measurements(write(tmp_path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(RoofcastError, match="not a CSV"):
        load_measurements(path)
    with pytest.raises(FileError):
        load_measurements(tmp_path / "absent.csv")
