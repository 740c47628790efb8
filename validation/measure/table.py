"""The CSV of measurements: one row a kernel and shape, written whole or not at all."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What was run; only the coordinates of its family are set, the others are 0.

    m, n, k : product (m, k) x (k, n); groups : independent products (experts) that share the m rows
    sequences, query_tokens, context_tokens : tokens before the queries are ``context_tokens``
    bytes : read plus written by a pass or a copy; layers : of a whole model
    """

    m: int = 0
    n: int = 0
    k: int = 0
    groups: int = 0
    sequences: int = 0
    query_tokens: int = 0
    context_tokens: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    bytes: int = 0
    layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What it ran on; ``date`` is the ISO day."""

    device: str
    driver: str
    torch_version: str
    date: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Median seconds of one execution, the interquartile range over the median, and how many samples.

    mode : graph (replayed CUDA graph), eager (queued launches), host (wall clock of the calling thread)
    power_w, clock_hz : mean while it ran, or None where nothing could be read
    """

    seconds: float
    spread: float
    repeats: int
    mode: str
    power_w: float | None = None
    clock_hz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the file."""

    family: str
    kernel: str
    format: str
    shape: Shape
    measured: Measured


COLUMNS = (
    "family",
    "kernel",
    "format",
    *(field.name for field in fields(Shape)),
    *(field.name for field in fields(Measured)),
    *(field.name for field in fields(Machine)),
)


def _cells(row: Row, machine: Machine) -> list[str]:
    values: list[object] = [row.family, row.kernel, row.format]
    values += [getattr(row.shape, field.name) or None for field in fields(Shape)]
    values += [getattr(row.measured, field.name) for field in fields(Measured)]
    values += [getattr(machine, field.name) for field in fields(Machine)]
    return ["" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value) for value in values]


def check_target(path: Path, *, force: bool) -> None:
    """Refuse before measuring what could not be written after it."""
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists; choose another name or add --force")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent} is not a directory")


def write_table(rows: Iterable[Row], path: Path, *, machine: Machine, force: bool = False) -> None:
    """Write all rows; the file appears under its name only when it is complete."""
    check_target(path, force=force)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(COLUMNS)
            writer.writerows(_cells(row, machine) for row in rows)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
