"""The CSV of measurements: one row a kernel and shape, on the disk as soon as it was measured."""

from __future__ import annotations

import csv
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import IO


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What was run; only the coordinates of its family are set, the others are 0.

    m, n, k : product (m, k) x (k, n); groups : independent products (experts) that share the m rows
    sequences, query_tokens, context_tokens : tokens before the queries are ``context_tokens``
    bytes : read plus written by a pass or a copy; layers : of a whole model; model : whose shape it has
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
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What it ran on; ``date`` is the ISO day.

    cudnn, cublas : versions of the libraries; power_limit_w : of the board; commit : of the harness; seed : of the
    operands and of the order of the groups. Empty or None where nothing tells.
    """

    device: str
    driver: str
    torch_version: str
    date: str
    cudnn: str = ""
    cublas: str = ""
    power_limit_w: float | None = None
    commit: str = ""
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Median seconds of one execution, the interquartile range over the median, and how many samples.

    mode : graph (replayed CUDA graph), eager (queued launches), host (wall clock of the calling thread)
    power_w, clock_hz : mean while it ran, or None where nothing could be read
    throttle : reasons for a lower clock that the driver gave meanwhile, as the bits of nvml.h; None where unread
    """

    seconds: float
    spread: float
    repeats: int
    mode: str
    power_w: float | None = None
    clock_hz: float | None = None
    throttle: int | None = None


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


class Table:
    """An open file of measurements: every row is a complete line on the disk before the next one is measured.

    A run that is killed leaves what it measured. ``append`` goes on in a file of the same columns.
    """

    def __init__(self, path: Path, *, machine: Machine, force: bool = False, append: bool = False) -> None:
        going_on = append and path.exists()
        if not going_on:
            check_target(path, force=force)
        self._machine = machine
        self._stream: IO[str] = path.open("a" if going_on else "w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._stream, lineterminator="\n")
        if not going_on:
            self._writer.writerow(COLUMNS)
            self._stream.flush()

    def write(self, row: Row) -> None:
        """Add one row."""
        self._writer.writerow(_cells(row, self._machine))
        self._stream.flush()

    def __enter__(self) -> Table:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()
