"""What a report says, apart from how any format shows it: sections of paragraphs, facts, tables, charts and code.

Cells keep their number, its unit and where it comes from; formats turn them into text, spreadsheet cells or fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from simulator.reports.charts.chart import Chart


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
    """

    value: str | float | int | None
    kind: CellKind = CellKind.TEXT
    unit: str = ""
    origin: Origin = Origin.NONE
    digits: int | None = None


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
    """A numbered part of the report."""

    number: int
    key: str
    title: str
    blocks: tuple[Block, ...]


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
