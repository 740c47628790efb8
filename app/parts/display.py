"""Parts that every page is made of: headline, figures with badge and interval, notes, refusals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import streamlit as st

from app.address import links
from app.fields import controls, glossary
from app.fields.widgets import Shown
from simulator.errors import RoofcastError
from simulator.planner.verification.confidence import LIKELY, UNLIKELY
from simulator.reports.charts.chart import Gauge
from simulator.reports.content.quantities import Quantity, chance_word, change_text, unbroken
from simulator.reports.tables.serving import ObjectiveChance

_BADGES = {
    "measured": (":material/check_circle:", "green"),
    "calibrated": (":material/tune:", "blue"),
    "extrapolated": (":material/trending_up:", "orange"),
    "assumed": (":material/help:", "red"),
}
COMMAND_LINE = "command_line"
"""Key of the place that shows the command of a page."""
_CARD_WIDTH, _ROW_CARD_WIDTH, _PART_WIDTH = 160, 140, 120
"""Least width of a card, of one whose row stays whole beside a sidebar on a small screen, and of one without frame."""
_TWO_ROWS = 6
"""So many cards, once on a page, stand in two rows of three where one row is too narrow: style.css."""
_LONGEST_RANGE = 19
"""Letters in a line of the narrowest card."""
FIELD_WIDTH = 140
"""Least width of a field beside others: two of them fit a phone, four a small screen beside its sidebar."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFigure:
    """A number as shown: its text, what it is, its interval as text, and the values that a change is made of.

    provenance : where it differs from that of its neighbours
    detail : a few words beside the interval
    gauge : the number against its bound
    """

    label: str
    text: str
    help: str
    interval: str = ""
    provenance: str = ""
    detail: str = ""
    now: float | None = None
    before: float | None = None
    lower_is_better: bool = True
    gauge: Gauge | None = None


def headline(text: str, *, provenance: str | None = None, detail: str = "") -> None:
    """The answer as one sentence, how it is known, and one line of detail."""
    links.said(text)
    st.markdown(f"## {unbroken(text)}".replace("$", "\\$"))
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


def _together(text: str) -> str:
    """``text`` on one line: a range that breaks before its unit is hard to read. Dollars are money, not formulas."""
    return text.replace(" ", "\N{NO-BREAK SPACE}").replace("–", "–\N{WORD JOINER}").replace("$", "\\$")


def spread_text(interval: str) -> str:
    """The 80 % interval of a number as small print; it may break before its range, and a long one behind its dash:
    numbers are not broken.
    """
    low, dash, high = interval.partition("– ")
    ends = (f"{low}{dash}", high) if len(interval) > _LONGEST_RANGE else (interval,)
    return " ".join(map(_together, ("80 %:", *ends))) if interval else ""


def _help(item: ShownFigure, provenance: str) -> str:
    """What a number is, what its interval means, how it is known."""
    known = f"{provenance.capitalize()}: {glossary.PROVENANCE.get(provenance, '')}"
    return "  \n".join(part for part in (item.help, glossary.INTERVAL if item.interval else "", known) if part)


def explained(
    shown: Sequence[Quantity],
    *,
    help: Mapping[str, str],
    before: Sequence[Quantity] = (),
    details: Mapping[str, str] | None = None,
    known: Mapping[str, str] | None = None,
    gauges: Mapping[str, Gauge] | None = None,
) -> list[ShownFigure]:
    """The library's numbers as figures, each with what belongs to its key: help, value before, provenance and so on."""
    values = {item.key: item.value for item in before}
    return [
        ShownFigure(
            label=item.label,
            text=item.text,
            help=help[item.key],
            interval=item.interval,
            provenance=(known or {}).get(item.key, ""),
            detail=(details or {}).get(item.key, ""),
            now=item.value,
            before=values.get(item.key),
            lower_is_better=item.lower_is_better,
            gauge=(gauges or {}).get(item.key),
        )
        for item in shown
    ]


def figures(
    shown: Sequence[ShownFigure], *, provenance: str, baseline: str = "", a_row: int | None = None, framed: bool = True
) -> None:
    """Numbers side by side, each with its badge, its interval and, where there is a baseline, its change.

    a_row : how many stand side by side; too narrow then to say what each is compared with
    framed : a card each; without frames they stand closer, on a card of their own
    """
    width = _PART_WIDTH if not framed else _CARD_WIDTH if a_row is None else _ROW_CARD_WIDTH
    key = "six_figures" if framed and a_row is None and len(shown) == _TWO_ROWS else None
    with st.container(key=key), st.grid(a_row or len(shown), min_column_width=width, gap="small", border=framed):
        for item in shown:
            with st.container(gap="xxsmall"):
                change = change_text(item.now, item.before)
                st.metric(
                    item.label,
                    item.text,
                    delta=change,
                    delta_color="inverse" if item.lower_is_better else "normal",
                    delta_description=f"vs {baseline}" if change and baseline and a_row is None else None,
                    help=_help(item, item.provenance or provenance),
                )
                mark = badge_text(item.provenance or provenance, short=bool(item.interval))
                st.caption(
                    " ".join(part for part in (mark, spread_text(item.interval), _together(item.detail)) if part)
                )
                if item.gauge is not None:
                    _gauge(item.label, item.gauge)


