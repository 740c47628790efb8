"""Sections of an answer on a page: the tables, sentences, facts and charts that a command prints."""

from __future__ import annotations

import streamlit as st

from app.fields import controls
from app.parts import charts, tables
from simulator.reports.content.document import Bullets, Facts, Figure, Paragraph, Section, Table, Tone, marked_text


def section_body(section: Section, *, currency: str, whole: bool = True) -> None:
    """Its blocks one below the other; dollars are money here, not mathematics.

    whole : facts and charts too, which some pages show in places of their own
    """
    for block in section.blocks:
        match block:
            case Table():
                if block.title:
                    st.markdown(f"**{block.title}**")
                if block.rows:
                    tables.framed(block, currency=currency)
                if block.note:
                    st.caption(_plain(block.note))
            case Bullets():
                _listed([_opened(line) for line in block.items if not controls.is_command(line)])
                for line in filter(controls.is_command, block.items):
                    _as_command(line)
            case Facts() if whole:
                _listed([f"{fact.label}: {marked_text(fact.cell, currency=currency)}" for fact in block.facts])
            case Figure() if whole:
                charts.chart(block.chart, key=f"{section.key}_{block.chart.key}", provenance="")
            case Paragraph(tone=Tone.HEAD):
                st.markdown(f"**{_plain(block.text)}**")
            case Paragraph():
                st.markdown(_plain(block.text))


def _listed(items: list[str]) -> None:
    if items:
        st.markdown("\n".join(f"- {_plain(item)}" for item in items))


def _as_command(line: str) -> None:
    """``to plan it: plan-capacity ...``, folded away: a page has buttons for what it asks."""
    said, _, command = line.rpartition(": ")
    label = f"{_opened(said)}, on the command line" if said else "On the command line"
    with st.expander(label, icon=":material/terminal:"):
        st.code(command, language="bash", wrap_lines=True)


def _opened(line: str) -> str:
    """With a capital, but for a formula: t is no T."""
    return line if " = " in line else controls.begun(line)


def _plain(text: str) -> str:
    return controls.named(text).replace("$", "\\$").replace("*", "\\*")
