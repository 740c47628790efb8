"""Texts of what is handed over, which stand in the YAML files of this folder, filled with the values of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

from simulator.specs.base import read_yaml


@cache
def templates(name: str) -> Mapping[str, Any]:
    """A file of this folder, by what its texts are for: ``manifests``, ``notes`` or ``scripts``."""
    return read_yaml(Path(__file__).with_name(f"{name}.yaml"))


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with every ``${name}`` filled in; an unknown name is a fault of the profile or file it is from."""
    return Template(text).substitute(values)


def script(name: str, values: Mapping[str, str]) -> str:
    """What stands under that name in ``scripts.yaml``, filled with ``values``."""
    return filled(templates("scripts")[name], values)


def note(name: str, values: Mapping[str, str] | None = None) -> str:
    """A text of ``notes.yaml`` with its values filled in."""
    return filled(templates("notes")[name], values or {})
