"""Charts of answers that are lists of numbers: lines over a quantity, and bars over names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulator.reports.charts.chart import Axis, Chart, Series, SeriesKind


def lines_chart(
    *, key: str, title: str, x: Axis, y: Axis, at: Sequence[float], lines: Mapping[str, Sequence[float | None]]
) -> Chart:
    """One line per name over the positions ``at``; a point without a value is left out."""
    series = []
    for name, values in lines.items():
        points = [(place, value) for place, value in zip(at, values, strict=True) if value is not None]
        series.append(
            Series(
                name=name,
                kind=SeriesKind.LINE,
                x=tuple(float(place) for place, _ in points),
                y=tuple(float(value) for _, value in points),
            )
        )
    return Chart(key=key, title=title, x=x, y=y, series=tuple(series))


def bars_chart(*, key: str, title: str, y: Axis, names: Sequence[str], bars: Mapping[str, Sequence[float]]) -> Chart:
    """One bar per name of the axis and series."""
    return Chart(
        key=key,
        title=title,
        x=Axis(title="", categories=tuple(names)),
        y=y,
        series=tuple(
            Series(
                name=name,
                kind=SeriesKind.BAR,
                x=tuple(float(place) for place in range(len(values))),
                y=tuple(float(value) for value in values),
            )
            for name, values in bars.items()
        ),
    )
