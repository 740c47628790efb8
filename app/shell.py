"""What stands around every page: navigation, the question, links and their banner."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import streamlit as st

from app.address import links, opening
from app.address.named import adopt_questions
from app.fields import question, widgets
from app.fields.uploaded import adopt_files
from app.hosting import turns
from app.views import compare, learn, plan, profiles, roofline, serving, sweep, validation, what_if

_ICON, _LOGO = (str(Path(__file__).with_name(name)) for name in ("icon.svg", "logo.svg"))
Body = Callable[[], None]
PAGES: dict[str, tuple[str, str, Body]] = {
    "plan": ("Plan", ":material/dns:", plan.page),
    "what-if": ("What-if", ":material/tune:", what_if.page),
    "roofline": ("Roofline", ":material/show_chart:", roofline.page),
    "serving": ("Serving", ":material/speed:", serving.page),
    "sweep": ("Sweep", ":material/grid_on:", sweep.page),
    "compare": ("Compare", ":material/compare_arrows:", compare.page),
    "validation": ("Validation", ":material/fact_check:", validation.page),
    "learn": ("Learn", ":material/school:", learn.page),
    "profiles": ("Profiles", ":material/menu_book:", profiles.page),
}
_ANSWERED_HERE = ("What-if", "Roofline", "Compare")
"""Pages whose short answers the server's own process works out."""


def _page(title: str, body: Body) -> None:
    """One page between the question and the banner of its link."""
    links.reopen(title)
    widgets.begin()
    adopt_files()
    adopt_questions()
    links.begin(title)
    question.carry_over(title)
    with st.container(key="question", horizontal=True, vertical_alignment="center", gap="small"):
        place = st.empty()
        question.reserve(place)
        controls = st.container(key="controls", horizontal=True, width="content", gap="small")
    complaints = st.container()
    with st.container(key="answered"), turns.asking(here=title in _ANSWERED_HERE):
        body()
    question.show_once()
    links.end(complaints)
    # Last, so that a link holds every widget of this run.
    with controls:
        links.controls(title)


def main(first: str = "plan") -> None:
    """The dashboard; the bare address opens ``first``."""
    # Its title is the last question's, which mostly is this one's: the window is not called anew at every change.
    st.set_page_config(page_title=question.title(), page_icon=_ICON, layout="wide", initial_sidebar_state="auto")
    # A default page answers at the bare address alone: the same page once more, so that its path is an address too.
    title, icon, body = PAGES[first]
    hidden = st.Page(
        partial(_page, title, body), title=title, icon=icon, url_path="", default=True, visibility="hidden"
    )
    pages = {
        path: st.Page(partial(_page, title, body), title=title, icon=icon, url_path=path)
        for path, (title, icon, body) in PAGES.items()
    }
    opening.register({page.title: page for page in pages.values()})
    st.logo(_LOGO, size="large", icon_image=_ICON)
    st.navigation([hidden, *pages.values()], position="top").run()
