"""What stands out of a table of swept points: the ends of its figures, what moves them, and which no other beats."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from simulator.planner.search.screened_space import pareto_front
from simulator.records import dataclass

Row = Mapping[str, Any]
Group = tuple[object, ...]
"""The value that points have in common, or the lowest and the highest of a range of numbers."""
_STRETCHES = 4
"""Groups of a field whose values are drawn from a range: its quarters."""


@dataclass(frozen=True, slots=True)
class SweepFigure:
    """A column that is compared; ``rises`` says that more of it is better."""

    column: str
    title: str
    unit: str
    rises: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureEnds:
    """The points with the lowest and the highest value of a figure, and the median of all."""

    lowest: Row
    median: float
    highest: Row


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldMoves:
    """Values of a field with which a figure is lowest and highest, each over the geometric mean of all points."""

    field: str
    lowest: Group
    lowest_ratio: float
    highest: Group
    highest_ratio: float


def above_zero(rows: Sequence[Row], *figures: SweepFigure) -> list[Row]:
    """Rows that hold these figures, above zero, as logarithms need them."""
    return [row for row in rows if all((row.get(figure.column) or 0.0) > 0.0 for figure in figures)]


def front_of(rows: Sequence[Row], figures: Sequence[SweepFigure]) -> list[Row]:
    """Rows than which no other is better in one figure without being worse in another, best in the first one first."""
    held = above_zero(rows, *figures)
    signs = [-1.0 if figure.rises else 1.0 for figure in figures]
    axes = np.array([[float(row[figure.column]) for figure in figures] for row in held]).reshape(-1, len(figures))
    return [held[place] for place in pareto_front(axes * signs)]


def figure_ends(rows: Sequence[Row], figure: SweepFigure) -> FigureEnds | None:
    """Lowest, middle and highest of a figure; None where no point holds it."""
    held = sorted(above_zero(rows, figure), key=lambda row: float(row[figure.column]))
    if not held:
        return None
    return FigureEnds(lowest=held[0], median=median(float(row[figure.column]) for row in held), highest=held[-1])


def _groups(rows: Sequence[Row], field: str) -> list[tuple[Group, list[Row]]]:
    """Rows by the value of a field; of many numbers by quarters of the rows."""
    values = sorted({row[field] for row in rows if row[field] is not None}, key=lambda value: (str(type(value)), value))
    numeric = all(isinstance(value, int | float) for value in values)
    if not numeric or len(values) <= 2 * _STRETCHES:
        return [((value,), [row for row in rows if row[field] == value]) for value in values]
    ordered = sorted((row for row in rows if row[field] is not None), key=lambda row: float(row[field]))
    cuts = [len(ordered) * place // _STRETCHES for place in range(_STRETCHES + 1)]
    quarters = [ordered[low:high] for low, high in pairwise(cuts) if high > low]
    return [((part[0][field], part[-1][field]), part) for part in quarters]


def sensitivity(rows: Sequence[Row], figure: SweepFigure, fields: Sequence[str]) -> list[FieldMoves]:
    """How far each field moves a figure: geometric mean of each value's points over that of all, widest first. Valid
    where values of the other fields are as frequent with each value of this one, as in a grid or a sample."""
    held = above_zero(rows, figure)

    def level(part: Sequence[Row]) -> float:
        return sum(math.log(row[figure.column]) for row in part) / len(part)

    found = []
    for field in fields:
        levels = [(level(part) - level(held), group) for group, part in _groups(held, field) if part]
        if len(levels) > 1:
            low, high = min(levels, key=lambda item: item[0]), max(levels, key=lambda item: item[0])
            found.append(
                FieldMoves(
                    field=field,
                    lowest=low[1],
                    lowest_ratio=math.exp(low[0]),
                    highest=high[1],
                    highest_ratio=math.exp(high[0]),
                )
            )
    return sorted(found, key=lambda item: item.lowest_ratio / item.highest_ratio)
