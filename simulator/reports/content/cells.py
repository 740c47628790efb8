"""Cells and columns: made in one line, and read as text in one way by every format."""

from __future__ import annotations

import math

from simulator.reports.content.document import Cell, CellKind, Column, Origin
from simulator.reports.content.quantities import number_text, percent_text, seconds_text
from simulator.units import KILO

EMPTY = "–"
_SILENT = (Origin.NONE, Origin.GIVEN, Origin.COMPUTED, Origin.SOURCED)
"""Origins without a badge: nothing to doubt, or the source stands beside the value."""


def known_as(provenance: str) -> Origin:
    """The badge of a forecast by the name of its provenance."""
    return Origin(provenance) if provenance in (item.value for item in Origin) else Origin.NONE


def columns(*titles: str, words: tuple[str, ...], wide: str = "") -> tuple[Column, ...]:
    """Columns of numbers but for those named in ``words``; ``wide`` takes what room is left."""
    return tuple(Column(title=title, numeric=title not in words, wide=title == wide) for title in titles)


def text(value: str, *, origin: Origin = Origin.NONE) -> Cell:
    """Words."""
    return Cell(value=value, origin=origin)


def count(value: float | None, unit: str = "", *, origin: Origin = Origin.NONE) -> Cell:
    """A whole number of things."""
    return Cell(value=value, kind=CellKind.COUNT, unit=unit, origin=origin)


def number(value: float | None, unit: str = "", *, digits: int | None = None, origin: Origin = Origin.NONE) -> Cell:
    """A measured quantity."""
    return Cell(value=value, kind=CellKind.NUMBER, unit=unit, digits=digits, origin=origin)


def money(value: float | None, unit: str = "", *, digits: int = 2, origin: Origin = Origin.NONE) -> Cell:
    """An amount in the report's currency; ``unit`` says per what."""
    return Cell(value=value, kind=CellKind.MONEY, unit=unit, digits=digits, origin=origin)


def fraction(value: float | None, *, origin: Origin = Origin.NONE) -> Cell:
    """A share of one."""
    return Cell(value=value, kind=CellKind.FRACTION, origin=origin)


def seconds(value: float | None, *, origin: Origin = Origin.NONE) -> Cell:
    """A time."""
    return Cell(value=value, kind=CellKind.SECONDS, unit="s", origin=origin)


def _plain_text(value: float, digits: int | None) -> str:
    return number_text(value) if digits is None else f"{value:,.{digits}f}"


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
            return f"{_plain_text(value, cell.digits)} {cell.unit}".rstrip()


def origin_mark(cell: Cell) -> str:
    """The badge of a cell: how a forecast is known, and what a reader has to doubt; "" where its text says so."""
    return cell.origin.value if cell.origin not in _SILENT and cell.value != cell.origin.value else ""


def marked_text(cell: Cell, *, currency: str) -> str:
    """`cell_text` with the badge as a word behind it, unless the text begins with that word already."""
    shown, mark = cell_text(cell, currency=currency), origin_mark(cell)
    return f"{shown} ({mark})" if mark and not shown.startswith(mark) else shown


def kilo(value: float, unit: str, *, digits: int = 1) -> Cell:
    """A quantity in thousands of its SI unit: ``kilo(w, "kW")``."""
    return number(value / KILO, unit, digits=digits)
