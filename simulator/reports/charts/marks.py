"""The marks of each kind of series as SVG elements, inside the frame of the axes."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from simulator.records import dataclass
from simulator.reports.charts.chart import PALETTE, Chart, Series, SeriesKind, ink_on
from simulator.reports.charts.scales import Scale, number_text, waterfall_bars

_BAR_SHARE = 0.62
_NARROW, _WIDE = "fijlt.,:;|'!()[] -", "mwMW%@"
FONT = 12.0
"""Size of every text [px]."""
_INSIDE_BAR = 16.0
_DOT, _CAP = 3.5, 4.0
"""Half of a point, and of the cap of a whisker [px]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Theme:
    """Colours of everything that is not data."""

    ink: str
    faint: str
    grid: str
    paper: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Scales and the edges of the plot [px]."""

    x: Scale
    y: Scale
    left: float
    right: float
    top: float
    bottom: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Box:
    """A taken part of the plot [px]."""

    left: float
    right: float
    top: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        """Whether the two share a part."""
        beside = self.right <= other.left or other.right <= self.left
        return not (beside or self.bottom <= other.top or other.bottom <= self.top)


def text_width(text: str, *, size: float) -> float:
    """About how wide a text is in a common sans-serif face [px]."""
    units = sum(0.32 if letter in _NARROW else 0.86 if letter in _WIDE else 0.57 for letter in text)
    return units * size


def _path(points: list[tuple[float, float]], *, color: str, dashed: bool, width: float = 2.2) -> str:
    data = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="6 4"' if dashed else ""
    return f'<path d="{data}" stroke="{color}" stroke-width="{width:g}" stroke-linejoin="round"{dash}/>'


def _rectangle(x: float, y: float, width: float, height: float, *, color: str, name: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{max(height, 0.5):.1f}" fill="{color}">'
        f"<title>{escape(name)}</title></rect>"
    )


def svg_text(
    x: float, y: float, text: str, *, fill: str, anchor: str = "middle", turned: bool = False, paper: str = ""
) -> str:
    """A text, set upright along an axis where it is ``turned``; on ``paper`` of its own over lines that it crosses."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    halo = f' stroke="{paper}" stroke-width="3.5" stroke-linejoin="round" paint-order="stroke"' if paper else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{fill}"{halo} text-anchor="{anchor}"{turn}>{escape(text)}</text>'


