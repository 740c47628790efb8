"""What an answer says, apart from how any format shows it: sections of typed cells, tables, charts and code."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from simulator.records import dataclass
from simulator.reports.content.quantities import number_text, percent_text, seconds_text
from simulator.units import KILO

if TYPE_CHECKING:
    from simulator.reports.charts.chart import Chart

REPORT_SCHEMA_VERSION = "1.1"
"""Of a report as a JSON document."""


class CellKind(StrEnum):
    """How a value reads."""

    TEXT = "text"
    COUNT = "count"
    NUMBER = "number"
    MONEY = "money"
    FRACTION = "fraction"
    SECONDS = "seconds"


class Origin(StrEnum):
    """Where a value comes from, for the badge beside it."""

    NONE = ""
    GIVEN = "given"
    DEFAULT = "default"
    SOURCED = "sourced"
    ASSUMED = "assumed"
    MEASURED = "measured"
    CALIBRATED = "calibrated"
    EXTRAPOLATED = "extrapolated"
    COMPUTED = "computed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value. Money is in the report's currency; seconds and other quantities are SI; fractions lie in [0, 1].

    digits : decimals of money and numbers, None for as many as the size deserves
    follows : the formula over a workbook's named inputs that gives the value there, empty for figures that stay
    order : what a text that holds a number is sorted by, None for plain words
    """

    value: str | float | int | None
    kind: CellKind = CellKind.TEXT
    unit: str = ""
    origin: Origin = Origin.NONE
    digits: int | None = None
    follows: str = ""
    order: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column's heading; numbers are set flush right."""

    title: str
    numeric: bool = False
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Cells in the order of the columns. ``total`` rows are set apart."""

    cells: tuple[Cell, ...]
    total: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table with a title and a note below it."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""


class Tone(StrEnum):
    """What a paragraph is for."""

    LEAD = "lead"
    HEAD = "head"
    BODY = "body"
    NOTE = "note"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Sentences. ``missing`` names what would fill a part that was not asked for."""

    text: str
    tone: Tone = Tone.BODY


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """A list of short statements."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A headline number with a name and a remark. ``key`` names it in machine-readable formats."""

    key: str
    label: str
    cell: Cell
    remark: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Headline numbers side by side."""

    facts: tuple[Fact, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with its place in the text."""

    chart: Chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """Text to copy: a command, a manifest."""

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SignOff:
    """Lines to sign, one a role."""

    roles: tuple[str, ...]


Block = Paragraph | Bullets | Facts | Table | Figure | Code | SignOff


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of an answer. A report numbers its sections from 1; elsewhere they have no number."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole report. ``created`` is an ISO date; ``currency`` that of all money in it."""

    title: str
    subtitle: str
    created: str
    currency: str
    version: str
    sections: tuple[Section, ...]

    def facts(self) -> tuple[Fact, ...]:
        """Every headline number, in order."""
        return tuple(
            fact
            for section in self.sections
            for block in section.blocks
            if isinstance(block, Facts)
            for fact in block.facts
        )


EMPTY = "–"
BEST = "\N{BLACK STAR}"
"""Marks the best of what is compared."""
_SILENT = (Origin.NONE, Origin.GIVEN, Origin.COMPUTED, Origin.SOURCED)
"""Origins without a badge: nothing to doubt, or the source stands beside the value."""


def known_as(provenance: str) -> Origin:
    """The badge of a forecast by the name of its provenance."""
    return Origin(provenance) if provenance in (item.value for item in Origin) else Origin.NONE


def columns(heads: str) -> tuple[Column, ...]:
    """Columns by their headings in one line between bars: ``Option:: | Devices | Known:``.

    A colon stands behind a heading of words, two behind that of the words which take what room is left.
    """
    titles = [title.strip() for title in heads.split("|")]
    return tuple(
        Column(title=title.rstrip(":"), numeric=not title.endswith(":"), wide=title.endswith("::")) for title in titles
    )


Value = Cell | str | float | None
"""What stands in a row: a cell, words, or a bare number."""


def as_cell(value: Value) -> Cell:
    """The cell of what is given; a bare number is shown as it is."""
    return value if isinstance(value, Cell) else text(value) if isinstance(value, str) else number(value)


def row(*cells: Value, total: bool = False) -> Row:
    """Cells in the order of the columns."""
    return Row(cells=tuple(map(as_cell, cells)), total=total)


def table(key: str, title: str, heads: str, rows: Iterable[Row | Sequence[Value]], *, note: str = "") -> Table:
    """A table of ``rows``, each a `Row` or its cells, under the headings that `columns` reads."""
    made = tuple(item if isinstance(item, Row) else row(*item) for item in rows)
    return Table(key=key, title=title, columns=columns(heads), rows=made, note=note)


