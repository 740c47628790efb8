"""Documents as pandas frames, and tables as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame as DataFrame
    from plotly.graph_objects import Figure as Figure

INTERVALS = "interval"


def flat(document: Mapping[str, Any], *, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(Column, value) of a JSON object: objects joined with underscores, intervals in two columns, lists left out."""
    for name, value in document.items():
        column = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from flat(value, prefix=f"{column}_")
        elif not isinstance(value, list | tuple):
            yield column, value
        elif INTERVALS in prefix and len(value) == 2:
            yield f"{column}_low", value[0]
            yield f"{column}_high", value[1]


def frame(rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """One row per object; a column that an object lacks is empty there."""
    import pandas as pd

    return pd.DataFrame([dict(flat(row)) for row in rows])


def html_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, title: str) -> str:
    """A table under a heading."""
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<p>{escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_text(text: str) -> str:
    """A text as it is printed."""
    return f"<pre>{escape(text)}</pre>"
