"""Links that cannot lie: everything in them, and a banner for what is unknown, out of range or changed since."""

from __future__ import annotations

from hashlib import blake2b
from math import isinf
from typing import Any
from urllib.parse import parse_qs, urlencode

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from app.address import baseline, opening
from app.address.complaints import Complaint, complaint_of, tell
from app.address.named import NAMED, QUESTIONS, named, named_id
from app.fields import question, widgets
from app.fields.uploaded import FILES, UPLOADS, has_files, shared_id
from app.fields.widgets import quoted
from app.hosting import page_answers
from simulator import __version__
from simulator.specs.measured.validation_rows import library_digest

_ASKED, _COMPLAINTS, _HISTORY, _OPENED, _SAID = "_asked", "_complaints", "_history", "_opened", "_said"
_SENT = "_sent"
"""The answer that the sender of a link saw, and what it asks."""
VERSION, SAID = "v", "said"
_OWN = (VERSION, SAID, FILES, NAMED, *baseline.KEYS)
_STREAMLIT = "embed"
_MOST_STEPS = 50
_OUTLIVING = frozenset((opening.PAGES, UPLOADS, *QUESTIONS))
"""What a visitor keeps whatever page is opened."""


def version() -> str:
    """The program and the profiles and fits that answers are made of."""
    return f"{__version__}-{library_digest()}"


def said(headline: str) -> None:
    """Remember the answer of this run."""
    st.session_state[_SAID] = headline


def _fingerprint() -> str:
    return blake2b(st.session_state.get(_SAID, "").encode(), digest_size=4).hexdigest()


def reopen(page: str) -> None:
    """Answer a page that the browser goes back or forward to as its address asks, as if a link had opened it.

    What other pages asked since would win over the address otherwise, and parameters that they have too are taken for
    theirs and left out of it. Called before anything else changes the address.
    """
    state, run = st.session_state, get_script_run_ctx()
    if run is None or not run.is_history_navigation or state.get(_OPENED, page) == page:
        return
    for key in set(state).difference(_OUTLIVING):
        del state[key]
    asked = parse_qs(run.query_string, keep_blank_values=True)
    st.query_params.update({key: texts for key, texts in asked.items() if key not in st.query_params})
    st.rerun()


def begin(page: str) -> None:
    """Keep an address as it came, before widgets correct it; called before the page runs."""
    if st.session_state.get(_OPENED) != page:
        st.session_state[_OPENED] = page
        st.session_state[_ASKED] = {key: tuple(st.query_params.get_all(key)) for key in st.query_params}
        widgets.open_with({key: texts[-1] for key, texts in st.session_state[_ASKED].items()})
        widgets.leave_out({key for key, texts in st.session_state[_ASKED].items() if any(map(_is_infinite, texts))})
        st.session_state[_COMPLAINTS] = {}
        st.session_state[_HISTORY] = []


def _is_infinite(text: str) -> bool:
    """Whether a number is larger than any that can be counted with."""
    try:
        return isinf(float(text))
    except ValueError:
        return False


def _complaints(asked: dict[str, tuple[str, ...]]) -> dict[str, Complaint]:
    found = {
        key: complaint
        for key, texts in asked.items()
        if key not in _OWN and not key.startswith(_STREAMLIT) and (complaint := complaint_of(key, texts))
    }
    made = asked.get(VERSION, (version(),))[-1]
    texts: dict[str, str] = {}
    if made != version():
        texts[VERSION] = (
            f"This link was made with roofcast `{quoted(made)}`, this is `{version()}`: numbers may differ from what "
            "its sender saw."
        )
    if FILES in asked and not has_files(asked[FILES][-1]):
        texts[FILES] = "The files that this link was made with are no longer on this server: upload them again."
    if NAMED in asked and named_id() != asked[NAMED][-1]:
        texts[NAMED] = "The questions that were kept with this link are no longer on this server."
    damaged = [key for key in baseline.KEYS if key in asked and not baseline.is_usable(key)]
    texts |= {key: f"`{key}` cannot be read: compared with nothing pinned." for key in damaged}
    return found | {key: Complaint(text=text) for key, text in texts.items()}


def _ask_with(complained: str, key: str, value: object) -> None:
    st.session_state[key] = value
    st.session_state[_COMPLAINTS].pop(complained, None)


def end(place: Any) -> None:
    """Say what of an address was not answered as it asks; remember this state for undo."""
    state = st.session_state
    shown = {key: state[key] for key in widgets.shown() if key in state}
    if _ASKED in state:
        asked = state.pop(_ASKED)
        state[_COMPLAINTS], state[_SENT] = _complaints(asked), (asked.get(SAID, (_fingerprint(),))[-1], shown)
        widgets.open_with({})
        for key in (VERSION, SAID):
            st.query_params.pop(key, None)
    with place:
        for key, complaint in state.get(_COMPLAINTS, {}).items():
            if shown.get(key) == complaint.instead:
                tell(key, complaint, on_click=_ask_with)
        # A fleet that is simulated may be sized again: the answer is what it is by then.
        if state[_SENT][0] != _fingerprint() and state[_SENT][1] == shown:
            tell(SAID, Complaint(text="The answer has changed since this link was made."), on_click=_ask_with)
    history = state.setdefault(_HISTORY, [])
    if not history or history[-1] != shown:
        history.append(shown)
        del history[:-_MOST_STEPS]


def inputs() -> dict[str, Any]:
    """Everything that this page asks, its defaults included."""
    state = st.session_state
    found = {key: value for key, value in question.kept().items() if value is not None}
    found |= {key: state[key] for key in widgets.shown() if state.get(key) is not None}
    found |= {key: st.query_params[key] for key in baseline.KEYS if key in st.query_params}
    if (files := shared_id()) is not None:
        found[FILES] = files
    return found


def parameters() -> dict[str, Any]:
    """The same, what was kept beside it, and what made the answer."""
    kept = {} if (names := named_id()) is None else {NAMED: names}
    return inputs() | kept | {VERSION: version(), SAID: _fingerprint()}


def _undo() -> None:
    history = st.session_state[_HISTORY]
    if len(history) > 1:
        history.pop()
        st.session_state.update(history.pop())


def _reset() -> None:
    defaults = {key: item.default for key, item in widgets.shown().items()}
    question.forget()
    st.session_state.update(question.at_default(defaults))
    for key in baseline.KEYS:
        baseline.unpin(key)


@st.fragment
def _share() -> None:
    place = st.popover("Share", icon=":material/share:", key="share", on_change="rerun")
    if place.open:
        with place:
            st.caption("Shows a colleague what you see: every input, pinned baselines, kept questions and versions.")
            if (files := shared_id()) is not None:
                st.caption(
                    f"Your files stay on this server, as `{files}`, until it starts again or many newer ones have "
                    "come; a link that outlives them says so. Profiles has them for download."
                )
            address = f"{st.context.url or ''}?{urlencode(parameters(), doseq=True)}"
            page_answers.remember(address, answer=st.session_state.get(_SAID, ""), question=question.line())
            st.code(address, language=None, wrap_lines=True)


def controls(page: str) -> None:
    """Share, keep, undo, reset."""
    _share()
    named(page, opening.pages(), asked=inputs, line=question.line())
    st.button("Undo", key="undo", on_click=_undo, icon=":material/undo:", help="Take the last change back.")
    st.button("Reset", key="reset", on_click=_reset, icon=":material/restart_alt:", help="What this page asks first.")
