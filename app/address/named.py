"""Questions kept under a name: opened again, compared side by side, and held by this server for links to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any

import streamlit as st

from app.hosting.kept import Kept

NAMED = "named"
"""What links call the questions that somebody kept."""
MOST_NAMED = 20
_LONGEST_NAME = 40
_kept = Kept("questions", most=1000)
"""Lists that links may still ask for."""
_OURS, _ID, _NAME = "_named", "_named_id", "name_of_question"
QUESTIONS = (_OURS, _ID)
"""Where a session keeps its questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedQuestion:
    """A question as a page asked it. page : its title; asked : every widget's value by key; line : it in words"""

    name: str
    page: str
    asked: Mapping[str, Any]
    line: str

    def address(self) -> dict[str, str | Iterable[str]]:
        """The parameters of its address."""
        return {
            key: [str(item) for item in value] if isinstance(value, list | tuple) else str(value)
            for key, value in self.asked.items()
        }


def named_questions() -> tuple[NamedQuestion, ...]:
    """Those of this session, in the order in which they were kept."""
    found: tuple[NamedQuestion, ...] = st.session_state.get(_OURS, ())
    return found


def named_id() -> str | None:
    """What a link calls them; None while there are none."""
    found: str | None = st.session_state.get(_ID)
    return found


def _set(questions: tuple[NamedQuestion, ...]) -> None:
    text = json.dumps([asdict(item) for item in questions], default=str)
    digest = blake2b(text.encode("utf-8"), digest_size=8).hexdigest()
    st.session_state[_OURS], st.session_state[_ID] = questions, digest if questions else None
    if not questions:
        st.query_params.pop(NAMED, None)
        return
    st.query_params[NAMED] = digest
    _kept.write(digest, text)


def adopt_questions() -> None:
    """Take over what the address names where we have none of our own; keep ours in the address."""
    asked, ours = st.query_params.get(NAMED), named_id()
    if ours is not None:
        if asked != ours:
            st.query_params[NAMED] = ours
    elif asked is not None:
        found = _kept.read(asked)
        if found is not None:
            _set(tuple(NamedQuestion(**item) for item in json.loads(found)))


def _keep(page: str, asked: Mapping[str, Any], line: str) -> None:
    name = " ".join(st.session_state[_NAME].split())[:_LONGEST_NAME]
    if not name:
        return
    others = tuple(item for item in named_questions() if item.name != name)
    _set((*others, NamedQuestion(name=name, page=page, asked=dict(asked), line=line))[-MOST_NAMED:])
    st.session_state[_NAME] = ""


def _forget(name: str) -> None:
    _set(tuple(item for item in named_questions() if item.name != name))


@st.fragment
def named(page: str, pages: Mapping[str, Any], *, asked: Callable[[], Mapping[str, Any]], line: str) -> None:
    """Keep what this page asks under a name; open or forget what was kept. asked : every input of this page"""
    place = st.popover("Keep", icon=":material/bookmark:", key="keep", on_change="rerun")
    if not place.open:
        return
    with place:
        st.text_input("Name of this question", key=_NAME, max_chars=_LONGEST_NAME)
        st.button("Keep it", key="keep_it", on_click=_keep, args=(page, asked(), line), icon=":material/bookmark_add:")
        for item in named_questions():
            with st.container(horizontal=True, vertical_alignment="center", gap="small"):
                there = pages[item.page]
                st.page_link(there, label=item.name, icon=there.icon, query_params=item.address(), help=item.line)
                st.button(
                    "Forget",
                    key=f"forget_{item.name}",
                    on_click=_forget,
                    args=(item.name,),
                    type="tertiary",
                    icon=":material/delete:",
                )
