"""What of an address is not answered as it asks: said, with the answer that stands instead and buttons for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

import streamlit as st

from app.fields import controls, question, widgets
from app.fields.widgets import LONGEST_SHOWN, quoted
from simulator.errors import closest, closest_names

_MODEL = "Model"
"""The label of the box whose names stand for others that compute the same."""


def _same(texts: Sequence[str], value: object) -> bool:
    """Whether a widget shows what an address says."""
    text = texts[-1]
    if isinstance(value, list):
        return set(texts) == {str(item) for item in value}
    if isinstance(value, bool):
        return text.lower() == str(value).lower()
    if isinstance(value, int | float):
        try:
            return float(text) == value
        except ValueError:
            return False
    return text == ("" if value is None else str(value))


def _spells(shown: widgets.Shown, texts: Sequence[str], value: object) -> bool:
    """Whether an address calls what a widget shows by another of its names."""
    if isinstance(value, list):
        return {name for text in texts for name in shown.read(text)} == set(value)
    try:
        return isinstance(value, str) and bool(shown.read(texts[-1]) == value)
    except ValueError:
        return False


def _number(value: object) -> object:
    """A number as people write it; anything else as it is."""
    return f"{value:,.10g}" if isinstance(value, int | float) and not isinstance(value, bool) else value


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What of an address is not answered as it asks: said, the value that stands instead, and what a click asks with.

    offers : words of a button, its widget and the value
    is_note : it is answered, under another name
    """

    text: str
    is_note: bool = False
    instead: object = None
    offers: tuple[tuple[str, str, object], ...] = ()


def _words(shown: widgets.Shown) -> list[str]:
    return [name for name in shown.names if isinstance(name, str)]


def _of_number(key: str, shown: widgets.Shown) -> tuple[tuple[str, str, object], ...]:
    """What else a widget of numbers is often asked with: what stands on the other side, and its default."""
    value = st.session_state[key]
    others = dict.fromkeys((*shown.beside, *(() if shown.default is None else (shown.default,))))
    return tuple((f"{shown.label}: {_number(item)}", key, item) for item in others if item != value)


def _of_names(key: str, shown: widgets.Shown, texts: Sequence[str]) -> tuple[tuple[str, str, object], ...]:
    """The names that are most like what an address says; several are asked with beside those that it has right."""
    value = st.session_state[key]
    names = _words(shown)
    like = [name for text in texts if text not in names for name in closest_names(text[:LONGEST_SHOWN], names)]
    return tuple(
        (f"{shown.label}: {name}", key, [*value, name] if isinstance(value, list) else name)
        for name in dict.fromkeys(like)
        if name != value
    )


def _known_as(said: str, asked: str, value: object) -> Complaint | None:
    """That a model stands for the one that was asked for; nothing where the name says so itself."""
    short = asked.rpartition("/")[2].lower()
    if not isinstance(value, str) or short in value.lower() or value.lower() in short:
        return None
    return Complaint(text=f"{said} is known here as `{value}`: the same to compute.", instead=value, is_note=True)


def _of_widget(key: str, shown: widgets.Shown, texts: Sequence[str]) -> Complaint | None:
    value, said = st.session_state[key], f"`{quoted(key)}={quoted(', '.join(texts))}`"
    if _same(texts, value):
        return None
    if _spells(shown, texts, value):
        return _known_as(said, texts[-1], value) if shown.label == _MODEL else None
    if shown.needs:
        return Complaint(text=f"{said} needs {shown.needs}: left out.", instead=value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    offers = _of_number(key, shown) if is_number else _of_names(key, shown, texts)
    like = closest(texts[-1][:LONGEST_SHOWN], _words(shown))
    allowed = f"{like[:1].upper()}{like[1:]}" if like else f"It takes {shown.allowed}."
    instead = ", ".join(map(str, value)) if isinstance(value, list) else _number(value)
    nearest = ", the nearest" if is_number and _is_number(texts[-1]) else ""
    answered = f"Answered with `{instead or 'nothing'}`{nearest}."
    return Complaint(
        text=f"{said} is not possible here for {shown.label}. {allowed} {answered}", instead=value, offers=offers
    )


def _is_number(text: str) -> bool:
    try:
        return not isnan(float(text))
    except ValueError:
        return False


def complaint_of(key: str, texts: Sequence[str]) -> Complaint | None:
    """What of a parameter is not answered as it asks; None where all is."""
    if (shown := widgets.shown().get(key)) is not None:
        return _of_widget(key, shown, texts)
    said = f"`{quoted(key)}={quoted(', '.join(texts))}`"
    if key in question.READ:
        known = question.read(key, texts[-1]) is not None
        return None if known else Complaint(text=f"{said} is not possible: left out.")
    # The contract's word for what the page calls by another.
    offers = controls.offer(key, texts[-1][:LONGEST_SHOWN])
    meant = tuple((words, there, value) for there, (words, value) in offers.items())
    return Complaint(text=f"{said} asks nothing of this page: left out.", offers=meant)


def tell(key: str, complaint: Complaint, *, on_click: Callable[[str, str, object], None]) -> None:
    """A line of the banner, and a button for everything that it offers instead; called with the key, its widget and
    value."""
    if complaint.is_note:
        st.caption(complaint.text)
        return
    st.warning(complaint.text, icon=":material/link_off:")
    if not complaint.offers:
        return
    with st.container(horizontal=True, gap="small"):
        for place, (words, there, value) in enumerate(complaint.offers):
            st.button(
                words,
                key=f"instead_{key}_{place}",
                on_click=on_click,
                args=(key, there, value),
                icon=":material/arrow_forward:",
                help="Asks the same with this instead.",
            )
