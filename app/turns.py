"""Whose turn it is on a busy server: the numbers of every visitor come before anybody's charts.

Sessions share one interpreter. Left alone they take turns within every answer, and all numbers arrive when the last
chart does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

SENT_S = 0.04
"""A few of the intervals at which the server sends what a page has made so far: a chart that arrives together with the
numbers keeps them waiting while it is drawn."""
PATIENCE_S = 0.4
"""Longest wait for other visitors' numbers; a plan may take longer, and holds up no chart."""
_changed = threading.Condition()
_without_number: set[int] = set()


@contextmanager
def asking() -> Iterator[None]:
    """A run of a page, whose reader waits for its numbers until :func:`number_sent`."""
    run = threading.get_ident()
    with _changed:
        _without_number.add(run)
    try:
        yield
    finally:
        _done(run)


def number_sent() -> None:
    """Before a chart: let the browser show the numbers, and others have theirs. Nothing where that was done before."""
    if _done(threading.get_ident()):
        time.sleep(SENT_S)
        with _changed:
            _changed.wait_for(lambda: not _without_number, timeout=PATIENCE_S)


def _done(run: int) -> bool:
    with _changed:
        waited = run in _without_number
        _without_number.discard(run)
        _changed.notify_all()
    return waited
