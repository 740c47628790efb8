"""A run in a process of its own, started again without the group that broke it: a fault of one kernel costs one group.

The worker adds rows to the table itself; it tells on standard output, a line each, which group it is in and which it
has finished. A worker that says nothing for a while hangs, and is stopped.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from validation.measure.run import DONE, IN, say

BROKEN = 75
"""Exit code of a worker whose device answers nothing any more (EX_TEMPFAIL)."""
SILENT_S = 120.0
"""Longer than any case takes, building its operands and the longest sustained run included."""

CommandOf = Callable[[Sequence[str], float], Sequence[str]]
"""Groups to leave out and seconds that are left -> the worker's command."""


@dataclass(slots=True)
class _Progress:
    """done : groups that are finished or were given up; current : the one that the worker is in."""

    done: list[str]
    current: str | None = None

    def take(self, line: str) -> None:
        word, _, name = line.strip().partition("\t")
        if word == IN:
            self.current = name
        elif word == DONE:
            self.done.append(name)
            self.current = None


def _follow(worker: subprocess.Popen[str], progress: _Progress, *, silent_s: float, stopped: threading.Event) -> None:
    """Take the worker's lines until it ends, hangs, or the run is stopped."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        assert worker.stdout is not None
        for line in worker.stdout:
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    heard_s = time.monotonic()
    while True:
        try:
            line = lines.get(timeout=0.2)
        except queue.Empty:
            if stopped.is_set():
                worker.terminate()
                return
            if time.monotonic() - heard_s > silent_s:
                say(f"nothing was heard for {silent_s:g} s in {progress.current}: stopped")
                worker.kill()
                return
            continue
        if line is None:
            return
        heard_s = time.monotonic()
        progress.take(line)


def run_with_restarts(command_of: CommandOf, *, budget_s: float, silent_s: float = SILENT_S) -> int:
    """Run workers until one ends by itself; returns the last one's exit code, or 0 when only a broken group was left.

    SIGTERM and Ctrl-C stop the worker; what it measured is on the disk.
    """
    deadline_s = time.monotonic() + budget_s
    progress = _Progress(done=[])
    stopped = threading.Event()

    def stop(number: int, frame: object) -> None:
        stopped.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while True:
            command = command_of(progress.done, max(1.0, deadline_s - time.monotonic()))
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
                _follow(worker, progress, silent_s=silent_s, stopped=stopped)
                code = worker.wait()
            if stopped.is_set():
                say("stopped; the table holds what was measured")
                return 0
            if code >= 0 and code != BROKEN:
                return code
            if progress.current is None:
                # It broke outside any group: starting again would break again.
                return code if code > 0 else 1
            say(f"given up: {progress.current}; going on in a new process")
            progress.take(f"{DONE}\t{progress.current}")
            if time.monotonic() >= deadline_s:
                return 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
