"""Learn: published figures beside what is predicted of them, and topics worked with a model and an accelerator."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

import streamlit as st

from app.fields import controls, inputs, widgets
from app.fields.uploaded import session_profiles
from app.parts import charts, display, tables
from app.parts.answers import explained, learned
from app.parts.sections import section_body
from simulator.api.explanations import CURRENCY
from simulator.errors import RoofcastError
from simulator.explain.catalogue import TOPICS, topic_named
from simulator.published.catalogue import PUBLISHED_COLUMNS, published_chart, published_rows, topic_title, topics
from simulator.reports.content.quantities import counted_text, percent_text

_FIGURE, _STATEMENT = "figure", "what it is"


def page() -> None:
    """The page."""
    views = {"Published figures": _published, "Topics": _topics}
    views[widgets.view("Learn", tuple(views), key="learn")]()


def _topic(titles: Mapping[str, str], *, key: str, help: str) -> str:
    """The title of a topic; addresses may have its short name too, as commands do. titles : and their short names"""
    spelled = {short: title for title, short in titles.items()}
    return widgets.choice("Topic", tuple(titles), key=key, default=next(iter(titles)), help=help, spelled=spelled.get)


def _topics() -> None:
    """A topic with its formula, its example and its figures; a refusal says which model it is about."""
    titles = {topic.title: topic.key for topic in TOPICS}
    with st.sidebar:
        model, hardware = inputs.model_input(), inputs.hardware_input()
    chosen = titles[_topic(titles, key="explain", help="What is explained.")]
    try:
        answer = explained(chosen, model, hardware, session_profiles())
    except RoofcastError as error:
        display.headline(topic_named(chosen).title)
        st.markdown(controls.named(str(error)).replace("$", "\\$"))
        return
    first, *others = answer.page.sections
    display.headline(first.title)
    section_body(first, currency=CURRENCY)
    for section in others:
        st.markdown(f"### {section.title}")
        section_body(section, currency=CURRENCY)
    words = ["roofcast", "explain", chosen, "--model", model, "--hardware", hardware, "--json"]
    display.reproduce(shlex.join(words))


def _published() -> None:
    titles = {topic_title(topic): topic for topic in topics()}
    title = _topic(titles, key="topic", help="What the figures are about.")
    topic = titles[title]
    with st.spinner("Predicting every figure", show_time=False):
        answer = learned(topic)
    (summary,) = answer.to_dict()["topics"]
    counted = counted_text(summary["figures"], "published figure")
    display.headline(
        f"{title}: {counted}, median error {percent_text(summary['median'])}",
        provenance="measured",
        detail=f"Mean {percent_text(summary['mean'])}; predicted now, by this version.",
    )
    described = published_chart(answer.figures)
    charts.chart(described, key="published", provenance="measured", picked=_FIGURE)
    rows = {row["name"]: row for row in answer.rows()}
    chosen = widgets.choice(
        "Figure", tuple(rows), key=_FIGURE, default=next(iter(rows)), help="Click a point, or choose here."
    )
    row = rows[chosen]
    st.markdown(f"**{chosen}**: {row['statement']}".replace("$", "\\$"))
    st.caption(f"Source: {row['source']}".replace("$", "\\$"))
    if row["reason"]:
        st.markdown(f"Why it is off: {row['reason']}".replace("$", "\\$"))
    for command in row["recipe"]["commands"]:
        st.code(command, language="bash", wrap_lines=True)
    # Names are made for programs: what they are stands behind the verdict, where a small screen cuts sentences off.
    shown = zip(published_rows(answer.figures), answer.figures, strict=True)
    lines = [(*line, item.figure.statement) for line, item in shown]
    tables.frame(lines, (*PUBLISHED_COLUMNS, _STATEMENT), wide=(_STATEMENT,))
    display.reproduce(shlex.join(["roofcast", "published", "--topic", topic, "--json"]))
