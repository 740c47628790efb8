"""Back and forward in a real browser: one press a page, each as its address says."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.served import chromium_path
from tests.app.test_browser import headline, idle, visit

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium_path() is None, reason="needs the system package chromium"),
]


def go(page: Any, title: str) -> None:
    page.get_by_test_id("stTopNavLink").filter(has_text=title).click()


def shows(page: Any, path: str, said: str) -> None:
    """Wait until a page stands under its path with ``said`` in its headline."""
    page.wait_for_function(
        """([path, said]) => location.pathname === path
        && document.querySelector('h2')?.innerText.replaceAll('\\u00a0', ' ').includes(said)""",
        arg=[f"/{path}", said],
        timeout=60_000,
    )
    idle(page)


def batch(page: Any) -> str:
    return str(page.get_by_role("slider", name="Batch").input_value())


def test_back_shows_the_page_before_as_its_address_asks(page: Any, address: str) -> None:
    asked = f"{address}/what-if?batch=40"
    before = visit(page, asked)
    assert page.url == asked
    go(page, "Roofline")
    shows(page, "roofline", "A step of 40 sequences")
    ahead = headline(page)
    page.go_back()
    shows(page, "what-if", before)
    assert (page.url, batch(page)) == (asked, "40")
    page.go_forward()
    shows(page, "roofline", ahead)
    assert "batch=40" in page.url
    page.go_back()
    shows(page, "what-if", before)
    page.reload()
    shows(page, "what-if", before)
    assert (page.url, batch(page)) == (asked, "40")


def test_what_was_asked_after_a_page_was_left_is_not_answered_there(page: Any, address: str) -> None:
    before = visit(page, f"{address}/what-if?model=llama-2-7b&batch=40")
    go(page, "Roofline")
    shows(page, "roofline", "A step of 40 sequences")
    page.get_by_role("slider", name="Batch").focus()
    page.keyboard.press("ArrowRight")
    shows(page, "roofline", "A step of 41 sequences")
    go(page, "Serving")
    shows(page, "serving", "")
    page.go_back()
    shows(page, "roofline", "A step of 41 sequences")
    assert "batch=41" in page.url
    page.go_back()
    shows(page, "what-if", before)
    assert page.url == f"{address}/what-if?model=llama-2-7b&batch=40"
    page.go_forward()
    shows(page, "roofline", "A step of 41 sequences")
    go(page, "What-if")
    shows(page, "what-if", "llama-2-7b")
    assert batch(page) == "41"


def test_back_is_pressed_before_the_next_page_answers(page: Any, address: str) -> None:
    before = visit(page, f"{address}/what-if?model=llama-2-7b&batch=40&preset=Code")
    go(page, "Plan")
    page.wait_for_url("**/plan?*", timeout=60_000)
    page.go_back()
    shows(page, "what-if", before)
    assert batch(page) == "40"
