"""Text becomes plain data here: JSON and the plain part of YAML, bounded before anything is made of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from yaml.events import MappingEndEvent, MappingStartEvent, ScalarEvent, SequenceEndEvent, SequenceStartEvent

from simulator.errors import FileError, RoofcastError, shown
from simulator.units import GIGA, MEGA

if TYPE_CHECKING:
    from yaml import SafeLoader as _Loader
else:  # libyaml parses about ten times faster, and start-up time is part of the contract
    _Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

LARGEST_FILE_BYTES = int(GIGA)
"""A week of a large service's requests has some hundred megabytes; a device that never ends stops here."""
LARGEST_YAML_BYTES = int(4 * MEGA)
"""The largest shipped one, a calibration, has a fifth of a megabyte."""
LONGEST_INTEGER = 100
"""Digits of an integer: every one that is shorter is a number to whatever reads it, 64 bits or floating point."""
DEEPEST = 32
"""Levels of nesting; what ships has at most ten."""
MOST_CONTAINERS = int(2 * MEGA)
"""Lists and objects of a JSON document: a week of a server's samples, every five seconds, of sixteen counters."""
_MOST_VALUES = int(MEGA)
"""What the aliases of a file may stand for: nine to nine others, nine times over, are more than there is memory."""

_INTEGER_TAG, _FLOAT_TAG = "tag:yaml.org,2002:int", "tag:yaml.org,2002:float"
_TIMESTAMP_TAG = "tag:yaml.org,2002:timestamp"
_MERGE_TAG = "tag:yaml.org,2002:merge"
_STRING_TAG = "tag:yaml.org,2002:str"


class MalformedError(Exception):
    """Text that is not what it should be; ``line`` is None where no line is to blame, ``key`` one that comes twice,
    ``rest`` a document that is readable but for the fault."""

    def __init__(self, reason: str, *, line: int | None = None, key: str = "", rest: Any = None) -> None:
        super().__init__(reason if line is None else f"line {line}: {reason}")
        self.reason = reason
        self.line = line
        self.key = key
        self.rest = rest

    def place(self, source: object) -> str:
        """``FILE, line N``."""
        return str(source) if self.line is None else f"{source}, line {self.line}"


def read_text(path: str | Path, *, field: str = "") -> str:
    """A file of at most a gigabyte as text.

    Raises FileError: it cannot be read or is larger; names ``field``.
    Raises MalformedError: it is not UTF-8.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise FileError(f"{path}: cannot be read: {reason}", field=field) from None
    if len(content) > LARGEST_FILE_BYTES:
        raise FileError(f"{path}: larger than {LARGEST_FILE_BYTES / MEGA:,.0f} MB", field=field)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 text (byte {error.start})") from None


def argument_text(source: str, *, field: str) -> str:
    """``read_text`` of a file that a command names; text that is not UTF-8 is a refusal of ``field`` too."""
    try:
        return read_text(source, field=field)
    except MalformedError as error:
        raise RoofcastError(f"{source}: {error}", field=field) from None


class _StrictLoader(_Loader):
    """YAML without three surprises: a key written twice is an error, an ISO date stays the text it is, and a number
    is what a person takes for one (3.35e12, but neither 1_000 nor 010 nor 1:30)."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own class attribute
        first: [(tag, pattern) for tag, pattern in resolvers if tag not in (_TIMESTAMP_TAG, _INTEGER_TAG, _FLOAT_TAG)]
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


# As YAML 1.2 has them.
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_FIRST = list("-+.0123456789")
NUMBER_RESOLVER = (_FLOAT_TAG, re.compile(f"(?:{_DECIMAL.pattern})$"), _FIRST)
"""For PyYAML: what reads as a number here."""
_StrictLoader.add_implicit_resolver(_INTEGER_TAG, re.compile(f"(?:{_INTEGER.pattern})$"), _FIRST)
_StrictLoader.add_implicit_resolver(*NUMBER_RESOLVER)


# PyYAML's scanner from 6.0.4 on, which reads ahead: it gives up on a depth before the events of it come.
_SCANNER_TOO_DEEP = "exceeded maximum nesting depth"


class _NotPlainError(Exception):
    """The document uses more of YAML than mappings, lists and untagged scalars."""


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
        data = self._value(self._next(), depth=0)
        self._next()  # end of document
        if not isinstance(self._next(), yaml.StreamEndEvent):
            raise _NotPlainError
        return data

    def _value(self, event: Any, *, depth: int) -> Any:
        kind = type(event)
        if kind is ScalarEvent:
            return self._scalar(event)
        if depth >= DEEPEST:
            raise _too_deep(event.start_mark.line + 1)
        if kind is MappingStartEvent and event.anchor is None and event.tag is None:
            return self._mapping(depth=depth + 1)
        if kind is SequenceStartEvent and event.anchor is None and event.tag is None:
            values = []
            while type(event := self._next()) is not SequenceEndEvent:
                values.append(self._value(event, depth=depth + 1))
            return values
        raise _NotPlainError

    def _mapping(self, *, depth: int) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        following = self._next
        while type(event := following()) is not MappingEndEvent:
            if type(event) is not ScalarEvent or event.value == "<<":
                raise _NotPlainError
            key = self._scalar(event)
            if key in values:
                raise _NotPlainError
            event = following()
            values[key] = self._scalar(event) if type(event) is ScalarEvent else self._value(event, depth=depth)
        return values

    def _scalar(self, event: Any) -> Any:
        if event.anchor is not None or event.tag is not None:
            raise _NotPlainError
        text = event.value
        if not event.implicit[0]:
            return text
        if text in self._known:
            return self._known[text]
        if text[:1] not in self._loader.yaml_implicit_resolvers:  # nothing but text begins so
            value = text
        elif _DECIMAL.fullmatch(text):
            value = _integer(text) if _INTEGER.fullmatch(text) else float(text)
        else:
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


