"""``python -m validation.published`` shows every transcribed figure once and fails on one that is off."""

from __future__ import annotations

import pytest

from validation.published import __main__ as command
from validation.published.identities import identities
from validation.published.reasons import reason_of, reasons
from validation.published.rows import known_misses, measured_runs
from validation.published.structure import figures
from validation.published.techniques import technique_rows


def test_every_figure_is_there_once() -> None:
    found = list(command.all_figures())
    parts = (measured_runs(), known_misses(), identities(), figures(), technique_rows())
    assert len(found) == sum(len(part) for part in parts)
    assert len({(item.group, item.name) for item in found}) == len(found)


def test_the_worst_of_each_group_have_a_reason_and_every_reason_a_figure() -> None:
    found = list(command.all_figures())
    names = command.explained(found)
    assert len(names) >= 9
    assert [name for name in names if reason_of(name) is None] == []
    for start in reasons():
        assert any(item.name.startswith(start) for item in found), start


def test_a_figure_that_is_off_fails_the_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = command.Figure(name="good", group="runs", published=2.0, predicted=2.1, tolerance=0.06)
    bad = command.Figure(name="bad", group="runs", published=2.0, predicted=1.7, tolerance=0.1)
    monkeypatch.setattr(command, "all_figures", lambda: iter((good,)))
    assert command.main() == 0
    monkeypatch.setattr(command, "all_figures", lambda: iter((good, bad)))
    assert command.main() == 1
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "runs: 2 figures, mean 10.0 %, median 10.0 %"
    assert "1 figures are off" in printed.err
