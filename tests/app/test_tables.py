"""Tables sort by the numbers that their cells hold, and mark the best."""

from __future__ import annotations

import pytest
from pandas.api.types import is_numeric_dtype
from streamlit.testing.v1 import AppTest

from app.parts.tables import _widths
from simulator.reports.charts.sweep import METRICS
from simulator.reports.content.document import BEST
from tests.app.pages import opened, tables

SMALL = {"gpus": "h100-sxm-80gb", "rps": "50", "model": "llama-3.1-8b"}


def _numbers(page: AppTest, place: int = 0) -> set[str]:
    table = page.dataframe[place].value
    return {name for name in table.columns if is_numeric_dtype(table[name])}


def test_fleets_sort_by_devices_money_and_latency() -> None:
    page = opened("plan", {**SMALL, "view": "Options"})
    words = {"hardware", "setup", "limited by", "known"}
    assert set(page.dataframe[0].value.columns) - _numbers(page) == words
    held, read = (found.to_dict("records")[0] for found in (page.dataframe[0].value, tables(page)[0]))
    assert read["GPUs"] == f"{held['GPUs']:,.0f}"
    assert read["replicas"].endswith(" + 1")
    assert held["replicas"] == int(read["replicas"].split(" ")[0]) + 1


@pytest.mark.parametrize(
    ("name", "query", "words"),
    [
        ("sweep", {}, {"point", "objectives", "known"}),
        ("validation", {}, {"accelerator", "engine", "models", "mode"}),
        ("learn", {"topic": "engines"}, {"figure", "what it is", "unit", "verdict"}),
        ("roofline", {"operators": "true"}, {"operator", "phase", "shape of one", "known"}),
        ("serving", {"rates": "true"}, {"state"}),
    ],
)
def test_every_column_of_numbers_sorts_as_numbers(name: str, query: dict[str, str], words: set[str]) -> None:
    page = opened(name, query)
    for key in ("operators", "rates"):
        if key in query:
            page.session_state[key] = True
            page.run()
    table = page.dataframe[0].value
    assert set(table.columns) - _numbers(page) == words
    assert list(tables(page)[0].columns) == list(table.columns)


def test_sentences_are_read_to_their_end() -> None:
    page = opened("learn", {"topic": "attention"})
    assert not page.dataframe, "cells of such a table end at their column"
    statements = [str(text) for text in tables(page)[0]["what it is"]]
    assert max(map(len, statements)) > 100
    assert any(text in markdown.value for text in statements for markdown in page.markdown), "the chosen figure's"


def test_the_best_of_a_sweep_is_marked_once_a_metric() -> None:
    page = opened("sweep")
    held, read = page.dataframe[0].value, tables(page)[0]
    for metric in METRICS:
        marked = [place for place, text in enumerate(read[metric.name]) if str(text).startswith(BEST)]
        kept = held[held["objectives"] == "held"][metric.name]
        assert marked == [kept.idxmax() if metric.higher_is_better else kept.idxmin()]


@pytest.mark.parametrize(("first", "wider"), [("prefill TP1 fp8 + decode TP1 fp8", True), ("TP1 bf16", False)])
def test_a_long_text_on_top_of_short_ones_is_not_cut(first: str, wider: bool) -> None:
    assert ("setup" in _widths({"setup": [first, *9 * ["TP1 fp8"]]}, wide=())) == wider