def _too_deep(line: int | None = None) -> MalformedError:
    return MalformedError(f"nested deeper than {DEEPEST} levels", line=line)


def _integer(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise MalformedError(f"a number of more than {LONGEST_INTEGER} digits")
    return int(text)


def _check_depth(data: Any) -> None:
    level = [data]
    for _ in range(DEEPEST):
        level = [
            item
            for held in level
            for item in (held.values() if isinstance(held, dict) else held)
            if isinstance(item, list | dict)
        ]
        if not level:
            return
    raise _too_deep()


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedError(f"the key {shown(twice)} is written twice", key=twice)
    return values


def _containers(text: str | bytes) -> int:
    """Brackets that open a list or an object, those inside quoted texts among them."""
    if isinstance(text, str):
        return text.count("{") + text.count("[")
    return text.count(b"{") + text.count(b"[")


def parse_json(text: str | bytes) -> Any:
    """The JSON document in ``text`` or in bytes of it; raises MalformedError."""
    # Each takes some hundred bytes of memory, and two in a text.
    if len(text) > MOST_CONTAINERS and _containers(text) > MOST_CONTAINERS:
        raise MalformedError(f"more than {MOST_CONTAINERS:,} lists and objects")
    refused: list[MalformedError] = []

    def integer(digits: str) -> int | None:
        try:
            return _integer(digits)
        except MalformedError as error:
            refused.append(error)
            return None

    try:
        data = json.loads(text, object_pairs_hook=_unique_keys, parse_int=integer)
    except json.JSONDecodeError as error:
        raise MalformedError(f"{error.msg} at column {error.colno}", line=error.lineno) from None
    except UnicodeDecodeError as error:
        raise MalformedError(f"not UTF-8 text (byte {error.start})") from None
    except RecursionError:
        raise _too_deep() from None
    if isinstance(data, list | dict):
        _check_depth(data)
    if refused:
        raise MalformedError(refused[0].reason, rest=data)
    return data


def _refuse_constant(name: str) -> Any:
    """NaN and Infinity are text to YAML."""
    raise _NotPlainError(name)


def parse_yaml(text: str) -> Any:
    """The YAML document in ``text``, read as JSON or from events where it is plain. Raises MalformedError."""
    if len(text) > LARGEST_YAML_BYTES:
        raise MalformedError(f"{len(text) / MEGA:.0f} MB, allowed are {LARGEST_YAML_BYTES / MEGA:.0f}")
    body = _without_heading(text)
    if body.startswith("{"):
        try:
            data = json.loads(body, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant, parse_int=_integer)
            _check_depth(data)
            return data
        except (_NotPlainError, ValueError, RecursionError):
            pass
    try:
        return _PlainReader(text).document()
    except (_NotPlainError, yaml.YAMLError, ValueError, RecursionError):
        return _parse_in_full(text)


def _parse_in_full(text: str) -> Any:
    try:
        _check_expansion(yaml_events(text))
        data = yaml.load(text, Loader=_StrictLoader)
    except yaml.YAMLError as error:
        raise _as_malformed(error) from None
    except RecursionError:
        raise _too_deep() from None
    except (ValueError, TypeError, AttributeError) as error:  # of PyYAML's constructors, for tags that do not fit
        raise MalformedError(str(error)) from None
    return data


def _check_expansion(events: Iterable[yaml.Event]) -> None:
    """Count values with every alias written out."""
    sizes: dict[str, int] = {}
    counts, anchors = [0], [""]
    for event in events:
        size = 0
        if isinstance(event, yaml.AliasEvent):
            if event.anchor in anchors:
                raise MalformedError(f"the alias {shown(event.anchor)} stands inside itself", line=_line(event))
            size = sizes.get(event.anchor or "", 0)
        elif isinstance(event, yaml.CollectionStartEvent):
            counts.append(0)
            anchors.append(event.anchor or "")
        elif isinstance(event, yaml.ScalarEvent):
            size = 1
            sizes[event.anchor or ""] = size
        elif isinstance(event, yaml.CollectionEndEvent):
            size = 1 + counts.pop()
            sizes[anchors.pop()] = size
        counts[-1] += size
        if counts[-1] > _MOST_VALUES:
            raise MalformedError(f"stands for more than {_MOST_VALUES:,} values", line=_line(event))


def _line(event: yaml.Event) -> int | None:
    return event.start_mark.line + 1 if event.start_mark else None


def yaml_events(text: str) -> Iterator[yaml.Event]:
    """What the parser meets, of a bounded depth: nesting is refused before it is built, which takes the stack of the
    process itself; raises MalformedError."""
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_Loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise _too_deep(_line(event))
            yield event
    except yaml.YAMLError as error:
        raise _as_malformed(error) from None


def _as_malformed(error: yaml.YAMLError) -> MalformedError:
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or str(error)
    line = None if mark is None else mark.line + 1
    return _too_deep(line) if reason == _SCANNER_TOO_DEEP else MalformedError(reason, line=line)
