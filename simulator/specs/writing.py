"""Specs as YAML text that reads back as the same spec, and plain documents for other programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from simulator.records import dataclass
from simulator.specs.base import Spec
from simulator.specs.parsing import NUMBER_RESOLVER

_LINE = 120

HEADING = "Written by roofcast calibrate from measurements; do not edit."


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileText:
    """A file of a profile directory to write; ``path`` is relative to the directory."""

    path: str
    text: str


class _Dumper(yaml.SafeDumper):
    """Quotes a text that reads as a number here, as 3e5 does."""


_Dumper.add_implicit_resolver(*NUMBER_RESOLVER)


def yaml_text(spec: Spec, *, heading: str) -> str:
    """``spec`` as YAML under a comment line; fields at their defaults are left out."""
    document = spec.model_dump(mode="json", exclude_defaults=True)
    return f"# {heading}\n" + yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def documents_text(documents: Iterable[Mapping[str, object]]) -> str:
    """Plain mappings as YAML documents one after another, in the order of their keys; no anchors."""
    texts = (yaml.dump(dict(item), Dumper=_PlainDumper, sort_keys=False, width=110) for item in documents)
    return "---\n".join(texts)


class _PlainDumper(_Dumper):
    """Writes a value that occurs twice twice, and texts of several lines line by line."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _PlainDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_PlainDumper.add_representer(str, _text)


def json_yaml_text(spec: Spec, *, heading: str) -> str:
    """The same in the part of YAML that is JSON too, which is read thirty times as fast: for large files that no
    person edits. Branches that fit on a line stand on one."""
    document = spec.model_dump(mode="json", exclude_defaults=True)
    return f"# {heading}\n{_branch(document, indent=0)}\n"


def _branch(value: object, *, indent: int) -> str:
    line = _one_line(value)
    if not isinstance(value, dict | list) or not value or (indent and indent + len(line) <= _LINE):
        return line
    inner = " " * (indent + 1)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {_branch(item, indent=indent + 1)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner + part for part in parts) + "}"
    return "[\n" + ",\n".join(inner + _branch(item, indent=indent + 1) for item in value) + "]"


def _one_line(value: object) -> str:
    match value:
        case dict():
            return "{" + ", ".join(f"{json.dumps(key)}: {_one_line(item)}" for key, item in value.items()) + "}"
        case list():
            return "[" + ", ".join(_one_line(item) for item in value) + "]"
        case float():
            mantissa, exponent, power = json.dumps(value, allow_nan=False).partition("e")
            # YAML 1.1 takes a number with an exponent but without a point or a sign for text.
            whole = f"{mantissa}.0" if "." not in mantissa else mantissa
            return f"{whole}e{int(power):+03d}" if exponent else whole
        case _:
            return json.dumps(value, ensure_ascii=False)
