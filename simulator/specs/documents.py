"""Files and plain data become specs here, and every refusal is one line that says where, what and what else."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import yaml
from pydantic import ValidationError
from yaml.events import MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

from simulator.errors import FileError, ProfileError, RoofcastError, did_you_mean
from simulator.specs.base import Spec

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails
    from yaml import SafeLoader as _Loader
else:  # libyaml parses about ten times faster, and start-up time is part of the contract
    _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

SpecT = TypeVar("SpecT", bound=Spec)

_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"
_MERGE_TAG = "tag:yaml.org,2002:merge"
_SHOWN_CHARACTERS = 60
_NAMED_ERRORS = 5


class _StrictLoader(_Loader):
    """YAML without two surprises: a key written twice is an error, and an ISO date stays the text it is."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own class attribute
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP_TAG]
        for first, resolvers in _Loader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE_TAG:
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key.value!r} is written twice", key.start_mark
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep=deep)


class _NotPlainError(Exception):
    """The document uses more of YAML than mappings, lists and untagged scalars."""


_STRING_TAG = "tag:yaml.org,2002:str"
# What a plain decimal looks like: Python reads it as YAML 1.1 does.
_DECIMAL = re.compile(r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+][0-9]+)?")


class _PlainReader:
    """Builds plain data from parser events: three times as fast as through PyYAML's nodes, which costs the most at
    start-up. Whatever is out of the ordinary, mistakes included, is left to `_StrictLoader`."""

    def __init__(self, text: str) -> None:
        loader: Any = _StrictLoader  # PyYAML's classes have no types
        self._loader = loader(text)
        self._next = self._loader.get_event
        self._known: dict[str, Any] = {}

    def document(self) -> Any:
        """The only document of the text."""
        self._next()  # start of stream
        self._next()  # start of document
        data = self._value(self._next())
        self._next()  # end of document
        if not isinstance(self._next(), yaml.StreamEndEvent):
            raise _NotPlainError
        return data

    def _value(self, event: Any) -> Any:
        kind = type(event)
        if kind is ScalarEvent:
            return self._scalar(event)
        if kind is MappingStartEvent and event.anchor is None and event.tag is None:
            return self._mapping()
        if kind is SequenceStartEvent and event.anchor is None and event.tag is None:
            values = []
            while type(event := self._next()) is not SequenceEndEvent:
                values.append(self._value(event))
            return values
        raise _NotPlainError

    def _mapping(self) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        following = self._next
        while type(event := following()) is not MappingEndEvent:
            if type(event) is not ScalarEvent or event.value == "<<":
                raise _NotPlainError
            key = self._scalar(event)
            if key in values:
                raise _NotPlainError
            event = following()
            values[key] = self._scalar(event) if type(event) is ScalarEvent else self._value(event)
        return values

    def _scalar(self, event: Any) -> Any:
        if event.anchor is not None or event.tag is not None:
            raise _NotPlainError
        text = event.value
        if not event.implicit[0]:
            return text
        if text in self._known:
            return self._known[text]
        if _DECIMAL.fullmatch(text):
            return float(text)
        tag = self._loader.resolve(yaml.ScalarNode, text, event.implicit)
        node = yaml.ScalarNode(tag, text, event.start_mark, event.end_mark)
        value = text if tag == _STRING_TAG else self._loader.construct_object(node)
        self._known[text] = value
        return value


def _without_heading(text: str) -> str:
    """The text from its first line on that is neither a comment nor empty."""
    while text.startswith(("#", "\n")):
        text = text.partition("\n")[2]
    return text


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise _NotPlainError
    return values


def _refuse_constant(name: str) -> Any:
    """NaN and Infinity are text to YAML."""
    raise _NotPlainError(name)


def _parse(text: str) -> Any:
    """What is JSON is read as such, being YAML too; what is plain from events; the rest, mistakes too, in full."""
    body = _without_heading(text)
    if body.startswith("{"):
        try:
            return json.loads(body, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
        except (_NotPlainError, ValueError, RecursionError):
            pass
    try:
        return _PlainReader(text).document()
    except (_NotPlainError, yaml.YAMLError, ValueError, RecursionError):
        return yaml.load(text, Loader=_StrictLoader)


def parse_yaml(text: str) -> Any:
    """The document in ``text``, as strictly as from a file; raises yaml.YAMLError, ValueError or RecursionError."""
    return _parse(text)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """Read one YAML mapping.

    Raises
    ------
    FileError
        The file cannot be read.
    ProfileError
        It is not YAML, a key occurs twice, or its top level is not a mapping; names file, line and reason.
    """
    return yaml_mapping(_text(path), where=path)


def yaml_mapping(text: str, *, where: str | Path) -> dict[str, Any]:
    """One YAML mapping from text that is here already; ``where`` names it in refusals, which are `read_yaml`'s."""
    try:
        data = _parse(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark is not None else ""
        reason = getattr(error, "problem", None) or str(error)
        raise ProfileError(f"{where}{line}: not valid YAML: {reason}", code="invalid_profile") from None
    return _mapping(data, path=where, kind="YAML")


def read_json(path: str | Path) -> dict[str, Any]:
    """Read one JSON object; errors as in `read_yaml`."""
    text = _text(path)
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise ProfileError(
            f"{path}, line {error.lineno}: not valid JSON: {error.msg}", code="invalid_profile"
        ) from None
    return _mapping(data, path=path, kind="JSON")


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path}: not UTF-8 text (byte {error.start})", code="invalid_profile") from None
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None


def _mapping(data: object, *, path: str | Path, kind: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        found = "nothing" if data is None else f"a {type(data).__name__}"
        message = f"{path}, line 1: {kind} must hold a mapping of fields, found {found}"
        raise ProfileError(message, code="invalid_profile")
    return data


def validate(spec_class: type[SpecT], data: Mapping[str, object], *, where: str, profile: bool = False) -> SpecT:
    """Turn plain data into a spec, or refuse with one line.

    ``where`` names the file or scenario in the message. ``profile=True`` makes it a ProfileError (exit code 4),
    otherwise a RoofcastError (exit code 2) with code ``invalid_input``.
    """
    try:
        return spec_class.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        field, message, hint = _sentence(spec_class, details[0])
        if len(details) > 1:
            message += f" (and {len(details) - 1} more: {_others(details[1:])})"
        if where:
            message += f" in {where}"
    if profile:
        raise ProfileError(message, field=field, code="invalid_profile", hint=hint)
    raise RoofcastError(message, field=field, hint=hint)


def _sentence(spec_class: type[Spec], detail: ErrorDetails) -> tuple[str, str, str]:
    """Dotted field, message and hint of one pydantic error."""
    location = tuple(part for part in detail["loc"] if part != "[key]")
    field = ".".join(str(part) for part in location)
    kind, value = detail["type"], _shown(detail["input"])
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


def _others(details: list[ErrorDetails]) -> str:
    """Fields of the other errors, a few of them by name."""
    names = [".".join(str(part) for part in detail["loc"] if part != "[key]") for detail in details]
    named = list(dict.fromkeys(name or "the whole" for name in names))[:_NAMED_ERRORS]
    return ", ".join(named) + (", ..." if len(set(names)) > len(named) else "")


def _closest(value: object, allowed: list[str]) -> str:
    """A did-you-mean only where something is close: the message lists everything that is allowed already."""
    hint = did_you_mean(str(value), allowed)
    return hint if hint.startswith("did you mean") else ""


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


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
