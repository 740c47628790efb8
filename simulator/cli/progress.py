"""A progress bar on stderr for runs that take a while, and nothing at all for the others or off a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from typing import Any

SHOWN_AFTER_S = 2.0

Report = Callable[[int, int], None]
"""Called with (done, of how many)."""


class _DelayedBar:
    def __init__(self, title: str, *, pulses: bool) -> None:
        self._title = title
        self._start_s = time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._closed = False
        self._changing = Lock()
        self._timer = Timer(SHOWN_AFTER_S, self._open)
        self._timer.daemon = True
        if pulses:
            self._timer.start()

    def report(self, done: int, total: int) -> None:
        if self._bar is None:
            if done >= total or time.monotonic() - self._start_s < SHOWN_AFTER_S:
                return
            self._open()
        self._bar.update(self._task, completed=done, total=total)

    def _open(self) -> None:
        from rich import progress as rich_progress
        from rich.console import Console

        times = rich_progress.TimeElapsedColumn(), rich_progress.TimeRemainingColumn()
        share = rich_progress.BarColumn(), rich_progress.TaskProgressColumn()
        columns = (rich_progress.TextColumn("{task.description}"), *share, *times)
        with self._changing:
            if self._bar is None and not self._closed:
                bar = rich_progress.Progress(*columns, console=Console(file=sys.stderr), transient=True)
                self._task = bar.add_task(self._title, total=None)
                bar.tasks[0].start_time = self._start_s
                bar.start()
                self._bar = bar

    def close(self) -> None:
        self._timer.cancel()
        with self._changing:
            self._closed = True
            if self._bar is not None:
                self._bar.stop()


@contextmanager
def progress_bar(title: str, *, pulses: bool = False) -> Iterator[Report | None]:
    """The function to report to, or None where stderr is no terminal; the bar is gone when the block ends.

    pulses : a thread shows it and the time that went by, where nothing reports for long; the block forks no process
    """
    if not sys.stderr.isatty():
        yield None
        return
    bar = _DelayedBar(title, pulses=pulses)
    try:
        yield bar.report
    finally:
        bar.close()
