"""What every spec shares (frozen, no unknown fields, strict numbers), and how an answer's inputs are recorded."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from simulator.records import dataclass
from simulator.units import MEGA, TERA

LARGEST_INTEGER = int(2 / sys.float_info.epsilon)
"""What JSON programs exchange without loss: 2 to the 53rd (RFC 8259, section 6); larger ones are mistakes."""
LARGEST_NUMBER = TERA * TERA * MEGA
"""1e30: far above every quantity of the field (a training run has 1e26 FLOPs), and products of several stay finite."""


_INNER = ("schema", "items_schema", "values_schema")  # keys of JSON are text


def _strict(schema: Any, *, own: object) -> Any:
    """``schema`` with strict and bounded numbers; specs inside are strict already. Whole floats are integers, as many
    JSON programs write them."""
    kind = schema["type"]
    if kind == "float":
        return {"le": LARGEST_NUMBER, "ge": -LARGEST_NUMBER, **schema, "strict": True}
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


def _number(value: Any) -> Any:
    if isinstance(value, str | bytes | bool):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return value


class Spec(BaseModel):
    """Something given by a person or a file: numbers are numbers, and of a size that can be meant."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """The schema that pydantic makes, without the conversions of text and truth values to numbers."""
        schema: CoreSchema = _strict(handler.resolve_ref_schema(handler(source)), own=cls)
        return schema

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


class Source(Spec):
    """Where a figure comes from: citation, the day it was read or published (ISO), and what to know about it."""

    source: str
    date: str
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
    value : the value itself; None where ``detail`` says it all
    detail : what the origin needs to be said in full: a profile's name, a trace, a citation
    """

    key: str
    value: object = None
    origin: ValueOrigin = ValueOrigin.DEFAULT
    detail: object = None
