"""Text, Markdown and JSON say the same of any section: nothing lost, nothing cut, no table broken by its words."""

from __future__ import annotations

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.reports.content import document as doc
from simulator.reports.content.quantities import UNKNOWN
from simulator.reports.formats.json_document import plain_number, section_object
from simulator.reports.formats.markdown import sections_markdown
from simulator.reports.formats.text import sections_text, shown, text_table
from tests.for_every import for_every

CURRENCY = "USD"
WORDS = st.text("abcdefghij", min_size=1, max_size=12)
SENTENCES = st.lists(WORDS, min_size=1, max_size=8).map(" ".join)
NUMBERS = st.one_of(st.none(), st.floats(allow_nan=False))
CELLS = st.one_of(
    SENTENCES.map(doc.text),
    st.builds(doc.count, NUMBERS, WORDS),
    st.builds(doc.number, NUMBERS, WORDS),
    st.builds(doc.money, NUMBERS, WORDS),
    st.builds(doc.fraction, NUMBERS),
    st.builds(doc.seconds, NUMBERS),
)


@st.composite
def tables(draw: st.DrawFn) -> doc.Table:
    titles = draw(st.lists(WORDS, min_size=1, max_size=4, unique=True))
    heads = " | ".join(f"{title}{draw(st.sampled_from(['', ':']))}" for title in titles)
    cells = st.lists(CELLS, min_size=len(titles), max_size=len(titles))
    rows = draw(st.lists(st.builds(lambda row, total: doc.row(*row, total=total), cells, st.booleans()), max_size=4))
    return doc.table("t", draw(SENTENCES), heads, rows, note=draw(st.one_of(st.just(""), SENTENCES)))


FACTS = st.builds(doc.fact, WORDS, SENTENCES, CELLS, SENTENCES)
BLOCKS = st.one_of(
    st.builds(doc.Paragraph, text=SENTENCES, tone=st.sampled_from(doc.Tone)),
    st.builds(doc.Bullets, items=st.lists(SENTENCES, min_size=1, max_size=3).map(tuple)),
    st.builds(doc.Facts, facts=st.lists(FACTS, min_size=1, max_size=3).map(tuple)),
    st.builds(doc.Code, title=SENTENCES, text=SENTENCES),
    tables(),
)
SECTIONS = st.builds(
    doc.Section,
    key=WORDS,
    title=st.one_of(st.just(""), SENTENCES.map(str.upper)),
    blocks=st.lists(BLOCKS, max_size=4).map(tuple),
    number=st.integers(0, 20),
)


def sentences_of(block: doc.Block) -> list[str]:
    """What a reader of any format must find, apart from numbers."""
    match block:
        case doc.Paragraph():
            return [block.text]
        case doc.Bullets():
            return list(block.items)
        case doc.Facts():
            return [item.label for item in block.facts]
        case doc.Table():
            return [block.title, block.note]
        case doc.Code():
            return [block.title, block.text]
    return []


@given(sections=st.lists(SECTIONS, min_size=1, max_size=3))
def test_every_sentence_of_a_section_stands_in_all_three_formats(sections: list[doc.Section]) -> None:
    text = sections_text(sections, currency=CURRENCY)
    markdown = sections_markdown(sections, currency=CURRENCY)
    document = json.dumps([section_object(section) for section in sections], allow_nan=False)
    for section in sections:
        for sentence in [section.title, *(found for block in section.blocks for found in sentences_of(block))]:
            assert sentence in text
            assert sentence in markdown
            assert sentence in document


@given(sections=st.lists(SECTIONS, min_size=1, max_size=3))
def test_both_texts_end_with_one_line_break(sections: list[doc.Section]) -> None:
    for text in (sections_text(sections, currency=CURRENCY), sections_markdown(sections, currency=CURRENCY)):
        assert text.endswith("\n")
        assert not text.endswith("\n\n") or text == "\n\n"


@given(section=SECTIONS, most=st.integers(20, 120))
def test_a_line_may_be_narrow_and_still_loses_no_word(section: doc.Section, most: int) -> None:
    whole = sections_text([section], currency=CURRENCY)
    narrow = sections_text([section], currency=CURRENCY, most=most)
    assert sorted(whole.split()) == sorted(narrow.split())


