"""``roofcast sweep``: what stands out of a table of points, as a JSON document, as text, and as two charts."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Literal

from simulator.records import dataclass
from simulator.reports.answer import SCHEMA_VERSION, Json
from simulator.reports.charts.chart import Axis, Chart, Series, SeriesKind, places
from simulator.reports.content.quantities import counted_text, number_text, signed_percent_text
from simulator.reports.formats.text import text_table

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


_STRETCHES = 4
"""Groups of a field whose values are drawn from a range: its quarters."""
_SHOWN = 10
"""Points of the front that a terminal shows."""


@dataclass(frozen=True, slots=True)
class SweepFigure:
    """A column that is compared; ``rises`` says that more of it is better."""

    column: str
    title: str
    unit: str
    rises: bool = False


FIGURES: Mapping[str, tuple[SweepFigure, ...]] = {
    "scenario": (
        SweepFigure("tpot_s", "TPOT", "s"),
        SweepFigure("output_tokens_per_s", "Output tokens per second", "1/s", rises=True),
        SweepFigure("ttft_s", "TTFT", "s"),
        SweepFigure("energy_per_output_token_j", "Energy per output token", "J"),
    ),
    "plan": (
        SweepFigure("plan.cost.per_hour", "Cost per hour", ""),
        SweepFigure("plan.at_peak.tpot_p95_s", "TPOT p95 at the peak", "s"),
        SweepFigure("plan.devices", "Accelerators", ""),
        SweepFigure("plan.power_typical_w", "Typical power", "W"),
    ),
}
"""By what is asked; the first two pull against each other."""


def _with(rows: Sequence[Row], *figures: SweepFigure) -> list[Row]:
    """Rows that hold these figures, above zero, as logarithms need them."""
    return [row for row in rows if all((row.get(figure.column) or 0.0) > 0.0 for figure in figures)]


def pareto_front(rows: Sequence[Row], figures: Sequence[SweepFigure]) -> list[Row]:
    """Rows than which no other is better in one of two figures without being worse in the other, best first."""
    first, second = figures
    found: list[Row] = []
    best = -math.inf

    def gain(row: Row, figure: SweepFigure) -> float:
        return float(row[figure.column]) * (1 if figure.rises else -1)

    for row in sorted(_with(rows, *figures), key=lambda row: (-gain(row, first), -gain(row, second))):
        if gain(row, second) > best:
            found.append(row)
            best = gain(row, second)
    return found


def _extremes(rows: Sequence[Row], figure: SweepFigure, fields: Sequence[str]) -> Json | None:
    """Lowest, middle and highest of a figure, and the points where they are."""
    held = sorted(_with(rows, figure), key=lambda row: float(row[figure.column]))
    if not held:
        return None

    def named(row: Row) -> Json:
        return {"value": row[figure.column], "point": row["point"], **{name: row[name] for name in fields}}

    middle = median(float(row[figure.column]) for row in held)
    return {"figure": figure.column, "lowest": named(held[0]), "median": middle, "highest": named(held[-1])}


def _groups(rows: Sequence[Row], field: str) -> dict[str, list[Row]]:
    """Rows by the value of a field; of many numbers by quarters of the rows."""
    values = sorted({row[field] for row in rows if row[field] is not None}, key=lambda value: (str(type(value)), value))
    numeric = all(isinstance(value, int | float) for value in values)
    if not numeric or len(values) <= 2 * _STRETCHES:
        return {str(value): [row for row in rows if row[field] == value] for value in values}
    ordered = sorted((row for row in rows if row[field] is not None), key=lambda row: float(row[field]))
    cuts = [len(ordered) * place // _STRETCHES for place in range(_STRETCHES + 1)]
    quarters = [ordered[low:high] for low, high in pairwise(cuts) if high > low]
    return {f"{number_text(part[0][field])} to {number_text(part[-1][field])}": part for part in quarters}


def sensitivity(rows: Sequence[Row], figure: SweepFigure, fields: Sequence[str]) -> list[Json]:
    """How far each field moves a figure: geometric mean of each value's points over that of all, widest first. Valid
    where values of the other fields are as frequent with each value of this one, as in a grid or a sample."""
    held = _with(rows, figure)

    def level(part: Sequence[Row]) -> float:
        return sum(math.log(row[figure.column]) for row in part) / len(part)

    found = []
    for field in fields:
        groups = {name: level(part) - level(held) for name, part in _groups(held, field).items() if part}
        if len(groups) > 1:
            low, high = min(groups, key=lambda name: groups[name]), max(groups, key=lambda name: groups[name])
            found.append(
                {
                    "field": field,
                    "lowest": {"value": low, "ratio": math.exp(groups[low])},
                    "highest": {"value": high, "ratio": math.exp(groups[high])},
                }
            )
    return sorted(found, key=lambda item: item["lowest"]["ratio"] / item["highest"]["ratio"])


def summary_document(rows: Sequence[Row], *, ask: str, fields: Sequence[str]) -> Json:
    """The JSON document of ``roofcast sweep --json``, but for where the table is."""
    figures = FIGURES[ask]
    codes = Counter(row["error.code"] for row in rows if row["error.code"] is not None)
    examples = {row["error.code"]: row["error.message"] for row in reversed(rows) if row["error.code"] is not None}
    front = pareto_front(rows, figures[:2])
    columns = ("point", *fields, *(figure.column for figure in figures))
    return {
        "schema_version": SCHEMA_VERSION,
        "ask": ask,
        "answered": len(rows) - codes.total(),
        "failures": [{"code": code, "points": many, "example": examples[code]} for code, many in codes.most_common()],
        "figures": [found for figure in figures if (found := _extremes(rows, figure, fields)) is not None],
        "sensitivity": {"figure": figures[0].column, "fields": sensitivity(rows, figures[0], fields)},
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
            (item["field"], *(f"{_percent(item[end])} at {item[end]['value']}" for end in ("lowest", "highest")))
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


def _percent(end: Json) -> str:
    return signed_percent_text(end["ratio"] - 1.0)


def pareto_chart(rows: Sequence[Row], *, ask: str, fields: Sequence[str]) -> Chart:
    """All points between the two figures that pull against each other, and the front."""
    first, second = FIGURES[ask][:2]
    front = pareto_front(rows, (first, second))

    def series(name: str, kind: SeriesKind, held: Sequence[Row]) -> Series:
        return Series(
            name=name,
            kind=kind,
            x=tuple(float(row[first.column]) for row in held),
            y=tuple(float(row[second.column]) for row in held),
            labels=tuple(", ".join(f"{field} {row[field]}" for field in fields) for row in held),
        )

    return Chart(
        key="sweep_pareto",
        title=f"{counted_text(len(front), 'point')} that no other beats",
        x=Axis(title=first.title, unit=first.unit, log=True),
        y=Axis(title=second.title, unit=second.unit, log=True),
        series=(
            series("Points", SeriesKind.SCATTER, _with(rows, first, second)),
            series("Pareto front", SeriesKind.LINE, sorted(front, key=lambda row: float(row[first.column]))),
        ),
    )


def sensitivity_chart(document: Json) -> Chart:
    """A bar for each field: where its values bring the first figure, as a ratio to the mean of all."""
    moved = list(reversed(document["sensitivity"]["fields"]))
    column = document["sensitivity"]["figure"]
    title = next(figure.title for figure in FIGURES[document["ask"]] if figure.column == column)
    return Chart(
        key="sweep_sensitivity",
        title=f"What moves {title}",
        x=Axis(title=f"{title} over the mean of all points"),
        y=Axis(title="", categories=tuple(item["field"] for item in moved)),
        series=(
            Series(
                name=title,
                kind=SeriesKind.TORNADO,
                x=places(len(moved)),
                y=(1.0,) * len(moved),
                low=tuple(item["lowest"]["ratio"] for item in moved),
                high=tuple(item["highest"]["ratio"] for item in moved),
                labels=tuple(f"{item['lowest']['value']} / {item['highest']['value']}" for item in moved),
            ),
        ),
    )