def gauges(chances: Sequence[ObjectiveChance]) -> dict[str, Gauge]:
    """Latencies against their bounds, by their fields."""
    return {
        item.field: Gauge(bound_s=item.bound_s, value_s=item.value_s, ends_s=item.ends_s, chance=item.chance)
        for item in chances
    }


def _odds(chance: float) -> str:
    """The colour of a probability."""
    return "green" if chance >= LIKELY else "orange" if chance >= UNLIKELY else "red"


def _gauge(label: str, shown: Gauge) -> None:
    """A gauge of plain elements that the style sheet draws: a figure of plotly costs a browser as much as all cards."""
    (low, width), bar = shown.interval, shown.bar
    st.html(
        f'<div class="gauge gauge-{_odds(shown.chance)}" role="meter" aria-label="{escape(label)} against its bound" '
        f'aria-valuemin="0" aria-valuemax="1" aria-valuenow="{bar:.2f}" '
        f'aria-valuetext="{escape(shown.odds_text)} {shown.bound_text}"><div class="gauge-track">'
        f'<i class="gauge-to" style="width:{bar:.1%}"></i>'
        f'<i class="gauge-range" style="left:{low:.1%};width:{width:.1%}"></i>'
        f'<i class="gauge-bound" style="left:{shown.place(shown.bound_s):.1%}"></i></div>'
        f"<span><b>{escape(shown.odds_text)}</b> {shown.bound_text}</span></div>"
    )


def verdict(chance: float, line: str) -> None:
    """Whether it serves and how surely, before everything else."""
    st.markdown(f":{_odds(chance)}-badge[**{chance_word(chance)}**] {line}".replace("$", "\\$"))


def _about(key: str, shown: Shown) -> str:
    """The control that a refusal is about: what a number may be, or which name was chosen among many."""
    chosen = st.session_state.get(key)
    if isinstance(chosen, str):
        return f"**{shown.label}**: {chosen}"
    return f"**{shown.label}** takes {shown.allowed}"


def refusal(error: RoofcastError) -> None:
    """A refusal as one clear message: what, why, which control it is about and what that takes, what to try."""
    message = controls.worded(error.message)
    st.error(f"**{controls.begun(message)}**", icon=":material/block:")
    known = controls.control(error.field)
    # A field of a file has parts; a word without any is a code for programs.
    field = f"`{error.field}`" if "." in error.field else ""
    about = field if known is None else _about(*known)
    hint = controls.worded(error.hint)
    line = " · ".join(part for part in (about, controls.begun(hint)) if part)
    if line:
        st.caption(line.replace("$", "\\$"))


def notes(texts: Sequence[str]) -> None:
    """What a reader should know before using the numbers."""
    said = [controls.begun(controls.worded(text)) for text in texts]
    if said:
        st.info(said[0] if len(said) == 1 else "\n".join(f"- {text}" for text in said), icon=":material/info:")


def warnings(texts: Sequence[str]) -> None:
    """What may mislead."""
    for text in texts:
        st.warning(controls.begun(controls.worded(text)), icon=":material/warning:")


def assumptions(texts: Sequence[str]) -> None:
    """Everything that was not given, folded away."""
    with st.expander(f"Assumptions ({len(texts)})", icon=":material/rule:"):
        st.markdown("\n".join(f"- {text}" for text in texts))


def command_line(command: str, *, standard_input: str = "") -> None:
    """The command that prints the same numbers, made when somebody opens it: its highlighter is large.

    For use inside a fragment, which must hold no other: where a run of the outer one is cut short by the next, the
    server drops what the outer one has not sent yet and still sends the inner one's parts, whose place is then missing.
    """
    place = st.expander(
        "The same numbers on the command line", icon=":material/terminal:", key=COMMAND_LINE, on_change="rerun"
    )
    if not place.open:
        return
    with place:
        st.code(command, language="bash", wrap_lines=True)
        if standard_input:
            st.code(standard_input, language="json", wrap_lines=True)


@st.fragment
def reproduce(command: str, *, standard_input: str = "") -> None:
    """:func:`command_line` for the body of a page: opening it runs nothing else again."""
    command_line(command, standard_input=standard_input)
