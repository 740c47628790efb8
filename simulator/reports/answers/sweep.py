"""``roofcast sweep``: what stands out of a table of points, as a JSON document, as text, and as two charts."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from io import BytesIO
from math import isfinite
from pathlib import Path
from typing import Any

from simulator.errors import FileError
from simulator.planner import swept_points
from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Json
from simulator.reports.charts.chart import Axis, Chart, Series, SeriesKind, marks, places
from simulator.reports.content.quantities import counted_text, number_text, ratio_text
from simulator.reports.formats.text import text_table
from simulator.specs.question.sweep import ColumnKind, PartFormat

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


_TYPES: Mapping[ColumnKind, tuple[type, ...]] = {
    "number": (float, int),
    "whole": (int,),
    "text": (str,),
    "truth": (bool,),
}


_ANEW = "remove it; `resume` answers it anew"


def part_rows(path: Path, *, columns: Sequence[SweepColumn], form: PartFormat) -> list[Row]:
    """What a part holds. Raises FileError: it is no part, or not one with these columns."""
    try:
        lines = path.read_text("utf-8").splitlines() if form == "jsonl" else ()
        rows = [json.loads(line) for line in lines] if form == "jsonl" else _parquet_rows(path)
    except (OSError, ValueError, RecursionError) as error:  # pyarrow's own errors are among them
        reason = getattr(error, "strerror", None) or "it is no part of a sweep"
        raise FileError(f"{path}: cannot be read: {reason}", field="SWEEP", hint=_ANEW) from None
    names = [column.name for column in columns]
    for row in rows:
        if not isinstance(row, dict) or list(row) != names:
            raise FileError(f"{path}: has other columns than its sweep", field="SWEEP", hint=_ANEW)
        for column in columns:
            value = row[column.name]
            if value is not None and not _is_of(value, column.kind):
                raise FileError(f"{path}: a {column.name} is no {column.kind}", field="SWEEP", hint=_ANEW)
    return rows


def _is_of(value: object, kind: ColumnKind) -> bool:
    if isinstance(value, bool) or not isinstance(value, _TYPES[kind]):
        return kind == "truth" and isinstance(value, bool)
    return not isinstance(value, float) or isfinite(value)


def _parquet_rows(path: Path) -> list[Row]:
    from pyarrow import parquet  # type: ignore[import-untyped, unused-ignore]

    return list(parquet.ParquetFile(path).read().to_pylist())


_SHOWN = 10
"""Points of the front that a terminal shows."""


FIGURES: Mapping[str, tuple[swept_points.SweepFigure, ...]] = {
    "scenario": (
        swept_points.SweepFigure("tpot_s", "TPOT", "s"),
        swept_points.SweepFigure("output_tokens_per_s", "Output tokens per second", "1/s", rises=True),
        swept_points.SweepFigure("ttft_s", "TTFT", "s"),
        swept_points.SweepFigure("energy_per_output_token_j", "Energy per output token", "J"),
    ),
    "plan": (
        swept_points.SweepFigure("plan.cost.per_hour", "Cost per hour", ""),
        swept_points.SweepFigure("plan.at_peak.tpot_p95_s", "TPOT p95 at the peak", "s"),
        swept_points.SweepFigure("plan.devices", "Accelerators", ""),
        swept_points.SweepFigure("plan.power_typical_w", "Typical power", "W"),
    ),
}
"""By what is asked; the first two pull against each other."""
_KNOWN: Mapping[str, str] = {"scenario": "provenance", "plan": "plan.provenance"}
"""The column that says how the figures of a point are known."""


def _extremes(rows: Sequence[Row], figure: swept_points.SweepFigure, fields: Sequence[str]) -> Json | None:
    """Lowest, middle and highest of a figure, and the points where they are."""
    found = swept_points.figure_ends(rows, figure)
    if found is None:
        return None

    def named(row: Mapping[str, Any]) -> Json:
        return {"value": row[figure.column], "point": row["point"], **{name: row[name] for name in fields}}

    return {
        "figure": figure.column,
        "lowest": named(found.lowest),
        "median": found.median,
        "highest": named(found.highest),
    }


def _group_text(group: swept_points.Group) -> str:
    """A value, or the ends of a range of numbers."""
    return str(group[0]) if len(group) == 1 else " to ".join(number_text(end) for end in group)  # type: ignore[arg-type]


def _moved(moves: swept_points.FieldMoves) -> Json:
    return {
        "field": moves.field,
        "lowest": {"value": _group_text(moves.lowest), "ratio": moves.lowest_ratio},
        "highest": {"value": _group_text(moves.highest), "ratio": moves.highest_ratio},
    }


def summary_document(rows: Sequence[Row], *, ask: str, fields: Sequence[str]) -> Json:
    """The JSON document of ``roofcast sweep --json``, but for where the table is."""
    figures = FIGURES[ask]
    codes = Counter(row["error.code"] for row in rows)
    answered = codes.pop(None, 0)
    examples = {row["error.code"]: row["error.message"] for row in reversed(rows) if row["error.code"] is not None}
    front = swept_points.front_of(rows, figures[:2])
    columns = ("point", *fields, *(figure.column for figure in figures), _KNOWN[ask])
    return {
        "schema_version": SCHEMA_VERSION,
        "ask": ask,
        "answered": answered,
        "failures": [{"code": code, "points": many, "example": examples[code]} for code, many in codes.most_common()],
        "figures": [found for figure in figures if (found := _extremes(rows, figure, fields)) is not None],
        "sensitivity": {
            "figure": figures[0].column,
            "fields": [_moved(moves) for moves in swept_points.sensitivity(rows, figures[0], fields)],
        },
        "pareto": {
            "figures": [figure.column for figure in figures[:2]],
            "points": [{name: row[name] for name in columns} for row in front],
        },
    }


def _cell(value: Any) -> str:
    return number_text(value) if isinstance(value, float) else "-" if value is None else str(value)


def summary_text(document: Json) -> str:
    """What ``roofcast sweep --summary`` prints."""
    lines = [f"{counted_text(document['answered'], document['ask'])} answered of {document['points']:,} points"]
    for failure in document["failures"]:
        lines.append(f"{failure['points']:,} refused ({failure['code']}), such as: {failure['example']}")
    blocks = ["\n".join(lines)]
    if document["figures"]:
        rows = [
            (item["figure"], *(_cell(item[end]["value"] if end != "median" else item[end]) for end in _ENDS))
            for item in document["figures"]
        ]
        blocks.append(text_table(("figure", *_ENDS), rows))
    moved = document["sensitivity"]["fields"]
    if moved:
        rows = [
            (
                item["field"],
                *(f"{ratio_text(item[end]['ratio'])} at {item[end]['value']}" for end in ("lowest", "highest")),
            )
            for item in moved
        ]
        blocks.append(
            f"What moves {document['sensitivity']['figure']}, from the mean of all:\n"
            + text_table(("field", "lowest", "highest"), rows)
        )
    front = document["pareto"]["points"]
    if front:
        names = tuple(front[0])
        shown = front[:: -(-len(front) // _SHOWN)]
        between = " or ".join(document["pareto"]["figures"])
        title = f"Best in {between} ({len(shown)} of {counted_text(len(front), 'point')}):\n"
        blocks.append(title + text_table(names, [tuple(map(_cell, row.values())) for row in shown]))
    return "\n\n".join(block.rstrip("\n") for block in blocks) + "\n"


_ENDS = ("lowest", "median", "highest")


def pareto_chart(rows: Sequence[Row], *, ask: str, fields: Sequence[str]) -> Chart:
    """All points between the two figures that pull against each other, and the front."""
    first, second = FIGURES[ask][:2]
    front = swept_points.front_of(rows, (first, second))

    def series(called: str, held: Sequence[Mapping[str, Any]]) -> Series:
        at = [
            (float(row[first.column]), float(row[second.column]), ", ".join(f"{name} {row[name]}" for name in fields))
            for row in held
        ]
        return marks(called, at)

    line = series("Pareto front", sorted(front, key=lambda row: float(row[first.column])))
    return Chart(
        key="sweep_pareto",
        title=f"{counted_text(len(front), 'point')} that no other beats",
        x=Axis(title=first.title, unit=first.unit, log=True),
        y=Axis(title=second.title, unit=second.unit, log=True),
        series=(series("Points", swept_points.above_zero(rows, first, second)), replace(line, kind=SeriesKind.LINE)),
    )


def sensitivity_chart(document: Json) -> Chart:
    """A bar for each field: where its values bring the first figure, as a ratio to the mean of all."""
    moved = list(reversed(document["sensitivity"]["fields"]))
    column = document["sensitivity"]["figure"]
    title = next(figure.title for figure in FIGURES[document["ask"]] if figure.column == column)
    low, high = (tuple(item[end]["ratio"] for item in moved) for end in ("lowest", "highest"))
    at, base = places(len(moved)), (1.0,) * len(moved)
    labels = tuple(f"{item['lowest']['value']} / {item['highest']['value']}" for item in moved)
    ends = Series(name=title, kind=SeriesKind.TORNADO, x=at, y=base, low=low, high=high, labels=labels)
    return Chart(
        key="sweep_sensitivity",
        title=f"What moves {title}",
        x=Axis(title=f"{title} over the mean of all points"),
        y=Axis(title="", categories=tuple(item["field"] for item in moved)),
        series=(ends,),
    )
