"""Beside a refusal: one click that asks for what would work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, TypeVar

import streamlit as st

from app.address import links
from app.fields import controls
from app.fields.uploaded import session_profiles
from app.parts import display
from simulator.errors import RoofcastError
from simulator.planner.gap.records import Gap, GapError, GapOption
from simulator.planner.what_if import fitting_changes
from simulator.specs.question.scenario import ScenarioSpec

Shown = TypeVar("Shown")
_BEFORE = "_answer_before"


def now(show: Callable[..., Shown], *found: Any) -> Shown:
    """Show an answer, and remember it for the case that the next question is refused."""
    st.session_state[_BEFORE] = (show.__module__, found)
    return show(*found)


def before(show: Callable[..., object]) -> None:
    """Below a refusal the answer before it, in grey: it is not the answer to what is asked now."""
    page, found = st.session_state.get(_BEFORE, ("", ()))
    if page != show.__module__:
        return
    with st.container(key="before"):
        st.caption("What this page answered before:")
        show(*found)
    links.said("")


def apply(values: Mapping[str, Any]) -> None:
    """Ask with these values of widgets instead of theirs."""
    st.session_state.update(values)


@st.cache_data(max_entries=200, show_spinner=False)
def _fitting(question: str, profiles: str | None, _scenario: ScenarioSpec) -> list[tuple[str, str | int]]:
    return list(fitting_changes(_scenario, profiles=profiles).items())


def _button(words: str, key: str, values: Mapping[str, Any], *, help: str, icon: str = "build") -> None:
    st.button(words, key=key, on_click=apply, args=(values,), icon=f":material/{icon}:", help=help)


def refusal(error: RoofcastError, scenario: ScenarioSpec | None = None) -> None:
    """A refused question, and a button for every change that its hint names, and for the nearest that fit."""
    display.refusal(error)
    named = () if isinstance(error, GapError) else error.offers.items()
    fitting = () if scenario is None else _fitting(scenario.model_dump_json(), session_profiles(), scenario)
    offers: controls.Offers = {}
    for field, value in (*named, *fitting):
        offers |= controls.offer(field, value)
    # What is too large for its devices is not helped by the degree of a page that nobody has touched.
    if not offers and error.code != "does_not_fit":
        offers = controls.taken_back(error.field)
    with st.container(horizontal=True, gap="small"):
        for key, (words, value) in offers.items():
            _button(words, f"fit_{key}", {key: value}, help="Asks the same with this one change.")
        if isinstance(error, GapError):
            _gap_actions(error.gap)


def _widget_values(option: GapOption) -> dict[str, Any] | None:
    """What to set for an option; None where no widget says it."""
    found = [controls.setting(item.field, item.value) for item in option.given]
    return None if None in found else dict(item for item in found if item is not None)


def _option_name(option: GapOption) -> str:
    """``FP8 weights``, ``hardware: b200-sxm``: a change with its value, unless its name says that already."""
    values = ", ".join(str(item.value) for item in option.given)
    name = f"{option.name[:1].upper()}{option.name[1:]}"
    return name if values.lower() in option.name.lower() else f"{name}: {values}"


def _gap_actions(gap: Gap) -> None:
    """Every single change that makes a plan possible and that a widget can say, and limits as wide as they must be."""
    for place, option in enumerate(gap.options):
        serves = option.closes if gap.limits else option.devices is not None
        values = _widget_values(option) if serves else None
        if values is None:
            continue
        help = f"{option.devices:,} {option.hardware} {option.label} serve then."
        _button(_option_name(option), f"gap_{place}", values, help=help)
    for limit in gap.limits:
        if limit.start is None or not limit.excess:
            continue
        needed = ceil(limit.start)
        given = controls.setting(limit.field, needed)
        if given is not None:
            words, help = f"Allow {needed:,} {limit.unit}", "What the fleet takes as asked; nothing else changes."
            _button(words, f"allow_{given[0]}", dict((given,)), help=help, icon="open_in_full")
