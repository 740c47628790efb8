"""The pinned baseline: kept in the address, so that a shared link compares with the same thing."""

from __future__ import annotations

import json
from typing import Any

import streamlit as st

KEYS = ("baseline", "plan_baseline")
"""What pages call theirs in the address."""
_LONGEST = 4000
"""Characters of a baseline in an address; ours have a few hundred."""


def pin(key: str, fields: dict[str, Any]) -> None:
    """Compare with ``fields`` from now on."""
    _show(key, json.dumps(fields, separators=(",", ":")))


def unpin(key: str) -> None:
    """Compare with nothing pinned."""
    st.session_state.pop(f"_{key}", None)
    st.query_params.pop(key, None)


def pinned(key: str) -> dict[str, Any] | None:
    """The pinned fields as the address has them; their reader has to check them. None without a usable one."""
    text = st.session_state.get(f"_{key}") or st.query_params.get(key)
    if not text or len(text) > _LONGEST:
        return None
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    _show(key, text)
    return fields


def is_usable(key: str) -> bool:
    """Whether what the address pins can be read at all."""
    return pinned(key) is not None


def _show(key: str, text: str) -> None:
    st.session_state[f"_{key}"] = text
    if st.query_params.get(key) != text:
        st.query_params[key] = text


def pin_button(key: str, fields: dict[str, Any]) -> None:
    """The button that pins what is shown, and once something is pinned the one that takes it away."""
    st.button(
        "Pin as baseline",
        key=f"pin_{key}",
        on_click=pin,
        args=(key, fields),
        icon=":material/push_pin:",
        help="Later changes are shown against what stands here now; the address keeps it.",
    )
    if st.session_state.get(f"_{key}"):
        st.button("Unpin", key=f"unpin_{key}", on_click=unpin, args=(key,), icon=":material/close:")
