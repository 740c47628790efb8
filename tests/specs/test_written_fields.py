"""A specification's fields as a command line writes them: types follow from annotations, texts where functions read."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

import pytest
from pydantic import BeforeValidator, Field, PositiveInt

from simulator.specs.base import Spec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.question.plan import PlanSpec
from simulator.specs.question.plan_values import written_fields
from simulator.specs.question.techniques import TechniquesSpec


class Asked(Spec):
    """One field of each kind."""

    number: float | None = Field(default=None, gt=0, description="A number.")
    counts: tuple[PositiveInt, ...] = ()
    choice: Literal[50, 80] = 80
    word: Literal["low", "high"] | None = None
    day: date | None = None
    hours: Annotated[tuple[float, ...], BeforeValidator(str)] = ()
    names: tuple[Annotated[str, BeforeValidator(str)], ...] = ()
    pairs: tuple[tuple[str, str], ...] | None = None
    switch: bool = False
    three: bool | None = None


@pytest.mark.parametrize(
    ("name", "kind", "several"),
    [
        ("number", float, False),
        ("counts", int, True),
        ("choice", int, False),
        ("word", str, False),
        ("day", str, False),
        ("hours", str, False),
        ("names", str, True),
        ("pairs", str, True),
        ("switch", bool, False),
        ("three", bool, False),
    ],
)
def test_a_field_is_written_as_its_annotation_says(name: str, kind: type, several: bool) -> None:
    found = written_fields(Asked)[name]
    assert (found.kind, found.several) == (kind, several)


def test_a_truth_value_may_be_left_open_only_where_nothing_stands_for_it() -> None:
    fields = written_fields(Asked)
    assert fields["three"].three_ways
    assert not fields["switch"].three_ways


@pytest.mark.parametrize("spec", [PlanSpec, TechniquesSpec, PrecisionSpec])
def test_every_field_that_a_command_takes_is_described(spec: type[Spec]) -> None:
    assert [name for name, field in written_fields(spec).items() if not field.text.endswith(".")] == []
    assert written_fields(Asked)["number"].text == "A number."
