"""What the public functions answer with: a record that turns into a document, a pandas frame, a figure or a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from simulator.records import dataclass

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure

    from simulator.reports.charts.chart import Chart
    from simulator.reports.contract import Json

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


Cells = tuple[Sequence[str], Sequence[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Answer(ABC):
    """An answer; ``answer["ttft_s"]`` is a field of its document."""

    @abstractmethod
    def to_dict(self) -> Json:
        """The JSON document that the command of the same name prints, SI units."""

    @abstractmethod
    def to_text(self) -> str:
        """The text that the command of the same name prints."""

    @abstractmethod
    def chart(self) -> Chart:
        """The figure as data: what `plot` draws."""

    def rows(self) -> list[Json]:
        """The document's rows for `to_frame`; one row where it holds no list of its own."""
        return [self.to_dict()]

    def cells(self) -> Cells | None:
        """Columns and rows of the table that notebooks show, or None to show the text."""
        return None

    def to_frame(self) -> DataFrame:
        """The rows as a pandas frame; objects inside become columns such as ``interval_ttft_s_low``."""
        return frame(self.rows())

    def plot(self) -> Figure:
        """The figure, by plotly."""
        from simulator.reports.charts.plotly_figure import plotly_figure

        return plotly_figure(self.chart())

    def __getitem__(self, field: str) -> Any:
        return self.to_dict()[field]

    def __str__(self) -> str:
        return self.to_text().rstrip("\n")

    def _repr_html_(self) -> str:
        cells = self.cells()
        return html_text(str(self)) if cells is None else html_table(*cells, title=str(self).partition("\n")[0])
