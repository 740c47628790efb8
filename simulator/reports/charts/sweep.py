"""Two metrics of a swept deployment against each other: its points, the frontier; as a sentence and as rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simulator.kernels.intervals import inverse_ends
from simulator.planner.deployment_sweep import SweepAxis, SweepPoint
from simulator.planner.what_if import WhatIf
from simulator.records import dataclass
from simulator.reports.answer import Json
from simulator.reports.charts.chart import NEUTRAL, Annotation, Axis, Chart, Series, SeriesKind, with_room
from simulator.reports.content.document import BEST, Cell, number, ordered
from simulator.reports.content.quantities import money_text, number_text, range_text
from simulator.reports.tables.scenario_figures import per_token_ends
from simulator.units import MILLI

Ends = tuple[float, float]
_ROOM = 1 + 1 / 20
"""Of the largest value, that its mark is not cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepMetric:
    """A number of every point.

    value, ends : of an answer, and its 80 % interval; None where there is none
    bound : of the axis by the objectives on TTFT and TPOT [s], None where they say nothing of it
    says_unit : whether the title says the unit
    """

    title: str
    unit: str
    value: Callable[[WhatIf, Json], float | None]
    ends: Callable[[WhatIf, Json], Ends | None]
    bound: Callable[[float, float], float | None] = lambda ttft_s, tpot_s: None
    higher_is_better: bool = False
    says_unit: bool = False
    is_money: bool = False

    @property
    def name(self) -> str:
        """``TPOT (ms)``; a title that says its unit says it once."""
        return self.title if self.says_unit else f"{self.title} ({self.unit})"

    def text(self, value: float, what_if: WhatIf) -> str:
        """``27.7``; money as ``$0.684``, whose title has no currency."""
        return money_text(value, what_if.cost.currency) if self.is_money else number_text(value)

    @property
    def in_sentence(self) -> str:
        """``tokens/s per user``; ``TTFT`` as it is."""
        return f"{self.title[:1].lower()}{self.title[1:]}" if self.title[1:2].islower() else self.title


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptPoint:
    """A point that was answered; ``holds`` both objectives."""

    point: SweepPoint
    what_if: WhatIf
    document: Json
    holds: bool


def _scaled(ends: Sequence[float] | None, factor: float) -> Ends | None:
    return None if not ends else (ends[0] * factor, ends[1] * factor)


def _latency(title: str, *, field: str, bound_s: Callable[[float, float], float]) -> SweepMetric:
    """A latency of the contract's ``field`` in milliseconds."""

    return SweepMetric(
        title=title,
        unit="ms",
        value=lambda what_if, document: None if document[field] is None else document[field] / MILLI,
        ends=lambda what_if, document: _scaled(document["interval"].get(field), 1 / MILLI),
        bound=lambda ttft_s, tpot_s: bound_s(ttft_s, tpot_s) / MILLI,
    )


def _per_user_ends(what_if: WhatIf, document: Json) -> Ends | None:
    ends, now = document["interval"].get("tpot_s"), document["tpot_s"]
    return inverse_ends(1 / now, now=now, ends=(ends[0], ends[1])) if ends and now else None


METRICS = (
    SweepMetric(
        title="Tokens/s per user",
        unit="tok/s",
        says_unit=True,
        higher_is_better=True,
        value=lambda what_if, document: 1 / document["tpot_s"] if document["tpot_s"] else None,
        ends=_per_user_ends,
        bound=lambda ttft_s, tpot_s: 1 / tpot_s,
    ),
    SweepMetric(
        title="Tokens/s per accelerator",
        unit="tok/s",
        says_unit=True,
        higher_is_better=True,
        value=lambda what_if, document: document["output_tokens_per_s"] / what_if.devices,
        ends=lambda what_if, document: _scaled(document["interval"].get("output_tokens_per_s"), 1 / what_if.devices),
    ),
    _latency("TPOT", field="tpot_s", bound_s=lambda ttft_s, tpot_s: tpot_s),
    _latency("TTFT", field="ttft_s", bound_s=lambda ttft_s, tpot_s: ttft_s),
    SweepMetric(
        title="Cost per 1M tokens out",
        unit="list price",
        is_money=True,
        value=lambda what_if, document: what_if.cost.per_million_output_tokens,
        ends=lambda what_if, document: per_token_ends(document, what_if.cost.per_million_output_tokens),
    ),
    SweepMetric(title="Power", unit="W", value=lambda _, document: document["power_w"], ends=lambda *_: None),
)


