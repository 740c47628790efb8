"""A test of many alike fails where one of them does, and names all that do."""

from __future__ import annotations

import pytest

from tests.for_every import for_every


@for_every(range(5))
def test_every_value_is_tried(tmp_path: object, value: int) -> None:
    assert value in range(5)


def test_all_that_fail_are_named() -> None:
    @for_every(lambda: (1, 2, 3, 4))
    def odd(value: int) -> None:
        assert value % 2

    with pytest.raises(ExceptionGroup) as caught:
        odd()
    assert [error.__notes__ for error in caught.value.exceptions] == [["value: 2"], ["value: 4"]]


def test_nothing_to_try_is_no_success() -> None:
    @for_every(())
    def anything(value: int) -> None:
        """Never called."""

    with pytest.raises(AssertionError, match="nothing to test"):
        anything()
