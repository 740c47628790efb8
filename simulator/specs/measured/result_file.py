"""Fields of one result of a benchmark tool, by dotted names; each refusal names file and field."""

from __future__ import annotations

import math
from typing import Any, TypeGuard

from simulator.errors import RoofcastError
from simulator.records import dataclass
from simulator.specs.base import found_at


def is_number(value: object) -> TypeGuard[int | float]:
    """Truth values are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """One JSON object of a result; ``prefix`` stands before its fields where the file holds several."""

    data: Any
    path: str
    prefix: str = ""

    def refuse(self, field: str, message: str, *, code: str = "invalid_measurement", hint: str = "") -> RoofcastError:
        """The refusal of a field of this file."""
        return RoofcastError(f"{message} in {self.path}", field=self.prefix + field, code=code, hint=hint)

    def find(self, field: str) -> Any:
        """What stands under a dotted name, None where nothing does."""
        return found_at(self.data, field)

    def first(self, *fields: str) -> str:
        """The first of these fields that the file has; where it has none the first, which a refusal then names."""
        return next((field for field in fields if self.find(field) is not None), fields[0])

    def part(self, field: str) -> ResultFile:
        """What stands under a dotted name, as a file."""
        return ResultFile(data=self.find(field), path=self.path, prefix=f"{self.prefix}{field}.")

    def _checked(self, field: str, value: object) -> float:
        if not is_number(value) or not math.isfinite(value) or value < 0:
            raise self.refuse(field, f"{value!r}; allowed: finite numbers of at least 0")
        return float(value)

    def number(self, field: str) -> float:
        """A number of at least 0."""
        value = self.find(field)
        if value is None:
            raise self.refuse(field, "is missing", code="missing_field")
        return self._checked(field, value)

    def positive(self, field: str) -> float:
        """A number above 0."""
        value = self.number(field)
        if value == 0:
            raise self.refuse(field, "is 0; must be positive")
        return value

    def optional(self, field: str) -> float | None:
        """A number of at least 0, None where it is not there."""
        return None if self.find(field) is None else self.number(field)

    def numbers(self, field: str) -> list[float]:
        """A list of numbers of at least 0, empty where there is none."""
        values = self.find(field)
        if not isinstance(values, list):
            return []
        return [self._checked(f"{field}[{place}]", value) for place, value in enumerate(values)]

    def word(self, field: str) -> str | None:
        """A text that is not empty."""
        value = self.find(field)
        return value if isinstance(value, str) and value else None
