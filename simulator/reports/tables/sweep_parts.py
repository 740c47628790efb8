"""The parts of a sweep's table: rows of one set of typed columns as Parquet, or as JSON lines without pyarrow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

from simulator.records import dataclass

ColumnKind = Literal["number", "whole", "truth", "text"]
PartFormat = Literal["parquet", "jsonl"]
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SweepColumn:
    """A column of every part: whatever a part holds, it has all columns, each of its kind."""

    name: str
    kind: ColumnKind


def column_of(name: str, values: Sequence[object]) -> SweepColumn:
    """The column that holds these values; what is neither number nor truth is text, objects as JSON."""
    given = [value for value in values if value is not None]
    if given and all(isinstance(value, bool) for value in given):
        return SweepColumn(name, "truth")
    if given and all(isinstance(value, int) and not isinstance(value, bool) for value in given):
        return SweepColumn(name, "whole")
    if given and all(isinstance(value, int | float) and not isinstance(value, bool) for value in given):
        return SweepColumn(name, "number")
    return SweepColumn(name, "text")


def cell(value: object, kind: ColumnKind) -> object:
    """A value as its column holds it."""
    if value is None:
        return None
    if kind == "text":
        return value if isinstance(value, str) else json.dumps(value)
    return float(value) if kind == "number" and isinstance(value, int | float) else value


def usual_format() -> PartFormat:
    """Parquet where it can be written."""
    return "parquet" if find_spec("pyarrow") is not None else "jsonl"


def part_bytes(rows: Sequence[Mapping[str, object]], *, columns: Sequence[SweepColumn], form: PartFormat) -> bytes:
    """A part as its file holds it; columns that a row has not are null."""
    table = {column.name: [cell(row.get(column.name), column.kind) for row in rows] for column in columns}
    if form == "jsonl":
        lines = [dict(zip(table, cells, strict=True)) for cells in zip(*table.values(), strict=True)]
        return "".join(json.dumps(line) + "\n" for line in lines).encode()
    import pyarrow  # type: ignore[import-untyped, unused-ignore]
    from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

    types = {"number": pyarrow.float64(), "whole": pyarrow.int64(), "truth": pyarrow.bool_(), "text": pyarrow.string()}
    arrays = [pyarrow.array(table[column.name], type=types[column.kind]) for column in columns]
    stream = BytesIO()
    parquet.write_table(pyarrow.Table.from_arrays(arrays, names=list(table)), stream)
    return stream.getvalue()


def part_rows(path: Path, *, form: PartFormat) -> list[Row]:
    """What a part holds."""
    if form == "jsonl":
        return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

    return list(parquet.ParquetFile(path).read().to_pylist())
