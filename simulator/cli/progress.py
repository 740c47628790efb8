"""A progress bar on stderr for runs that take a while, and nothing at all for the others or off a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SHOWN_AFTER_S = 2.0

Report = Callable[[int, int], None]
"""Called with (done, of how many)."""


class _DelayedBar:
    def __init__(self, title: str) -> None:
        self._title = title
        self._start_s = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def report(self, done: int, total: int) -> None:
        if self._bar is None:
            if done >= total or time.monotonic() - self._start_s < SHOWN_AFTER_S:
                return
            self._open()
        self._bar.update(self._task, completed=done, total=total)

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=Console(file=sys.stderr), transient=True)
        self._task = self._bar.add_task(self._title, total=None)
        self._bar.start()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def progress_bar(title: str) -> Iterator[Report | None]:
    """The function to report to, or None where stderr is no terminal; the bar is gone when the block ends."""
    if not sys.stderr.isatty():
        yield None
        return
    bar = _DelayedBar(title)
    try:
        yield bar.report
    finally:
        bar.close()
