"""Limits of a fleet and what exists already, and the buttons that solve backwards from them."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from app.fields import controls, glossary, inputs, widgets
from app.parts.answers import solved
from simulator.errors import RoofcastError
from simulator.planner.largest_demand import DemandField
from simulator.specs.question.plan import PlanSpec

_NO_LIMIT, _NOTHING = "no limit", "nothing"
_UNSOLVED = "_unsolved"
LARGEST_RATE = 100_000.0
# What can be as high as the limits allow: the field, its widget and the highest value that this takes.
_SOLVED: Mapping[str, tuple[DemandField, str, float]] = {
    "Highest rate": ("rate_per_s", "rps", LARGEST_RATE),
    "Longest prompts": ("isl_tokens", "isl", float(inputs.LARGEST_TOKENS)),
    "Longest answers": ("osl_tokens", "osl", float(inputs.LARGEST_TOKENS)),
}


def _limit(label: str, *, key: str, high: float, step: float) -> float | None:
    return widgets.optional_number(
        label, key=key, low=step, high=high, step=step, placeholder=_NO_LIMIT, help=glossary.LIMITS
    )


def limit_inputs() -> dict[str, object]:
    """Limits that were given, by the field of a plan."""
    given: dict[str, object] = {}
    gpus = widgets.optional_count(
        "Most accelerators", key="max_gpus", low=1, high=1_000_000, placeholder=_NO_LIMIT, help=glossary.LIMITS
    )
    given["max_gpus"] = gpus
    left, right = st.columns(2)
    with left:
        given["max_cost_per_hour"] = _limit("Cost an hour", key="max_cost", high=1_000_000.0, step=1.0)
    with right:
        given["max_power_kw"] = _limit("Power (kW)", key="max_kw", high=100_000.0, step=1.0)
    given |= inputs.power_input("max_w")
    left, right = st.columns(2)
    with left:
        owned = widgets.choice(
            "In stock",
            (_NOTHING, *inputs.hardware_names()),
            key="owned",
            default=_NOTHING,
            help=glossary.STOCK,
            spelled=inputs.known_hardware,
        )
    with right:
        count = widgets.count("How many", key="stock", low=1, high=100_000, value=8, help=glossary.STOCK)
    if owned != _NOTHING:
        given["stock"] = (f"{owned}={count}",)
    return {field: value for field, value in given.items() if value is not None}


def _solve(name: str, spec: PlanSpec) -> None:
    """Ask for the most that the limits allow, on the accelerators that carry it."""
    field, key, most = _SOLVED[name]
    try:
        found = solved(spec, field=field, most=most)
    except RoofcastError as error:
        st.session_state[_UNSOLVED] = f"{name}: {controls.named(str(error))}"
        return
    st.session_state[key] = found.value if field == "rate_per_s" else round(found.value)
    st.session_state["gpus"] = list(found.hardware)


def solvers(spec: PlanSpec) -> None:
    """Buttons that turn the question around; where nothing limits the fleet there are none."""
    if not any((spec.max_gpus, spec.max_cost_per_hour, spec.max_power_kw, spec.stock)):
        return
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.markdown("**Within these limits**")
        for name in _SOLVED:
            st.button(
                name,
                key=f"solve_{_SOLVED[name][1]}",
                on_click=_solve,
                args=(name, spec),
                icon=":material/vertical_align_top:",
                help="Finds the most that a fleet within the limits carries, all else as asked, and asks for it.",
            )
    if _UNSOLVED in st.session_state:
        st.warning(st.session_state.pop(_UNSOLVED), icon=":material/warning:")
