"""Plain text for the terminal: columns as wide as their cells, sentences as they are; charts are left out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from simulator.reports.content import document as doc
from simulator.reports.content.quantities import UNKNOWN, currency_text

if TYPE_CHECKING:
    from simulator.traffic.requests import Floats

SPARKS = "▁▂▃▄▅▆▇█"
SPARK_WIDTH = 60
_NARROWEST = 18
"""Characters of a column of words, however narrow the line."""


def text_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Sequence[bool] | None = None,
    most: int | None = None,
) -> str:
    """Columns as wide as their widest cell, two spaces apart.

    right : columns that are set flush right; where it is not given, those that hold nothing but numbers
    most : characters of a line, to which columns of words are wrapped
    """
    lines = [tuple(columns), *(tuple(row) for row in rows)]
    places = range(len(columns))
    flush = right if right is not None else [all(_is_number(row[place]) for row in rows) for place in places]
    widths = [max(len(line[place]) for line in lines) for place in places]
    if most is not None:
        widths = _narrowed(widths, most=most - 2 * (len(widths) - 1), flush=flush)
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(part, widths, flush, strict=True)
        ).rstrip()
        for line in lines
        for part in zip_longest(*map(_wrapped, line, widths), fillvalue="")
    )


def _narrowed(widths: Sequence[int], *, most: int, flush: Sequence[bool]) -> list[int]:
    """Widths that sum to ``most`` where the widest columns of words can give that much."""
    found = list(widths)
    words = [place for place, number in enumerate(flush) if not number]
    while sum(found) > most and words:
        widest = max(words, key=lambda place: found[place])
        if found[widest] <= _NARROWEST:
            break
        found[widest] -= 1
    return found


def _wrapped(cell: str, width: int) -> list[str]:
    return [cell] if len(cell) <= width else wrap(cell, width, break_long_words=False)


def _is_number(cell: str) -> bool:
    """A number with its sign or currency, or what stands for none or no change."""
    return cell in ("-", "–", "=", UNKNOWN) or cell.lstrip("+-$€£")[:1].isdigit()


def shown(cell: doc.Cell, *, currency: str, marked: bool = False) -> str:
    """A cell as people read it on a screen: money with its symbol, badges only where they are asked for."""
    if cell.kind is doc.CellKind.MONEY:
        if not isinstance(cell.value, int | float) or not math.isfinite(cell.value):
            return UNKNOWN
        digits = 2 if cell.digits is None else cell.digits
        return f"{currency_text(f'{cell.value:,.{digits}f}', currency)} {cell.unit}".rstrip()
    return doc.marked_text(cell, currency=currency) if marked else doc.cell_text(cell, currency=currency)


def table_cells(table: doc.Table, *, currency: str) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows of a table as text; badges stand in columns of words alone."""
    rows = [
        tuple(
            shown(cell, currency=currency, marked=not column.numeric)
            for cell, column in zip(row.cells, table.columns, strict=True)
        )
        for row in table.rows
    ]
    return tuple(column.title for column in table.columns), rows


def _table(table: doc.Table, currency: str, *, above: bool, under: str, most: int | None) -> list[str]:
    """``above``: something else stands over it in its section, whose title is ``under``: it is not said twice."""
    titled = table.title and not (under and table.title.startswith(under))
    lines = [*([""] if above else []), *([table.title] if titled else [])]
    if table.rows:
        heads, rows = table_cells(table, currency=currency)
        lines += text_table(heads, rows, right=[column.numeric for column in table.columns], most=most).splitlines()
    return [*lines, *([f"({table.note})"] if table.note else [])]


def _block(block: doc.Block, currency: str, *, above: bool, under: str, most: int | None) -> list[str]:
    match block:
        case doc.Paragraph(tone=doc.Tone.HEAD):
            return ["", block.text]
        case doc.Paragraph():
            return [block.text]
        case doc.Bullets():
            return [f"- {item}" for item in block.items]
        case doc.Facts():
            return [f"- {item.label}: {shown(item.cell, currency=currency, marked=True)}" for item in block.facts]
        case doc.Table():
            return _table(block, currency, above=above, under=under, most=most)
        case doc.Code():
            return ["", block.title, *block.text.splitlines()]
    return []


def sections_text(sections: Iterable[doc.Section], *, currency: str, most: int | None = None) -> str:
    """Sections one under the other, under their titles if any; most : characters of a line of a table."""
    lines: list[str] = []
    for section in sections:
        lines += ["", section.title] if section.title else []
        for place, block in enumerate(section.blocks):
            lines += _block(block, currency, above=place > 0, under=section.title, most=most)
    return "\n".join(lines).lstrip("\n") + "\n"


def sparkline(values: Floats, *, largest: float) -> str:
    """One character per value, in eighths of ``largest``; zero is a space."""
    if not len(values) or largest <= 0:
        return ""
    levels = np.ceil(np.clip(values / largest, 0.0, 1.0) * len(SPARKS)).astype(int)
    return "".join(" " if level == 0 else SPARKS[level - 1] for level in levels)


def stretch_means(values: Floats) -> Floats:
    """Means over at most SPARK_WIDTH stretches of the run."""
    edges = np.linspace(0, len(values), min(SPARK_WIDTH, len(values)) + 1).astype(int)
    return np.add.reduceat(values, edges[:-1]) / np.diff(edges)
