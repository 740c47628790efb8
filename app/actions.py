"""Beside a refusal: one click that asks for what would work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any, TypeVar

import streamlit as st

from app import display, links, widgets
from app.uploaded import session_profiles
from simulator.errors import RoofcastError
from simulator.planner.fitting_changes import fitting_changes
from simulator.planner.gap.records import Gap, GapOption
from simulator.specs.question.plan_values import duration_s
from simulator.specs.question.scenario import ScenarioSpec

Shown = TypeVar("Shown")
_BEFORE = "_answer_before"
_KEYS = {"tp_size": "tp", "scheme": "weights", "kv_cache": "kv"}
_NAMES = {"tp_size": "TP", "scheme": "Weights", "kv_cache": "KV cache"}
# Fields of a plan that have a widget, and how a value becomes the widget's.
_LIMITS: Mapping[str, tuple[str, Callable[[int], float]]] = {
    "max_gpus": ("max_gpus", int),
    "max_cost_per_hour": ("max_cost", float),
    "max_power_kw": ("max_kw", float),
}
"""Limits of a fleet by their field: the widget's key and what it takes."""
_PLAN_KEYS = {"ttft_p95": "ttft", "tpot_p95": "tpot", "hardware": "gpus", "scheme": "formats", "weights": "formats"}


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
    return [(change.field, change.value) for change in fitting_changes(_scenario, profiles=profiles)]


def refusal(error: RoofcastError, scenario: ScenarioSpec | None) -> None:
    """A refused deployment, and buttons for the nearest ones that fit."""
    display.refusal(error)
    if scenario is None:
        return
    profiles = session_profiles()
    changes = _fitting(scenario.model_dump_json(), profiles, scenario)
    offered = [(field, value) for field, value in changes if _KEYS[field] in widgets.shown()]
    if not offered:
        return
    with st.container(horizontal=True, gap="small"):
        for field, value in offered:
            key = _KEYS[field]
            st.button(
                f"{_NAMES[field]} {value}",
                key=f"fit_{field}",
                on_click=apply,
                args=({key: value},),
                icon=":material/build:",
                help="Asks the same with this one change; it fits then.",
            )


def _widget_values(option: GapOption) -> dict[str, Any] | None:
    """What to set for an option; None where no widget says it."""
    found: dict[str, Any] = {}
    for item in option.given:
        key = _PLAN_KEYS.get(item.field)
        if key is None or item.value is None:
            return None
        match key:
            case "gpus":
                found[key] = [str(item.value)]
            case "ttft" | "tpot":
                found[key] = duration_s(item.value)
            case _:
                found[key] = str(item.value)
    return found


def _option_name(option: GapOption) -> str:
    """``FP8 weights``, ``hardware: b200-sxm``: a change with its value, unless its name says that already."""
    values = ", ".join(str(item.value) for item in option.given)
    name = f"{option.name[:1].upper()}{option.name[1:]}"
    return name if values.lower() in option.name.lower() else f"{name}: {values}"


def gap_actions(gap: Gap) -> None:
    """Every single change that makes a plan possible and that a widget can say, and limits as wide as they must be."""
    with st.container(horizontal=True, gap="small"):
        for place, option in enumerate(gap.options):
            serves = option.closes if gap.limits else option.devices is not None
            values = _widget_values(option) if serves else None
            if values is None:
                continue
            st.button(
                _option_name(option),
                key=f"gap_{place}",
                on_click=apply,
                args=(values,),
                icon=":material/build:",
                help=f"{option.devices:,} {option.hardware} {option.label} serve then.",
            )
        for limit in gap.limits:
            if limit.field not in _LIMITS or limit.start is None or not limit.excess:
                continue
            key, number = _LIMITS[limit.field]
            needed = ceil(limit.start)
            st.button(
                f"Allow {needed:,} {limit.unit}",
                key=f"allow_{key}",
                on_click=apply,
                args=({key: number(needed)},),
                icon=":material/open_in_full:",
                help="What the fleet takes as asked; nothing else changes.",
            )
