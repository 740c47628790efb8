"""Charts of a page: the library's figure with its message as heading, its origin below, and its picture as a file."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from itertools import cycle
from textwrap import fill
from typing import Any, Literal
from zlib import crc32

import streamlit as st
from plotly.basedatatypes import BaseFigure
from streamlit.delta_generator import DeltaGenerator

from app.fields import controls, question
from app.hosting import turns
from app.parts.display import origin
from simulator.reports.charts.chart import Chart, SeriesKind
from simulator.reports.charts.plotly_figure import plotly_spec
from simulator.reports.formats.pdf import picture

_HEIGHT, _NARROWEST = 360, 400
_NAMES_HEIGHT = 44
_VALUES_WIDTH, _VALUES_HEIGHT = 62, 54
_TWO_LINES_HEIGHT = 72
_NAME_LETTERS = 34
_FEW_BARS = 8
_SIDE_BY_SIDE, _NARROW_LETTERS = 2, 10
_MANY_POINTS = 60
_TEXT: dict[str, Any] = {"family": '"Source Sans", sans-serif', "size": 12, "color": "#7A8593"}
"""The page's font; its style sheet has the colours of texts in either theme."""
_AXIS_TITLE = {"size": 14}
_PLOTLY = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d", "toImage"]}
_FORMS: dict[Literal["svg", "png"], str] = {"svg": "image/svg+xml", "png": "image/png"}
_NEEDS = {"svg": "json", "png": "typst"}


def _has_short_names(described: Chart) -> bool:
    """Whether the names below bars fit in two short lines."""
    kinds = {series.kind for series in described.series}
    few = len(described.x.categories) <= _FEW_BARS
    return SeriesKind.STACKED_BAR in kinds or (SeriesKind.WATERFALL in kinds and few)


def _has_names(described: Chart, axis: str, *, sideways: bool) -> bool:
    """Whether names rather than values stand along an axis of the drawing."""
    across = described.y if (axis == "xaxis") == sideways else described.x
    return bool(across.categories)


def _dressed(spec: dict[str, Any], *, height: int) -> None:
    """Fonts, lines and size of a chart of a page.

    The front end draws whatever it puts a theme on, and whatever it has to make as high as its place, a second time:
    both are said here. What says by its revision that it is the same is not drawn again either.
    """
    layout = spec["layout"]
    layout |= {"font": _TEXT, "height": height, "datarevision": crc32(repr(spec["data"]).encode())}
    layout["modebar"] = {"bgcolor": "rgba(0,0,0,0)", "color": "rgba(128,128,128,0.7)", "activecolor": "#7A8593"}
    for axis, room in (("xaxis", 20), ("yaxis", 24)):
        # Without words a title would still take its room.
        named = bool(layout[axis]["title"]["text"])
        layout[axis]["title"] = layout[axis]["title"] | {"font": _AXIS_TITLE, "standoff": room} if named else {}


def _drawn(described: Chart, *, sideways: bool = False, height: int = _HEIGHT) -> dict[str, Any]:
    """The library's figure with room for a page: title outside, legend on top, no text that does not fit its bar."""
    spec = plotly_spec(described, sideways=sideways)
    layout = spec["layout"]
    del layout["title"]
    layout |= {
        "margin": {"l": _VALUES_WIDTH, "r": 20, "t": 10, "b": _VALUES_HEIGHT, "pad": 8},
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        "showlegend": len(described.series) > 1,
        "uniformtext": {"minsize": 11, "mode": "hide"},
    }
    # Room for values is known beforehand: a browser that finds it out draws everything again, twice.
    for axis in ("xaxis", "yaxis"):
        layout[axis]["automargin"] = _has_names(described, axis, sideways=sideways)
    # Lines lead from values to marks; names need none.
    layout["yaxis" if layout["yaxis"]["automargin"] else "xaxis"] |= {"showgrid": False, "zeroline": False}
    crowded = max((len(series.x) for series in described.series), default=0) > _MANY_POINTS
    for trace in spec["data"]:
        trace["name"] = controls.named(trace["name"])
        if trace["type"] == "bar":
            trace["textangle"] = 0
            if layout["barmode"] == "stack":
                # Above the last part of a stack there is no room.
                trace["textposition"] = "inside"
        elif crowded and trace.get("mode") == "markers":
            trace["marker"] |= {"size": 6, "opacity": 0.6}
    # Lines across may stand close to each other, and below the legend: their texts must not.
    for note, below in zip(layout["annotations"], cycle((-2, -16, -30)), strict=False):
        note["yshift"] = below if note.get("yref") == "y domain" else 12
        if "xref" not in note and "yref" not in note:
            note["xshift"] = -12 if note.get("xanchor") == "right" else 12
    if sideways:
        # Long names in two lines leave room for the bars on a phone; points keep the whole name.
        names = described.x.categories
        layout["yaxis"] |= {
            "tickvals": names,
            "ticktext": [fill(controls.named(name), _NAME_LETTERS).replace("\n", "<br>") for name in names],
        }
        # The bars have what the names leave: a unit beside the title of their axis would be cut off.
        title = layout["xaxis"]["title"]
        title["text"] = title["text"].replace(" (", "<br>(")
        layout["margin"]["b"] = _TWO_LINES_HEIGHT
    if _has_short_names(described):
        layout["xaxis"]["tickangle"] = 0
        several = len(described.x.categories) > _SIDE_BY_SIDE
        for trace in spec["data"]:
            trace["x"] = [_broken(controls.named(str(name)), narrow=several) for name in trace["x"]]
        # Few short names: the room that the theme keeps for more is better used by the bars.
        layout["margin"]["b"] = _NAMES_HEIGHT
        layout["xaxis"]["automargin"] = several
    _dressed(spec, height=height)
    return spec


