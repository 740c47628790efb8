"""Cards of equations: whatever function states one can stand on a page, with its own parameters and known sources."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import RoofcastError
from simulator.explain import cache, decoding, formats, hardware, scale
from simulator.explain.catalogue import TOPICS, citation, topic_named, topics_section
from simulator.explain.topic import bars, columns_table, equation_of, facts, lines, shares, whole
from simulator.reports.content.document import Cell, CellKind, Table, Value, table
from tests.for_every import for_every
from tests.structure.sources import parsed

LIBRARY = Path(__file__).resolve().parents[2] / "simulator"
WORDS = st.text("abcdefgh", min_size=1, max_size=8)
FINITE = st.floats(-1e9, 1e9)


@lru_cache(maxsize=1)
def places() -> list[str]:
    """Module:name of every public function of a module that has an ``Equation`` section."""
    found = []
    for file in sorted(LIBRARY.rglob("*.py")):
        module = ".".join(("simulator", *file.relative_to(LIBRARY).with_suffix("").parts))
        for node in parsed(file).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                stated = ast.get_docstring(node) or ""
                if re.search(r"^Equation\n-+$", stated, re.MULTILINE):
                    found.append(f"{module}:{node.name}")
    return found


def function_at(place: str) -> Callable[..., Any]:
    found: Callable[..., Any] = resolve_name(place)
    assert callable(found)
    return found


def test_the_library_states_its_equations() -> None:
    assert len(places()) > 50


@for_every(places)
def test_every_equation_makes_a_card(place: str) -> None:
    card = equation_of(function_at(place))
    assert card.result
    assert card.formula
    assert all(line.strip() for line in card.formula)
    for name, meaning, _ in card.symbols:
        assert name
        assert meaning


@for_every(places)
def test_symbols_of_a_card_are_parameters_of_its_function(place: str) -> None:
    function = function_at(place)
    parameters = set(inspect.signature(function).parameters)
    named = {name.strip() for names, _, _ in equation_of(function).symbols for name in names.split(",")}
    assert named <= parameters


@for_every(places)
def test_sources_of_a_card_are_listed(place: str) -> None:
    for key in equation_of(function_at(place)).references:
        assert citation(key).startswith(f"[{key}] ")


def test_a_function_without_an_equation_makes_an_empty_card() -> None:
    def bare() -> None:
        """Nothing is stated."""

    card = equation_of(bare)
    assert card.result == "Nothing is stated."
    assert not card.formula
    assert not card.symbols
    assert not card.validity
    assert not card.references


def test_a_line_that_goes_on_and_units_of_several_quantities_are_read() -> None:
    def stated(first: float, second: float, third: float) -> None:
        """Sum of what is given [s].

        Equation
        --------
        t = a + b

        Parameters
        ----------
        first, second : times of
            two parts [s]
        third : bytes [bytes] and their rate [bytes/s]

        Range of validity
        -----------------
        Always,
        and elsewhere.

        References
        ----------
        [Nobody2020], [Someone2021b].
        """

    card = equation_of(stated)
    assert card.formula == ("t = a + b",)
    assert card.symbols == (
        ("first, second", "times of two parts", "s"),
        ("third", "bytes [bytes] and their rate [bytes/s]", ""),
    )
    assert card.validity == "Always, and elsewhere."
    assert card.references == ("Nobody2020", "Someone2021b")


def test_every_topic_is_worked_and_every_worked_example_is_a_topic() -> None:
    named = [f"simulator.explain.{topic.worked}".replace(":", ".") for topic in TOPICS]
    assert len(set(named)) == len(named)
    working = {
        f"{module.__name__}.{name}": inspect.getsource(module).count(f"{name}(")
        for module in (cache, decoding, formats, hardware, scale)
        for name, made in inspect.getmembers(module, inspect.isfunction)
        if made.__module__ == module.__name__
        and list(inspect.signature(made).parameters) == ["example"]
        and inspect.signature(made).return_annotation == "tuple[Block, ...]"
    }
    assert set(named) <= set(working)
    assert all(name in named for name, uses in working.items() if uses == 1), "each that no other calls is a topic's"


@for_every(TOPICS)
def test_a_topic_is_found_however_its_name_is_written(topic: Any) -> None:
    for name in (topic.key, topic.title, topic.key.upper(), topic.title.lower(), topic.key.replace("-", " ")):
        assert topic_named(name) is topic


@given(name=st.text("jqvxz", min_size=6, max_size=12))
def test_a_name_of_no_topic_is_refused_by_name(name: str) -> None:
    with pytest.raises(RoofcastError, match=name) as refusal:
        topic_named(name)
    assert refusal.value.code == "unknown_topic"


def test_groups_hold_their_topics_in_order() -> None:
    sections = topics_section()
    assert [section.title for section in sections] == list(dict.fromkeys(topic.group for topic in TOPICS))
    for section in sections:
        (listed,) = section.blocks
        assert isinstance(listed, Table)
        keys = [row.cells[0].value for row in listed.rows]
        assert keys == [topic.key for topic in TOPICS if topic.group == section.title]


@given(heads=st.lists(st.tuples(WORDS, st.booleans()), min_size=1, max_size=4))
def test_a_colon_behind_a_heading_makes_a_column_of_words(heads: list[tuple[str, bool]]) -> None:
    found = table("t", "", " | ".join(f"{word}{':' if words else ''}" for word, words in heads), [])
    assert [(column.title, not column.numeric) for column in found.columns] == heads


@given(columns=st.dictionaries(WORDS, st.lists(FINITE, min_size=3, max_size=3), min_size=1, max_size=4))
def test_a_table_by_columns_is_the_table_by_rows(columns: dict[str, list[float]]) -> None:
    given_columns: dict[str, list[Value]] = {head: list(values) for head, values in columns.items()}
    found = columns_table("t", "", given_columns)
    rows = list(zip(*columns.values(), strict=True))
    assert found == table("t", "", " | ".join(columns), rows)
    assert [tuple(cell.value for cell in row.cells) for row in found.rows] == rows


def test_columns_of_unlike_length_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        columns_table("t", "", {"one": [1.0, 2.0], "two": [1.0]})


@given(values=st.lists(FINITE, max_size=4))
def test_columns_of_numbers_keep_them(values: list[float]) -> None:
    for made, kind in ((whole(values), CellKind.NUMBER), (shares(values), CellKind.FRACTION)):
        cells = [cell for cell in made if isinstance(cell, Cell)]
        assert [cell.value for cell in cells] == values
        assert all(cell.kind is kind for cell in cells)


@given(value=st.one_of(FINITE, WORDS))
def test_a_headline_shows_numbers_and_words_as_they_are(value: float | str) -> None:
    (fact,) = facts(("key", "Label", value)).facts
    assert (fact.key, fact.label, fact.cell.value) == ("key", "Label", value)


@given(title=WORDS, unit=st.one_of(st.just(""), WORDS), log=st.booleans())
def test_axes_are_read_from_their_words(title: str, unit: str, log: bool) -> None:
    words = f"{'log ' if log else ''}{title}{f' [{unit}]' if unit else ''}"
    axis = lines("k", "Title", x=words, y="y", at=[1.0, 2.0], of={"one": [1.0, None]}).chart.x
    assert (axis.title, axis.unit, axis.log) == (title, unit, log)


@given(names=st.lists(WORDS, min_size=1, max_size=4, unique=True), series=st.lists(WORDS, min_size=1, unique=True))
def test_bars_stand_over_their_names_one_series_per_word(names: list[str], series: list[str]) -> None:
    chart = bars("k", "Title", y="y [s]", names=names, of={word: [1.0] * len(names) for word in series}).chart
    assert list(chart.x.categories) == names
    assert [item.name for item in chart.series] == series
