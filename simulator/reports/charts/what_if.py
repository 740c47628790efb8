"""What speed and quality cost: deployments by price, and what each technique takes off a number of one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from operator import attrgetter

from simulator.engine.runs.answers import ScenarioResult
from simulator.planner.what_if import TechniqueStep, WhatIf, scenario_quality
from simulator.records import dataclass
from simulator.reports.answer import Json
from simulator.reports.charts.chart import Annotation, Axis, Chart, Series, SeriesKind, apart, waterfall_chart
from simulator.reports.content import quantities as say
from simulator.reports.tables.scenario_figures import per_token_ends
from simulator.reports.words.fields import note_text
from simulator.units import GIGA, KILO, MILLI


def cost_speed_chart(compared: Sequence[tuple[str, WhatIf, Json]]) -> Chart:
    """A point per (name, what-if, object) with a known price: TPOT against price per million output tokens."""
    points = [
        (name, what_if, document, place)
        for place, (name, what_if, document) in enumerate(compared)
        if what_if.cost.per_million_output_tokens is not None and document["tpot_s"] is not None
    ]
    currency = points[0][1].cost.currency if points else ""
    series = tuple(_point(*point) for point in points)
    notes = [Annotation(text=item.name, x=item.x[0], y=item.y[0]) for item in series]
    tpots, prices = [[*item.x_low, *item.x_high] for item in series], [[*item.low, *item.high] for item in series]
    return Chart(
        key="cost_speed",
        title="Down and to the left is better" if points else "No price is known, or nothing is generated",
        x=Axis(title="TPOT", unit="ms"),
        y=Axis(title="Price per 1M output tokens", unit=currency),
        series=series,
        annotations=apart(notes, x=_ends(tpots), y=_ends(prices)),
        caption="Rental list prices, always busy, all of the bill on the output tokens. Whiskers: 80 % intervals.",
    )


def _ends(values: Sequence[Sequence[float]]) -> tuple[float, float]:
    every = [value for part in values for value in part] or [0.0]
    return min(every), max(every)


def _point(name: str, what_if: WhatIf, document: Json, place: int) -> Series:
    cost = what_if.cost
    price, tpot_s = cost.per_million_output_tokens or 0.0, document["tpot_s"]
    fast_s, slow_s = document["interval"]["tpot_s"]
    cheap, dear = per_token_ends(document, price) or (price, price)
    said = (
        f"{name}: {say.seconds_text(tpot_s)} per token ({say.range_text((fast_s, slow_s), say.seconds_text)}), "
        f"{say.money_text(price, cost.currency)} per 1M output tokens"
    )
    across = Series(name=name, kind=SeriesKind.SCATTER, x=(tpot_s / MILLI,), y=(price,), labels=(said,), color=place)
    return replace(across, x_low=(fast_s / MILLI,), x_high=(slow_s / MILLI,), low=(cheap,), high=(dear,))


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
            points.append((name, price, loss, note_text(quality.note), ends, place))
    currency = compared[0][1].cost.currency
    known = [point for point in points if point[2] is not None]
    end = max([_LEAST_AXIS, *(point[2] or 0.0 for point in known)]) * _MARGIN
    low = -_LEAST_AXIS / 10
    missing = [point for point in points if point[2] is None]
    across = [
        Series(name=f"{name}: unknown", kind=SeriesKind.CEILING, x=(low, end), y=(price,) * 2, color=place, dashed=True)
        for name, price, *_, place in missing
    ]
    marks = [_mark(point, currency=currency) for point in known]
    return Chart(
        key="quality_cost",
        title=_title(known, missing),
        x=Axis(title="Published rise of perplexity", unit="%", low=low, high=end),
        y=Axis(title="Price per 1M output tokens", unit=currency),
        series=(*across, *_front(known), *marks),
        annotations=apart(
            [Annotation(text=point[0], x=point[2], y=point[1]) for point in known],
            x=(low, end),
            y=_ends([point[4] for point in points]),
        ),
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
        labels=(f"{name}: {say.money_text(price, currency)} per 1M output tokens; {sentence}",),
        color=place,
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


@dataclass(frozen=True, slots=True)
class WaterfallMetric:
    """A number that a waterfall can show, in the unit of its axis; less is better for all of them.

    key : of the contract's result; scale : base units per unit of the axis; place : in the engine's result, dotted
    """

    key: str
    name: str
    unit: str
    scale: float
    text: Callable[[float], str]
    place: str

    def value(self, found: ScenarioResult) -> float:
        """The metric of an answered scenario, in base units."""
        return float(attrgetter(self.place)(found))


_JOULES, _WEIGHTS, _CACHE = "energy_per_output_token_j", "weights_bytes", "kv_bytes_per_token"
WATERFALL_METRICS = (
    WaterfallMetric("tpot_s", "TPOT", "ms", MILLI, say.seconds_text, "run.tpot_s"),
    WaterfallMetric("ttft_s", "TTFT", "ms", MILLI, say.seconds_text, "run.ttft_s"),
    WaterfallMetric("e2e_s", "End to end", "s", 1.0, say.seconds_text, "run.e2e_s"),
    WaterfallMetric(_JOULES, "Energy per token", "J", 1.0, say.joules_text, _JOULES),
    WaterfallMetric(_WEIGHTS, "Weights per device", "GB", GIGA, say.bytes_text, f"run.memory.{_WEIGHTS}"),
    WaterfallMetric(_CACHE, "KV cache per token", "kB", KILO, say.bytes_text, f"run.memory.{_CACHE}"),
)


def technique_waterfall_chart(
    steps: Sequence[TechniqueStep], *, metric: WaterfallMetric = WATERFALL_METRICS[0]
) -> Chart:
    """A metric from the published model to the whole scenario, one technique after the other."""
    found = [metric.value(step.result) for step in steps]
    names = [step.name for step in steps]
    changes = [now - before for before, now in itertools.pairwise(found)]
    change = say.change_text(found[-1], found[0]) or "no change"
    return waterfall_chart(
        "technique_waterfall",
        f"{metric.name}: {metric.text(found[0])} to {metric.text(found[-1])} ({change})",
        y=f"{metric.name} [{metric.unit}]",
        parts=[
            (names[0], found[0] / metric.scale, True),
            *((name, value / metric.scale, False) for name, value in zip(names[1:], changes, strict=True)),
            ("With all", found[-1] / metric.scale, True),
        ],
        caption="Each technique on top of those to its left: what it is worth depends on the order.",
    )
