"""Speed of the dashboard in a real browser: first meaningful paint, and from a slider to the new number.

    python benchmarks/app_speed.py

Needs the extra ``app``, playwright and the system package chromium. Bars: 3 s to the first headline and charts,
300 ms from a key press on a slider to another number on the page (median of 20).
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.app.served import chromium, chromium_path, dashboard

PAINT_BAR_S = 3.0
SLIDER_BAR_S = 0.3
MOVES = 20
_ANSWERED = "() => document.querySelector('h2') && document.querySelector('[data-testid=stMetricValue]')"
_DRAWN = "() => document.querySelector('.js-plotly-plot .main-svg')"
# The headline holds the time per token and the throughput, of which one changes with every step of the batch.
_NUMBER = "() => document.querySelector('h2').innerText"
_CHANGED = "before => document.querySelector('h2').innerText !== before"


def first_paint_s(browser: Any, address: str) -> tuple[float, float]:
    """From opening the address to headline and numbers, and to the first chart [s]."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    started = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_function(_ANSWERED, timeout=60_000, polling=20)
    answered_s = time.perf_counter() - started
    page.wait_for_function(_DRAWN, timeout=60_000, polling=20)
    drawn_s = time.perf_counter() - started
    page.context.close()
    return answered_s, drawn_s


def slider_s(browser: Any, address: str) -> list[float]:
    """From a key press on the batch slider to another number, MOVES times [s]."""
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(f"{address}/what-if?batch=40")
    page.wait_for_function(_DRAWN, timeout=60_000)
    page.wait_for_timeout(1_000)
    page.get_by_role("slider", name="Batch").focus()
    took = []
    for _ in range(MOVES):
        before = page.evaluate(_NUMBER)
        started = time.perf_counter()
        page.keyboard.press("ArrowRight")
        page.wait_for_function(_CHANGED, arg=before, timeout=10_000, polling=5)
        took.append(time.perf_counter() - started)
        page.wait_for_timeout(300)
    page.context.close()
    return took


def main() -> int:
    """Print the figures; 1 where a bar is missed."""
    if chromium_path() is None:
        print("needs the system package chromium", file=sys.stderr)
        return 2
    with dashboard() as address, chromium() as browser:
        browser.new_context().close()
        cold, warm = first_paint_s(browser, address), first_paint_s(browser, address)
        what_if = first_paint_s(browser, f"{address}/what-if")
        moves_s = slider_s(browser, address)
    median_s = statistics.median(moves_s)
    paints = {"plan, fresh server": cold, "plan, next visitor": warm, "what-if": what_if}
    for name, (answered_s, drawn_s) in paints.items():
        print(f"{name}: headline and numbers after {answered_s:.2f} s, first chart after {drawn_s:.2f} s")
    print(f"slider to new number: median {median_s * 1000:.0f} ms, slowest {max(moves_s) * 1000:.0f} ms of {MOVES}")
    return int(cold[0] > PAINT_BAR_S or median_s > SLIDER_BAR_S)


if __name__ == "__main__":
    raise SystemExit(main())
