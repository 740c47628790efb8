"""What the public functions answer with: a record that turns into a document, a frame, a figure or a table."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.reports.charts.chart import Chart
    from simulator.reports.contract import Json
    from simulator.reports.frames import DataFrame, Figure

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
        from simulator.reports.frames import frame

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
        from simulator.reports.frames import html_table, html_text

        cells = self.cells()
        return html_text(str(self)) if cells is None else html_table(*cells, title=str(self).partition("\n")[0])
