"""Tables and charts of worked examples in few words: "TPOT" heads numbers, "phase:" words; "Time [ms]" has a unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from simulator.reports.charts.chart import Axis, bars_chart, lines_chart
from simulator.reports.content.document import (
    Cell,
    Column,
    Fact,
    Facts,
    Figure,
    Table,
    fact,
    fraction,
    number,
    seconds,
    table,
)

Value = Cell | str | float | None


def cell(value: Value) -> Cell | str:
    """A cell of what is given; a bare number is shown as it is."""
    return value if isinstance(value, Cell | str) else number(value)


def rows_table(key: str, title: str, heads: str, rows: Iterable[Sequence[Value]], *, note: str = "") -> Table:
    """A table whose headings stand in one line between bars."""
    titles = [head.strip() for head in heads.split("|")]
    columns = tuple(Column(title=title.removesuffix(":"), numeric=not title.endswith(":")) for title in titles)
    return table(key, title, columns, ([cell(value) for value in row] for row in rows), note=note)


def columns_table(key: str, title: str, of: Mapping[str, Iterable[Value]], *, note: str = "") -> Table:
    """A table by columns: what stands under each heading, row by row."""
    return rows_table(key, title, " | ".join(of), list(zip(*of.values(), strict=True)), note=note)


def whole(values: Iterable[float]) -> list[Value]:
    """Numbers of things."""
    return [number(value, digits=0) for value in values]


def shares(values: Iterable[float]) -> list[Value]:
    """Shares of one."""
    return [fraction(float(value)) for value in values]


def times(values_s: Iterable[float]) -> list[Value]:
    """Times [s]."""
    return [seconds(float(value_s)) for value_s in values_s]


def facts(*named: tuple[str, str, Value]) -> Facts:
    """Headline numbers, each with its key and its label."""
    found: list[Fact] = []
    for key, label, value in named:
        shown = cell(value)
        found.append(fact(key, label, shown if isinstance(shown, Cell) else Cell(value=shown)))
    return Facts(facts=tuple(found))


def _axis(text: str) -> Axis:
    """``log Batch`` and ``Time [ms]``."""
    name = text.removeprefix("log ")
    title, _, unit = name.partition(" [")
    return Axis(title=title, unit=unit.removesuffix("]"), log=name != text)


def lines(
    key: str, title: str, *, x: str, y: str, at: Sequence[float], of: Mapping[str, Sequence[float | None]]
) -> Figure:
    """One line per name."""
    return Figure(chart=lines_chart(key=key, title=title, x=_axis(x), y=_axis(y), at=at, lines=of))


def bars(key: str, title: str, *, y: str, names: Sequence[str], of: Mapping[str, Sequence[float]]) -> Figure:
    """Bars over names, one series per name of ``of``."""
    return Figure(chart=bars_chart(key=key, title=title, y=_axis(y), names=names, bars=of))
