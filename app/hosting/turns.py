"""Whose turn it is on a busy server: numbers a few visitors at a time, and all of them before anybody's charts.

Sessions share one interpreter and its workers. Left alone they take turns within every answer, and all numbers arrive
when the last one is ready; one after the other, half of them arrive in half that time and none later. Nobody waits long
for others: beside a question that takes longer than ``PATIENCE_S`` the rest goes on as if there were no turns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

PATIENCE_S = 1.0
_SEEN_S = 0.2
"""What a browser takes to show a number, where it shares a machine with those of others."""
_ALONE_S = 0.04
"""What it takes at least: a chart that comes sooner is drawn together with the number, before anything is shown."""
_LOOK, _LOOK_S = "_look", 0.02
_turn, _turn_here = threading.Semaphore(), threading.Semaphore()
"""Of pages that others answer, and of those that this process answers: two at once in one interpreter take twice as
long, and the first of them has its number as late as the second."""
_changed = threading.Condition()
_asking: dict[int, threading.Semaphore | None] = {}
"""Threads that have no number yet, and the turn that they have."""
_unseen: dict[str, object] = {}
"""Visitors who were sent a number a moment ago."""


def allow(together: int) -> None:
    """Let so many that others answer have their turn together: as many as do not slow each other down."""
    for _ in range(1, together):
        _turn.release()


@contextmanager
def asking(*, here: bool) -> Iterator[None]:
    """A run of a page, whose reader waits for its numbers until :func:`number_sent`.

    here : whether this process makes them
    """
    run, turn = threading.get_ident(), _turn_here if here else _turn
    with _changed:
        _asking[run] = None
    try:
        _asking[run] = turn if turn.acquire(timeout=PATIENCE_S) else None
        yield
    finally:
        _done(run)


def number_sent() -> None:
    """Before a chart: others have and see their numbers first. Nothing where that was done before."""
    if not _done(threading.get_ident()):
        return
    visitor, number = _visitor(), object()
    with _changed:
        _unseen[visitor] = number
    timer = threading.Timer(_SEEN_S, _is_seen, (visitor, number))
    timer.daemon = True
    timer.start()
    let_others_ask()
    threading.Event().wait(_ALONE_S)
    with _changed:
        _changed.wait_for(lambda: set(_unseen) <= {visitor}, timeout=_SEEN_S)


def let_others_ask(run: int | None = None) -> None:
    """Before work that no reader waits for: until everybody has a number, or for as long as patience lasts. ``run``:
    the thread of a page's run that waits for this work itself."""
    with _changed:
        _changed.wait_for(lambda: _asking.keys() <= {run}, timeout=PATIENCE_S)


def wait_until(ready: Callable[[], bool]) -> None:
    """Wait in a run of a page, which ends as soon as its question changes."""
    while not ready():
        threading.Event().wait(_LOOK_S)
        if get_script_run_ctx(suppress_warning=True):
            # Any look at the state ends a run whose question has changed.
            st.session_state.get(_LOOK)


def _visitor() -> str:
    run = get_script_run_ctx(suppress_warning=True)
    return run.session_id if run else str(threading.get_ident())


def _is_seen(visitor: str, number: object) -> None:
    with _changed:
        if _unseen.get(visitor) is number:
            del _unseen[visitor]
        _changed.notify_all()


def _done(run: int) -> bool:
    with _changed:
        asked = run in _asking
        turn = _asking.pop(run, None)
        if turn is not None:
            turn.release()
        _changed.notify_all()
    return asked
