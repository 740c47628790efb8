"""``simulator.planner.swept_points``: what a swept field moves, of answers whose law is known."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.planner.swept_points import sensitivity
from simulator.reports.answers.sweep import FIGURES

FIGURE = FIGURES["scenarios"][0] if "scenarios" in FIGURES else next(iter(FIGURES.values()))[0]
POWERS = st.floats(-2, 2).map(lambda value: round(value, 3))


def answered(first: float, second: float) -> list[dict[str, object]]:
    """A grid over two fields whose answer is a power of each."""
    grid = product(("a", "b", "c"), (1.0, 2.0, 4.0))
    return [
        {"x": name, "y": size, FIGURE.column: math.e ** (first * place) * size**second}
        for name, size in grid
        for place in ("abc".index(name),)
    ]


@given(first=POWERS, second=POWERS)
def test_each_field_moves_the_answer_by_its_own_power(first: float, second: float) -> None:
    found = {item.field: item for item in sensitivity(answered(first, second), FIGURE, ["x", "y"])}
    reach = {"x": abs(2 * first), "y": abs(math.log(4) * second)}
    for name, item in found.items():
        assert math.log(item.highest_ratio / item.lowest_ratio) == pytest.approx(reach[name], abs=1e-9)
        assert item.lowest_ratio <= 1 + 1e-9
        assert item.highest_ratio >= 1 - 1e-9


@given(first=POWERS, second=POWERS)
def test_the_widest_comes_first(first: float, second: float) -> None:
    found = sensitivity(answered(first, second), FIGURE, ["y", "x"])
    reaches = [item.highest_ratio / item.lowest_ratio for item in found]
    assert reaches == sorted(reaches, reverse=True)


def test_a_field_with_one_value_moves_nothing() -> None:
    rows = [{**row, "z": 7} for row in answered(1.0, 1.0)]
    assert [item.field for item in sensitivity(rows, FIGURE, ["z"])] == []


def test_rows_without_the_figure_are_left_out() -> None:
    rows = answered(1.0, 0.5)
    refused = [{"x": "a", "y": 1.0, FIGURE.column: None}, {"x": "b", "y": 2.0}]
    assert sensitivity([*rows, *refused], FIGURE, ["x"]) == sensitivity(rows, FIGURE, ["x"])
