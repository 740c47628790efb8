"""What a browser draws anew when a page changes: the parts that changed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import streamlit as st

from app.parts import charts
from simulator.specs.hardware.accelerator import list_hardware
from tests.app.pages import opened
from tests.app.served import chromium_path

_STYLE = Path(__file__).resolve().parents[2] / "app" / "style.css"
_MOST_FADING = 15
"""Parts that fade at once, of some 50 elements that are old: what the front end fades of its own."""
# How many parts of the page ever faded together.
_COUNT = """() => { window.fading = 0
  const fading = () => document.getAnimations().filter(item => item.transitionProperty === 'opacity')
  const look = () => {
  window.fading = Math.max(window.fading, fading().length); requestAnimationFrame(look) }; look() }"""


def test_no_rule_asks_for_a_part_of_a_class() -> None:
    # Such a rule has a browser restyle all that stands below any element whose class changes.
    assert re.findall(r"\[class\W?=[^\]]*\]", _STYLE.read_text(encoding="utf-8")) == []


def test_a_window_gets_another_name_only_with_another_question(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    called = st.set_page_config
    monkeypatch.setattr(st, "set_page_config", lambda **given: names.append(given["page_title"]) or called(**given))
    page = opened("what_if")
    assert names == ["roofcast", "llama-3.1-8b, 1,155 → 211 tokens · roofcast"]
    page.slider(key="batch").set_value(33).run()
    assert names[2:] == names[1:2]
    page.number_input(key="isl").set_value(700).run()
    assert names[3:] == [names[1], "llama-3.1-8b, 700 → 211 tokens · roofcast"]


@pytest.mark.browser
@pytest.mark.skipif(chromium_path() is None, reason="needs the system package chromium")
def test_old_parts_of_a_page_do_not_fade_one_by_one(page: Any, address: str) -> None:
    page.goto(f"{address}/what-if?model=llama-3.1-8b&batch=40")
    page.locator("h2").wait_for(timeout=60_000)
    page.wait_for_function("() => !document.querySelector('[data-testid=stStatusWidget]')", timeout=60_000)
    before = page.locator("h2").inner_text()
    page.evaluate(_COUNT)
    page.get_by_role("slider", name="Batch").focus()
    page.keyboard.press("ArrowRight")
    changed = "before => document.querySelector('h2').innerText !== before"
    page.wait_for_function(changed, arg=before, timeout=60_000)
    assert page.evaluate("window.fading") < _MOST_FADING


def test_a_long_name_below_a_narrow_bar_breaks_behind_its_hyphens_and_stays_whole() -> None:
    for name in (*list_hardware(), "h200-sxm-141gb TP1 fp8"):
        lines = charts._broken(name, narrow=True).split("<br>")
        assert "".join(lines).replace(" ", "") == name.replace(" ", "")
        parts = re.split(r"(?<=-)| ", name)
        assert max(map(len, lines)) <= max(charts._NARROW_LETTERS, *map(len, parts))
