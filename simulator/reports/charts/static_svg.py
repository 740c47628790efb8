"""A chart as SVG text: no browser, no network, no drawing library; the same bytes for the same chart."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import pairwise

from simulator.reports.charts.chart import PALETTE, Annotation, Chart, Series, SeriesKind, series_colors
from simulator.reports.charts.marks import FONT, Frame, Theme, marks_of, svg_line, svg_text, text_width
from simulator.reports.charts.scales import Scale, chart_ranges, number_text, ticks_of

LIGHT = Theme(ink="#1b1f24", faint="#5b6570", grid="#e3e7eb", paper="#ffffff")
CSS_THEME = Theme(
    ink="var(--chart-ink,#1b1f24)",
    faint="var(--chart-faint,#5b6570)",
    grid="var(--chart-grid,#e3e7eb)",
    paper="var(--chart-paper,#ffffff)",
)
"""Follows the page: it sets --chart-ink, --chart-faint, --chart-grid and --chart-paper for light, dark and print."""

_TOP, _RIGHT, _GAP = 14.0, 18.0, 8.0
_LEGEND_ROW = 20.0
_SWATCH = 14.0


def wrapped(text: str, *, width: float) -> list[str]:
    """``text`` as lines that are at most ``width`` px wide, single words aside."""
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size=FONT) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or [""]


def _legend_rows(chart: Chart, *, width: float) -> list[list[tuple[int, Series]]]:
    named = [(index, series) for index, series in enumerate(chart.series) if series.name]
    if len(named) < 2:
        return []
    rows: list[list[tuple[int, Series]]] = [[]]
    used = 0.0
    for index, series in named:
        needed = _SWATCH + text_width(series.name, size=FONT) + 3 * _GAP
        if rows[-1] and used + needed > width:
            rows.append([])
            used = 0.0
        rows[-1].append((index, series))
        used += needed
    return rows


def _margins(chart: Chart, *, width: float, y_texts: list[str]) -> tuple[float, float]:
    """Room left of the plot and below it [px]."""
    widest = max((text_width(text, size=FONT) for text in y_texts), default=20.0)
    left = widest + 2.5 * _GAP + (FONT * 1.5 if chart.y.label else 0.0)
    slot = (width - left - _RIGHT) / max(len(chart.x.categories), 1)
    # As many as the widest name of a category needs in its slot.
    rows = max((len(wrapped(name, width=slot)) for name in chart.x.categories), default=1)
    return left, _GAP + rows * FONT * 1.2 + (FONT * 1.8 if chart.x.label else 0.0) + _GAP


def _x_axis(chart: Chart, frame: Frame, *, theme: Theme, height: float) -> Iterator[str]:
    ticks = ticks_of(chart.x, frame.x.low, frame.x.high)
    slot = (frame.right - frame.left) / max(len(ticks), 1)
    last_end = float("-inf")
    for tick in ticks:
        at = frame.x.at(tick)
        if chart.x.categories:
            for row, line in enumerate(wrapped(chart.x.categories[int(tick)], width=slot)):
                yield svg_text(at, frame.bottom + FONT * (1.3 + 1.2 * row), line, fill=theme.ink)
            continue
        text = number_text(tick)
        half = text_width(text, size=FONT) / 2
        yield svg_line(at, frame.top, at, frame.bottom, stroke=theme.grid)
        if at - half > last_end:
            yield svg_text(at, frame.bottom + FONT * 1.3, text, fill=theme.faint)
            last_end = at + half + _GAP
    if chart.x.label:
        yield svg_text((frame.left + frame.right) / 2, height - _GAP, chart.x.label, fill=theme.ink)


def _y_axis(chart: Chart, frame: Frame, *, theme: Theme) -> Iterator[str]:
    for tick in ticks_of(chart.y, frame.y.low, frame.y.high):
        at = frame.y.at(tick)
        name = chart.y.categories[int(tick)] if chart.y.categories else number_text(tick)
        if not chart.y.categories:
            yield svg_line(frame.left, at, frame.right, at, stroke=theme.grid)
        yield svg_text(frame.left - _GAP, at + FONT * 0.35, name, fill=theme.faint, anchor="end")
    if chart.y.label:
        yield svg_text(FONT * 1.1, (frame.top + frame.bottom) / 2, chart.y.label, fill=theme.ink, turned=True)


def _legend(
    rows: list[list[tuple[int, Series]]], colors: tuple[int, ...], *, left: float, theme: Theme
) -> Iterator[str]:
    for row, entries in enumerate(rows):
        x, y = left, _TOP + row * _LEGEND_ROW
        for index, series in entries:
            color = PALETTE[colors[index]]
            lines = (SeriesKind.LINE, SeriesKind.STEP, SeriesKind.CEILING)
            if series.kind in lines:
                dash = ' stroke-dasharray="5 3"' if series.dashed else ""
                yield f'<path d="M{x:.1f} {y:.1f}h{_SWATCH:g}" stroke="{color}" stroke-width="2.5"{dash}/>'
            else:
                soft = ' fill-opacity="0.25"' if series.kind is SeriesKind.BAND else ""
                yield f'<rect x="{x:.1f}" y="{y - 5:.1f}" width="{_SWATCH:g}" height="10" rx="2" fill="{color}"{soft}/>'
            yield svg_text(x + _SWATCH + 5, y + FONT * 0.35, series.name, fill=theme.ink, anchor="start")
            x += _SWATCH + text_width(series.name, size=FONT) + 3 * _GAP


def _note(note: Annotation, frame: Frame, *, theme: Theme, row: int) -> Iterator[str]:
    x = frame.x.at(note.x) if note.x is not None else None
    y = frame.y.at(note.y) if note.y is not None else None
    if x is not None and not frame.left - 1 <= x <= frame.right + 1:
        return
    if x is not None and y is not None:
        paint = f'fill="{theme.paper}" stroke="{theme.ink}" stroke-width="1.8"'
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" {paint}/>'
        ends = x + _GAP + text_width(note.text, size=FONT) <= frame.right
        anchor = "start" if ends else "end"
        yield svg_text(
            x + (_GAP if ends else -_GAP), y - _GAP, note.text, fill=theme.ink, anchor=anchor, paper=theme.paper
        )
    elif x is not None:
        yield svg_line(x, frame.top, x, frame.bottom, stroke=theme.ink, dash="4 3")
        ends = x + _GAP + text_width(note.text, size=FONT) <= frame.right
        yield svg_text(
            x + (5 if ends else -5),
            frame.top + (row + 1) * FONT,
            note.text,
            fill=theme.ink,
            anchor="start" if ends else "end",
            paper=theme.paper,
        )
    elif y is not None:
        yield svg_line(frame.left, y, frame.right, y, stroke=theme.ink, dash="4 3")
        yield svg_text(frame.left + 5, y - 5, note.text, fill=theme.ink, anchor="start", paper=theme.paper)


def _shade(note: Annotation, chart: Chart, frame: Frame, *, theme: Theme) -> Iterator[str]:
    """The side of a line on which an objective is missed."""
    upright = note.y is None
    ends = note.shaded(chart.x if upright else chart.y)
    if ends is None:
        return
    low, high = sorted((frame.x if upright else frame.y).at(value) for value in ends)
    left, right, top, bottom = (low, high, frame.top, frame.bottom) if upright else (frame.left, frame.right, low, high)
    place = f'x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{bottom - top:.1f}"'
    yield f'<rect {place} fill="{theme.grid}"/>'


def _crowded(notes: tuple[Annotation, ...], frame: Frame) -> set[int]:
    """Vertical lines whose texts would run into each other: all but the first go one row down."""
    upright = sorted(
        (frame.x.at(note.x), index) for index, note in enumerate(notes) if note.x is not None and note.y is None
    )
    return {
        second
        for (first_x, first), (x, second) in pairwise(upright)
        if x - first_x < text_width(notes[first].text, size=FONT)
    }


def static_svg(chart: Chart, *, theme: Theme = LIGHT, width: float = 720.0, height: float = 380.0) -> str:
    """The chart as one ``<svg>`` of ``width`` x ``height`` px that scales with its place; its title is read aloud."""
    (x_low, x_high), (y_low, y_high) = chart_ranges(chart)
    y_texts = list(chart.y.categories) or [number_text(tick) for tick in ticks_of(chart.y, y_low, y_high)]
    rows = _legend_rows(chart, width=width - 2 * _RIGHT - 40)
    left, below = _margins(chart, width=width, y_texts=y_texts)
    right, top, bottom = width - _RIGHT, _TOP + len(rows) * _LEGEND_ROW, height - below
    # The first category of a horizontal chart stands at the top.
    first, last = (top, bottom) if chart.horizontal else (bottom, top)
    x = Scale(low=x_low, high=x_high, first=left, last=right, log=chart.x.is_log)
    y = Scale(low=y_low, high=y_high, first=first, last=last, log=chart.y.is_log)
    frame = Frame(x=x, y=y, left=left, right=right, top=top, bottom=bottom)
    colors, crowded = series_colors(chart), _crowded(chart.annotations, frame)
    written = {label.partition(":")[0] for series in chart.series for label in series.labels}
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
        f'font-family="Inter, Helvetica, Arial, Liberation Sans, sans-serif" font-size="{FONT:g}" fill="none">',
        f"<title>{escape(chart.title)}</title>",
        *(mark for note in chart.annotations for mark in _shade(note, chart, frame, theme=theme)),
        *_x_axis(chart, frame, theme=theme, height=height),
        *_y_axis(chart, frame, theme=theme),
        *marks_of(chart, frame, colors=colors, theme=theme),
        svg_line(left, bottom, right, bottom, stroke=theme.faint),
        *(
            mark
            for index, note in enumerate(chart.annotations)
            if not note.of_mark and note.text not in written
            for mark in _note(note, frame, theme=theme, row=1 if index in crowded else 0)
        ),
        *_legend(rows, colors, left=left, theme=theme),
        "</svg>",
    ]
    return "\n".join(parts)
