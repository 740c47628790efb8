"""``simulator.reports.content.document``: cells keep their number, its unit and its badge, and sort by it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.reports.content import document as doc
from tests.for_every import for_every

FINITE = st.floats(-1e12, 1e12)
MAKERS = (doc.count, doc.number, doc.money, doc.fraction, doc.seconds, doc.price)


@for_every(MAKERS)
def test_what_is_not_known_is_a_dash_and_sorts_nowhere(make: object) -> None:
    assert callable(make)
    cell = make(None)
    assert doc.cell_text(cell, currency="USD") == doc.EMPTY
    assert doc.cell_order(cell) is None


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@given(value=FINITE)
def test_a_cell_sorts_by_its_number(make: object, value: float) -> None:
    assert callable(make)
    assert doc.cell_order(make(value)) == value
    assert doc.cell_text(make(value), currency="EUR")


@given(text=st.text(max_size=20), order=st.one_of(st.none(), FINITE))
def test_words_sort_by_the_number_that_is_given_beside_them(text: str, order: float | None) -> None:
    assert doc.cell_order(doc.ordered(text, order)) == order
    assert doc.cell_order(text) is None


def test_times_without_end_are_overload_and_amounts_without_end_a_dash() -> None:
    assert doc.cell_text(doc.seconds(math.inf), currency="USD") == "overloaded"
    assert doc.cell_text(doc.money(math.inf), currency="USD") == doc.EMPTY


@given(value=st.floats(0.01, 1e9), currency=st.sampled_from(["USD", "EUR", "JPY"]))
def test_money_says_its_currency_and_its_unit(value: float, currency: str) -> None:
    text = doc.cell_text(doc.money(value, "a month"), currency=currency)
    assert text.startswith(f"{currency} ")
    assert text.endswith(" a month")
    assert float(text.split()[1].replace(",", "")) == pytest.approx(value, abs=0.005001)


@given(value=FINITE)
def test_prices_are_to_the_cent_below_a_thousand(value: float) -> None:
    assert doc.price(value).digits == (0 if abs(value) >= 1000 else 2)


@for_every(list(doc.Origin))
def test_a_badge_marks_what_is_to_be_doubted(origin: doc.Origin) -> None:
    mark = doc.origin_mark(doc.number(1.0, origin=origin))
    silent = {doc.Origin.NONE, doc.Origin.GIVEN, doc.Origin.COMPUTED, doc.Origin.SOURCED}
    assert (mark == "") is (origin in silent)
    shown = doc.marked_text(doc.number(1.0, origin=origin), currency="USD")
    assert shown == ("1.00" if origin in silent else f"1.00 ({origin.value})")


def test_a_badge_is_not_said_twice() -> None:
    assert doc.marked_text(doc.text("measured", origin=doc.Origin.MEASURED), currency="USD") == "measured"
    said = doc.text("measured on H100", origin=doc.Origin.MEASURED)
    assert doc.marked_text(said, currency="USD") == "measured on H100"


def test_a_provenance_is_a_badge_or_none() -> None:
    assert doc.known_as("calibrated") is doc.Origin.CALIBRATED
    assert doc.known_as("heard of") is doc.Origin.NONE


@given(titles=st.lists(st.text("abc", min_size=1), min_size=1, max_size=6, unique=True), data=st.data())
def test_columns_are_numbers_but_for_words_and_the_wide_one(titles: list[str], data: st.DataObject) -> None:
    words = data.draw(st.lists(st.sampled_from(titles), unique=True))
    wide = data.draw(st.one_of(st.none(), st.sampled_from(titles)))
    marked = (f"{title}{'::' if title == wide else ':' if title in words else ''}" for title in titles)
    heads = doc.columns(" | ".join(marked))
    assert [head.title for head in heads] == titles
    assert all(head.numeric == (head.title not in words and head.title != wide) for head in heads)
    assert [head.title for head in heads if head.wide] == ([wide] if wide else [])


def test_rows_of_a_table_are_rows_or_their_cells() -> None:
    made = doc.table("key", "Title", "a: | b", [("word", doc.count(1)), doc.row("sum", total=True)])
    assert [row.total for row in made.rows] == [False, True]
    assert made.rows[0].cells[0] == doc.text("word")


@given(value_w=st.floats(0, 1e9))
def test_kilowatts_have_a_digit_where_they_are_few(value_w: float) -> None:
    cell = doc.kilowatts(value_w)
    assert cell.value == pytest.approx(value_w / 1000)
    assert cell.digits == (0 if value_w >= 100_000 else 1)
    assert doc.kilo(value_w, "kW").value == cell.value


def test_a_cell_follows_a_formula_of_the_workbook_alone() -> None:
    cell = doc.money(3.0, follows="devices*price")
    assert cell.follows == "devices*price"
    assert doc.cell_text(cell, currency="USD") == doc.cell_text(doc.money(3.0), currency="USD")
