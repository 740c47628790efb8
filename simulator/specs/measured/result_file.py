"""The result of a benchmark tool, whose numbers are read by dotted name and refused by it.

What its file does not say: what served the benchmark.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from pydantic import NonNegativeInt, PositiveInt

from simulator.errors import RoofcastError
from simulator.specs.base import Spec
from simulator.specs.documents import found_at
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.model.precision import PrecisionSpec


def is_number(value: object) -> TypeGuard[int | float]:
    """Truth values are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """One JSON object of a result; ``prefix`` stands before its fields where the file holds several."""

    data: Mapping[str, Any]
    path: str
    prefix: str = ""

    def refuse(self, field: str, message: str, *, code: str = "invalid_measurement", hint: str = "") -> RoofcastError:
        """The refusal of a field of this file."""
        return RoofcastError(f"{message} in {self.path}", field=self.prefix + field, code=code, hint=hint)

    def find(self, field: str) -> Any:
        """What stands under a dotted name, None where nothing does."""
        return found_at(self.data, field)

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


class ServedSpec(Spec):
    """One replica behind a benchmark, in the fields of a scenario; ``None`` takes what the engine or checkpoint has.

    model : None takes the one that the file names
    system_prompt_tokens : that all prompts of the benchmark begin with
    """

    model: str | None = None
    hardware: str
    tp_size: PositiveInt = 1
    pp_size: PositiveInt = 1
    ep_size: PositiveInt = 1
    dp_size: PositiveInt = 1
    precision: PrecisionSpec = PrecisionSpec()
    engine: EngineSpec = EngineSpec()
    system_prompt_tokens: NonNegativeInt = 0
