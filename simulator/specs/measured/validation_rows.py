"""Measured values of whole runs beside their predictions, as stored with the package."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from simulator.errors import FileError
from simulator.specs.profiles import profile_root


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRow:
    """One measured value and its prediction, SI units.

    low, high : ends of the 80 % interval, NaN where none is stated; load : what was asked, in words
    """

    source: str
    hardware: str
    deployment: str
    load: str
    metric: str
    measured: float
    predicted: float
    low: float
    high: float
    provenance: str

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1

    @property
    def is_covered(self) -> bool | None:
        """Whether the measured value lies in the 80 % interval; None without one."""
        return None if math.isnan(self.low) else self.low <= self.measured <= self.high


def coverage(rows: Iterable[ValidationRow]) -> float | None:
    """Share of the rows with an interval whose measured value lies in it; None without any."""
    covered = [row.is_covered for row in rows if row.is_covered is not None]
    return sum(covered) / len(covered) if covered else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationTable:
    """All stored rows, in the order of their sources, and when and by which version they were predicted."""

    date: str
    version: str
    rows: tuple[ValidationRow, ...]


_NUMBERS = ("measured", "predicted", "low", "high")


def validation_file() -> Path:
    """Where the rows are stored."""
    return profile_root("hardware_profiles") / "validation" / "end_to_end.csv"


_HEADING = "# predicted on {date} by roofcast {version}"
_HEADING_PATTERN = re.compile(r"# predicted on (\S+) by roofcast (\S+)\s*")


def validation_heading(*, date: str, version: str) -> str:
    """The first line of the file, which says when and by what it was predicted."""
    return _HEADING.format(date=date, version=version) + "\n"


def _row(cells: dict[str, str]) -> ValidationRow:
    numbers = {name: float(cells[name]) if cells[name] else math.nan for name in _NUMBERS}
    return ValidationRow(
        source=cells["source"],
        hardware=cells["hardware"],
        deployment=cells["deployment"],
        load=cells["load"],
        metric=cells["metric"],
        measured=numbers["measured"],
        predicted=numbers["predicted"],
        low=numbers["low"],
        high=numbers["high"],
        provenance=cells["provenance"],
    )


@lru_cache(maxsize=1)
def load_validation_table() -> ValidationTable:
    """The stored rows with their date and version."""
    path = validation_file()
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            heading = _HEADING_PATTERN.fullmatch(stream.readline())
            if heading is None:
                raise FileError(f"{path}: the first line does not say when it was predicted", hint="reinstall roofcast")
            rows = tuple(_row(cells) for cells in csv.DictReader(stream))
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}", hint="reinstall roofcast") from error
    return ValidationTable(date=heading[1], version=heading[2], rows=rows)


def load_validation_rows() -> tuple[ValidationRow, ...]:
    """All stored rows, in the order of their sources."""
    return load_validation_table().rows
