"""Shared settings of the tests."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest
from hypothesis import settings

# Answers are worked out, not looked up; in processes that tests start as well.
os.environ["ROOFCAST_CACHE"] = "off"
# Where modules are compiled for one process alone, those that tests start would each compile the library again, and the
# next run of the tests all of them: they find them here instead, and nothing is left beside the sources.
if sys.dont_write_bytecode:
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).parents[1] / ".pytest_cache" / "compiled")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    del os.environ["PYTHONDONTWRITEBYTECODE"]
# Random search belongs on a developer's machine; a build must give the same verdict twice. Neither judges by time.
settings.register_profile("machine", deadline=None)
settings.register_profile("build", derandomize=True, deadline=None)
settings.load_profile("build" if os.environ.get("CI") else "machine")


def pytest_collection_finish() -> None:
    """What is imported by now stays until the end: collecting garbage need not look through it again and again."""
    gc.collect()
    gc.freeze()


FEW_ACCELERATORS = ("a100-sxm-80gb", "b200-sxm", "h100-sxm-80gb", "l4", "mi300x")


@pytest.fixture
def few_accelerators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches over all accelerators know five: what they say of each other is tested, not how many there are."""
    monkeypatch.setattr("simulator.planner.search.candidates.list_offered_hardware", lambda **_: FEW_ACCELERATORS)
