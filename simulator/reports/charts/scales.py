"""Axis ranges, ticks and number texts that both renderers and tables share."""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, floor, isfinite, log10

from simulator.records import dataclass
from simulator.reports.charts.chart import GAIN, LOSS, NEUTRAL, Axis, Chart, Series, SeriesKind
from simulator.units import GIGA, KILO, MEGA, MICRO, MILLI, PETA, TERA

_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_PREFIXES = ((PETA, "P"), (TERA, "T"), (GIGA, "G"), (MEGA, "M"), (KILO, "k"))
_MARGIN = 0.05
_FEW_DECADES = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A range of values on a line of pixels, ``first`` to ``last`` (which may run backwards)."""

    low: float
    high: float
    first: float
    last: float
    log: bool

    def at(self, value: float) -> float:
        """Pixel of a value; a value that a log axis does not have lies at its low end."""
        if self.log:
            share = (log10(max(value, self.low)) - log10(self.low)) / (log10(self.high) - log10(self.low))
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.first + share * (self.last - self.first)


def number_text(value: float) -> str:
    """A tick or label: ``0``, ``0.25``, ``12,500``, ``3M``; from 100k on a prefix has less width, as on pages."""
    if value == 0 or not isfinite(value):
        return "0" if value == 0 else str(value)
    if KILO - 1 / 2 <= abs(value) < MEGA / 10:
        return f"{value:,.0f}"
    for scale, prefix in _PREFIXES:
        if abs(value) >= scale:
            return f"{value / scale:.3g}{prefix}"
    return f"{value:.3g}" if abs(value) >= MILLI or abs(value) < MICRO else f"{value / MICRO:.3g}µ"


def linear_ticks(low: float, high: float, *, count: int = 6) -> tuple[float, ...]:
    """Round numbers that cover the range, at most about ``count`` of them."""
    span = high - low
    magnitude = 10.0 ** floor(log10(span / count))
    step = next(step for step in _STEPS if step * magnitude * count >= span * (1 - MICRO)) * magnitude
    first = ceil(low / step - MICRO)
    last = floor(high / step + MICRO)
    return tuple(round(index * step, 12) for index in range(first, last + 1))


def many_decades(low: float, high: float) -> bool:
    """Whether a log axis has room for powers of ten alone."""
    return log10(high / low) > _FEW_DECADES


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Powers of ten, with 2 and 5 between them where the range is short."""
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    between = (1.0,) if many_decades(low, high) else (1.0, 2.0, 5.0)
    ticks = (factor * 10.0**decade for decade in decades for factor in between)
    return tuple(tick for tick in ticks if low * (1 - MICRO) <= tick <= high * (1 + MICRO))


def ticks_of(axis: Axis, low: float, high: float) -> tuple[float, ...]:
    """Where an axis is marked."""
    if axis.categories:
        return tuple(float(index) for index in range(len(axis.categories)))
    if axis.step:
        return tuple(axis.step * place for place in range(ceil(low / axis.step), floor(high / axis.step) + 1))
    return log_ticks(low, high) if axis.log else linear_ticks(low, high)


def _stacked(chart: Chart) -> list[float]:
    sums: dict[float, float] = {}
    for series in chart.series:
        if series.kind is SeriesKind.STACKED_BAR:
            for x, y in zip(series.x, series.y, strict=True):
                sums[x] = sums.get(x, 0.0) + y
    return list(sums.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallBar:
    """One floating bar: from ``start`` to ``end``; ``total`` starts at zero."""

    x: float
    start: float
    end: float
    total: bool
    color: int
    """Index in PALETTE."""

    @property
    def text(self) -> str:
        """What stands at the bar: a total, or a change."""
        return number_text(self.end if self.total else self.end - self.start)


def waterfall_bars(series: Series) -> tuple[WaterfallBar, ...]:
    """Changes added up from left to right."""
    bars: list[WaterfallBar] = []
    running = 0.0
    for index, (x, change) in enumerate(zip(series.x, series.y, strict=True)):
        total = index in series.totals
        start = 0.0 if total else running
        running = change if total else running + change
        color = NEUTRAL if total else GAIN if running < start else LOSS
        color = series.colors[index] if series.colors else color
        bars.append(WaterfallBar(x=x, start=start, end=running, total=total, color=color))
    return tuple(bars)


def _values_along_y(chart: Chart) -> list[float]:
    values: list[float] = _stacked(chart)
    for series in chart.series:
        if series.kind is SeriesKind.WATERFALL:
            values += [end for bar in waterfall_bars(series) for end in (bar.start, bar.end)]
        elif series.kind is not SeriesKind.STACKED_BAR:
            values += [*series.y, *series.low, *series.high]
    return values


def _from_zero(chart: Chart) -> bool:
    bars = (SeriesKind.BAR, SeriesKind.STACKED_BAR, SeriesKind.WATERFALL)
    return any(series.kind in bars for series in chart.series)


def axis_range(axis: Axis, values: Iterable[float], *, from_zero: bool) -> tuple[float, float]:
    """Ends of an axis: given ones, or those of the values with a little room."""
    if axis.categories:
        return -0.6, len(axis.categories) - 0.4
    finite = [value for value in values if isfinite(value) and (value > 0 or not axis.log)]
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    if axis.log:
        low, high = (low / 1.25, high * 1.25) if finite else (1.0, 10.0)
    else:
        room = _MARGIN * (high - low or abs(high) or 1.0)
        # An axis that almost starts at zero starts there: shortened axes exaggerate.
        keeps_zero = from_zero or 0 <= low < high / 2
        low, high = min(0.0, low - room) if keeps_zero and low < 0 else (0.0 if keeps_zero else low - room), high + room
        high = max(high, 0.0) if from_zero else high
    return (axis.low if axis.low is not None else low, axis.high if axis.high is not None else high)


def chart_ranges(chart: Chart) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ranges of the x and the y axis."""
    noted_x = [item.x for item in chart.annotations if item.x is not None]
    noted_y = [item.y for item in chart.annotations if item.y is not None]
    along_x = [x for series in chart.series for x in (*series.x, *series.x_low, *series.x_high)]
    along_y = _values_along_y(chart)
    if chart.horizontal:
        return axis_range(chart.x, [*along_y, *noted_x], from_zero=False), axis_range(chart.y, along_x, from_zero=False)
    return (
        axis_range(chart.x, [*along_x, *noted_x], from_zero=False),
        axis_range(chart.y, [*along_y, *noted_y], from_zero=_from_zero(chart)),
    )
