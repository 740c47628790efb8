"""Shared settings of the tests."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Answers are worked out, not looked up; in processes that tests start as well.
os.environ["ROOFCAST_CACHE"] = "off"
# Random search belongs on a developer's machine; a build must give the same verdict twice.
settings.register_profile("build", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("build")


FEW_ACCELERATORS = ("a100-sxm-80gb", "b200-sxm", "h100-sxm-80gb", "l4", "mi300x")


@pytest.fixture
def few_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches over all accelerators know five: what they say of each other is tested, not how many there are."""
    monkeypatch.setattr("simulator.planner.search.candidates.list_offered_hardware", lambda **_: FEW_ACCELERATORS)