@given(table=tables())
def test_a_markdown_table_has_as_many_cells_in_every_line(table: doc.Table) -> None:
    section = doc.Section(key="s", title="", blocks=(table,))
    lines = [line for line in sections_markdown([section], currency=CURRENCY).splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(table.rows)
    assert {line.count("|") for line in lines} == {len(table.columns) + 1}


@given(words=st.text("ab|\n", min_size=1, max_size=10))
def test_words_with_bars_and_line_breaks_do_not_break_a_markdown_table(words: str) -> None:
    table = doc.table("t", "Title", "one:", [(words,)])
    lines = sections_markdown([doc.Section(key="s", title="", blocks=(table,))], currency=CURRENCY).splitlines()
    (row,) = lines[4:5]
    assert row.startswith("| ")
    assert row.endswith(" |")
    assert len(re.findall(r"(?<!\\)\|", row)) == 2
    assert row.count("\\|") == words.count("|")


@given(table=tables())
def test_totals_are_bold_in_markdown_and_no_other_row_is(table: doc.Table) -> None:
    section = doc.Section(key="s", title="", blocks=(table,))
    lines = [line for line in sections_markdown([section], currency=CURRENCY).splitlines() if line.startswith("|")]
    assert [line.startswith("| **") for line in lines[2:]] == [row.total for row in table.rows]


@given(
    rows=st.lists(st.tuples(WORDS, st.integers(0, 10**9).map(str)), min_size=1, max_size=5),
    heads=st.tuples(WORDS, WORDS),
)
def test_columns_of_a_text_table_are_aligned(rows: list[tuple[str, str]], heads: tuple[str, str]) -> None:
    lines = text_table(heads, rows).splitlines()
    assert len(lines) == 1 + len(rows)
    width = max(len(row[0]) for row in [heads, *rows])
    last = max(len(row[1]) for row in [heads, *rows])
    for line, (words, number) in zip(lines, [heads, *rows], strict=True):
        assert line[:width].rstrip() == words
        assert line[width : width + 2] == "  "
        assert line[width + 2 :] == number.rjust(last)


@given(rows=st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=5), most=st.integers(40, 200))
def test_columns_of_words_keep_within_the_line(rows: list[tuple[str, str]], most: int) -> None:
    table = text_table(("first", "second"), rows, right=[False, False], most=most)
    assert max(len(line) for line in table.splitlines()) <= most


@given(rows=st.lists(st.tuples(SENTENCES, SENTENCES), min_size=1, max_size=5))
def test_a_line_wide_enough_changes_nothing(rows: list[tuple[str, str]]) -> None:
    assert text_table(("first", "second"), rows) == text_table(("first", "second"), rows, most=10_000)


@given(value=st.floats())
def test_json_numbers_are_finite_or_null(value: float) -> None:
    assert plain_number(value) == (value if math.isfinite(value) else None)


@given(value=st.one_of(st.integers(), st.text(max_size=5), st.none()))
def test_json_keeps_words_whole_numbers_and_nothing(value: int | str | None) -> None:
    assert plain_number(value) is value


@given(cell=CELLS)
def test_a_cell_on_a_screen_shows_no_number_that_is_none(cell: doc.Cell) -> None:
    if isinstance(cell.value, float) and not math.isfinite(cell.value):
        assert "inf" not in shown(cell, currency=CURRENCY)


@pytest.mark.parametrize("value", [None, math.inf, -math.inf])
def test_an_amount_that_is_not_known_says_so(value: float | None) -> None:
    assert shown(doc.money(value, "a month"), currency=CURRENCY) == UNKNOWN


@given(value=st.floats(0.0, 1e9), origin=st.sampled_from(doc.Origin))
def test_a_badge_stands_behind_a_number_only_where_it_is_asked_for(value: float, origin: doc.Origin) -> None:
    cell = doc.number(value, origin=origin)
    mark = doc.origin_mark(cell)
    plain = shown(cell, currency=CURRENCY)
    assert plain == doc.cell_text(cell, currency=CURRENCY)
    assert shown(cell, currency=CURRENCY, marked=True) == (f"{plain} ({mark})" if mark else plain)


@for_every([*doc.Tone])
def test_a_paragraph_reads_by_its_tone(tone: doc.Tone) -> None:
    section = doc.Section(key="s", title="", blocks=(doc.Paragraph(text="so it is", tone=tone),))
    found = sections_markdown([section], currency=CURRENCY).strip()
    assert found.strip("*> ").removeprefix("Warning:** ") == "so it is"
    assert (found == "so it is") == (tone is doc.Tone.BODY)


@given(number=st.integers(1, 30), title=SENTENCES)
def test_sections_are_numbered_only_in_reports(number: int, title: str) -> None:
    def heading(number: int) -> str:
        section = doc.Section(key="s", title=title, blocks=(), number=number)
        return sections_markdown([section], currency=CURRENCY)

    assert heading(number) == f"## {number}. {title}\n"
    assert heading(0) == f"## {title}\n"


def test_the_title_of_a_table_is_not_said_twice_under_the_same_heading() -> None:
    table = doc.table("t", "Power and cooling", "kW", [(doc.number(3.0),)])
    text = sections_text([doc.Section(key="s", title="Power", blocks=(table,))], currency=CURRENCY)
    assert text.splitlines() == ["Power", "  kW", "3.00"]
