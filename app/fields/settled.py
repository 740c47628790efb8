"""Whether a reader stays with a question: the browser says so, and no run of the page waits for it.

Whoever turns a wheel has no use for what belongs to the numbers on its way.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import streamlit as st

SETTLED_S = 1.5
"""After which a question that has not changed is meant; 0: at once, and no browser is asked."""
_STAYED = "_stayed"
_SCRIPT = """export default ({data, parentElement, setTriggerValue}) => {
  clearTimeout(parentElement.timer)
  parentElement.timer = setTimeout(() => setTriggerValue("meant", data.question), 1000 * data.wait_s)
  return () => clearTimeout(parentElement.timer)
}"""


@cache
def _clock() -> Any:
    return st.components.v2.component("settled", js=_SCRIPT)


def stays(question: str, *, key: str) -> bool:
    """Whether the reader has stayed with ``question``; the fragment around it runs again once that is so."""

    def meant() -> None:
        # What the browser says of the question before this one arrives here as well.
        st.session_state[_STAYED] = st.session_state[key].meant

    if SETTLED_S == 0 or st.session_state.get(_STAYED) == question:
        return True
    # A question that changes sets the clock anew.
    data = {"question": question, "wait_s": SETTLED_S}
    _clock()(key=key, data=data, width="content", height="content", on_meant_change=meant)
    return False
