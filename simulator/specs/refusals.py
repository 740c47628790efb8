"""What pydantic found wrong, as one sentence that says where, what and what else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from simulator.errors import did_you_mean, shown
from simulator.specs.base import Spec

_NAMED_ERRORS = 5
# How pydantic names the member of a union that it tried, and the key of a mapping.
_LABEL = re.compile(r"[\w-]+[\[(].*[\])]|\[key\]|(constrained-)?(str|int|float|bool)|[A-Z]\w*Spec")


def refused(spec_class: type[Spec], error: ValidationError) -> tuple[str, str, str]:
    """Dotted field, message and hint of the first error; the message counts and names the others."""
    details = error.errors(include_url=False)
    field, message, hint = _sentence(spec_class, details[0])
    others = [detail for detail in details[1:] if _field(detail) != field]
    if others:
        message += f" (and {len(others)} more: {_others(others)})"
    return field, message, hint


def _sentence(spec_class: type[Spec], detail: ErrorDetails) -> tuple[str, str, str]:
    """Dotted field, message and hint of one pydantic error."""
    location, field = _location(detail), _field(detail)
    kind, value = detail["type"], shown(detail["input"])
    if kind == "extra_forbidden":
        hint = _deeper(spec_class, location) or did_you_mean(str(location[-1]), _known_fields(spec_class, location))
        return field, f"unknown field (value {value})", hint
    if kind == "missing":
        return field, "this field is required and missing", ""
    if kind in ("enum", "literal_error"):
        allowed = re.findall(r"'([^']*)'", str(detail.get("ctx", {}).get("expected", "")))
        return field, f"{value} is not allowed; allowed: {', '.join(allowed)}", _closest(detail["input"], allowed)
    reason = detail["msg"].removeprefix("Value error, ")
    return field, f"{reason[0].lower()}{reason[1:]}, got {value}", ""


def _location(detail: ErrorDetails) -> tuple[int | str, ...]:
    """Where it is in the data: the members of a union that were tried have labels in between, which are left out."""
    return tuple(part for part in detail["loc"] if isinstance(part, int) or not _LABEL.fullmatch(part))


def _field(detail: ErrorDetails) -> str:
    return ".".join(str(part) for part in _location(detail))


def _others(details: list[ErrorDetails]) -> str:
    """Fields of the other errors, a few of them by name."""
    names = [_field(detail) for detail in details]
    named = list(dict.fromkeys(name or "the whole" for name in names))[:_NAMED_ERRORS]
    return ", ".join(named) + (", ..." if len(set(names)) > len(named) else "")


def _closest(value: object, allowed: list[str]) -> str:
    """A did-you-mean only where something is close: the message lists everything that is allowed already."""
    hint = did_you_mean(str(value), allowed)
    return hint if hint.startswith("did you mean") else ""


def _known_fields(spec_class: type[Spec], location: tuple[int | str, ...]) -> list[str]:
    """Fields that could stand where ``location`` ends: walk the annotations along it (indices and tags are skipped)."""
    candidates: list[type[Spec]] = [spec_class]
    for part in location[:-1]:
        owners = [owner for owner in candidates if part in owner.model_fields]
        if owners:
            annotations = [owner.model_fields[str(part)].annotation for owner in owners]
            candidates = [inner for annotation in annotations for inner in _specs_in(annotation)]
    return [name for candidate in candidates for name in candidate.model_fields]


def _deeper(spec_class: type[Spec], location: tuple[int | str, ...]) -> str:
    """Where a field of the first level belongs that only a part of it has."""
    names = [
        f"{name}.{location[0]}"
        for name, field in spec_class.model_fields.items()
        if any(location[0] in inner.model_fields for inner in _specs_in(field.annotation))
    ]
    return f"did you mean {' or '.join(names)}?" if names and len(location) == 1 else ""


def _specs_in(annotation: object) -> Iterator[type[Spec]]:
    """Every Spec class named somewhere inside a type annotation."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        yield annotation
    for inner in get_args(annotation):
        yield from _specs_in(inner)
