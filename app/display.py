"""Parts that every page is made of: headline, figures with badge and interval, charts, notes, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app import glossary
from simulator.errors import RoofcastError
from simulator.reports.figures.chart import Chart
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
_MANY_POINTS = 60
_PLOTLY = {"displaylogo": False, "modeBarButtonsToRemove": ["lasso2d", "select2d", "autoScale2d"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number as shown: its text, what it is, its interval as text, and the values that a change is made of."""

    label: str
    text: str
    help: str
    interval: str = ""
    now: float | None = None
    before: float | None = None
    lower_is_better: bool = True


def headline(text: str, *, provenance: str | None = None, detail: str = "") -> None:
    """The answer as one sentence, how it is known, and one line of detail."""
    st.markdown(f"## {text}")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        if provenance is not None:
            badge(provenance)
        if detail:
            st.caption(detail)


def badge(provenance: str) -> None:
    """How a number is known."""
    icon, color = _BADGES.get(provenance, (":material/help:", "gray"))
    st.badge(provenance, icon=icon, color=color, help=glossary.PROVENANCE.get(provenance))  # type: ignore[arg-type]


def figures(shown: Sequence[Figure], *, baseline: str = "") -> None:
    """Numbers side by side, each with its interval and, where there is a baseline, its change."""
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
                    help=f"{item.help} {glossary.INTERVAL if item.interval else ''}".strip(),
                )
                if item.interval:
                    st.caption(f"80 %: {item.interval}")


def _drawn(described: Chart) -> Any:
    """The library's figure with room for a page: title outside, legend on top, no text that does not fit its bar."""
    figure = plotly_figure(described)
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
    return figure


def chart(described: Chart, *, key: str, height: int = _CHART_HEIGHT) -> None:
    """A chart with its message as heading and its origin below."""
    st.markdown(f"**{described.title}**")
    st.plotly_chart(
        _drawn(described),
        key=key,
        height=height,
        theme="streamlit",
        config=_PLOTLY,
        alt=f"{described.title}. {described.caption}",
    )
    if described.caption:
        st.caption(described.caption)


def selectable_chart(described: Chart, *, key: str, height: int = _CHART_HEIGHT) -> str:
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
    st.caption(described.caption)
    picked = event["selection"]["points"]
    return str(picked[0].get("text", "")) if picked else ""


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
