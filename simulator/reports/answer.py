"""Answers of commands and of the library: text, rows, cells, a chart, and a result as JSON holds it."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, KeysView, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from simulator.errors import RoofcastError
from simulator.kernels.timing import Provenance
from simulator.records import dataclass
from simulator.reports.words.fields import assumption_text, error_content, note_text
from simulator.specs.base import Assumption, Note
from simulator.specs.question.plan_values import ObjectiveSpec

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure

    from simulator.engine.runs.answers import ScenarioResult
    from simulator.engine.runs.capacity import CapacityResult
    from simulator.reports.charts.chart import Chart

SCHEMA_VERSION = "1.0"

Json = dict[str, Any]


def dump(value: object, *, whole: bool = False) -> Any:
    """A result as JSON holds it.

    Dataclasses become objects, provenances, objectives and assumptions their words, numbers that JSON has no word for
    null. A field that has a default is left out where it holds it, unless the ``whole`` record is wanted; one marked
    ``flat`` puts its own fields beside it, its name before theirs; one marked ``inside`` is the library's alone. Where
    records hold others, their class says in ``PICKED`` what of those stands in a document, as `picked` takes it.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Provenance):
        return value.label
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Assumption):
        return assumption_text(value)
    if isinstance(value, Note):
        return note_text(value)
    if isinstance(value, ObjectiveSpec):
        return value.key
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: dump(item, whole=whole) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [dump(item, whole=whole) for item in value]
    return _fields(value, whole=whole) if is_dataclass(value) else value


def _fields(value: Any, *, whole: bool) -> Json:
    if names := getattr(value, "PICKED", ()):
        return picked(value, *names, whole=whole)
    found: Json = {}
    for item in fields(value):
        held = getattr(value, item.name)
        if "inside" in item.metadata or (not whole and item.default is not MISSING and held is item.default):
            continue
        if "flat" in item.metadata:
            found |= {f"{item.name}_{name}": part for name, part in dump(held, whole=whole).items()}
        else:
            found[item.name] = dump(held, whole=whole)
    return found


def picked(record: object, *names: str, whole: bool = False) -> Json:
    """Fields and properties of a record by their names, as `dump` has them: ``label``, under another name
    ``setup=label``, of a record inside ``isl_cv=mix.isl.cv``."""
    places = ((said or place, place) for said, _, place in (name.rpartition("=") for name in names))
    return {name: dump(attrgetter(place)(record), whole=whole) for name, place in places}


def finite(value: float) -> float | None:
    """``value``, or null where it is not a number that JSON can hold."""
    return value if math.isfinite(value) else None


def result_object(result: ScenarioResult | CapacityResult) -> Json:
    """The contract's result of one scenario, or of the search for what it sustains."""
    return {"id": result.scenario.id, "schema_version": SCHEMA_VERSION, **dump(result)}


def error_object(identifier: str | int | None, error: RoofcastError) -> Json:
    """The contract's refusal of one scenario."""
    return {"id": identifier, "error": error_content(error)}


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
    from html import escape

    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<p>{escape(title)}</p><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_text(text: str) -> str:
    """A text as it is printed."""
    from html import escape

    return f"<pre>{escape(text)}</pre>"


Cells = tuple[Sequence[str], Sequence[Sequence[str]]]


@dataclass(frozen=True, slots=True)
class Answer(ABC):
    """An answer; ``answer["ttft_s"]`` is a field of its document, ``LISTED`` that of the list that it is about."""

    LISTED: ClassVar[str] = ""

    @abstractmethod
    def to_dict(self) -> Json:
        """The JSON document that the command of the same name prints, SI units."""

    @abstractmethod
    def to_text(self) -> str:
        """The text that the command of the same name prints."""

    def as_printed(self, *, as_json: bool) -> str:
        """What the command writes: the text, or the document in one line."""
        return json.dumps(self.to_dict(), allow_nan=False) + "\n" if as_json else self.to_text()

    @abstractmethod
    def chart(self) -> Chart:
        """The figure as data: what `plot` draws."""

    def rows(self) -> list[Json]:
        """The document's rows for `to_frame`: of the list that it is about, one row where there is none."""
        document = self.to_dict()
        return list(document[self.LISTED]) if self.LISTED else [document]

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

    def keys(self) -> KeysView[str]:
        """The document's fields: what `list`, `in` and `dict` of an answer go through."""
        return self.to_dict().keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __getitem__(self, field: str) -> Any:
        return self.to_dict()[field]

    def __str__(self) -> str:
        return self.to_text().rstrip("\n")

    def _repr_html_(self) -> str:
        cells = self.cells()
        return html_text(str(self)) if cells is None else html_table(*cells, title=str(self).partition("\n")[0])
