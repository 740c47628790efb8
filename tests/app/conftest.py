"""What tests of pages leave behind is put right."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

_MAIN = sys.modules["__main__"]


@pytest.fixture(autouse=True)
def main_module() -> Iterator[None]:
    """A page that is run stands in for ``__main__`` and stays there: processes that later tests start would run it."""
    yield
    sys.modules["__main__"] = _MAIN