def holds(document: Json, *, ttft_s: float, tpot_s: float) -> bool:
    """Whether a point keeps both objectives: by its mean in a batch, by the p95 under a load that it keeps up with."""
    found = document.get("overall") or document
    names = ("ttft_p95_s", "tpot_p95_s") if "overall" in document else ("ttft_s", "tpot_s")
    values = [found[name] for name in names]
    kept = all(value is not None and value <= bound for value, bound in zip(values, (ttft_s, tpot_s), strict=True))
    return kept and not found.get("saturated", False)


def frontier(points: Sequence[tuple[float, float]], *, x_up: bool, y_up: bool) -> tuple[int, ...]:
    """Places of the points that no other beats in both, along x.

    >>> frontier([(1, 9), (2, 8), (2, 5), (3, 8)], x_up=True, y_up=True)
    (0, 3)
    """
    signed = [(x if x_up else -x, y if y_up else -y) for x, y in points]
    kept = [
        place
        for place, (x, y) in enumerate(signed)
        if not any(a >= x and b >= y and (a, b) != (x, y) for a, b in signed)
    ]
    return tuple(sorted(kept, key=lambda place: points[place][0]))


def point_label(point: SweepPoint, first: SweepAxis, second: SweepAxis) -> str:
    """``batch 64, TP 2``."""
    return f"{first} {point.first}, {second} {point.second}"


def _series(
    name: str,
    members: Sequence[SweptPoint],
    x: SweepMetric,
    y: SweepMetric,
    axes: tuple[SweepAxis, SweepAxis],
    *,
    color: int | None = None,
    dashed: bool = False,
) -> Series:
    def ends(metric: SweepMetric) -> tuple[tuple[float, ...], tuple[float, ...]]:
        found = [
            metric.ends(item.what_if, item.document) or (value, value)
            for item in members
            if (value := metric.value(item.what_if, item.document)) is not None
        ]
        return tuple(low for low, _ in found), tuple(high for _, high in found)

    (x_low, x_high), (low, high) = ends(x), ends(y)
    return Series(
        name=name,
        kind=SeriesKind.SCATTER,
        x=tuple(x.value(item.what_if, item.document) or 0.0 for item in members),
        y=tuple(y.value(item.what_if, item.document) or 0.0 for item in members),
        x_low=x_low,
        x_high=x_high,
        low=low,
        high=high,
        labels=tuple(point_label(item.point, *axes) for item in members),
        color=color,
        dashed=dashed,
    )


def _known(swept: Sequence[SweptPoint], x: SweepMetric, y: SweepMetric) -> list[SweptPoint]:
    return [item for item in swept if None not in (metric.value(item.what_if, item.document) for metric in (x, y))]


def _frontier_series(
    known: Sequence[SweptPoint], x: SweepMetric, y: SweepMetric, *, axes: tuple[SweepAxis, SweepAxis], name: str
) -> list[Series]:
    """The points within the objectives that no other beats, as a band as wide as their 80 % intervals upward."""
    every = _series(name, [item for item in known if item.holds], x, y, axes)
    places = frontier(list(zip(every.x, every.y, strict=True)), x_up=x.higher_is_better, y_up=y.higher_is_better)
    if len(places) < 2:
        return []
    x_values, y_values, low, high = (
        tuple(values[place] for place in places) for values in (every.x, every.y, every.low, every.high)
    )
    return [Series(name=name, kind=SeriesKind.BAND, x=x_values, y=y_values, low=low, high=high)]


def _axis(metric: SweepMetric, series: Sequence[Series], *, upward: bool, bound: float | None) -> Axis:
    """From zero to the largest value, so that the side of an objective that misses it can be shaded."""
    values = [value for item in series for value in ((item.y, item.high) if upward else (item.x, item.x_high))]
    high = max((*(number for part in values for number in part), bound or 0.0))
    # Above the marks there is room for the name of an upright line.
    return Axis(title=metric.name, low=0.0, high=with_room(high) if upward else high * _ROOM)


