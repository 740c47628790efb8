"""Measured values of whole runs beside their predictions, as stored with the package, and what predicted them."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

from simulator.errors import FileError, Option, RoofcastError, did_you_mean
from simulator.records import dataclass
from simulator.specs.profiles import profile_root


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What ran and what was asked of it, by the names of the scenario's fields; None for what it does not have.

    run : identifier of the scenario; model_class : dense, MoE and the like
    mode : disaggregated, or of replicas that do both how they speculate, or aggregated
    tp_size to cp_size : degrees of the replicas that generate; prefill_tp_size on : of those that only read prompts
    weights, scheme, kv_cache : formats that are not the checkpoint's own
    batch_size, concurrency : sequences at once; rate_per_s : requests of kind serve
    """

    source: str
    run: str
    hardware: str
    engine: str
    model: str
    model_class: str
    mode: str
    tp_size: int
    pp_size: int
    ep_size: int
    dp_size: int
    cp_size: int
    prefill_replicas: int | None
    decode_replicas: int | None
    prefill_tp_size: int | None
    prefill_pp_size: int | None
    prefill_ep_size: int | None
    prefill_dp_size: int | None
    prefill_cp_size: int | None
    weights: str | None
    scheme: str | None
    kv_cache: str | None
    kind: str
    batch_size: int | None
    concurrency: int | None
    isl_tokens: int | None
    osl_tokens: int | None
    rate_per_s: float | None

    @property
    def degrees(self) -> tuple[int, ...]:
        """Degrees of a replica that generates, in the order of ``ParallelismSpec``."""
        return self.tp_size, self.pp_size, self.ep_size, self.dp_size, self.cp_size

    @property
    def prefill_degrees(self) -> tuple[int, ...] | None:
        """Degrees of a replica that only reads prompts; None without such replicas."""
        found = (
            self.prefill_tp_size,
            self.prefill_pp_size,
            self.prefill_ep_size,
            self.prefill_dp_size,
            self.prefill_cp_size,
        )
        return None if self.prefill_replicas is None else tuple(size or 1 for size in found)


class Predicted:
    """A measured value and its prediction in SI units, with its 80 % interval; NaN or None where none is stated."""

    __slots__ = ()
    source: str
    hardware: str
    metric: str
    measured: float
    predicted: float
    low: float | None
    high: float | None

    @property
    def error(self) -> float:
        """Signed relative error."""
        return self.predicted / self.measured - 1

    @property
    def is_covered(self) -> bool | None:
        """Whether the measured value lies in the 80 % interval; None without one."""
        if self.low is None or self.high is None or math.isnan(self.low):
            return None
        return self.low <= self.measured <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRow(RunFacts, Predicted):
    """One measured value of a run and its prediction, SI units; low, high : NaN where no interval is stated."""

    metric: str
    measured: float
    predicted: float
    low: float
    high: float
    provenance: str

    def rounded(self) -> ValidationRow:
        """This row with figures of four digits, more than any measurement has, as it is stored."""
        numbers = {name: float(f"{getattr(self, name):.4g}") for name in ("measured", "predicted", "low", "high")}
        return replace(self, **numbers)  # type: ignore[arg-type]


def coverage(items: Iterable[Predicted]) -> float | None:
    """Share of the values with an interval that lie in it; None without any."""
    covered = [item.is_covered for item in items if item.is_covered is not None]
    return sum(covered) / len(covered) if covered else None


