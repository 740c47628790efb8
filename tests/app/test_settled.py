"""What belongs to a question is worked out once its reader stays with it."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from app.fields import settled


def _page() -> None:
    import streamlit as st

    from app.fields import settled as asked

    st.write("meant" if asked.stays("72 GPUs", key="clock") else "not yet")


def test_a_reader_who_stays_is_told_by_the_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settled, "SETTLED_S", 1.5)
    page = AppTest.from_function(_page).run()
    assert not page.exception
    assert page.markdown[0].value == "not yet"
    page.session_state[settled._STAYED] = "144 GPUs"
    assert page.run().markdown[0].value == "not yet", "that was another question"
    page.session_state[settled._STAYED] = "72 GPUs"
    assert page.run().markdown[0].value == "meant"


def test_without_a_moment_to_wait_every_question_is_meant() -> None:
    assert AppTest.from_function(_page).run().markdown[0].value == "meant"
