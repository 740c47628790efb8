"""What every spec shares, how an answer's inputs are recorded, how plain data become specs: a refusal is one line."""

import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import date
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from simulator.errors import Option, ProfileError, RoofcastError
from simulator.records import dataclass
from simulator.specs.parsing import MalformedError, parse_json, parse_yaml, read_text
from simulator.units import MEGA, TERA

LARGEST_INTEGER = int(2 / sys.float_info.epsilon)
"""What JSON programs exchange without loss: 2 to the 53rd (RFC 8259, section 6); larger ones are mistakes."""
LARGEST_NUMBER = TERA * TERA * MEGA
"""1e30: far above every quantity of the field (a training run has 1e26 FLOPs), and products of several stay finite."""
SMALLEST_NUMBER = 1 / LARGEST_NUMBER
"""1e-30 beside 0: what is divided by it stays finite too."""

_INNER = ("schema", "items_schema", "values_schema")  # keys of JSON are text


def _strict(schema: Any, *, own: object) -> Any:
    """``schema`` with strict, bounded numbers; specs inside are strict already. JSON's whole floats are integers."""
    kind = schema["type"]
    if kind == "float":
        bounded = {"le": LARGEST_NUMBER, "ge": -LARGEST_NUMBER, **schema, "strict": True}
        return core_schema.no_info_after_validator_function(_of_a_size, bounded)
    if kind == "bool":
        return {**schema, "strict": True}
    if kind == "int":
        bounded = {"le": LARGEST_INTEGER, "ge": -LARGEST_INTEGER, **schema}
        return core_schema.no_info_before_validator_function(_number, bounded)
    if kind == "model" and schema["cls"] is not own:
        return schema
    changed = dict(schema)
    for name in _INNER:
        inner = schema.get(name)
        if isinstance(inner, dict):
            changed[name] = _strict(inner, own=own)
        elif isinstance(inner, list):
            changed[name] = [_strict(item, own=own) for item in inner]
    if kind == "model-fields":
        changed["fields"] = {
            name: {**field, "schema": _strict(field["schema"], own=own)} for name, field in schema["fields"].items()
        }
    if kind in ("union", "tagged-union"):
        choices = schema["choices"]
        named = choices.items() if isinstance(choices, dict) else enumerate(choices)
        made = {key: _choice(choice, own=own) for key, choice in named}
        changed["choices"] = made if isinstance(choices, dict) else list(made.values())
    return changed


def _choice(choice: Any, *, own: object) -> Any:
    """One member of a union, which may stand with its label."""
    return (_strict(choice[0], own=own), choice[1]) if isinstance(choice, tuple) else _strict(choice, own=own)


def _of_a_size(value: float) -> float:
    if value and -SMALLEST_NUMBER < value < SMALLEST_NUMBER:
        raise PydanticCustomError("too_small", f"Input should be 0 or at least {SMALLEST_NUMBER:g}")
    return value


def _number(value: Any) -> Any:
    if isinstance(value, str | bytes | bool):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


class Spec(BaseModel):
    """Something given by a person or a file: numbers are numbers, and of a size that can be meant.

    Modules of specs do without ``from __future__ import annotations``: Pydantic would compile the text of each field.
    """

    meant: ClassVar[Mapping[str, str]] = {}  # by fields of other questions: what to give in their place
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema that pydantic makes, without the conversions of text and truth values to numbers."""
        schema: CoreSchema = _strict(handler.resolve_ref_schema(handler(source)), own=cls)
        return schema

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy with other values; what was worked out from the old ones (``cached_property``) is left behind."""
        made = super().model_copy(update=update, deep=deep)
        for name in made.__dict__.keys() - type(self).model_fields.keys():
            del made.__dict__[name]
        return made

    @classmethod
    def given(cls, data: Mapping[Any, Any], *, but: Iterable[str] = ()) -> dict[Any, Any]:
        """``data`` where null says "not given", ``but`` some fields; nulls of unknown fields stay, to be refused."""
        return {
            key: value for key, value in data.items() if value is not None or key not in cls.model_fields or key in but
        }


def open_field(
    text: str, *, ge: float | None = None, gt: float | None = None, le: float | None = None, lt: float | None = None
) -> Any:
    """A field that ``text`` describes and that may be left open."""
    return Field(default=None, description=text, ge=ge, gt=gt, le=le, lt=lt)


_RECALLED = re.compile(r"\b(from (memory|knowledge)|recalled)\b", re.IGNORECASE)
ASSUMED = "assumed"
"""The source of a figure that none states."""


def is_recalled(citation: str) -> bool:
    """Whether a citation says itself that it was written from memory and not read again."""
    return _RECALLED.search(citation) is not None


FIRST_YEAR, LAST_YEAR = 1900, 2199
Days = Annotated[int, Field(gt=0, le=36_525)]
"""A century at most: no sum of such a time and a date leaves the calendar."""
SEEDS = 1 << 32
Seed = Annotated[int, Field(ge=0, lt=SEEDS)]


def reached_date(day: date) -> date:
    """The day itself. Raises ValueError: its year is before FIRST_YEAR or after LAST_YEAR."""
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise ValueError(f"a date from {FIRST_YEAR} to {LAST_YEAR} is needed")
    return day


def iso_date(text: str) -> str:
    """The text itself. Raises ValueError: not a date such as 2026-11-21, which texts are compared as."""
    try:
        known = date.fromisoformat(text)
    except ValueError:
        known = None
    if known is None or known.isoformat() != text:
        raise ValueError("a date such as 2026-11-21 is needed")
    reached_date(known)
    return text


