"""Entry of the dashboard: ``roofcast app``, or ``streamlit run app/streamlit_app.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import streamlit as st

_HOME = str(Path(__file__).resolve().parents[1])
if _HOME not in sys.path:
    sys.path.insert(0, _HOME)

from app import inputs  # noqa: E402 - found through the line above
from app.views import compare, plan, profiles, roofline, serving, validation, what_if  # noqa: E402

_ICON, _LOGO = (Path(__file__).with_name(name) for name in ("icon.svg", "logo.svg"))
st.set_page_config(page_title="roofcast", page_icon=str(_ICON), layout="wide", initial_sidebar_state="auto")

PLAN = ":material/dns:"
PAGES = [
    # A default page answers at the bare address alone: the same page once more, so that /plan is an address too.
    st.Page(plan.page, title="Plan", icon=PLAN, default=True, visibility="hidden"),
    st.Page(plan.page, title="Plan", icon=PLAN, url_path="plan"),
    st.Page(what_if.page, title="What-if", icon=":material/tune:", url_path="what-if"),
    st.Page(roofline.page, title="Roofline", icon=":material/show_chart:", url_path="roofline"),
    st.Page(serving.page, title="Serving", icon=":material/speed:", url_path="serving"),
    st.Page(compare.page, title="Compare", icon=":material/compare_arrows:", url_path="compare"),
    st.Page(validation.page, title="Validation", icon=":material/fact_check:", url_path="validation"),
    st.Page(profiles.page, title="Profiles", icon=":material/menu_book:", url_path="profiles"),
]

st.logo(str(_LOGO), size="large", icon_image=str(_ICON))
chosen = st.navigation(PAGES, position="top")
inputs.carry_over(chosen.title)
chosen.run()
inputs.keep_shown()
