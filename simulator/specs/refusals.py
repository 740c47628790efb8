"""What a specification refuses of the data that it is made from, in one line: field, value, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from simulator.errors import closest, did_you_mean, same_words, shown

_NAMED_ERRORS = 5
# How pydantic names the member of a union that it tried, and the key of a mapping.
_LABEL = re.compile(r"[\w-]+[\[(].*[\])]|\[key\]|(constrained-)?(str|int|float|bool)|[A-Z]\w*Spec")


def refused(spec_class: type[BaseModel], error: ValidationError) -> tuple[str, str, str]:
    """Dotted field, message and hint of the first error; the message counts and names the others."""
    details = error.errors(include_url=False)
    # Of a union, the member that looked into the value says more than those that take no such thing.
    deeper = {_location(one)[:depth] for one in details for depth in range(len(_location(one)))}
    details = [one for one in details if not one["type"].endswith("_type") or _location(one) not in deeper]
    field, message, hint = _sentence(spec_class, details[0])
    if others := [detail for detail in details[1:] if _field(detail) != field]:
        message += f" (and {len(others)} more: {_others(others)})"
    return field, message, hint


def _sentence(spec_class: type[BaseModel], detail: ErrorDetails) -> tuple[str, str, str]:
    location, field, kind, value = _location(detail), _field(detail), detail["type"], shown(detail["input"])
    if kind == "extra_forbidden":
        word, known = str(location[-1]), _known_fields(spec_class, location)
        deeper = "" if same_words(word) & set(known) else _deeper(spec_class, location)
        elsewhere = getattr(spec_class, "meant", {}).get(word, deeper)
        return field, f"unknown field (value {value})", elsewhere or did_you_mean(word, known)
    if kind == "missing":
        words = get_args(getattr(spec_class.model_fields.get(field), "annotation", None))
        hint = f"one of {', '.join(words)}" if words and isinstance(words[0], str) else ""
        return field, "this field is required and missing", hint
    if kind in ("enum", "literal_error"):
        expected = str(detail.get("ctx", {}).get("expected", ""))
        allowed = [word.strip("'") for word in re.findall(r"'[^']*'|[0-9]+", expected)]
        near = closest(detail["input"], allowed) if isinstance(detail["input"], str) else ""
        return field, f"{value} is not allowed; allowed: {', '.join(allowed)}", near
    reason = detail["msg"].removeprefix("Value error, ")
    said = reason[0].lower() + reason[1:]
    told = kind == "value_error" and (isinstance(detail["input"], Mapping) or ", got " in said)
    said += "" if told else f", got {value}"
    return field, said, _without(spec_class, location) if kind == "greater_than" else ""


def _location(detail: ErrorDetails) -> tuple[int | str, ...]:
    """Where it is in the data: the members of a union that were tried have labels in between, which are left out."""
    return tuple(part for part in detail["loc"] if isinstance(part, int) or not _LABEL.fullmatch(part))


def _field(detail: ErrorDetails) -> str:
    return ".".join(str(part) for part in _location(detail))


def _others(details: list[ErrorDetails]) -> str:
    """Fields of the other errors, a few of them by name."""
    names = list(dict.fromkeys(_field(detail) or "the whole" for detail in details))
    return ", ".join(names[:_NAMED_ERRORS]) + (", ..." if len(names) > _NAMED_ERRORS else "")


def _known_fields(spec_class: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """Fields that could stand where ``location`` ends: walk the annotations along it (indices and tags are skipped)."""
    candidates: list[type[BaseModel]] = [spec_class]
    for part in location[:-1]:
        owners = [owner for owner in candidates if part in owner.model_fields]
        if owners:
            candidates = [inner for owner in owners for inner in _specs_in(owner.model_fields[str(part)].annotation)]
    return [name for candidate in candidates for name in candidate.model_fields]


def _without(spec_class: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """The innermost part around a value that can be left out where none of something is not allowed."""
    candidates: list[type[BaseModel]] = [spec_class]
    found = ""
    for depth, part in enumerate(location, start=1):
        fields = [owner.model_fields[str(part)] for owner in candidates if part in owner.model_fields]
        if fields:
            candidates = [inner for field in fields for inner in _specs_in(field.annotation)]
            if not any(field.is_required() for field in fields):
                found = ".".join(str(piece) for piece in location[:depth])
    return f"leave {found} out, or give more" if found else ""


def _deeper(spec_class: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """Where a field of the first level belongs that only a part of it has."""
    words = {str(location[0]), *same_words(str(location[0]))}
    names = [
        f"{name}.{word}"
        for name, field in spec_class.model_fields.items()
        for inner in _specs_in(field.annotation)
        for word in inner.model_fields
        if word in words
    ]
    return f"did you mean {' or '.join(names)}?" if names and len(location) == 1 else ""


def _specs_in(annotation: object) -> Iterator[type[BaseModel]]:
    """Every specification named somewhere inside a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _specs_in(inner)