def _broken(name: str, *, narrow: bool) -> str:
    """A name below a bar in lines; narrow ones stand beside each other in half of a small screen."""
    if not narrow:
        return name.replace(" ", "<br>", 1)
    # Behind every hyphen, before digits too: ``h200-sxm-`` and ``141gb TP1``.
    lines = fill(name.replace("-", "- "), _NARROW_LETTERS, break_long_words=False)
    return lines.replace("- ", "-").replace("\n", "<br>")


class _Checked(BaseFigure):  # type: ignore[misc]
    """A figure as it is: plotly's check against its schema takes longer than an answer, so tests make it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self._spec: dict[str, Any] = spec

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return self._spec


def _picked_name(key: str, *, sideways: bool) -> str:
    """The label of the point that was clicked; empty where none was."""
    points = st.session_state[key]["selection"]["points"]
    # A bar is known by its category; its text is a number.
    fields = ("x", "y") if sideways else ("text", "x", "y")
    names = [points[0].get(field) for field in fields] if points else []
    return next((name for name in names if isinstance(name, str) and name), "")


@cache
def is_installed(module: str) -> bool:
    """Looked for once: every folder of the path is searched."""
    return find_spec(module) is not None


def side_by_side(count: int = 2) -> DeltaGenerator:
    """Where charts stand beside each other, or below each other where they would be too narrow for their legends."""
    return st.grid(count, min_column_width=_NARROWEST, gap="medium")


def _heading(described: Chart, *, key: str) -> None:
    """What the chart says, and the chart as a file that says which question it answers."""
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small", key=f"heading_{key}"):
        st.markdown(f"**{described.title}**")
        if not described.series:
            return
        # Two buttons of every chart are a tenth of what a page takes to run: made when somebody opens their menu.
        menu = st.popover("Save", type="tertiary", icon=":material/image:", key=f"save_{key}", on_change="rerun")
        if menu.open:
            with menu:
                _save_buttons(described, key=key)


def _save_buttons(described: Chart, *, key: str) -> None:
    for form, kind in _FORMS.items():
        if not is_installed(_NEEDS[form]):
            st.caption(f"{form.upper()}: install the extra report")
            continue
        st.download_button(
            form.upper(),
            partial(picture, described, question=question.line(), form=form),
            f"roofcast-{described.key}.{form}",
            kind,
            on_click="ignore",
            icon=":material/download:",
            key=f"save_{key}_{form}",
        )


def chart(
    described: Chart,
    *,
    key: str,
    provenance: str,
    interval: str = "",
    note: str = "",
    height: int = _HEIGHT,
    sideways: bool = False,
    picked: Callable[[str], None] | str | None = None,
) -> None:
    """A chart with its message as heading and its origin below: badge, source, 80 % interval of what it shows, note.

    picked : gets the label of a point that is clicked before the page runs again, or is the key of the widget that is
        set to it; without it nothing can be clicked
    """

    def chosen() -> None:
        name = _picked_name(key, sideways=sideways)
        if name and isinstance(picked, str):
            st.session_state[picked] = name
        elif name and callable(picked):
            picked(name)

    turns.number_sent()
    _heading(described, key=key)
    if not described.series:
        origin(None, described.caption)
        return
    st.plotly_chart(
        _Checked(_drawn(described, sideways=sideways, height=height)),
        key=key,
        height=height,
        theme=None,
        config=_PLOTLY,
        on_select="ignore" if picked is None else chosen,
        selection_mode="points",
        alt=f"{described.title}. {described.caption}",
    )
    spread = interval.replace("$", "\\$")
    parts = [described.caption, f"80\N{NO-BREAK SPACE}%: {spread}." if spread else "", note]
    origin(provenance, " ".join(part for part in parts if part))
