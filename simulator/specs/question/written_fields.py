"""Fields of a specification as people write them: the type that a command line reads, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BeforeValidator

from simulator.records import dataclass
from simulator.specs.base import Spec


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenField:
    """A field, its description, and what it is written as: bool, int, float or str.

    several : it may be given more than once; three_ways : a truth value that may also be left open
    """

    name: str
    text: str
    kind: type = str
    several: bool = False
    three_ways: bool = False


def written_fields(spec: type[Spec]) -> Mapping[str, WrittenField]:
    """The fields of ``spec`` by their names; what a function of the specification reads is written as text."""
    return {
        name: WrittenField(
            name=name,
            text=field.description or "",
            kind=str if _reads(field.metadata) else _kind(field.annotation),
            several=get_origin(_present(field.annotation)) is tuple and not _reads(field.metadata),
            three_ways=field.default is None,
        )
        for name, field in spec.model_fields.items()
    }


def _reads(metadata: list[Any]) -> bool:
    return any(isinstance(item, BeforeValidator) for item in metadata)


def _present(annotation: Any) -> Any:
    """What stands where something is given."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    return next(item for item in get_args(annotation) if item is not NoneType)


def _kind(annotation: Any) -> type:
    """The number or truth value inside bounds, lists and options; everything else is text."""
    given = _present(annotation)
    match get_origin(given):
        case None:
            return given if given in (bool, int, float) else str
        case origin if origin is Literal:
            return type(get_args(given)[0])
    return _kind(get_args(given)[0])
