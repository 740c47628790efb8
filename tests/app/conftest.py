"""What tests of pages leave behind is put right."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import streamlit as st
from streamlit import config
from streamlit.components.v2 import manifest_scanner

from app.fields import settled
from tests.app.served import chromium, dashboard, watched

_MAIN = sys.modules["__main__"]


@pytest.fixture(autouse=True)
def main_module() -> Iterator[None]:
    """A page that is run stands in for ``__main__`` and stays there: processes that later tests start would run it."""
    yield
    sys.modules["__main__"] = _MAIN


@pytest.fixture(autouse=True, scope="session")
def scanned_once() -> Iterator[None]:
    """Each page that is opened reads the metadata of every installed package for components: it takes as long as the
    page, and finds the same each time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture(autouse=True, scope="session")
def as_it_is_served() -> None:
    """``roofcast app`` sends no statistics of use: counting each call for them takes a third of a page."""
    config.set_option("browser.gatherUsageStats", False)


@pytest.fixture(autouse=True)
def no_second_thoughts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens a page in a test means it: its fleet is simulated at once."""
    monkeypatch.setattr(settled, "SETTLED_S", 0.0)


@pytest.fixture(autouse=True)
def own_answers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Answers among few accelerators are not what other tests ask for in the same words."""
    yield
    if "few_accelerators" in request.fixturenames:
        st.cache_resource.clear()


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """One dashboard for every browser test that asks for none of its own."""
    with dashboard() as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One browser."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="session")
def visitor(browser: Any) -> Iterator[Any]:
    """A visitor whose browser keeps the scripts of the pages; each page is a session of its own."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    yield context
    context.close()


@pytest.fixture
def page(visitor: Any) -> Iterator[Any]:
    """A fresh page whose browser has nothing to complain about."""
    with watched(visitor.new_page()) as found:
        yield found
