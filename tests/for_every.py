"""One test of many alike: a fact that holds for every profile is one test, and all that break it are named."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

Test = Callable[..., None]


def for_every(values: Iterable[Any] | Callable[[], Iterable[Any]]) -> Callable[[Test], Test]:
    """Call a test with each of ``values`` as its last argument; a function is asked for them when the test runs.

    A case of ``pytest.mark.parametrize`` costs about ten milliseconds to collect, send to a worker and report.
    """

    def decorate(test: Test) -> Test:
        *fixtures, last = inspect.signature(test).parameters.values()

        @wraps(test)
        def over_all(*arguments: Any, **given: Any) -> None:
            errors = []
            tried = list(values() if callable(values) else values)
            assert tried, "nothing to test"
            for value in tried:
                try:
                    test(*arguments, **given, **{last.name: value})
                except Exception as error:
                    error.add_note(f"{last.name}: {value}")
                    errors.append(error)
            if errors:
                raise ExceptionGroup(f"{len(errors)} of {len(tried)}", errors)

        over_all.__signature__ = inspect.Signature(fixtures)  # type: ignore[attr-defined]
        return over_all

    return decorate
