"""Figures that others printed against what is predicted: the error of each, in the order of their size."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.published.figures import ComparedFigure
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind
from simulator.reports.content.quantities import number_text, percent_text, signed_percent_text

_PERCENT = 100
_MOST_MARKS = 10


def _group(item: ComparedFigure) -> str:
    if item.figure.is_known_miss:
        return "known miss"
    return "off" if item.is_off else "fitted to it" if item.figure.is_fitted else "within tolerance"


def published_chart(figures: Sequence[ComparedFigure]) -> Chart:
    """Signed error of every figure [%], from the one predicted lowest to the one predicted highest."""
    ordered = sorted(figures, key=lambda item: item.error)
    groups = dict.fromkeys(map(_group, ordered))
    series = []
    for group in groups:
        members = [(place + 1, item) for place, item in enumerate(ordered) if _group(item) == group]
        series.append(
            Series(
                name=group,
                kind=SeriesKind.SCATTER,
                x=tuple(float(place) for place, _ in members),
                y=tuple(_PERCENT * item.error for _, item in members),
                labels=tuple(item.figure.name for _, item in members),
            )
        )
    return Chart(
        key="published",
        title="What is predicted, against what was printed",
        x=Axis(title="Figures, by their error", step=float(max(1, -(-len(figures) // _MOST_MARKS)))),
        y=Axis(title="Predicted over published", unit="%"),
        series=tuple(series),
        annotations=(Annotation(text="as printed", y=0.0),),
        caption="Every figure has a source, a tolerance and the command that asks for it.",
    )


PUBLISHED_COLUMNS = ("figure", "unit", "published", "predicted", "error", "tolerance", "verdict")


def published_rows(figures: Sequence[ComparedFigure]) -> list[tuple[str, ...]]:
    """One row a figure, in the order of PUBLISHED_COLUMNS."""
    return [
        (
            item.figure.name,
            item.figure.unit,
            number_text(item.figure.published),
            number_text(item.predicted),
            signed_percent_text(item.error),
            percent_text(item.figure.tolerance),
            _group(item),
        )
        for item in figures
    ]
