"""``simulator.cli.progress``: a bar on a terminal, for runs that take a while, that leaves nothing behind."""

from __future__ import annotations

import io
import time
from contextlib import redirect_stderr

import pytest

from simulator.cli import progress
from simulator.cli.progress import progress_bar


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    return Terminal()


def test_off_a_terminal_there_is_nothing_to_report_to(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("Sweep") as report:
        assert report is None
    assert capsys.readouterr() == ("", "")


def test_a_short_run_shows_nothing(terminal: Terminal) -> None:
    with redirect_stderr(terminal), progress_bar("Sweep") as report:
        assert report is not None
        for done in range(11):
            report(done, 10)
    assert terminal.getvalue() == ""


def test_a_run_that_is_done_when_it_is_late_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.0)
    with redirect_stderr(terminal), progress_bar("Sweep") as report:
        assert report is not None
        report(10, 10)
    assert terminal.getvalue() == ""


def test_a_long_run_shows_its_title_and_share_and_ends_even_when_it_fails(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.0)

    def fails() -> None:
        with redirect_stderr(terminal), progress_bar("Sweep") as report:
            assert report is not None
            report(1, 4)
            report(2, 4)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    shown = terminal.getvalue()
    assert "Sweep" in shown
    assert "50%" in shown
    assert shown.rstrip("\r").count("\x1b[?25h") == 1, "the cursor is back"


def test_what_reports_nothing_shows_that_it_goes_on(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.05)
    with redirect_stderr(terminal), progress_bar("Plan", pulses=True):
        deadline_s = time.monotonic() + 20
        while "Plan" not in terminal.getvalue():
            assert time.monotonic() < deadline_s
            time.sleep(0.01)
    shown = terminal.getvalue()
    assert ("0:00:0" in shown, "%" in shown) == (True, False), "the time that went by, and no share of unknown work"
    assert shown.rstrip("\r").count("\x1b[?25h") == 1, "the cursor is back"


def test_what_ends_early_leaves_no_thread_that_shows_it(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 0.05)
    with redirect_stderr(terminal):
        with progress_bar("Plan", pulses=True):
            pass
        time.sleep(0.2)
    assert terminal.getvalue() == ""
