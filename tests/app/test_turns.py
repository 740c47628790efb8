"""Numbers come one visitor after the other and before anybody's charts; nobody waits for long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from threading import Event, Thread

import pytest

from app.hosting import turns


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers that other tests sent are seen."""
    monkeypatch.setattr(turns, "_unseen", {})


def _another(run: Callable[[], None]) -> Thread:
    def page() -> None:
        with turns.asking(here=True):
            run()

    thread = Thread(target=page)
    thread.start()
    return thread


def test_a_number_waits_for_the_one_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 60.0)
    begun = Event()
    with turns.asking(here=True):
        thread = _another(begun.set)
        assert not begun.wait(0.05)
        turns.number_sent()
        thread.join()
    assert begun.is_set()


def test_what_workers_answer_waits_for_none_that_is_answered_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 60.0)
    monkeypatch.setattr(turns, "_turn", threading.Semaphore(2))
    together = threading.Barrier(3, timeout=60.0)

    def page() -> None:
        with turns.asking(here=False):
            together.wait()

    with turns.asking(here=True):
        threads = [Thread(target=page) for _ in range(2)]
        for thread in threads:
            thread.start()
        together.wait()
    for thread in threads:
        thread.join()


def test_a_chart_waits_until_everybody_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 60.0)
    drawn = Event()

    def chart() -> None:
        turns.let_others_ask()
        drawn.set()

    with turns.asking(here=True):
        thread = Thread(target=chart)
        thread.start()
        assert not drawn.wait(0.05)
    thread.join()
    assert drawn.is_set()


def test_a_number_that_takes_long_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 0.01)
    drawn = Event()

    def page() -> None:
        turns.number_sent()
        drawn.set()

    with turns.asking(here=True):
        _another(page).join()
    assert drawn.is_set()


def test_a_run_that_ends_without_a_number_is_waited_for_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 60.0)
    with turns.asking(here=True):
        refused = _another(lambda: None)
        turns.number_sent()
    refused.join()
    turns.let_others_ask()


def test_a_chart_waits_until_others_see_what_they_were_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_SEEN_S", 60.0)
    with turns.asking(here=True):
        turns.number_sent()
    with turns.asking(here=True):
        turns.number_sent()
    drawn = Event()

    def page() -> None:
        turns.number_sent()
        drawn.set()

    thread = _another(page)
    assert not drawn.wait(0.05)
    for visitor, number in list(turns._unseen.items()):
        turns._is_seen(visitor, number)
    thread.join()
    assert drawn.is_set()


def test_what_a_run_waits_for_itself_does_not_wait_for_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 60.0)
    with turns.asking(here=True):
        thread = Thread(target=turns.let_others_ask, args=(threading.get_ident(),), daemon=True)
        thread.start()
        thread.join(timeout=30.0)
        assert not thread.is_alive()