def fact(key: str, label: str, cell: Cell, remark: str = "") -> Fact:
    """A headline number."""
    return Fact(key=key, label=label, cell=cell, remark=remark)


def text(value: str, *, origin: Origin = Origin.NONE) -> Cell:
    """Words."""
    return Cell(value=value, origin=origin)


def sourced(source: str, note: str, *, assumed: bool) -> Cell:
    """Where a figure is from, with what is to be said of it; an assumed one says so in its badge."""
    said = tuple(part for part in (source, note) if part and not (assumed and part == Origin.ASSUMED.value))
    origin = Origin.ASSUMED if assumed else Origin.SOURCED
    return text("; ".join(said) or origin.value, origin=origin)


def ordered(value: str, order: float | None) -> Cell:
    """A text that holds a number, which tables are sorted by: a range, a time with its interval, a bias."""
    return Cell(value=value, order=order)


def cell_order(cell: Cell | str) -> float | None:
    """The number by which a cell is sorted; None for words and for what is not known."""
    if isinstance(cell, str):
        return None
    found = cell.value if cell.order is None else cell.order
    return None if isinstance(found, str) or found is None or math.isnan(found) else float(found)


def count(value: float | None, unit: str = "", *, origin: Origin = Origin.NONE, follows: str = "") -> Cell:
    """A whole number of things."""
    return Cell(value=value, kind=CellKind.COUNT, unit=unit, origin=origin, follows=follows)


def number(
    value: float | None, unit: str = "", *, digits: int | None = None, origin: Origin = Origin.NONE, follows: str = ""
) -> Cell:
    """A measured quantity."""
    return Cell(value=value, kind=CellKind.NUMBER, unit=unit, digits=digits, origin=origin, follows=follows)


def money(value: float | None, unit: str = "", *, digits: int = 2, follows: str = "") -> Cell:
    """An amount in the report's currency; ``unit`` says per what."""
    return Cell(value=value, kind=CellKind.MONEY, unit=unit, digits=digits, follows=follows)


def price(value: float | None) -> Cell:
    """An amount to the cent below a thousand, in whole units above."""
    return money(value, digits=0 if value is not None and abs(value) >= KILO else 2)


def fraction(value: float | None, *, follows: str = "") -> Cell:
    """A share of one."""
    return Cell(value=value, kind=CellKind.FRACTION, follows=follows)


def seconds(value: float | None, *, origin: Origin = Origin.NONE) -> Cell:
    """A time."""
    return Cell(value=value, kind=CellKind.SECONDS, unit="s", origin=origin)


def cell_text(cell: Cell, *, currency: str) -> str:
    """The cell as people read it: a dash where there is nothing, money with its currency code."""
    value = cell.value
    if value is None:
        return EMPTY
    if isinstance(value, str):
        return value
    if not math.isfinite(value):
        return "overloaded" if cell.kind is CellKind.SECONDS else EMPTY
    match cell.kind:
        case CellKind.FRACTION:
            return percent_text(value)
        case CellKind.SECONDS:
            return seconds_text(value)
        case CellKind.MONEY:
            shown = f"{currency} {value:,.{cell.digits if cell.digits is not None else 2}f}"
            return f"{shown} {cell.unit}".rstrip()
        case CellKind.COUNT:
            return f"{value:,.0f} {cell.unit}".rstrip()
        case CellKind.NUMBER | CellKind.TEXT:
            shown = number_text(value) if cell.digits is None else f"{value:,.{cell.digits}f}"
            return f"{shown} {cell.unit}".rstrip()


def origin_mark(cell: Cell) -> str:
    """The badge of a cell: how a forecast is known, and what a reader has to doubt; "" where its text says so."""
    return cell.origin.value if cell.origin not in _SILENT and cell.value != cell.origin.value else ""


def marked_text(cell: Cell, *, currency: str) -> str:
    """`cell_text` with the badge as a word behind it, unless the text begins with that word already."""
    shown, mark = cell_text(cell, currency=currency), origin_mark(cell)
    return f"{shown} ({mark})" if mark and not shown.startswith(mark) else shown


def kilo(value: float, unit: str, *, follows: str = "") -> Cell:
    """A quantity in thousands of its SI unit: ``kilo(w, "kW")``."""
    return number(value / KILO, unit, digits=1, follows=follows)


def kilowatts(value_w: float) -> Cell:
    """A power as the number of kW, for columns whose heading says so."""
    return number(value_w / KILO, digits=0 if value_w >= 100 * KILO else 1)
