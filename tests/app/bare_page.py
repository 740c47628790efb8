"""Pages with the widgets of the dashboard that only echo what was chosen: what an answer is measured beside."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import streamlit as st

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from app.fields import widgets
from app.views import compare, plan, roofline, serving, what_if


def _what_if() -> None:
    widgets.begin()
    st.markdown(f"## {what_if.asked().batch_size}")


def _roofline() -> None:
    widgets.begin()
    st.markdown(f"## {roofline.asked()[0].batch_size}")


def _serving() -> None:
    widgets.begin()
    st.markdown(f"## {serving.asked()[1]}")


def _plan() -> None:
    widgets.begin()
    st.markdown(f"## {plan.asked()[0]['rate_per_s']}")


def _compare() -> None:
    widgets.begin()
    work, count = compare.asked()
    top = st.container()
    first: dict[str, Any] = {}
    for place, hardware, _, container in compare.places(count):
        with container:
            first = first or compare.deployment_asked(place, hardware, first)
    top.markdown(f"## {work['batch_size']}")


def _first() -> None:
    st.markdown("## A first page answers at the bare address alone")


st.set_page_config(layout="wide")
bodies = {"first": _first, "plan": _plan, "what-if": _what_if, "roofline": _roofline, "serving": _serving}
bodies["compare"] = _compare
st.navigation([st.Page(body, title=path, url_path=path) for path, body in bodies.items()], position="top").run()
