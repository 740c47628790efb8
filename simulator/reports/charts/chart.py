"""A chart or a gauge as data: what is drawn, with units, and nothing about how. Every renderer draws the same one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal

from simulator.records import dataclass
from simulator.reports.content.quantities import chance_text, seconds_text

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#8C7A00", "#555555")
"""Eight colours that people with any common colour blindness tell apart, of Okabe and Ito, the last three darkened."""
GAIN, LOSS, NEUTRAL = 2, 3, 7
"""Indices in PALETTE for what falls, what rises and what is only a total."""


def ink_on(color: str) -> str:
    """White, or black where a ground such as ``#56B4E9`` is nearer to white: at least 4:1 on the palette."""
    red, green, blue = (int(color[place : place + 2], 16) / 255 for place in (1, 3, 5))
    # At this luminance both stand out alike.
    return "#1b1f24" if 0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2 > 0.2 else "#ffffff"


class SeriesKind(StrEnum):
    """How a series is drawn."""

    LINE = "line"
    STEP = "step"
    BAR = "bar"
    STACKED_BAR = "stacked_bar"
    SCATTER = "scatter"
    BAND = "band"
    WATERFALL = "waterfall"
    TORNADO = "tornado"
    CEILING = "ceiling"


_HEADROOM, _ONE_MORE_LINE = 1.15, 0.1


def with_room(tallest: float, *, lines: int = 1) -> float | None:
    """The end of an axis above the tallest value, with room for the names of so many lines across, which stand below
    each other there; None where there is nothing to draw.
    """
    return (_HEADROOM + _ONE_MORE_LINE * max(lines - 1, 0)) * tallest or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis. ``categories`` name the positions 0, 1, 2, ... of an axis without numbers.

    low, high : ends of the axis where they are not taken from the data
    step : from one mark to the next, where counts allow whole numbers alone
    """

    title: str
    unit: str = ""
    log: bool = False
    categories: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    step: float | None = None

    @property
    def is_log(self) -> bool:
        """Logarithmic: categories never are."""
        return self.log and not self.categories

    @property
    def label(self) -> str:
        """``TTFT p95 (s)``."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together: equally long ``x`` and ``y``, and per kind

    line, ceiling, step : joined points; a step keeps its value until the next x
    bar, stacked_bar : heights y over category positions x
    band : from ``low`` to ``high`` over x (y is the middle, drawn as a line where given)
    waterfall : changes y over category positions x; positions in ``totals`` restart from zero
    tornado : bars from ``low`` to ``high`` around the base value y, over category positions x of the y axis
    scatter : points with ``labels``, and whiskers from ``low`` to ``high`` and ``x_low`` to ``x_high`` where given
    color : index in PALETTE; None takes the next one
    colors : of each bar of a waterfall or tornado, indices in PALETTE; none: those of a tornado have the series' one,
        and what falls, what rises and totals of a waterfall their own
    """

    name: str
    kind: SeriesKind
    x: tuple[float, ...]
    y: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    x_low: tuple[float, ...] = ()
    x_high: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    color: int | None = None
    colors: tuple[int, ...] = ()
    totals: frozenset[int] = frozenset()
    dashed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """A text at a point (x and y), beside a vertical line (x alone) or above a horizontal one (y alone).

    missed : the side of a line that is shaded, where its axis has both ends
    of_mark : the name of a mark, which a printed chart writes at every mark anyway
    """

    text: str
    x: float | None = None
    y: float | None = None
    missed: Literal["", "below", "above"] = ""
    of_mark: bool = False

    def shaded(self, axis: Axis) -> tuple[float, float] | None:
        """From where to where of its axis is shaded; None where nothing is."""
        at = self.x if self.y is None else self.y
        if not self.missed or at is None or axis.low is None or axis.high is None:
            return None
        return (axis.low, at) if self.missed == "below" else (at, axis.high)


_LABEL_WIDTH, _LABEL_HEIGHT = 1 / 3, 1 / 12
"""What the name of a deployment takes of a chart, assumed: some 20 letters beside two other charts."""


def apart(notes: Sequence[Annotation], *, x: tuple[float, float], y: tuple[float, float]) -> tuple[Annotation, ...]:
    """Texts at points that do not overlap, first ones kept; the legend names the others too. x, y : ends of the axes"""
    kept: list[Annotation] = []
    for note in notes:
        if all(
            abs((note.x or 0.0) - (other.x or 0.0)) > _LABEL_WIDTH * (x[1] - x[0])
            or abs((note.y or 0.0) - (other.y or 0.0)) > _LABEL_HEIGHT * (y[1] - y[0])
            for other in kept
        ):
            kept.append(note)
    return tuple(kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure with a title that says what to see, and a caption that says where it comes from."""

    key: str
    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    annotations: tuple[Annotation, ...] = ()
    caption: str = ""

    @property
    def horizontal(self) -> bool:
        """Whether categories stand on the y axis."""
        return any(series.kind is SeriesKind.TORNADO for series in self.series)