def svg_line(x1: float, y1: float, x2: float, y2: float, *, stroke: str, dash: str = "") -> str:
    """A straight line."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"{dashed}/>'


def _points(series: Series, frame: Frame) -> list[tuple[float, float]]:
    return [(frame.x.at(x), frame.y.at(y)) for x, y in zip(series.x, series.y, strict=True)]


def _steps(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    corners = [point for before, after in pairwise(points) for point in (before, (after[0], before[1]))]
    return [*corners, points[-1]]


def _slot(frame: Frame, count: int) -> float:
    return (frame.right - frame.left) / max(count, 1)


def _bars(chart: Chart, frame: Frame, colors: tuple[int, ...], theme: Theme) -> Iterator[str]:
    """Grouped bars side by side; the value above each where there is one group."""
    groups = [index for index, series in enumerate(chart.series) if series.kind is SeriesKind.BAR]
    if not groups:
        return
    width = _slot(frame, len(chart.x.categories)) * _BAR_SHARE / len(groups)
    zero = frame.y.at(max(0.0, frame.y.low))
    for place, index in enumerate(groups):
        series = chart.series[index]
        for number, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            left = frame.x.at(x) + (place - len(groups) / 2) * width
            top = frame.y.at(y)
            text = series.labels[number] if series.labels else number_text(y)
            yield _rectangle(
                left, min(top, zero), width * 0.94, abs(zero - top), color=PALETTE[colors[index]], name=text
            )
            middle, highest = left + width / 2, min(top, zero)
            if series.low:
                ends = frame.y.at(series.low[number]), frame.y.at(series.high[number])
                yield from _whisker(middle, *ends, stroke=theme.ink)
                highest = min(highest, *ends)
            if width > _INSIDE_BAR * 2 or series.labels:
                yield svg_text(middle, highest - 4, text, fill=theme.ink)


def _whisker(at: float, low: float, high: float, *, stroke: str, across: bool = False) -> Iterator[str]:
    """From ``low`` to ``high`` at a place of the other axis; ``across``: from left to right."""
    for start, end in (((at, low), (at, high)), *(((at - _CAP, end), (at + _CAP, end)) for end in (low, high))):
        yield svg_line(
            *(place for point in (start, end) for place in (point[::-1] if across else point)), stroke=stroke
        )


def _stacks(chart: Chart, frame: Frame, colors: tuple[int, ...], theme: Theme) -> Iterator[str]:
    width = _slot(frame, len(chart.x.categories)) * _BAR_SHARE
    base: dict[float, float] = {}
    for index, series in enumerate(chart.series):
        if series.kind is not SeriesKind.STACKED_BAR:
            continue
        for number, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
            low = base.get(x, 0.0)
            base[x] = low + y
            top, bottom = frame.y.at(low + y), frame.y.at(low)
            text = series.labels[number] if series.labels else number_text(y)
            name = f"{series.name}: {text}"
            yield _rectangle(
                frame.x.at(x) - width / 2, top, width, bottom - top, color=PALETTE[colors[index]], name=name
            )
            if bottom - top > _INSIDE_BAR and text_width(text, size=FONT) < width:
                ink = ink_on(PALETTE[colors[index]])
                yield svg_text(frame.x.at(x), (top + bottom) / 2 + FONT * 0.35, text, fill=ink)


def _waterfall(series: Series, frame: Frame, theme: Theme) -> Iterator[str]:
    bars = waterfall_bars(series)
    width = _slot(frame, len(bars)) * _BAR_SHARE
    for bar in bars:
        color = PALETTE[bar.color]
        top, bottom = frame.y.at(max(bar.start, bar.end)), frame.y.at(min(bar.start, bar.end))
        yield _rectangle(frame.x.at(bar.x) - width / 2, top, width, bottom - top, color=color, name=bar.text)
        yield svg_text(frame.x.at(bar.x), top - 4, bar.text, fill=theme.ink, paper=theme.paper)
    for before, after in pairwise(bars):
        y = frame.y.at(before.end)
        start, end = frame.x.at(before.x) + width / 2, frame.x.at(after.x) - width / 2
        yield svg_line(start, y, end, y, stroke=theme.faint)


def _beside(text: str, ends: tuple[float, ...], y: float, *, frame: Frame, theme: Theme) -> str:
    """A text right of a bar, left of it where there is no room, or else inside its right end."""
    room = text_width(text, size=FONT) + 5
    if max(ends) + room < frame.right:
        return svg_text(max(ends) + 5, y, text, fill=theme.ink, anchor="start")
    if min(ends) - room > frame.left:
        return svg_text(min(ends) - 5, y, text, fill=theme.ink, anchor="end")
    return svg_text(max(ends) - 5, y, text, fill="#ffffff", anchor="end")


def _tornado(series: Series, frame: Frame, color: str, theme: Theme) -> Iterator[str]:
    thickness = (frame.bottom - frame.top) / max(len(series.x), 1) * _BAR_SHARE
    for number, (x, base, low, high) in enumerate(zip(series.x, series.y, series.low, series.high, strict=True)):
        middle, at = frame.y.at(x), frame.x.at(base)
        fill = PALETTE[series.colors[number]] if series.colors else color
        for value, shade in ((low, "0.55"), (high, "1")):
            left, right = sorted((at, frame.x.at(value)))
            yield (
                f'<rect x="{left:.1f}" y="{middle - thickness / 2:.1f}" width="{max(right - left, 0.5):.1f}" '
                f'height="{thickness:.1f}" fill="{fill}" fill-opacity="{shade}"/>'
            )
        if series.labels:
            reached = (at, frame.x.at(low), frame.x.at(high))
            yield _beside(series.labels[number], reached, middle + FONT * 0.35, frame=frame, theme=theme)
    base_x = frame.x.at(series.y[0]) if series.y else frame.left
    yield svg_line(base_x, frame.top, base_x, frame.bottom, stroke=theme.ink)


def _band(series: Series, frame: Frame, color: str) -> str:
    upper = [(frame.x.at(x), frame.y.at(value)) for x, value in zip(series.x, series.high, strict=True)]
    lower = [(frame.x.at(x), frame.y.at(value)) for x, value in zip(series.x, series.low, strict=True)]
    data = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in [*upper, *reversed(lower)]) + "Z"
    return f'<path d="{data}" fill="{color}" fill-opacity="0.18"/>'


def _places(x: float, y: float, width: float, *, frame: Frame) -> Iterator[_Box]:
    """Where the text of a point may stand: right or left of it, above or below, inside the plot."""
    for below in (False, True):
        top = y + 0.5 * FONT if below else y - 1.4 * FONT
        for left in (x + 7, x - 7 - width):
            if left + width <= frame.right and left >= frame.left and top + FONT <= frame.bottom:
                yield _Box(left=left, right=left + width, top=top, bottom=top + FONT)


def _scatter(series: Series, frame: Frame, color: str, theme: Theme, *, taken: list[_Box]) -> Iterator[str]:
    """Points with their texts beside them; a text that would run into one of ``taken`` is left out."""
    for number, (x, y) in enumerate(_points(series, frame)):
        whole = series.labels[number] if series.labels else ""
        title = f"<title>{escape(whole)}</title>" if whole else ""
        text = whole.partition(":")[0]
        if series.low:
            yield from _whisker(x, *(frame.y.at(ends[number]) for ends in (series.low, series.high)), stroke=color)
        if series.x_low:
            across = [frame.x.at(ends[number]) for ends in (series.x_low, series.x_high)]
            yield from _whisker(y, *across, stroke=color, across=True)
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{color}" fill-opacity="0.9">{title}</circle>'
        if not text:
            continue
        places = _places(x, y, text_width(text, size=FONT), frame=frame)
        free = next((place for place in places if not any(place.meets(other) for other in taken)), None)
        if free is not None:
            taken.append(free)
            yield svg_text(
                free.left, free.bottom - 0.15 * FONT, text, fill=theme.ink, anchor="start", paper=theme.paper
            )


def marks_of(chart: Chart, frame: Frame, *, colors: tuple[int, ...], theme: Theme) -> Iterator[str]:
    """Every series: areas first, then bars, lines and points."""
    taken = [
        _Box(left=x - _DOT, right=x + _DOT, top=y - _DOT, bottom=y + _DOT)
        for series in chart.series
        if series.kind is SeriesKind.SCATTER
        for x, y in _points(series, frame)
    ]
    painted = list(zip(chart.series, (PALETTE[index] for index in colors), strict=True))
    for series, color in painted:
        if series.kind is SeriesKind.BAND:
            yield _band(series, frame, color)
    yield from _bars(chart, frame, colors, theme)
    yield from _stacks(chart, frame, colors, theme)
    for series, color in painted:
        match series.kind:
            case SeriesKind.WATERFALL:
                yield from _waterfall(series, frame, theme)
            case SeriesKind.TORNADO:
                yield from _tornado(series, frame, color, theme)
            case SeriesKind.LINE | SeriesKind.CEILING:
                yield _path(_points(series, frame), color=color, dashed=series.dashed)
            case SeriesKind.STEP:
                yield _path(_steps(_points(series, frame)), color=color, dashed=series.dashed)
            case SeriesKind.BAND if series.y:
                yield _path(_points(series, frame), color=color, dashed=series.dashed)
            case SeriesKind.SCATTER:
                yield from _scatter(series, frame, color, theme, taken=taken)
