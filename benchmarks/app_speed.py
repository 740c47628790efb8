"""Speed of the dashboard in a real browser, beside bare pages with the same widgets that only echo.

    python benchmarks/app_speed.py [page ...]

Opening, and from a change to another number on the page, for one user and for five at once; medians, both servers in
turn on the same machine, both without a collection of garbage after each rerun. Bars, as multiples of the bare page:
1.5 for opening, 2 for What-if, Roofline and Compare, 4 for Plan and Serving; five users wait twice what one waits; a
third of the 0.31 s of processor time that the server took for a rerun when these bars were set. Five windows of one
browser draw whole pages on the server's own two cores: five users' figure is mostly that of work that waits for a core,
on the bare page as well, and of the server's turns for the rest. Where users have machines of their own it is that of
clients without browsers (``tests.app.clients``), which stands beside it under the same bar. All of it is of two
processes behind one address, as ``roofcast app`` starts them on two cores; five users of one alone are said beside it.
A plan's fleet is simulated once its reader stays with the question for a moment; the next change comes sooner here, so
that this is in no figure.
Needs the extra ``app``, playwright and the system package chromium.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.app.clients import changes_s
from tests.app.served import BARE_PAGE, chromium, chromium_path, serving

MOVES, TOGETHER, OPENINGS, USERS, PROCESSES = 8, 3, 3, 5, 2
OPENING_BAR, USERS_BAR, PROCESSOR_BAR_S = 1.5, 2.0, 0.31 / 3
Server = tuple[str, int]
"""Address and process of a running dashboard."""
_PATIENCE_MS = 120_000
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_DONE = "() => document.querySelector('h2') && !document.querySelector('[data-testid=stStatusWidget]')"
# When the headline becomes another one, as the browser sees it, after the key that changes an input. It says so itself:
# whoever asks for it again and again has it draw, and takes what is measured from it.
_ARM = """() => { const text = () => document.querySelector('[data-testid=stMain] h2')?.textContent ?? ''
  const before = text(); window.started = null; let seen
  window.took = new Promise((found, fail) => { seen = found; setTimeout(fail, PATIENCE, "the headline stays") })
  document.addEventListener('keydown', event => { if (event.key === 'Enter' || event.key === 'ArrowRight')
    window.started ??= performance.now() }, {capture: true, once: true})
  new MutationObserver((_, watch) => { const now = text()
    if (now && now !== before && window.started !== null) { watch.disconnect();
      seen((performance.now() - window.started) / 1000) }
  }).observe(document.body, {subtree: true, childList: true, characterData: true}) }""".replace(
    "PATIENCE", str(_PATIENCE_MS)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A page, the input that is changed there, how (a slider by a key, a box by growing numbers), and its bar."""

    path: str
    query: str
    label: str
    slider: bool
    bar: float


MOVED = (
    Move(path="what-if", query="batch=40", label="Batch", slider=True, bar=2.0),
    Move(path="roofline", query="batch=40", label="Batch", slider=True, bar=2.0),
    Move(path="compare", query="batch=40", label="Batch", slider=True, bar=2.0),
    Move(path="serving", query="rate=4", label="Requests per second", slider=False, bar=4.0),
    Move(path="plan", query="rps=100", label="Requests per second at peak", slider=False, bar=4.0),
)


def _visited(browser: Any, url: str) -> Any:
    page = browser.new_context(viewport={"width": 1440, "height": 900}).new_page()
    page.goto(url, wait_until="commit")
    page.wait_for_function(_DONE, timeout=_PATIENCE_MS, polling=20)
    return page


def opening_s(browser: Any, url: str) -> float:
    """From opening an address to an answer that is complete [s]."""
    started = time.perf_counter()
    page = _visited(browser, url)
    took = time.perf_counter() - started
    page.context.close()
    return took


def _change(page: Any, move: Move, number: int) -> None:
    """Change the input once, to what nobody has asked for yet."""
    if move.slider:
        page.get_by_role("slider", name=move.label).focus()
        page.keyboard.press("ArrowRight")
        return
    box = page.get_by_role("spinbutton", name=move.label)
    box.fill(f"{float(box.input_value()) * (1.1 + number / 1000):.5g}")
    box.press("Enter")