def first_day(text: str) -> str:
    """The first day of a year or a month [ISO date], and a day itself."""
    return text + "-01" * (2 - text.count("-"))


def calendar_date(text: str) -> str:
    """The text itself. Raises ValueError: neither a day nor a month or year such as 2026-11 and 2026."""
    try:
        iso_date(first_day(text))
    except ValueError:
        raise ValueError("a date such as 2026-11-21, 2026-11 or 2026 is needed") from None
    return text


LogSpread = Annotated[float, Field(ge=0, le=10)]
"""Standard deviation of a logarithm: at 10, a tenth of the cases lie beyond 370,000 times either way."""
LogSigma = Annotated[LogSpread, Field(gt=0)]
"""One that is known not to be nothing."""
IsoDate = Annotated[str, AfterValidator(iso_date)]
CalendarDate = Annotated[str, AfterValidator(calendar_date)]
"""A day, or the month or year alone, as announcements and papers are known; compared as texts they come first."""


class Source(Spec):
    """Where a figure comes from: citation, when it was read or published, and what to know about it."""

    source: str
    date: CalendarDate
    note: str = ""

    @property
    def unsourced(self) -> bool:
        """Assumed, or written from memory."""
        return self.source == ASSUMED or is_recalled(self.source) or is_recalled(self.note)


Held = TypeVar("Held")


class Same(Generic[Held]):
    """Equal to another only where both hold the same object.

    Specs hold mappings, which have no hash, and comparing large ones takes as long as what the cache saves. Specs are
    frozen, so that the same object stays the same facts; a cache's key keeps it alive, so that no other takes its id.
    """

    __slots__ = ("held",)

    def __init__(self, held: Held) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.held is self.held

    def __hash__(self) -> int:
        return id(self.held)


class ValueOrigin(StrEnum):
    """Where a value came from."""

    GIVEN = "given"
    DEFAULT = "default"
    TRACE = "trace"
    MEASURED = "measured"
    FITTED = "fitted"
    RULE = "rule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """An input of an answer.

    key : what it is: a field of a scenario (``engine.max_num_seqs``), or one of the planner's ``PlanInput``
    value : the value itself; None where ``detail`` says it all; pool : whose it is, "" where it holds for all pools
    detail : what the origin needs to be said in full: a profile's name, a trace, a citation
    """

    key: str
    value: object = None
    origin: ValueOrigin = ValueOrigin.DEFAULT
    detail: object = None
    pool: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """What a reader should know. key : of its sentence in ``reports/words/notes.yaml``; values : what that names."""

    key: str
    values: Mapping[str, object] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.key)


def found_at(data: object, path: str) -> Any:
    """What stands under a dotted path of plain data, None where nothing does; a number is a place in a list."""
    for name in path.split("."):
        if isinstance(data, list) and name.isdecimal():
            data = data[int(name)] if int(name) < len(data) else None
        else:
            data = data.get(name) if isinstance(data, Mapping) else None
    return data


SpecT = TypeVar("SpecT", bound=Spec)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read one YAML mapping.

    Raises FileError: the file cannot be read.
    Raises ProfileError: it is not YAML, a key occurs twice, or its top level is no mapping; names file, line, reason.
    """
    return yaml_mapping(_text(path), where=path)


def yaml_mapping(text: str, *, where: str | Path) -> dict[str, Any]:
    """One YAML mapping from text that is here already; ``where`` names it in refusals, which are `read_yaml`'s."""
    try:
        data = parse_yaml(text)
    except MalformedError as error:
        raise ProfileError(f"{error.place(where)}: not valid YAML: {error.reason}", code="invalid_profile") from None
    return _mapping(data, path=where, kind="YAML")


def read_json(path: str | Path) -> dict[str, Any]:
    """Read one JSON object; errors as in `read_yaml`."""
    return _mapping(json_value(path), path=path, kind="JSON")


def json_value(path: str | Path) -> Any:
    """Whatever a JSON file holds, None where it is empty; errors as in `read_yaml`."""
    text = _text(path)
    try:
        return parse_json(text) if text.strip() else None
    except MalformedError as error:
        raise ProfileError(f"{error.place(path)}: not valid JSON: {error.reason}", code="invalid_profile") from None


def _text(path: str | Path) -> str:
    try:
        return read_text(path)
    except MalformedError as error:
        raise ProfileError(f"{path}: {error}", code="invalid_profile") from None


def _mapping(data: object, *, path: str | Path, kind: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        wrong = f"{path}, line 1: {kind} must hold a mapping of fields, found a {type(data).__name__}"
        empty = f"{path} is empty; a mapping of fields is needed"
        raise ProfileError(empty if data is None else wrong, code="invalid_profile")
    return data


def validate(
    spec_class: type[SpecT],
    data: Mapping[str, object],
    *,
    where: str,
    profile: bool = False,
    option: str = "",
    profiles: str | Path | None = None,
) -> SpecT:
    """Turn plain data into a spec, or refuse with one line.

    ``where`` names the file or scenario in the message. ``profile=True`` makes it a ProfileError (exit code 4),
    otherwise a RoofcastError (exit code 2) with code ``invalid_input``; ``option`` is the only one that all of the data
    was made of; ``profiles`` is the user's directory, in which validators find what the data names.
    """
    try:
        return spec_class.model_validate(data, context=profiles)
    except ValidationError as error:
        from simulator.specs.refusals import refused

        field, message, hint = refused(spec_class, error)
        message += f" in {where}" if where else ""
    if profile:
        raise ProfileError(message, field=field, code="invalid_profile", hint=hint)
    raise RoofcastError(message, field=Option(option) if option else field, hint=hint)
