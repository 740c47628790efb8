"""A chart as a plotly figure. Series differ in shape and hatching too: nobody has to tell colours apart."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import inf, log10
from typing import TYPE_CHECKING, Any

from simulator.reports.charts.chart import (
    GAIN,
    LOSS,
    NEUTRAL,
    PALETTE,
    Annotation,
    Axis,
    Chart,
    Series,
    SeriesKind,
    series_colors,
)
from simulator.reports.charts.scales import many_decades, waterfall_bars

if TYPE_CHECKING:
    import plotly.graph_objects as go


Trace = dict[str, Any]
"""A trace of plotly's JSON schema."""

_SOFT = 0.18
_NAME_WIDTH = 1 / 5
"""What the name of a line takes of a chart on a phone, assumed."""
_SCREEN_NEUTRAL = "#7A8593"
"""In place of the palette's own grey, which is made for paper: at least 3:1 on light and on dark pages."""
_GRID = "rgba(128,128,128,0.25)"
_SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "x", "star", "hexagon")
_HATCHES = ("", "/", "", "x", "", "\\", "", ".")
"""Of neighbours one is plain: every pattern costs the browser milliseconds in each redraw."""
_DASHES = ("dash", "dot", "dashdot", "longdash", "longdashdot")
_HATCH = {"fillmode": "overlay", "fgcolor": "#FFFFFF", "fgopacity": 0.3, "size": 10, "solidity": 0.12}