RunT = TypeVar("RunT", bound=RunFacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoice:
    """Which runs count; None takes any. ``model`` may be a part of the name; case does not matter."""

    hardware: str | None = None
    engine: str | None = None
    model: str | None = None
    mode: str | None = None

    def of(self, runs: Sequence[RunT]) -> list[RunT]:
        """The chosen runs, or rows of runs. Raises RoofcastError: none is so; it names what was measured."""
        kept = list(runs)
        for item in fields(self):
            name, wanted = item.name, getattr(self, item.name)
            if wanted is None:
                continue
            measured = sorted({getattr(run, name) for run in kept})
            same = _meant(wanted, measured, part=name == "model")
            kept = [run for run in kept if getattr(run, name) in same]
            if not kept:
                raise RoofcastError(
                    f"no run with {wanted!r} was measured; measured: {', '.join(measured)}",
                    field=Option(name),
                    code="not_measured",
                    hint=did_you_mean(wanted, measured),
                )
        return kept


def _meant(wanted: str, measured: Iterable[str], *, part: bool) -> set[str]:
    """The values of that name; of parts of a name all that hold it, where none is it."""
    asked = wanted.lower().rsplit("/", maxsplit=1)[-1]
    whole = {value for value in measured if value.lower() == asked}
    return whole or {value for value in measured if part and asked in value.lower()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationTable:
    """All stored rows, in the order of their sources, and when and by what they were predicted."""

    date: str
    version: str
    digest: str
    rows: tuple[ValidationRow, ...]

    @property
    def is_current(self) -> bool:
        """Whether this library, with these profiles, is what predicted them."""
        return self.digest == library_digest()


_PREDICTING = ("specs", "operators", "techniques", "kernels", "phases", "traffic", "engine")
_FIGURES = (".yaml", ".npz", ".csv")
# Measured runs and prices enter no prediction of a run.
_IDLE_FOLDERS = ("validation", "prices")
_IDLE_SPECS = ("measured", "money")


@lru_cache(maxsize=1)
def library_digest() -> str:
    """Digest of all that a prediction of a run is made of: the layers up to the engine, the profiles and the fits."""
    found = blake2b(digest_size=8)
    for name, path in sorted(_predicting_files()):
        found.update(name.encode("utf-8"))
        found.update(path.read_bytes())
    return found.hexdigest()


def _predicting_files() -> Iterator[tuple[str, Path]]:
    package = Path(__file__).resolve().parents[2]
    for layer in _PREDICTING:
        for path in (package / layer).rglob("*"):
            inside = path.relative_to(package)
            if path.suffix not in (".py", *_FIGURES):
                continue
            if layer != "specs" or inside.parts[1] not in _IDLE_SPECS:
                yield inside.as_posix(), path
    for kind in ("hardware_profiles", "model_profiles"):
        root = profile_root(kind)
        for path in root.rglob("*"):
            inside = path.relative_to(root)
            if path.suffix in _FIGURES and inside.parts[0] not in _IDLE_FOLDERS:
                yield f"{kind}/{inside.as_posix()}", path


@contextmanager
def _shipped(path: Path) -> Iterator[None]:
    """Refusals of a file of the package that is missing or not as it was packed."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}", hint="reinstall roofcast") from error
    except (ValueError, TypeError) as error:
        raise FileError(f"{path}: is damaged: {error}", hint="reinstall roofcast") from error


def validation_file() -> Path:
    """Where the rows are stored."""
    return profile_root("hardware_profiles") / "validation" / "end_to_end.csv"


_HEADING = "# predicted on {date} by roofcast {version} ({digest})"
_HEADING_PATTERN = re.compile(r"# predicted on (\S+) by roofcast (\S+) \((\w+)\)\s*")


def validation_heading(*, date: str, version: str, digest: str) -> str:
    """The first line of the file, which says when and by what it was predicted."""
    return _HEADING.format(date=date, version=version, digest=digest) + "\n"


_READERS: Mapping[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": lambda cell: float(cell) if cell else math.nan,
    "str | None": lambda cell: cell or None,
    "int | None": lambda cell: int(cell) if cell else None,
    "float | None": lambda cell: float(cell) if cell else None,
}
"""What a cell says, by the annotation of its field."""


def _rows(lines: Iterable[str]) -> Iterator[ValidationRow]:
    """Rows under a line with the names of their columns. Raises ValueError: a cell or a column is not as written."""
    table = csv.reader(lines)
    readers = {item.name: _READERS[str(item.type)] for item in fields(ValidationRow)}
    if next(table) != list(readers):
        raise ValueError("its columns are others")
    columns: list[Iterable[Any]] = []
    for reader, cells in zip(readers.values(), zip(*table, strict=True), strict=True):
        # Few of a column's cells differ: each is read once.
        said = {cell: reader(cell) for cell in set(cells)}
        columns.append(cells if reader is str else map(said.__getitem__, cells))
    for values in zip(*columns, strict=True):
        yield ValidationRow(**dict(zip(readers, values, strict=True)))


@lru_cache(maxsize=1)
def load_validation_table() -> ValidationTable:
    """The stored rows with their date, version and digest."""
    path = validation_file()
    with _shipped(path), path.open(encoding="utf-8", newline="") as stream:
        heading = _HEADING_PATTERN.fullmatch(stream.readline())
        if heading is None:
            raise ValueError("the first line does not say when it was predicted")
        rows = tuple(_rows(stream))
    return ValidationTable(date=heading[1], version=heading[2], digest=heading[3], rows=rows)


def load_validation_rows() -> tuple[ValidationRow, ...]:
    """All stored rows, in the order of their sources."""
    return load_validation_table().rows


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeRun:
    """One deployment and load, with everything that was measured of it.

    scenario : the contract's scenario object; measured : result field -> value in SI units
    """

    source: str
    scenario: Mapping[str, Any]
    measured: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsOrigin:
    """Who measured the packed runs, when, where they were read, what was fitted to them, which of them were packed."""

    source: str
    published: str
    revision: str
    date: str
    fitted: str
    selection: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRuns:
    """The runs of one source."""

    origin: RunsOrigin
    runs: tuple[WholeRun, ...]


def runs_file() -> Path:
    """Closed loops of today's models and accelerators."""
    return profile_root("hardware_profiles") / "validation" / "today.jsonl"


def load_today_runs() -> PackedRuns:
    """The packed runs, in the order of their source. Raises FileError: the file is missing or damaged."""
    path = runs_file()
    with _shipped(path):
        heading, *lines = path.read_text(encoding="utf-8").splitlines()
        origin = RunsOrigin(**json.loads(heading))
        found = tuple(WholeRun(source=origin.source, **json.loads(line)) for line in lines)
    return PackedRuns(origin=origin, runs=found)