def sweep_chart(
    swept: Sequence[SweptPoint],
    *,
    x: SweepMetric,
    y: SweepMetric,
    axes: tuple[SweepAxis, SweepAxis],
    bounds_s: tuple[float, float],
    against: tuple[str, Sequence[SweptPoint]] | None = None,
) -> Chart:
    """Every point, one series for each value of the second axis; those that miss an objective apart.

    bounds_s : objectives on TTFT and TPOT; against : another deployment's name and points, of which the frontier shows
    """
    known = _known(swept, x, y)
    seconds = list(dict.fromkeys(item.point.second for item in known))
    series = _frontier_series(known, x, y, axes=axes, name="no point that holds is better in both")
    if against is not None:
        series += _frontier_series(_known(against[1], x, y), x, y, axes=axes, name=f"the same of {against[0]}")
    for place, value in enumerate(seconds):
        members = [item for item in known if item.holds and item.point.second == value]
        if members:
            # A value keeps its colour whichever of the others hold.
            series.append(_series(f"{axes[1]} {value}", members, x, y, axes, color=1 + place % (NEUTRAL - 1)))
    missing = [item for item in known if not item.holds]
    if missing:
        series.append(_series("misses an objective", missing, x, y, axes, color=NEUTRAL, dashed=True))
    bounds = [metric.bound(*bounds_s) for metric in (x, y)]
    marks = [
        Annotation(
            text="objective",
            missed="below" if metric.higher_is_better else "above",
            x=bound if upright else None,
            y=None if upright else bound,
        )
        for upright, metric, bound in zip((True, False), (x, y), bounds, strict=True)
        if bound is not None
    ]
    return Chart(
        key="sweep",
        title=f"{y.title} over {x.in_sentence}",
        x=_axis(x, series, upward=False, bound=bounds[0]),
        y=_axis(y, series, upward=True, bound=bounds[1]),
        series=tuple(series),
        annotations=tuple(marks),
        caption=f"{len(known)} points of {axes[0]} and {axes[1]}; whiskers and bands: 80 % intervals; shaded: an "
        "objective is missed there.",
    )


def best_point(swept: Sequence[SweptPoint], metric: SweepMetric) -> SweptPoint | None:
    """The best of those that hold both objectives; None where none does."""
    found = [item for item in swept if item.holds and metric.value(item.what_if, item.document) is not None]

    def rank(item: SweptPoint) -> float:
        value = metric.value(item.what_if, item.document) or 0.0
        return -value if metric.higher_is_better else value

    return min(found, key=rank, default=None)


SWEPT_COLUMNS = ("point", "objectives", *(metric.name for metric in METRICS), "known")


def sweep_headline(best: SweptPoint | None, *, metric: SweepMetric, axes: tuple[SweepAxis, SweepAxis]) -> str:
    """``batch 64, TP 2 is best within the objectives: 1,230 tok/s, tokens/s per accelerator``."""
    if best is None:
        return "No point of the sweep holds both objectives"
    value = metric.value(best.what_if, best.document)
    said = "unknown" if value is None else metric.text(value, best.what_if)
    unit = "" if value is None or metric.is_money else f" {metric.unit}"
    word = "most" if metric.higher_is_better else "least"
    point = point_label(best.point, *axes)
    return f"{point[:1].upper()}{point[1:]} has the {word} {metric.in_sentence} within the objectives: {said}{unit}"


def _cell(item: SweptPoint, metric: SweepMetric, *, best: SweptPoint | None) -> Cell:
    value = metric.value(item.what_if, item.document)
    if value is None:
        return number(None)
    ends, text = metric.ends(item.what_if, item.document), metric.text(value, item.what_if)
    if ends:
        text += f" ({range_text(ends, lambda end: metric.text(end, item.what_if))})"
    return ordered(f"{BEST} {text}" if item is best else text, value)


def swept_rows(swept: Sequence[SweptPoint], *, axes: tuple[SweepAxis, SweepAxis]) -> list[tuple[Cell | str, ...]]:
    """One row a point, in the order of SWEPT_COLUMNS; 80 % intervals in brackets, the best within objectives marked."""
    best = [best_point(swept, metric) for metric in METRICS]
    return [
        (
            point_label(item.point, *axes),
            "held" if item.holds else "missed",
            *(_cell(item, metric, best=first) for metric, first in zip(METRICS, best, strict=True)),
            item.document["provenance"],
        )
        for item in swept
    ]