def _rgba(color: str, opacity: float) -> str:
    red, green, blue = (int(color[index : index + 2], 16) for index in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def _screen_color(index: int) -> str:
    return _SCREEN_NEUTRAL if index == NEUTRAL else PALETTE[index]


def _names(axis: Axis, positions: tuple[float, ...]) -> list[Any]:
    return [axis.categories[int(position)] for position in positions] if axis.categories else list(positions)


def _trace(kind: str, chart: Chart, series: Series, *, more: Trace) -> Trace:
    return {"type": kind, "x": _names(chart.x, series.x), "y": list(series.y), "name": series.name} | more


def _band(chart: Chart, series: Series, color: str) -> list[Trace]:
    x = _names(chart.x, series.x)
    area = _trace(
        "scatter",
        chart,
        series,
        more={
            "mode": "lines",
            "x": [*x, *reversed(x)],
            "y": [*series.high, *reversed(series.low)],
            "fill": "toself",
            "fillcolor": _rgba(color, _SOFT),
            "line": {"width": 0},
            "hoverinfo": "skip",
            "legendgroup": series.name,
            "showlegend": not series.y,
        },
    )
    if not series.y:
        return [area]
    # The legend has the line: a band alone is faint on a dark page.
    middle = {"mode": "lines", "line": {"color": color}, "legendgroup": series.name}
    return [area, _trace("scatter", chart, series, more=middle)]


def _line(chart: Chart, series: Series, color: str, *, place: int) -> Trace:
    dash = _DASHES[place % len(_DASHES)] if series.dashed else "solid"
    style: Trace = {"color": color, "width": 2.2, "dash": dash}
    style |= {"shape": "hv"} if series.kind is SeriesKind.STEP else {}
    if not series.labels:
        return _trace("scatter", chart, series, more={"mode": "lines", "line": style})
    marks: Trace = {"mode": "lines+markers", "marker": {"size": 7}, "text": list(series.labels)}
    return _trace("scatter", chart, series, more={"line": style} | marks)


def _tornado(chart: Chart, series: Series, color: str) -> list[Trace]:
    ends = (("low", series.low, 0.55), ("high", series.high, 1.0))
    colors = [_screen_color(index) for index in series.colors]
    return [
        {
            "type": "bar",
            "y": _names(chart.y, series.x),
            "x": [value - base for value, base in zip(values, series.y, strict=True)],
            "base": list(series.y),
            "orientation": "h",
            "marker": {"color": [_rgba(each, opacity) for each in colors] or _rgba(color, opacity)},
            "name": f"{series.name}, {end}",
            "customdata": list(values),
            "hovertemplate": "%{y}: %{customdata:.4g}<extra></extra>",
        }
        for end, values, opacity in ends
    ]


def _waterfall(chart: Chart, series: Series) -> Trace:
    bars = waterfall_bars(series)
    texts = [bar.text if bar.total or bar.end <= bar.start else f"+{bar.text}" for bar in bars]
    if series.colors:
        # Plotly's own waterfalls know three colours.
        colors = [_screen_color(bar.color) for bar in bars]
        more: Trace = {"base": [bar.start for bar in bars], "y": [bar.end - bar.start for bar in bars]}
        more |= {"marker": {"color": colors}, "text": texts, "textposition": "outside", "cliponaxis": False}
        more |= {"hovertemplate": "%{x}: %{text}<extra></extra>"}
        return _trace("bar", chart, series, more=more)
    return _trace(
        "waterfall",
        chart,
        series,
        more={
            "measure": ["absolute" if bar.total else "relative" for bar in bars],
            "text": texts,
            "textposition": "outside",
            "cliponaxis": False,
            "increasing": {"marker": {"color": PALETTE[LOSS]}},
            "decreasing": {"marker": {"color": PALETTE[GAIN]}},
            "totals": {"marker": {"color": _SCREEN_NEUTRAL}},
            "connector": {"line": {"color": _SCREEN_NEUTRAL, "width": 1}},
        },
    )


def _whiskers(values: tuple[float, ...], low: tuple[float, ...], high: tuple[float, ...], color: str) -> Trace:
    return {
        "type": "data",
        "symmetric": False,
        "array": [end - value for end, value in zip(high, values, strict=True)],
        "arrayminus": [value - end for value, end in zip(values, low, strict=True)],
        "color": color,
        "thickness": 1.4,
    }


def _scatter(chart: Chart, series: Series, color: str, *, index: int, place: int) -> Trace:
    """Points whose shape goes with their colour, another one where colours repeat; dashed series have open ones."""
    symbol = _SYMBOLS[(index + place) % len(_SYMBOLS)]
    marker = {"color": color, "size": 9, "symbol": f"{symbol}-open" if series.dashed else symbol}
    trace = _trace("scatter", chart, series, more={"mode": "markers", "marker": marker})
    if series.labels:
        trace["text"] = list(series.labels)
    if series.low:
        trace["error_y"] = _whiskers(series.y, series.low, series.high, color)
    if series.x_low:
        trace["error_x"] = _whiskers(series.x, series.x_low, series.x_high, color)
    return trace


def _bar(chart: Chart, series: Series, color: str, *, place: int) -> Trace:
    text, hatch = list(series.labels), _HATCHES[place % len(_HATCHES)]
    marker = {"color": color} | ({"pattern": {"shape": hatch, **_HATCH}} if hatch else {})
    bar = _trace("bar", chart, series, more={"marker": marker})
    if series.low:
        bar["error_y"] = _whiskers(series.y, series.low, series.high, _SCREEN_NEUTRAL)
        return bar | ({"textposition": "none", "hovertext": text} if text else {})
    return bar | ({"text": text} if text else {})


def _traces(chart: Chart, series: Series, *, index: int, place: int) -> list[Trace]:
    """``index`` in the palette chooses colour and marker, ``place`` among its kind the hatching and the dash, among
    points of one colour the marker."""
    color = _screen_color(index)
    match series.kind:
        case SeriesKind.BAND:
            return _band(chart, series, color)
        case SeriesKind.LINE | SeriesKind.STEP | SeriesKind.CEILING:
            return [_line(chart, series, color, place=place)]
        case SeriesKind.TORNADO:
            return _tornado(chart, series, color)
        case SeriesKind.WATERFALL:
            return [_waterfall(chart, series)]
        case SeriesKind.SCATTER:
            return [_scatter(chart, series, color, index=index, place=place)]
        case SeriesKind.BAR | SeriesKind.STACKED_BAR:
            return [_bar(chart, series, color, place=place)]


def _turned(spec: Trace) -> None:
    """Let bars run to the right, the first on top: room for long names."""
    for bar in spec["data"]:
        bar.update(x=bar["y"], y=bar["x"], orientation="h")
        if "error_y" in bar:
            bar["error_x"] = bar.pop("error_y")
    layout = spec["layout"]
    layout["xaxis"], layout["yaxis"] = layout["yaxis"], layout["xaxis"]
    layout["yaxis"] |= {"autorange": "reversed", "showgrid": False}


def _annotated(layout: Trace, note: Annotation, chart: Chart) -> None:
    """A text at a point, or beside a line across the whole plot."""
    line: Trace = {"type": "line", "line": {"dash": "dash", "width": 1.2, "color": _SCREEN_NEUTRAL}}
    area: Trace = {"type": "rect", "line": {"width": 0}, "fillcolor": _rgba(_SCREEN_NEUTRAL, _SOFT), "layer": "below"}
    text: Trace = {"text": note.text, "showarrow": False}
    if note.x is not None:
        text["x"] = _annotation_place(chart.x, note.x)
    if note.y is not None:
        text["y"] = _annotation_place(chart.y, note.y)
    if note.y is None and note.x is not None:
        # Unlike annotations, shapes on a log axis stand at the value itself.
        at = _names(chart.x, (note.x,))[0] if not chart.x.categories else text["x"]
        if ends := note.shaded(chart.x):
            layout["shapes"].append(area | {"x0": ends[0], "x1": ends[1], "y0": 0, "y1": 1, "yref": "y domain"})
        layout["shapes"].append(line | {"x0": at, "x1": at, "xref": "x", "y0": 0, "y1": 1, "yref": "y domain"})
        side = "right" if _is_crossed(note.x, chart) else "left"
        text |= {"y": 1, "yref": "y domain", "xanchor": side, "yanchor": "top"}
    elif note.x is None and note.y is not None:
        if ends := note.shaded(chart.y):
            layout["shapes"].append(area | {"y0": ends[0], "y1": ends[1], "x0": 0, "x1": 1, "xref": "x domain"})
        layout["shapes"].append(line | {"y0": note.y, "y1": note.y, "yref": "y", "x0": 0, "x1": 1, "xref": "x domain"})
        end, side = (0, "left") if _ends_nearer(note.y, chart) else (1, "right")
        text |= {"x": end, "xref": "x domain", "xanchor": side, "yanchor": "bottom"}
    elif note.x is not None:
        # Beside its point and towards the middle: neither across its whiskers nor cut off at the edge. The name of a
        # mark has its room on the right.
        xs = [value for series in chart.series for value in series.x]
        middle = (min(xs) * max(xs)) ** 0.5 if chart.x.is_log else (min(xs) + max(xs)) / 2
        text["xanchor"] = "left" if note.of_mark or note.x <= middle else "right"
    layout["annotations"].append(text)


def _ends_nearer(at: float, chart: Chart) -> bool:
    """Whether what is drawn ends nearer to a line across, where its name would stand, than it starts."""
    drawn = [series.y for series in chart.series if series.y]
    starts, ends = ([abs(values[place] - at) for values in drawn] for place in (0, -1))
    return min(ends, default=inf) < min(starts, default=inf)


def _is_crossed(at: float, chart: Chart) -> bool:
    """Whether another upright line stands where this one's name would, on its right, and there is more room left."""
    xs = [at, *(value for series in chart.series for value in series.x)]
    lines = [note.x for note in chart.annotations if note.y is None and note.x is not None]
    right = min((x - at for x in lines if x > at), default=inf)
    left = min((at - x for x in (min(xs), *lines) if x < at), default=0.0)
    return right < min(_NAME_WIDTH * (max(xs) - min(xs)), left)


def _annotation_place(axis: Axis, value: float) -> Any:
    """Plotly places annotations on a log axis by the logarithm, unlike everything else."""
    if axis.categories:
        return axis.categories[int(value)]
    return log10(value) if axis.log else value


def _axis(axis: Axis, *, reverse: bool = False) -> Trace:
    found: Trace = {"title": {"text": axis.label}, "gridcolor": _GRID, "zerolinecolor": _GRID}
    # As tables write numbers, 10,000 behind 1,000; from 100k on a prefix has less width.
    found |= {"separatethousands": True, "minexponent": 4}
    if axis.is_log:
        found["type"] = "log"
    if axis.low is not None and axis.high is not None:
        found["range"] = [log10(axis.low), log10(axis.high)] if axis.log else [axis.low, axis.high]
    if axis.step:
        found["dtick"] = axis.step
    if reverse:
        found["autorange"] = "reversed"
    return found


def plotly_spec(chart: Chart, *, sideways: bool = False) -> Trace:
    """The chart in plotly's JSON schema, ground and text colours left to the page; sideways : bars to the right."""
    stacked = any(series.kind is SeriesKind.STACKED_BAR for series in chart.series)
    layout: Trace = {
        "title": {"text": chart.title},
        "xaxis": _axis(chart.x),
        "yaxis": _axis(chart.y, reverse=chart.horizontal),
        "barmode": "stack" if stacked else "overlay" if chart.horizontal else "group",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "legend": {"orientation": "h", "y": -0.25},
        "margin": {"l": 60, "r": 20, "t": 50, "b": 60},
        "annotations": [],
        "shapes": [],
    }
    for name, axis, values in (
        ("xaxis", chart.x, [value for series in chart.series for value in series.x]),
        ("yaxis", chart.y, [value for series in chart.series for value in series.y]),
    ):
        if axis.is_log and many_decades(min(values), max(values)):
            layout[name]["dtick"] = 1
    data: list[Trace] = []
    places: dict[object, int] = {}
    for series, index in zip(chart.series, series_colors(chart), strict=True):
        kind = (index, series.dashed) if series.kind is SeriesKind.SCATTER else series.kind
        place = places.get(kind, 0)
        places[kind] = place + (series.dashed or series.kind is not SeriesKind.CEILING)
        data.extend(_traces(chart, series, index=index, place=place))
    for note in chart.annotations:
        _annotated(layout, note, chart)
    spec: Trace = {"data": data, "layout": layout}
    if sideways:
        _turned(spec)
    return spec


def plotly_figure(chart: Chart, *, sideways: bool = False) -> go.Figure:
    """A chart as plotly's figure object, checked against its schema."""
    import plotly.graph_objects as go

    return go.Figure(plotly_spec(chart, sideways=sideways))


def figures_page(charts: Sequence[Chart], *, title: str) -> str:
    """Charts one below the other as an HTML page of its own, with what draws them inside."""
    bodies = [
        plotly_figure(chart).to_html(full_html=False, include_plotlyjs=place == 0, div_id=f"chart-{place}")
        for place, chart in enumerate(charts)
    ]
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title></head>'
    return f"{head}<body><h1>{escape(title)}</h1>{''.join(bodies)}</body></html>\n"
