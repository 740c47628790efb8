"""Frozen dataclasses whose methods are written when they are first needed.

A command defines some two hundred records and makes objects of half of them. ``dataclasses`` compiles six methods of
each while it is defined, an eighth of the processor time of a short command; here ``__init__`` is compiled once there
are some objects, and the others are the same for all. ``fields``, ``replace``, ``asdict``, copies, pickles and type
checkers see a dataclass.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

FLAT = {"flat": True}
"""Of a field whose parts stand beside it in a result, its name before theirs: ``ttft_p95_s``."""

INSIDE = {"inside": True}
"""Of a field that belongs to the library's result and not to the contract's JSON."""


def _refuse(_: object, name: str, *__: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _values_of(names: tuple[str, ...]) -> Callable[[object], tuple[object, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda item: tuple(getattr(item, name) for name in names)


def _pickled_by(names: tuple[str, ...]) -> Mapping[str, Callable[..., Any]]:
    """How a record is copied and sent: by the values of its fields, whose names are looked up once."""
    put, values = object.__setattr__, _values_of(names) if names else lambda _: ()

    def state(self: object) -> tuple[object, ...]:
        return values(self)

    def set_state(self: object, state: tuple[object, ...]) -> None:
        for name, value in zip(names, state, strict=True):
            put(self, name, value)

    return {"__getstate__": state, "__setstate__": set_state}


@recursive_repr()
def _text(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _written_init(record: Any) -> Callable[..., None]:
    """``__init__`` of a record, compiled."""
    first: list[str] = []
    named: list[str] = []
    body: list[str] = []
    known: dict[str, object] = {"missing": dataclasses.MISSING}
    for field in dataclasses.fields(record):
        if not field.init:
            continue
        value = argument = field.name
        if field.default_factory is not dataclasses.MISSING:
            known[f"made_{field.name}"] = field.default_factory
            argument += "=missing"
            value = f"made_{field.name}() if {field.name} is missing else {field.name}"
        elif field.default is not dataclasses.MISSING:
            known[f"default_{field.name}"] = field.default
            argument += f"=default_{field.name}"
        (named if field.kw_only else first).append(argument)
        known[f"put_{field.name}"] = getattr(record, field.name).__set__
        body.append(f" put_{field.name}(self, {value})")
    if hasattr(record, "__post_init__"):
        body.append(" self.__post_init__()")
    arguments = ", ".join(["self", *first, *(["*"] if named else []), *named])
    exec("\n".join([f"def __init__({arguments}):", *(body or [" pass"])]), known)
    written: Any = known["__init__"]
    written.__qualname__ = f"{record.__qualname__}.__init__"
    return written  # type: ignore[no-any-return]


COMPILED_FROM = 4
"""The object of a record for which its ``__init__`` is compiled: half of the records of a command never have as many,
and compiling takes as long as filling some twenty by name."""


def _filled(self: Any, given: Mapping[str, object]) -> bool:
    """Fill an object by the names of its fields; False where that is not all, or not right: the compiled method says
    what is wrong as Python does."""
    names = set(given)
    for field in dataclasses.fields(self):
        value = given.get(field.name, field.default)
        if value is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if value is dataclasses.MISSING or not field.init:
            return False
        object.__setattr__(self, field.name, value)
        names.discard(field.name)
    return not names and not hasattr(self, "__post_init__")


def _methods(record: Any, *, eq: bool) -> Mapping[str, Callable[..., Any]]:
    """What a frozen dataclass has, under their names."""
    made = 0

    def write_and_call(self: object, *values: object, **given: object) -> None:
        nonlocal made
        made += 1
        if made < COMPILED_FROM and not values and _filled(self, given):
            return
        record.__init__ = _written_init(record)
        record.__init__(self, *values, **given)

    found: dict[str, Callable[..., Any]] = {
        "__init__": write_and_call,
        "__repr__": _text,
        "__setattr__": _refuse,
        "__delattr__": _refuse,
        **_pickled_by(tuple(field.name for field in dataclasses.fields(record))),
    }
    if not eq:
        return found
    values = _values_of(tuple(field.name for field in dataclasses.fields(record) if field.compare))

    def equal(self: object, other: object) -> bool:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    def hashed(self: object) -> int:
        return hash(values(self))

    return found | {"__eq__": equal, "__hash__": hashed}


def _made(cls: type[Any], *, kw_only: bool, eq: bool) -> type[Any]:
    record: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=kw_only)(cls)
    for name, method in _methods(record, eq=eq).items():
        if vars(record).get(name) is None:  # what a class says itself stays
            setattr(record, name, method)
    return record  # type: ignore[no-any-return]


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool, slots: bool, kw_only: bool = False, eq: bool = True):
        """``dataclasses.dataclass`` of a frozen class with slots, see above; others have nothing to gain."""
        if not (frozen and slots):
            raise TypeError("records are frozen and have slots; dataclasses.dataclass makes others")
        return lambda cls: _made(cls, kw_only=kw_only, eq=eq)
