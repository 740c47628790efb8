"""Doors from a deployment to the pages that ask about one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from app import inputs, question
from simulator.planner.replica_setup import ReplicaSetup

_PAGES = "_pages"
ASKING = ("What-if", "Serving", "Roofline", "Compare")
"""Pages that ask about one deployment."""
_LOADED = ("What-if", "Roofline", "Compare")
"""Those that can ask about one pool of two: serving takes both."""


def register(pages: Mapping[str, Any]) -> None:
    """Remember the pages by their title."""
    st.session_state[_PAGES] = dict(pages)


def widget_values(setup: ReplicaSetup) -> dict[str, Any]:
    """A deployment by the keys of the widgets that say it."""
    degrees, formats = setup.parallelism, setup.precision
    return {
        "gpu": setup.hardware,
        "tp": degrees.tp_size,
        "pp": degrees.pp_size,
        "dp": degrees.dp_size,
        "ep": degrees.ep_size,
        "weights": formats.scheme or (formats.weights.value if formats.weights else inputs.NATIVE),
        "kv": formats.kv_cache.value if formats.kv_cache else inputs.NATIVE,
        "engine": setup.engine.name,
        "seqs": setup.engine.max_num_seqs,
        "step_tokens": setup.engine.max_num_batched_tokens,
        "batch": None if setup.sequences is None else min(setup.sequences, inputs.LARGEST_BATCH),
        "rate": None if setup.rate_per_s is None else float(f"{setup.rate_per_s:.6g}"),
        "replicas": setup.replicas,
        "pool": setup.role or None,
    }


def address_of(setup: ReplicaSetup) -> dict[str, str]:
    """The whole question with this deployment, as parameters of an address."""
    asked = {key: value for key, value in question.kept().items() if key not in widget_values(setup)}
    found = asked | {key: value for key, value in widget_values(setup).items() if value is not None}
    return {key: str(value) for key, value in found.items()}


def doors(setups: Sequence[ReplicaSetup]) -> None:
    """Links that open each kind of replica of a fleet on the pages that ask about one."""
    pages = st.session_state[_PAGES]
    for setup in setups:
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            st.markdown(f"**{setup.role.capitalize() or 'Open'}**" if setup.role else "**Open in**")
            for title in _LOADED if setup.role else ASKING:
                page = pages[title]
                st.page_link(page, label=title, icon=page.icon, query_params=address_of(setup))
    if any(setup.role for setup in setups):
        st.caption("Pools serve together: each is opened as a deployment of its own, without the other.")
