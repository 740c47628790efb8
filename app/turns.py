"""Whose turn it is on a busy server: numbers one visitor after the other, and all of them before anybody's charts.

Sessions share one interpreter. Left alone they take turns within every answer, and all numbers arrive when the last
one is ready; one after the other, half of them arrive in half that time and none later. Nobody waits long for others:
beside a question that takes longer than ``PATIENCE_S`` the rest goes on as if there were no turns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

PATIENCE_S = 0.5
_turn = threading.Lock()
_changed = threading.Condition()
_asking: dict[int, bool] = {}
"""Threads that have no number yet, and whether it is their turn."""


@contextmanager
def asking() -> Iterator[None]:
    """A run of a page, whose reader waits for its numbers until :func:`number_sent`."""
    run = threading.get_ident()
    with _changed:
        _asking[run] = False
    try:
        _asking[run] = _turn.acquire(timeout=PATIENCE_S)
        yield
    finally:
        _done(run)


def number_sent() -> None:
    """Before a chart: others have their numbers first. Nothing where that was done before."""
    if _done(threading.get_ident()):
        let_others_ask()


def let_others_ask() -> None:
    """Before work that no reader waits for: until everybody has a number, or for as long as patience lasts."""
    with _changed:
        _changed.wait_for(lambda: not _asking, timeout=PATIENCE_S)


def _done(run: int) -> bool:
    with _changed:
        mine = _asking.pop(run, None)
        if mine:
            _turn.release()
        _changed.notify_all()
    return mine is not None
