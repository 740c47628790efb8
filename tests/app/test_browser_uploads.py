"""Files of one's own in a real browser: what is meant well is counted with, what is meant ill does no harm."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from functools import cache
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from simulator.units import MEGA
from tests.app.served import chromium_path
from tests.app.test_browser import headline, idle, visit
from tests.app.test_uploaded import QUOTES
from tests.app.tiny_model import TINY_CONFIG
from tests.traffic.test_demand_import import METRICS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium_path() is None, reason="needs the system package chromium"),
]
PRICE_LIST = """name: ours
extends: default
offers:
  - {hardware: h100-sxm-80gb, kind: on_demand, provider: Acme, per_hour: 1.25, source: our contract, date: 2026-11-02}
"""
INJECTED = "<img src=x onerror=window.harmed=1>"


@pytest.fixture
def page(page: Any, address: str) -> Iterator[Any]:
    """The page that takes files, where no script of theirs has run."""
    visit(page, f"{address}/profiles")
    yield page
    assert page.evaluate("window.harmed") is None


def upload(page: Any, name: str, data: bytes) -> None:
    file = {"name": name, "mimeType": "application/octet-stream", "buffer": data}
    page.locator("input[type=file]").set_input_files(file)


def said(page: Any) -> str:
    """What the page answers to an upload."""
    shown = page.locator("[data-testid=stAlert], [data-testid=stFileChip] [role=alert]").first
    shown.wait_for(timeout=60_000)
    idle(page)
    return str(shown.inner_text())


def ask_in(page: Any, title: str) -> None:
    """Follow a link of what was uploaded."""
    page.locator("[data-testid=stPageLink-NavLink]").filter(has_text=title).first.click()
    page.wait_for_url(f"**/{title.lower()}?**", timeout=60_000)
    page.wait_for_selector("h2", timeout=60_000)
    idle(page)


def test_metrics_of_a_server_become_a_demand_to_plan_for(page: Any) -> None:
    covered = page.get_by_role("textbox", name="Time that /metrics cover")
    covered.fill("100s")
    covered.press("Enter")
    idle(page)
    upload(page, "metrics.txt", METRICS.encode())
    # The page that was open has a note of its own until the file is read.
    page.get_by_text("can now ask with the demand of metrics").wait_for(timeout=60_000)
    idle(page)
    ask_in(page, "Plan")
    # 100 requests within 100 seconds, of 1,000 tokens each.
    assert "for 1.00 requests/s" in headline(page)
    assert page.get_by_role("spinbutton", name="Prompt tokens").input_value() == "1000"


@pytest.mark.parametrize(("name", "data"), [("quotes.csv", QUOTES), ("ours.yaml", PRICE_LIST)])
def test_a_price_list_is_counted_with(page: Any, name: str, data: str) -> None:
    upload(page, name, data.encode())
    assert f"count with the prices of {name.partition('.')[0]}" in said(page)
    listed = visit(page, page.url.partition("/profiles")[0] + "/plan?gpus=h100-sxm-80gb&rps=50")
    page.go_back()
    idle(page)
    upload(page, name, data.encode())
    said(page)
    ask_in(page, "Plan")
    page.get_by_text("prices of").first.wait_for(timeout=60_000)
    assert headline(page) != listed


@cache
def _bomb() -> bytes:
    """200 MB of zeros in 200 kB, as an archive."""
    packed = io.BytesIO()
    with ZipFile(packed, "w", ZIP_DEFLATED) as archive:
        archive.writestr("config.json", bytes(int(200 * MEGA)))
    return packed.getvalue()


@pytest.mark.parametrize("name", ["bomb.zip", "bomb.json", "bomb.yaml", "bomb.csv"])
def test_a_zip_bomb_is_refused_whatever_it_is_called(page: Any, name: str) -> None:
    upload(page, name, _bomb())
    answer = said(page)
    assert "can now" not in answer
    assert len(answer) < 400
    # The server answers the next question as before.
    upload(page, "tiny.json", json.dumps(TINY_CONFIG).encode())
    page.get_by_text("tiny can now be chosen").wait_for(timeout=60_000)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        (f"{INJECTED}.json", json.dumps(TINY_CONFIG)),
        ("named.json", json.dumps({**TINY_CONFIG, "model_type": INJECTED})),
        ("named.yaml", f"name: '{INJECTED}'\noffers: []\n"),
        ("quotes.csv", QUOTES.replace("Acme", INJECTED)),
    ],
)
def test_a_script_in_a_name_is_a_name(page: Any, name: str, data: str) -> None:
    upload(page, name, data.encode())
    said(page)
    page.wait_for_timeout(300)
    assert page.locator("img[src=x]").count() == 0


def test_a_script_in_an_address_or_a_kept_question_is_a_name(page: Any) -> None:
    root = page.url.partition("/profiles")[0]
    visit(page, f"{root}/what-if?model={INJECTED.replace(' ', '%20')}")
    page.get_by_text("is not possible here").wait_for(timeout=60_000)
    page.get_by_test_id("stPopoverButton").filter(has_text="Keep").click()
    page.get_by_label("Name of this question").fill(f"{INJECTED} **bold**")
    page.get_by_label("Name of this question").press("Enter")
    page.get_by_role("button", name="Keep it").click()
    idle(page)
    assert page.locator("img[src=x]").count() == 0
