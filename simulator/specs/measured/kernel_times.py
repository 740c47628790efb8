"""Kernel times that a user measured: the CSV of ``python -m validation.measure``, checked row by row."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from simulator.errors import FileError, RoofcastError, did_you_mean
from simulator.records import dataclass

SHAPE_COLUMNS = (
    "m", "n", "k", "groups", "sequences", "query_tokens", "context_tokens", "num_heads", "num_kv_heads", "head_dim",
    "bytes", "layers",
)  # fmt: skip
NAME_COLUMNS = ("family", "kernel", "format")
MACHINE_COLUMNS = ("device", "driver", "torch_version", "date")
REQUIRED_COLUMNS = (*NAME_COLUMNS, *SHAPE_COLUMNS, "seconds", "mode", *MACHINE_COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKernel:
    """One row: what ran and its median time [s]; coordinates that its family does not have are 0.

    line : of the file, for messages; mode : graph, eager or host; model : of a whole layer or model, empty in files
        of before it was written
    """

    line: int
    family: str
    kernel: str
    format: str
    m: float
    n: float
    k: float
    groups: float
    sequences: float
    query_tokens: float
    context_tokens: float
    num_heads: float
    num_kv_heads: float
    head_dim: float
    bytes: float
    layers: float
    seconds: float
    mode: str
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTable:
    """All rows of one file, from one device; ``date`` is the ISO day of the newest row."""

    path: str
    device: str
    driver: str
    torch_version: str
    date: str
    rows: tuple[MeasuredKernel, ...]


def _refuse(message: str, *, line: int, column: str, hint: str = "") -> RoofcastError:
    return RoofcastError(f"row {line}: {message}", field=column, code="invalid_measurement", hint=hint)


def _number(text: str, *, line: int, column: str) -> float:
    """A finite number that is not negative; an empty cell is 0 in a shape."""
    try:
        value = float(text) if text.strip() else 0.0
    except ValueError:
        raise _refuse(f"{text!r} is not a number", line=line, column=column) from None
    if not math.isfinite(value):
        raise _refuse(f"{text!r}; allowed: finite numbers", line=line, column=column)
    if value < 0:
        raise _refuse(f"{text} is negative", line=line, column=column)
    return value


def _seconds(text: str, *, line: int) -> float:
    value = _number(text, line=line, column="seconds")
    if value == 0:
        shown = repr(text) if text.strip() else "an empty cell"
        raise _refuse(f"{shown}; a time is positive", line=line, column="seconds")
    return value


def _day(text: str, *, line: int) -> str:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise _refuse(f"{text!r} is not an ISO date", line=line, column="date", hint="like 2026-11-21") from None


def _kernel(cells: Mapping[str, str], *, line: int) -> MeasuredKernel:
    for column in NAME_COLUMNS:
        if not cells[column]:
            raise _refuse("is empty", line=line, column=column)
    shape = {column: _number(cells[column], line=line, column=column) for column in SHAPE_COLUMNS}
    return MeasuredKernel(
        line=line,
        family=cells["family"],
        kernel=cells["kernel"],
        format=cells["format"],
        seconds=_seconds(cells["seconds"], line=line),
        mode=cells["mode"],
        model=cells.get("model", ""),
        **shape,
    )


def _check_header(header: list[str], *, path: Path) -> None:
    missing = [column for column in REQUIRED_COLUMNS if column not in header]
    if missing:
        raise RoofcastError(
            f"row 1: the column is missing from {path}" + (f" (and {len(missing) - 1} more)" if missing[1:] else ""),
            field=missing[0],
            code="missing_column",
            hint=did_you_mean(missing[0], header) if header else "the file is empty",
        )
    twice = sorted({column for column in header if header.count(column) > 1})
    if twice:
        raise RoofcastError(f"row 1: the column stands twice in {path}", field=twice[0], code="duplicate_column")


def _check_machine(records: list[tuple[int, Mapping[str, str]]]) -> None:
    """One file, one machine: a fit over two would describe neither."""
    first_line, first = records[0]
    for column in ("device", "driver", "torch_version"):
        for line, cells in records:
            if not cells[column]:
                raise _refuse("is empty", line=line, column=column)
            if cells[column] != first[column]:
                raise _refuse(
                    f"{cells[column]!r}, but row {first_line} has {first[column]!r}: mixed measurements",
                    line=line,
                    column=column,
                    hint="calibrate each machine from a file of its own",
                )


def _records(path: Path) -> list[tuple[int, Mapping[str, str]]]:
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.reader(stream)
            header = next(reader, [])
            _check_header(header, path=path)
            records: list[tuple[int, Mapping[str, str]]] = []
            for cells in reader:
                if len(cells) != len(header):
                    column = header[min(len(cells), len(header) - 1)]
                    message = f"{len(cells)} cells under {len(header)} columns"
                    raise _refuse(message, line=reader.line_num, column=column)
                records.append((reader.line_num, dict(zip(header, cells, strict=True))))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}", field="measured.csv") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise RoofcastError(f"{path}: not a CSV file: {error}", code="invalid_measurement") from None
    if not records:
        raise RoofcastError(f"row 2: {path} holds no rows", field="seconds", code="too_few_points")
    return records


def load_measurements(path: str | Path) -> MeasuredTable:
    """Read a file of measurements.

    Raises FileError: it cannot be read.
    Raises RoofcastError: a column is missing, or a cell is not what it should be (not a number, NaN, negative, another
    device); names row and column.
    """
    records = _records(Path(path))
    _check_machine(records)
    first = records[0][1]
    return MeasuredTable(
        path=str(path),
        device=first["device"],
        driver=first["driver"],
        torch_version=first["torch_version"],
        date=max(_day(cells["date"], line=line) for line, cells in records),
        rows=tuple(_kernel(cells, line=line) for line, cells in records),
    )
