"""Law: a record is what ``dataclasses.dataclass(frozen=True, slots=True)`` makes of the same class."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from dataclasses import field
from math import nan
from typing import Any

import pytest

from simulator import records
from tests.for_every import for_every


def _classes(dataclass: Callable[..., Any]) -> dict[str, Any]:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        """By name."""

        first: int
        listed: list[int] = field(default_factory=list)
        second: float = 2.0
        beside: object = field(default=None, compare=False, repr=False)

        @property
        def total(self) -> float:
            """Of both."""
            return self.first + self.second

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Longer(Named):
        """With one more."""

        third: str = "c"

    @dataclass(frozen=True, slots=True)
    class Placed:
        """By place, and one that follows."""

        first: int
        second: int = 3
        total: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.first + self.second)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class One:
        """A single value."""

        value: object

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Nothing:
        """No value at all."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Own:
        """Equal in its own way."""

        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.value % 2 == other.value % 2

        def __hash__(self) -> int:
            return self.value % 2

    @dataclass(frozen=True, slots=True, kw_only=True, eq=False)
    class Itself:
        """Equal to nothing else."""

        value: int

    return {made.__name__: made for made in (Named, Longer, Placed, One, Nothing, Own, Itself)}


THEIRS, OURS = _classes(dataclasses.dataclass), _classes(records.dataclass)
MADE: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "Named": [((), {"first": 1}), ((), {"first": 1, "second": 4.0}), ((), {"first": 1, "beside": 5})],
    "Longer": [((), {"first": 1}), ((), {"third": "d", "first": 2, "listed": [7]})],
    "Placed": [((1,), {}), ((1, 2), {}), ((), {"second": 5, "first": 4})],
    "One": [((), {"value": nan}), ((), {"value": (1, 2)}), ((), {"value": "x"})],
    "Nothing": [((), {})],
    "Own": [((), {"value": 1}), ((), {"value": 3}), ((), {"value": 4})],
    "Itself": [((), {"value": 1}), ((), {"value": 1})],
}
REFUSED: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "Named": [((), {}), ((1,), {}), ((), {"first": 1, "other": 2})],
    "Longer": [((), {"third": "d"})],
    "Placed": [((), {}), ((1, 2, 3), {}), ((), {"first": 1, "total": 2})],
    "Nothing": [((1,), {})],
}


def _objects(classes: dict[str, Any], name: str) -> list[Any]:
    return [classes[name](*values, **given) for values, given in MADE[name]]


@for_every(MADE)
def test_a_record_is_made_shown_and_compared_as_a_dataclass(name: str) -> None:
    theirs, ours = _objects(THEIRS, name), _objects(OURS, name)

    assert [repr(item) for item in ours] == [repr(item) for item in theirs]
    assert [dataclasses.asdict(item) for item in ours[1:]] == [dataclasses.asdict(item) for item in theirs[1:]]
    assert [[one == other for other in ours] for one in ours] == [[one == other for other in theirs] for one in theirs]
    assert ours[0] != theirs[0] or name == "Own"
    assert [item.name for item in dataclasses.fields(ours[0])] == [item.name for item in dataclasses.fields(theirs[0])]
    assert not hasattr(ours[0], "__dict__")
    if name not in ("Named", "Longer"):
        assert [hash(one) == hash(other) for one in ours for other in ours] == [
            hash(one) == hash(other) for one in theirs for other in theirs
        ]


@pytest.mark.parametrize("name", ["Named", "Longer", "Placed", "One", "Own"])
def test_a_record_is_frozen_copied_and_replaced_as_a_dataclass(name: str) -> None:
    for item in _objects(OURS, name):
        some = next(place.name for place in dataclasses.fields(item) if place.init)
        with pytest.raises(dataclasses.FrozenInstanceError, match=f"cannot assign to field '{some}'"):
            setattr(item, some, 9)
        with pytest.raises(dataclasses.FrozenInstanceError):
            delattr(item, some)
        assert repr(copy.deepcopy(item)) == repr(copy.copy(item)) == repr(item)
        changed = dataclasses.replace(item, **{some: 9})
        assert getattr(changed, some) == 9
        assert getattr(item, some) != 9


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_refused_as_by_a_dataclass(name: str) -> None:
    for values, given in REFUSED[name]:
        for classes in (THEIRS, OURS):
            with pytest.raises(TypeError):
                classes[name](*values, **given)


def test_records_with_values_that_have_no_hash_have_none() -> None:
    for classes in (THEIRS, OURS):
        with pytest.raises(TypeError, match="unhashable"):
            hash(classes["Named"](first=1))


def test_every_object_has_a_default_of_its_own_from_a_factory() -> None:
    one, other = OURS["Named"](first=1), OURS["Named"](first=1)

    one.listed.append(3)

    assert other.listed == []


@records.dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """Of this module, so that it can be pickled."""

    first: int
    second: tuple[float, ...] = ()


def test_a_record_is_pickled() -> None:
    item = _Kept(first=1, second=(2.0,))

    assert pickle.loads(pickle.dumps(item)) == item


def test_records_are_frozen_and_have_slots() -> None:
    with pytest.raises(TypeError, match="dataclasses.dataclass makes others"):
        records.dataclass(frozen=False, slots=True)


def test_the_first_objects_are_what_later_ones_are() -> None:
    """Before and after ``__init__`` is compiled: fields, defaults, and what is missing or unknown."""

    @records.dataclass(frozen=True, slots=True, kw_only=True)
    class Made:
        name: str
        parts: tuple[int, ...] = ()
        held: list[int] = field(default_factory=list)

    found = [Made(name="a") for _ in range(2 * records.COMPILED_FROM)]
    assert len({id(item.held) for item in found}) == len(found)
    assert all(item == found[0] and item.parts == () for item in found)
    for wrong in ({}, {"name": "a", "other": 1}):
        for _ in range(2):
            with pytest.raises(TypeError, match="argument"):
                Made(**wrong)