def series_colors(chart: Chart) -> tuple[int, ...]:
    """The palette index of each series, in order; unset ones take what is not asked for by name first."""
    asked = {series.color for series in chart.series if series.color is not None}
    free = iter([*(index for index in range(len(PALETTE)) if index not in asked), *range(len(PALETTE))])
    return tuple(next(free, 0) if series.color is None else series.color for series in chart.series)


def places(many: int) -> tuple[float, ...]:
    """Positions of ``many`` categories on their axis."""
    return tuple(float(place) for place in range(many))


def marks(name: str, at: Sequence[tuple[float, float, str]], *, color: int | None = None) -> Series:
    """Points by their places along both axes and what they are called."""
    x, y, labels = zip(*at, strict=True) if at else ((), (), ())
    return Series(name=name, kind=SeriesKind.SCATTER, x=x, y=y, labels=labels, color=color)


def axis(text: str) -> Axis:
    """An axis by its text: ``log Batch``, ``Time [ms]``."""
    name = text.removeprefix("log ")
    title, _, unit = name.partition(" [")
    return Axis(title=title, unit=unit.removesuffix("]"), log=name != text)


def lines_chart(
    key: str, title: str, *, x: str, y: str, at: Sequence[float], of: Mapping[str, Sequence[float | None]]
) -> Chart:
    """One line per name over the positions ``at``; a point without a value is left out. x, y : as `axis` reads them"""
    series = []
    for name, values in of.items():
        points = [(float(place), float(value)) for place, value in zip(at, values, strict=True) if value is not None]
        along, up = zip(*points, strict=True) if points else ((), ())
        series.append(Series(name=name, kind=SeriesKind.LINE, x=along, y=up))
    return Chart(key=key, title=title, x=axis(x), y=axis(y), series=tuple(series))


def bars_chart(key: str, title: str, *, y: str, names: Sequence[str], of: Mapping[str, Sequence[float]]) -> Chart:
    """One bar per name of the axis and series. y : as `axis` reads it"""
    series = tuple(
        Series(name=name, kind=SeriesKind.BAR, x=places(len(values)), y=tuple(map(float, values)))
        for name, values in of.items()
    )
    return Chart(key=key, title=title, x=Axis(title="", categories=tuple(names)), y=axis(y), series=series)


def waterfall_chart(
    key: str, title: str, *, y: str, parts: Sequence[tuple[str, float, bool]], caption: str, colors: Sequence[int] = ()
) -> Chart:
    """One bar per part: its name, its amount in the unit of ``y``, whether it is a total, which starts from zero.

    colors : indices in PALETTE, one a part, where each part is a thing that other figures draw too
    """
    series = Series(
        name="",
        kind=SeriesKind.WATERFALL,
        x=places(len(parts)),
        y=tuple(amount for _, amount, _ in parts),
        totals=frozenset(place for place, part in enumerate(parts) if part[2]),
        colors=tuple(colors),
    )
    x = Axis(title="", categories=tuple(name for name, _, _ in parts))
    return Chart(key=key, title=title, x=x, y=axis(y), series=(series,), caption=caption)


_BOUND_AT = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """A p95 and the ends of its 80 % interval beside its bound [s], infinite where there is none; its chance to hold.
    Places are shares of the gauge's width; what lies beyond its end stands there."""

    bound_s: float
    value_s: float
    ends_s: tuple[float, float]
    chance: float

    def place(self, value_s: float) -> float:
        """Where a latency stands."""
        return min(max(_BOUND_AT * value_s / self.bound_s, 0.0), 1.0)

    @property
    def bar(self) -> float:
        """How far the prediction reaches."""
        return self.place(self.value_s)

    @property
    def interval(self) -> tuple[float, float]:
        """Where the interval begins, and how wide it is."""
        low, high = map(self.place, self.ends_s)
        return low, high - low

    @property
    def odds_text(self) -> str:
        """``97 % likely``."""
        return f"{chance_text(self.chance)} likely"

    @property
    def bound_text(self) -> str:
        """``≤ 1.00 s``."""
        return f"≤ {seconds_text(self.bound_s)}"
