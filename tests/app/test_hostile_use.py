"""The dashboard under hostile use: many at once, addresses of any length, hours of changes; this machine alone."""

from __future__ import annotations

import gc
import re
import resource
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from simulator.units import MEGA
from tests.app.pages import headline, opened
from tests.app.served import chromium_path, serving

needs_browser = pytest.mark.skipif(chromium_path() is None, reason="needs the system package chromium")
SESSIONS, RERUNS, GROWTH_BYTES = 20, 200, 60 * MEGA


def _resident_bytes() -> int:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def _status(address: str) -> int:
    """Of an answer; a connection that is closed on a request counts as a bad request."""
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refused:
        return refused.code
    except (urllib.error.URLError, ConnectionError):
        return 400


@pytest.mark.slow
def test_memory_is_bounded_over_two_hundred_reruns() -> None:
    """Each rerun asks another question; what is kept of answers has an end, so the second half adds little."""
    page = opened("what_if", {"batch": "1"})
    grown = []
    for half in range(2):
        before = _resident_bytes()
        for number in range(RERUNS // 2):
            page = page.slider(key="batch").set_value(1 + half * RERUNS // 2 + number).run()
        assert not page.exception
        assert headline(page)
        grown.append(_resident_bytes() - before)
    assert grown[1] < GROWTH_BYTES, grown


@pytest.mark.browser
@needs_browser
def test_twenty_sessions_get_their_own_answers(visitor: Any, address: str) -> None:
    pages = {batch: visitor.new_page() for batch in range(1, SESSIONS + 1)}
    for batch, page in pages.items():
        page.goto(f"{address}/what-if?batch={batch}", wait_until="commit")
    for batch, page in pages.items():
        page.wait_for_selector("h2:has-text('per token')", timeout=120_000)
        page.wait_for_function("() => !document.querySelector('[data-testid=stStatusWidget]')", timeout=120_000)
        assert page.get_by_role("slider", name="Batch").input_value() == str(batch)
        assert page.locator("[data-testid=stException]").count() == 0
    for page in pages.values():
        page.close()


@pytest.mark.browser
@needs_browser
def test_an_address_of_any_length_is_a_page_or_refused(visitor: Any, address: str) -> None:
    for characters in (10_000, 60_000, 1_000_000):
        query = urlencode({"batch": "9" * characters, "model": "x" * 100, "isl": "1" * 300})
        assert _status(f"{address}/what-if?{query}") in (200, *range(400, 500))
    page = visitor.new_page()
    page.goto(f"{address}/what-if?" + urlencode({"batch": "9" * 20_000, "isl": "-" * 20_000}))
    page.wait_for_selector("h2:has-text('per token')", timeout=120_000)


@pytest.mark.browser
@pytest.mark.parametrize("processes", [1, 2])
def test_nobody_else_reaches_it(processes: int) -> None:
    with serving(processes=processes) as (address, process):
        port = int(address.rpartition(":")[2])
        time.sleep(0.1)
        listening = [
            place
            for family in ("tcp", "tcp6")
            for place, state in re.findall(
                rf"^ *\d+: ([0-9A-F]+):{port:04X} \S+ (\S\S) ",
                Path(f"/proc/{process}/net/{family}").read_text(encoding="ascii"),
                re.MULTILINE,
            )
            if state == "0A"
        ]
    # 127.0.0.1, its bytes backwards.
    assert listening == ["0100007F"]
