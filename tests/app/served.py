"""The dashboard as a process, and a browser to use it with."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simulator.cli.app import app_command, app_entry

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
BARE_PAGE = Path(__file__).with_name("bare_page.py")
"""The same widgets without answers, for :func:`dashboard`."""


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def dashboard(script: Path | None = None) -> Iterator[str]:
    """``roofcast app`` on a free port, or another script in its place; its address."""
    with serving(script) as (address, _):
        yield address


@contextmanager
def serving(script: Path | None = None, *, processes: int = 1) -> Iterator[tuple[str, int]]:
    """:func:`dashboard` with the id of its process."""
    port = free_port()
    command = app_command(host="127.0.0.1", port=port, open_browser=False, processes=processes)
    words = [str(script) if script is not None and word == str(app_entry()) else word for word in command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/_stcore/health", process)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(timeout=20)


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        assert process.poll() is None, "the dashboard ended"
        try:
            with urllib.request.urlopen(address, timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the dashboard does not answer")


def chromium_path() -> str | None:
    """Debian's browser, where it is installed."""
    return shutil.which("chromium") or shutil.which("chromium-browser")


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium_path(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def watched(page: Any) -> Iterator[Any]:
    """The console must stay free of errors, and nothing may be fetched from elsewhere."""
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if _is_foreign(request.url) else None)
    page.on("response", lambda response: complaints.append(response.url) if response.status >= 400 else None)
    yield page
    page.close()
    assert not complaints


def _is_foreign(url: str) -> bool:
    return not url.startswith(("http://127.0.0.1", "ws://127.0.0.1", "data:", "blob:"))
