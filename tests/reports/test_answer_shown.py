"""``simulator.reports.answer``: how any answer becomes columns, a frame, a table and text."""

from __future__ import annotations

import math
from typing import Any

import pytest

from simulator.records import dataclass
from simulator.reports.answer import Answer, Cells, flat, frame, html_table, html_text
from simulator.reports.charts.chart import Chart, bars_chart


@dataclass(frozen=True, slots=True)
class Shown(Answer):
    """An answer with what it is given."""

    document: dict[str, Any]
    table: Cells | None = None

    def to_dict(self) -> dict[str, Any]:
        return self.document

    def to_text(self) -> str:
        return "first <line>\nsecond\n"

    def chart(self) -> Chart:
        return bars_chart("x", "T", y="Y", names=("a",), of={"b": [1.0]})

    def cells(self) -> Cells | None:
        return self.table


def test_objects_are_joined_and_intervals_are_two_columns() -> None:
    document = {"a": 1, "b": {"c": 2, "d": {"e": None}}, "interval": {"t": [1.0, 2.0], "u": [1.0]}, "list": [1, 2]}
    assert dict(flat(document)) == {"a": 1, "b_c": 2, "b_d_e": None, "interval_t_low": 1.0, "interval_t_high": 2.0}


def test_a_column_that_a_row_lacks_is_empty_there() -> None:
    found = frame([{"a": 1}, {"b": {"c": 2.0}}])
    assert list(found.columns) == ["a", "b_c"]
    assert found["a"].isna().tolist() == [False, True]


def test_names_are_not_markup() -> None:
    assert html_text("<b>") == "<pre>&lt;b&gt;</pre>"
    table = html_table(("<x>",), (("a & b",),), title="<t>")
    assert "&lt;x&gt;" in table
    assert "<td>a &amp; b</td>" in table
    assert table.startswith("<p>&lt;t&gt;</p>")


def test_an_answer_is_its_document_its_text_and_one_row() -> None:
    found = Shown({"ttft_s": 0.5, "list": [1]})
    assert found["ttft_s"] == 0.5
    assert str(found) == "first <line>\nsecond"
    assert found.rows() == [found.to_dict()]
    assert found.to_frame().shape == (1, 1)


def test_a_command_writes_the_text_or_the_document_in_one_line() -> None:
    found = Shown({"ttft_s": 0.5})
    assert found.as_printed(as_json=False) == found.to_text()
    assert found.as_printed(as_json=True) == '{"ttft_s": 0.5}\n'
    with pytest.raises(ValueError, match="JSON"):
        Shown({"ttft_s": math.nan}).as_printed(as_json=True)


def test_a_notebook_shows_the_table_where_there_is_one() -> None:
    assert Shown({})._repr_html_() == "<pre>first &lt;line&gt;\nsecond</pre>"
    shown = Shown({}, (("a",), (("1",), ("2",))))._repr_html_()
    assert shown.startswith("<p>first &lt;line&gt;</p><table>")
    assert shown.count("<tr>") == 3