def drawn_changes_s(pages: Sequence[Any], move: Move, *, moves: int) -> list[float]:
    """From a change to another headline, for everybody at once, again and again [s]."""
    found = []
    for _ in range(moves):
        for page in pages:
            page.evaluate(_ARM)
        for number, page in enumerate(pages):
            _change(page, move, number)
        for page in pages:
            found.append(page.evaluate("window.took"))
        for page in pages:
            page.wait_for_function(_DONE, timeout=_PATIENCE_MS)
    return found


def processor_s(process: int) -> float:
    """Processor time of a process and those that it started, themselves and for them by the system [s]."""
    used, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(stat.parent.name)
        used[number], parents[number] = int(fields[11]) + int(fields[12]), int(fields[1])
    family = [process]
    for member in family:
        family.extend(child for child in used if parents[child] == member)
    return sum(used[member] for member in family) / _TICKS_PER_S


def _median_change_s(browser: Any, server: Server, move: Move, *, users: int) -> tuple[float, float]:
    """What a reader waits, and the server's processor time for it [s]."""
    address, process = server
    pages = [_visited(browser, f"{address}/{move.path}?{move.query}") for _ in range(users)]
    drawn_changes_s(pages, move, moves=1)
    moves, before = MOVES if users == 1 else TOGETHER, processor_s(process)
    median = statistics.median(drawn_changes_s(pages, move, moves=moves))
    taken = (processor_s(process) - before) / moves / users
    for page in pages:
        page.context.close()
    return median, taken


def _line(name: str, value_s: float, beside_s: float, bar: float) -> bool:
    ratio = value_s / beside_s
    print(f"{name}: {value_s:.3f} s beside {beside_s:.3f} s, {ratio:.2f} times; bar {bar:g}", flush=True)
    return ratio <= bar


def main() -> int:
    """Print the figures; 1 where a bar is missed."""
    if chromium_path() is None:
        print("needs the system package chromium", file=sys.stderr)
        return 2
    held = []
    several, bare_page = serving(processes=PROCESSES), serving(BARE_PAGE)
    with several as server, serving() as alone, bare_page as bare, chromium() as browser:
        for move in [move for move in MOVED if move.path in (sys.argv[1:] or [move.path])]:
            for address, _ in (server, bare):
                opening_s(browser, f"{address}/{move.path}")
            opened = [
                statistics.median(opening_s(browser, f"{address}/{move.path}") for _ in range(OPENINGS))
                for address, _ in (server, bare)
            ]
            held.append(_line(f"{move.path}, opening", *opened, OPENING_BAR))
            (one, taken), (echo, _) = (_median_change_s(browser, found, move, users=1) for found in (server, bare))
            held.append(_line(f"{move.path}, change to number", one, echo, move.bar))
            print(
                f"{move.path}, server's processor time a rerun: {taken:.3f} s; bar {PROCESSOR_BAR_S:.3f} s", flush=True
            )
            held.append(taken <= PROCESSOR_BAR_S)
            (many, _), (echoes, _) = (_median_change_s(browser, found, move, users=USERS) for found in (server, bare))
            held.append(_line(f"{move.path}, {USERS} users beside one", many, one, USERS_BAR))
            print(f"{move.path}, {USERS} users of the bare page beside one: {echoes / echo:.2f} times", flush=True)
            asked = dict(parse_qsl(move.query))
            servers = {"": server, " of one process": alone, " of the bare page": bare}
            for name, (address, _) in servers.items():
                one, many = (
                    changes_s(address, move.path, asked, move.label, users=users, moves=MOVES) for users in (1, USERS)
                )
                line = f"{move.path}, {USERS} users without browsers{name} beside one"
                if address == server[0]:
                    held.append(_line(line, many, one, USERS_BAR))
                else:
                    print(f"{line}: {many / one:.2f} times", flush=True)
    return int(not all(held))


if __name__ == "__main__":
    raise SystemExit(main())
