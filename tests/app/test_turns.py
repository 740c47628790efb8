"""Numbers of every visitor come before anybody's charts; nobody waits for long."""

from __future__ import annotations

from threading import Barrier, Event, Thread

import pytest

from app import turns


def _chart_of_another(drawn: Event) -> Thread:
    def run() -> None:
        with turns.asking():
            turns.number_sent()
            drawn.set()

    thread = Thread(target=run)
    thread.start()
    return thread


def test_a_chart_waits_until_everybody_has_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PATIENCE_S", 60.0)
    drawn = Event()
    with turns.asking():
        thread = _chart_of_another(drawn)
        assert not drawn.wait(2 * turns.SENT_S)
        turns.number_sent()
    thread.join()
    assert drawn.is_set()


def test_a_number_that_takes_long_holds_up_no_chart() -> None:
    drawn = Event()
    with turns.asking():
        thread = _chart_of_another(drawn)
        assert drawn.wait(60)
        thread.join()


def test_a_run_that_ends_without_a_number_is_waited_for_no_more() -> None:
    begun = Barrier(2)

    def refused() -> None:
        with turns.asking():
            begun.wait()

    thread = Thread(target=refused)
    thread.start()
    begun.wait()
    thread.join()
    drawn = Event()
    _chart_of_another(drawn).join()
    assert drawn.is_set()
    turns.number_sent()
