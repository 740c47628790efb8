"""What cheaper answers cost in quality, as far as anybody has published it."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.planner.what_if import WhatIf, scenario_quality
from simulator.reports.contract import Json
from simulator.reports.figures.chart import Annotation, Axis, Chart, Series, SeriesKind
from simulator.reports.quantities import money_text
from simulator.reports.scenario_figures import per_token_ends

_LEAST_AXIS = 10.0
"""The axis shows at least this rise [%], so that models as published do not stand on its edge alone."""
_MARGIN = 1.15

Point = tuple[str, float, float | None, str, tuple[float, float], int]
"""Name, price per million output tokens, loss [%] where it is known, what is known in words, interval of the price,
place among the compared."""


def quality_cost_chart(compared: Sequence[tuple[str, WhatIf, Json]]) -> Chart:
    """Price per million output tokens over the published rise of perplexity, one mark per (name, what-if, object).

    Where nothing is published the price is a dashed line across: its place on the quality axis is unknown. The joined
    points are those that no other beats in both. Deployments without a known price are left out.
    """
    points: list[Point] = []
    for place, (name, what_if, document) in enumerate(compared):
        price, quality = what_if.cost.per_million_output_tokens, scenario_quality(what_if.result)
        if price is not None:
            loss = None if quality.loss is None else 100 * quality.loss
            ends = per_token_ends(document, price) or (price, price)
            points.append((name, price, loss, quality.note, ends, place))
    currency = compared[0][1].cost.currency
    known = [point for point in points if point[2] is not None]
    end = max([_LEAST_AXIS, *(point[2] or 0.0 for point in known)]) * _MARGIN
    low = -_LEAST_AXIS / 10
    unknown = [_across(point, low=low, high=end) for point in points if point[2] is None]
    marks = [_mark(point, currency=currency) for point in known]
    return Chart(
        key="quality_cost",
        title=_title(known, [point for point in points if point[2] is None]),
        x=Axis(title="Published rise of perplexity", unit="%", low=low, high=end),
        y=Axis(title="Price per 1M output tokens", unit=currency),
        series=(*unknown, *_front(known), *marks),
        annotations=tuple(Annotation(text=point[0], x=point[2], y=point[1]) for point in known),
        caption=(
            "Each model against itself as published; different models cannot be compared this way. "
            "Only figures published for this very model and method count; dashed: nothing is published. "
            "Whiskers: 80 % intervals of the price."
        ),
    )


def _mark(point: Point, *, currency: str) -> Series:
    name, price, loss, sentence, (cheap, dear), place = point
    return Series(
        name=f"{name}: {sentence}" if not loss else name,
        kind=SeriesKind.SCATTER,
        x=(loss or 0.0,),
        y=(price,),
        low=(cheap,),
        high=(dear,),
        labels=(f"{name}: {money_text(price, currency)} per 1M output tokens; {sentence}",),
        color=place,
    )


def _across(point: Point, *, low: float, high: float) -> Series:
    return Series(
        name=f"{point[0]}: unknown",
        kind=SeriesKind.CEILING,
        x=(low, high),
        y=(point[1], point[1]),
        color=point[5],
        dashed=True,
    )


def _front(known: Sequence[Point]) -> tuple[Series, ...]:
    """The step through the points that no other beats in both price and quality."""
    front: list[Point] = []
    for point in sorted(known, key=lambda item: (item[2] or 0.0, item[1])):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    if len(front) < 2:
        return ()
    xs, ys = tuple(point[2] or 0.0 for point in front), tuple(point[1] for point in front)
    return (Series(name="best known", kind=SeriesKind.STEP, x=xs, y=ys, color=7, dashed=True),)


def _title(known: Sequence[Point], unknown: Sequence[Point]) -> str:
    if not known and not unknown:
        return "No price is known"
    if not known:
        return "Nothing is published about the quality of these"
    if unknown:
        return f"Quality of {', '.join(point[0] for point in unknown)} is unknown"
    if all(not point[2] for point in known):
        return "All answer as their published models do"
    worst = max(known, key=lambda point: point[2] or 0.0)
    return f"{worst[0]} gives up {worst[2]:.0f} % of perplexity"
