"""Specs as YAML text that reads back as the same spec, and plain documents for other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from simulator.records import dataclass
from simulator.specs.base import Spec
from simulator.specs.parsing import NUMBER_RESOLVER

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
