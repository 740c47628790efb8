"""Parts that every page is made of: headline, figures with badge and interval, charts, notes, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app import glossary
from simulator.errors import RoofcastError
from simulator.reports.figures.chart import Chart, SeriesKind
from simulator.reports.figures.plotly_figure import plotly_figure
from simulator.reports.quantities import change_text

_BADGES = {
    "measured": (":material/check_circle:", "green"),
    "calibrated": (":material/tune:", "blue"),
    "extrapolated": (":material/trending_up:", "orange"),
    "assumed": (":material/help:", "red"),
}
_CHART_HEIGHT = 360
_CARD_WIDTH = 160
_NAMES_HEIGHT = 32
_MANY_POINTS = 60
_PLOTLY = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number as shown: its text, what it is, its interval as text, and the values that a change is made of.

    provenance : where it differs from that of its neighbours
    """

    label: str
    text: str
    help: str
    interval: str = ""
    provenance: str = ""
    now: float | None = None
    before: float | None = None
    lower_is_better: bool = True


def headline(text: str, *, provenance: str | None = None, detail: str = "") -> None:
    """The answer as one sentence, how it is known, and one line of detail."""
    st.markdown(f"## {text}")
    origin(provenance, detail)


def origin(provenance: str | None, text: str) -> None:
    """How a number is known, as a badge, and a line about it."""
    parts = [badge_text(provenance) if provenance else "", text]
    line = " ".join(part for part in parts if part)
    if line:
        st.caption(line)


def badge_text(provenance: str, *, short: bool = False) -> str:
    """A badge within a line of text; a short one is its sign alone."""
    icon, color = _BADGES.get(provenance, (":material/help:", "gray"))
    return f":{color}-badge[{icon}]" if short else f":{color}-badge[{icon} {provenance}]"


def _help(item: Figure, provenance: str) -> str:
    """What a number is, what its interval means, how it is known."""
    known = f"{provenance.capitalize()}: {glossary.PROVENANCE.get(provenance, '')}"
    return "  \n".join(part for part in (item.help, glossary.INTERVAL if item.interval else "", known) if part)


def figures(shown: Sequence[Figure], *, provenance: str, baseline: str = "") -> None:
    """Numbers side by side, each with its badge, its interval and, where there is a baseline, its change."""
    with st.grid(len(shown), min_column_width=_CARD_WIDTH, gap="small", border=True):
        for item in shown:
            with st.container(gap="xxsmall"):
                change = change_text(item.now, item.before)
                st.metric(
                    item.label,
                    item.text,
                    delta=change,
                    delta_color="inverse" if item.lower_is_better else "normal",
                    delta_description=f"vs {baseline}" if change and baseline else None,
                    help=_help(item, item.provenance or provenance),
                )
                mark = badge_text(item.provenance or provenance, short=bool(item.interval))
                st.caption(f"{mark} 80 %: {item.interval}" if item.interval else mark)


def _drawn(described: Chart, *, sideways: bool = False) -> Any:
    """The library's figure with room for a page: title outside, legend on top, no text that does not fit its bar."""
    figure = plotly_figure(described, sideways=sideways)
    figure.update_layout(
        title=None,
        margin={"l": 10, "r": 10, "t": 10, "b": 10},
        hovermode="closest",
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
        showlegend=len(described.series) > 1,
        uniformtext={"minsize": 11, "mode": "hide"},
    )
    figure.update_traces(textangle=0, selector={"type": "bar"})
    figure.update_traces(mode="lines", selector={"fill": "toself"})
    if max((len(series.x) for series in described.series), default=0) > _MANY_POINTS:
        figure.update_traces(marker={"size": 6, "opacity": 0.6}, selector={"mode": "markers"})
    figure.update_annotations(showarrow=False, yshift=12)
    if any(series.kind is SeriesKind.STACKED_BAR for series in described.series):
        # Few short names: the room that the theme keeps for more is better used by the bars.
        figure.update_layout(margin={"b": _NAMES_HEIGHT})
        figure.update_xaxes(automargin=False)
    return figure


def chart(
    described: Chart,
    *,
    key: str,
    provenance: str,
    interval: str = "",
    height: int = _CHART_HEIGHT,
    sideways: bool = False,
) -> None:
    """A chart with its message as heading and its origin below: badge, source, 80 % interval of what it shows."""
    st.markdown(f"**{described.title}**")
    st.plotly_chart(
        _drawn(described, sideways=sideways),
        key=key,
        height=height,
        theme="streamlit",
        config=_PLOTLY,
        alt=f"{described.title}. {described.caption}",
    )
    _footer(described, provenance, interval)


def _footer(described: Chart, provenance: str, interval: str) -> None:
    parts = [described.caption, f"80 %: {interval}." if interval else ""]
    origin(provenance, " ".join(part for part in parts if part))


def selectable_chart(
    described: Chart, *, key: str, provenance: str, interval: str = "", height: int = _CHART_HEIGHT
) -> str:
    """A chart whose points can be clicked; the label of the chosen one, or nothing."""
    st.markdown(f"**{described.title}**")
    event = st.plotly_chart(
        _drawn(described),
        key=key,
        height=height,
        theme="streamlit",
        config=_PLOTLY,
        on_select="rerun",
        selection_mode="points",
        alt=f"{described.title}. {described.caption}",
    )
    _footer(described, provenance, interval)
    picked = event["selection"]["points"]
    return str(picked[0].get("text", "")) if picked else ""


def view(label: str, options: Sequence[str], *, key: str) -> str:
    """One of a few things to look at; the first until another is chosen, and the address keeps it."""
    chosen = st.segmented_control(
        label,
        options,
        default=options[0],
        key=key,
        bind="query-params",
        label_visibility="collapsed",
        required=True,
    )
    return chosen or options[0]


def refusal(error: RoofcastError) -> None:
    """A refusal as one clear message: what, why, and what to try."""
    st.error(f"**{error.message[:1].upper()}{error.message[1:]}**", icon=":material/block:")
    parts = [f"`{error.field}`" if error.field else "", f"Try: {error.hint}" if error.hint else ""]
    line = " · ".join(part for part in parts if part)
    if line:
        st.caption(line)


def notes(texts: Sequence[str]) -> None:
    """What a reader should know before using the numbers."""
    for text in texts:
        st.info(f"{text[:1].upper()}{text[1:]}", icon=":material/info:")


def warnings(texts: Sequence[str]) -> None:
    """What may mislead."""
    for text in texts:
        st.warning(f"{text[:1].upper()}{text[1:]}", icon=":material/warning:")


def assumptions(texts: Sequence[str]) -> None:
    """Everything that was not given, folded away."""
    with st.expander(f"Assumptions ({len(texts)})", icon=":material/rule:"):
        st.markdown("\n".join(f"- {text}" for text in texts))


def reproduce(command: str, *, standard_input: str = "") -> None:
    """The command that prints the same numbers."""
    with st.expander("The same numbers on the command line", icon=":material/terminal:"):
        st.code(command, language="bash", wrap_lines=True)
        if standard_input:
            st.code(standard_input, language="json", wrap_lines=True)
