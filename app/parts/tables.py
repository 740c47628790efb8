"""Tables of a page: cells read as the library writes them and sort by the numbers that they hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, Literal

import pandas as pd
import streamlit as st

from app.fields import controls
from simulator.reports.content.document import EMPTY, Cell, Table, cell_order
from simulator.reports.content.quantities import UNKNOWN, unbroken
from simulator.reports.formats.text import shown

_WHOLE_TABLE = 40
"""Rows up to which a table is shown without scroll bars of its own."""
_GUESSED_ROWS = 10
"""Rows that the browser's table looks at when it chooses how wide a column is."""
_SHORT_LETTERS = 16
"""That fit whatever it guesses."""
_LONGEST_NUMBER = 30
"""Letters of a number with its unit; what is longer holds words too."""
_ROOM = ((8, 85), (20, 125), (24, 145), (_LONGEST_NUMBER, 165))
"""Letters of the longest number, and pixels of its column where numbers grow longer further down."""
_TEXT_ROOM = ((28, 180), (40, 245), (54, 320), (60, 355))
"""Letters of the longest text, and pixels of its column: what is longer has the last of them."""
_WIDE_LETTERS = 60
"""That a wide column shows; what is longer is a sentence, which cells of such tables would cut."""
_ABSENT = ("", EMPTY, UNKNOWN)
Line = Sequence[Cell | str]


class _Read(float):
    """A number with the text that stands for it."""

    __slots__ = ("text",)

    def __new__(cls, value: float, text: str) -> _Read:
        """``value`` sorts, ``text`` is read."""
        found = super().__new__(cls, value)
        found.text = text
        return found

    text: str


def cell_text(cell: Cell | str, *, currency: str = "", marked: bool = False) -> str:
    """What a cell says; ``marked`` with the word of its badge."""
    return controls.named(cell if isinstance(cell, str) else shown(cell, currency=currency, marked=marked))


def _column(cells: Line, *, currency: str, marked: bool) -> list[str] | list[_Read | None]:
    """Numbers where every cell has one or has nothing to say; else texts."""
    texts = [cell_text(cell, currency=currency, marked=marked) for cell in cells]
    orders = [cell_order(cell) for cell in cells]
    known = [order is not None or text in _ABSENT for order, text in zip(orders, texts, strict=True)]
    if not all(known) or all(order is None for order in orders):
        return texts
    return [None if order is None else _Read(order, text) for order, text in zip(orders, texts, strict=True)]


def _guessed(lengths: Sequence[int]) -> int:
    """The longest of what the browser's table looks at: it takes what is twice as long as the mean for an exception."""
    return max((length for length in lengths if fmean((0, length)) < fmean(lengths)), default=0)


def _widths(columns: Mapping[str, Sequence[Any]], *, wide: Sequence[str]) -> dict[str, Any]:
    """Room for sentences, and for what the browser's guess would cut, which looks at the first rows alone.

    Numbers stand flush right, where a cut hides their first digits: they have what the longest needs. Longer texts that
    begin with a number start at the left.
    """
    found: dict[str, Any] = {name: st.column_config.TextColumn(width="large") for name in wide}
    for name, cells in columns.items():
        lengths = [len(cell.text if isinstance(cell, _Read) else cell or "") for cell in cells]
        most, seen = max(lengths, default=0), max(len(name), _guessed(lengths[:_GUESSED_ROWS]))
        if name in found:
            continue
        if any(isinstance(cell, _Read) for cell in cells):
            side: Literal["left", "right"] = "left" if most > _LONGEST_NUMBER else "right"
            room = next((pixels for letters, pixels in _ROOM if most <= letters), _ROOM[-1][1])
            found[name] = st.column_config.Column(width=None if most <= seen else room, alignment=side)
        elif most > max(seen, _SHORT_LETTERS):
            pixels = next((pixels for letters, pixels in _TEXT_ROOM if most <= letters), _TEXT_ROOM[-1][1])
            found[name] = st.column_config.Column(width=pixels)
    return found


def _has_sentences(cells: Sequence[Any]) -> bool:
    return any(isinstance(cell, str) and len(cell) > _WIDE_LETTERS for cell in cells)


