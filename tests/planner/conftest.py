"""What tests of the planner leave out where it is not what they ask about."""

from __future__ import annotations

import pytest

from simulator.planner.studies import uncertainty


@pytest.fixture
def draws_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No bars and nothing of what breaks first: no draw moves them, and they take longer than all draws."""
    for name in ("tornado", "breaks_first"):
        monkeypatch.setattr(uncertainty, name, lambda *_: ())
