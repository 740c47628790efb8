"""Answers of lines that are late, fatal or noisy, for tests of the processes that answer lines."""

from __future__ import annotations

import gc
import os
import signal
import time

from simulator.allocation import keep_freed_memory

told = "nothing"
"""What the process that imported this module was told; a fork of it knows it too."""


def answer(line: str) -> str:
    """The line backwards, unless it says what else to do."""
    if line.startswith("sleep"):
        time.sleep(float(line.split()[1]))
    if line == "linger":
        time.sleep(0.2)
    if line in ("kill", "linger"):
        os.kill(os.getpid(), signal.SIGKILL)
    if line == "leave":
        os._exit(7)
    if line == "print":
        print("not an answer")
    if line == "which":
        return str(os.getpid())
    if line == "told":
        return told
    if line == "settings":
        return f"{gc.get_threshold()[0]} {keep_freed_memory.cache_info().misses}"
    return line[::-1]


def no_start(line: str) -> str:
    """Never called: its module is asked for under a name that it has not."""
    raise AssertionError(line)