def frame(
    rows: Sequence[Line],
    columns: Sequence[str],
    *,
    wide: Sequence[str] = (),
    key: str | None = None,
    currency: str = "",
    words: Sequence[str] = (),
) -> int | None:
    """A table; short ones without scroll bars of their own. The row that was ticked where it has a ``key``.

    A column that says nothing is left out. Rows with long sentences, none of which can be ticked, are :func:`read`.

    wide : columns that may hold sentences; words : columns whose cells have their badge behind them
    """
    made = {
        name: _column([row[place] for row in rows], currency=currency, marked=name in words)
        for place, name in enumerate(columns)
        if not rows or any(cell_text(row[place]) for row in rows)
    }
    sentences = any(_has_sentences(made[name]) for name in wide if name in made)
    if key is None and sentences:
        kept = [place for place, name in enumerate(columns) if name in made]
        read([[row[place] for place in kept] for row in rows], list(made), currency=currency, words=words)
        return None
    data: Any = pd.DataFrame({name: pd.Series(cells, dtype=object) for name, cells in made.items()})
    numbers = [name for name, cells in made.items() if any(isinstance(cell, _Read) for cell in cells)]
    if numbers:
        data = data.style.format(lambda cell: cell.text if isinstance(cell, _Read) else cell, subset=numbers)
    tall: Literal["content", "auto"] = "content" if len(rows) <= _WHOLE_TABLE else "auto"
    st.dataframe(
        data,
        hide_index=True,
        width="stretch",
        height=tall,
        on_select="ignore" if key is None else "rerun",
        selection_mode="single-row",
        key=key,
        column_config=_widths(made, wide=wide),
        placeholder=EMPTY,
    )
    ticked = [] if key is None else st.session_state[key]["selection"]["rows"]
    return ticked[0] if ticked and ticked[0] < len(rows) else None


def read(rows: Sequence[Line], columns: Sequence[str], *, currency: str = "", words: Sequence[str] = ()) -> None:
    """A table that is read and not sorted: its cells wrap, so that a narrow screen keeps every column in sight.

    The first column heads the rows. words : as :func:`frame` has them
    """
    texts = [
        [
            inert(unbroken(cell_text(cell, currency=currency, marked=name in words)))
            for name, cell in zip(columns, row, strict=True)
        ]
        for row in rows
    ]
    heads = pd.Index([row[0] for row in texts], name=columns[0])
    st.table(pd.DataFrame([row[1:] for row in texts], columns=list(columns[1:]), index=heads))


def inert(text: str) -> str:
    """Dollars and stars as they are: cells of such a table take Markdown."""
    return text.replace("$", "\\$").replace("*", "\\*")


def framed(table: Table, *, currency: str, key: str | None = None) -> int | None:
    """:func:`frame` for a table of a report; badges stand in columns of words alone."""
    words = [column.title for column in table.columns if not column.numeric]
    long = [
        column.title
        for place, column in enumerate(table.columns)
        if not column.numeric and _has_sentences([cell_text(row.cells[place]) for row in table.rows])
    ]
    columns = [column.title for column in table.columns]
    return frame([row.cells for row in table.rows], columns, key=key, currency=currency, words=words, wide=long)


@st.fragment
def table(
    label: str, rows: Sequence[Line], columns: Sequence[str], *, key: str, picked: Callable[[int], None] | None = None
) -> None:
    """A table, made when somebody opens it.

    picked : shows below it what belongs to the row that was ticked; without it no row can be
    """
    place = st.expander(label, icon=":material/table_rows:", key=key, on_change="rerun")
    if not place.open:
        return
    with place:
        ticked = frame(rows, columns, key=None if picked is None else f"{key}_rows")
        if picked is not None:
            row_chosen(ticked, picked)


def row_chosen(ticked: int | None, picked: Callable[[int], None]) -> None:
    """Below a table whose rows open on the pages that ask about a deployment: what belongs to the ticked one."""
    if ticked is None:
        st.caption("Tick a row to open it on the other pages.")
    else:
        picked(ticked)
