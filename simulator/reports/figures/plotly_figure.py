"""A chart as a plotly figure, for pages that people point at."""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

from simulator.reports.figures.chart import (
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

_SOFT = 0.18
_SCREEN_NEUTRAL = "#7A8593"
"""In place of the palette's own grey, which is made for paper: at least 3:1 on light and on dark pages."""
_GRID = "rgba(128,128,128,0.25)"


def _rgba(color: str, opacity: float) -> str:
    red, green, blue = (int(color[index : index + 2], 16) for index in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity:g})"


def _names(axis: Axis, positions: tuple[float, ...]) -> list[Any]:
    return [axis.categories[int(position)] for position in positions] if axis.categories else list(positions)


def _band(chart: Chart, series: Series, color: str) -> list[Any]:
    x = _names(chart.x, series.x)
    area = go.Scatter(
        x=[*x, *reversed(x)],
        y=[*series.high, *reversed(series.low)],
        fill="toself",
        fillcolor=_rgba(color, _SOFT),
        line={"width": 0},
        name=series.name,
        hoverinfo="skip",
    )
    if not series.y:
        return [area]
    middle = go.Scatter(x=x, y=list(series.y), mode="lines", line={"color": color}, name=series.name, showlegend=False)
    return [area, middle]


def _line(chart: Chart, series: Series, color: str) -> Any:
    style = {"color": color, "width": 2.2, "dash": "dash" if series.dashed else "solid"}
    style |= {"shape": "hv"} if series.kind is SeriesKind.STEP else {}
    x = _names(chart.x, series.x)
    return go.Scatter(
        x=x, y=list(series.y), mode="lines", line=style, name=series.name, text=list(series.labels) or None
    )


def _tornado(chart: Chart, series: Series, color: str) -> list[Any]:
    names = _names(chart.y, series.x)
    ends = (("low", series.low, 0.55), ("high", series.high, 1.0))
    return [
        go.Bar(
            y=names,
            x=[value - base for value, base in zip(values, series.y, strict=True)],
            base=list(series.y),
            orientation="h",
            marker={"color": _rgba(color, opacity)},
            name=f"{series.name}, {end}",
            customdata=list(values),
            hovertemplate="%{y}: %{customdata:.4g}<extra></extra>",
        )
        for end, values, opacity in ends
    ]


def _traces(chart: Chart, series: Series, color: str) -> list[Any]:
    match series.kind:
        case SeriesKind.BAND:
            return _band(chart, series, color)
        case SeriesKind.LINE | SeriesKind.STEP | SeriesKind.CEILING:
            return [_line(chart, series, color)]
        case SeriesKind.TORNADO:
            return _tornado(chart, series, color)
        case SeriesKind.WATERFALL:
            measures = [
                "absolute" if label == "total" else "relative" for label in series.labels or ("",) * len(series.x)
            ]
            return [
                go.Waterfall(
                    x=_names(chart.x, series.x),
                    y=list(series.y),
                    measure=measures,
                    name=series.name,
                    increasing={"marker": {"color": PALETTE[LOSS]}},
                    decreasing={"marker": {"color": PALETTE[GAIN]}},
                    totals={"marker": {"color": _SCREEN_NEUTRAL}},
                )
            ]
        case SeriesKind.SCATTER:
            return [
                go.Scatter(
                    x=_names(chart.x, series.x),
                    y=list(series.y),
                    mode="markers",
                    marker={"color": color, "size": 9},
                    name=series.name,
                    text=list(series.labels) or None,
                )
            ]
        case SeriesKind.BAR | SeriesKind.STACKED_BAR:
            return [_bar(chart, series, color)]


def _bar(chart: Chart, series: Series, color: str) -> Any:
    x, text = _names(chart.x, series.x), list(series.labels) or None
    bar = go.Bar(x=x, y=list(series.y), name=series.name, marker={"color": color}, text=text)
    if series.low:
        up = [high - value for high, value in zip(series.high, series.y, strict=True)]
        down = [value - low for low, value in zip(series.low, series.y, strict=True)]
        bar.update(textposition="none", hovertext=text, text=None)
        bar.error_y = {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "color": _SCREEN_NEUTRAL}
    return bar


def _turned(figure: go.Figure) -> None:
    """Let bars run to the right, the first on top: room for long names."""
    for bar in figure.data:
        whiskers = bar.error_y.to_plotly_json() or None
        bar.update(x=bar.y, y=bar.x, orientation="h", error_x=whiskers, error_y=None)
    across, down = (axis.to_plotly_json() for axis in (figure.layout.yaxis, figure.layout.xaxis))
    figure.update_layout(xaxis=across, yaxis=down)
    figure.update_yaxes(autorange="reversed", showgrid=False)


def _annotate(figure: Any, note: Annotation, chart: Chart) -> None:
    x = _names(chart.x, (note.x,))[0] if note.x is not None else None
    if note.x is not None and note.y is not None:
        figure.add_annotation(
            x=_annotation_place(chart.x, note.x), y=_annotation_place(chart.y, note.y), text=note.text
        )
    elif note.x is not None:
        figure.add_vline(x=x, line={"dash": "dash", "width": 1.2}, annotation_text=note.text)
    elif note.y is not None:
        figure.add_hline(y=note.y, line={"dash": "dash", "width": 1.2}, annotation_text=note.text)


def _annotation_place(axis: Axis, value: float) -> float:
    """Plotly places annotations on a log axis by the logarithm, unlike everything else."""
    from math import log10

    return log10(value) if axis.log and not axis.categories else value


def _axis(axis: Axis, *, reverse: bool = False) -> dict[str, Any]:
    from math import log10

    found: dict[str, Any] = {"title": {"text": axis.label}, "gridcolor": _GRID, "zerolinecolor": _GRID}
    if axis.log and not axis.categories:
        found["type"] = "log"
    if axis.low is not None and axis.high is not None:
        found["range"] = [log10(axis.low), log10(axis.high)] if axis.log else [axis.low, axis.high]
    if reverse:
        found["autorange"] = "reversed"
    return found


def plotly_figure(chart: Chart, *, sideways: bool = False) -> go.Figure:
    """The chart as a plotly figure with transparent ground and no text colours, so that it follows the page's theme.

    sideways : bars of a chart that holds nothing else run to the right
    """
    figure = go.Figure()
    for series, index in zip(chart.series, series_colors(chart), strict=True):
        for trace in _traces(chart, series, _SCREEN_NEUTRAL if index == NEUTRAL else PALETTE[index]):
            figure.add_trace(trace)
    for note in chart.annotations:
        _annotate(figure, note, chart)
    stacked = any(series.kind is SeriesKind.STACKED_BAR for series in chart.series)
    overlaid = chart.horizontal
    figure.update_layout(
        title={"text": chart.title},
        xaxis=_axis(chart.x),
        yaxis=_axis(chart.y, reverse=chart.horizontal),
        barmode="stack" if stacked else "overlay" if overlaid else "group",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "y": -0.25},
        margin={"l": 60, "r": 20, "t": 50, "b": 60},
    )
    if sideways:
        _turned(figure)
    return figure
