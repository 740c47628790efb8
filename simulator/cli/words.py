"""The words of a command line before they are parsed: what the parser would take in silence is refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args

from typer.core import TyperOption

from simulator.errors import LONGEST_VALUE, RoofcastError, shown
from simulator.specs.base import LARGEST_INTEGER

_INTEGER = re.compile(r"[-+]?[0-9]+(?:\.0*)?")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


def check_words(command: Any, words: Sequence[str]) -> None:
    """Refuse an option that holds one value and is given more, of which the last would win, and numbers that are none
    or that nobody means."""
    options = [parameter for parameter in command.params if isinstance(parameter, TyperOption)]
    taken = {name: option for option in options for name in (*option.opts, *option.secondary_opts)}
    seen: set[str] = set()
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        option = taken.get(name)
        if option is None:
            inner = getattr(command, "commands", {}).get(word)
            if inner is not None:
                return check_words(inner, rest)
            if word == "--":
                return None
            continue
        if str(option.name) in seen and not option.multiple and not option.is_flag:
            raise RoofcastError("is given more than once and holds one value", field=name, hint="keep one of them")
        seen.add(str(option.name))
        if option.is_flag:
            continue
        if not equals and rest:
            value, equals = rest.pop(0), "="
        if equals:
            _check_number(name, option, value)
    return None


def _check_number(name: str, option: TyperOption, value: str) -> None:
    annotation = option.type_descriptor.annotation
    kinds = {annotation, *get_args(annotation)}
    whole = int in kinds
    if not whole and float not in kinds:
        return
    written = (_INTEGER if whole else _NUMBER).fullmatch(value)
    if written is None:
        raise RoofcastError(f"a{' whole' if whole else ''} number is needed, got {shown(value)}", field=name)
    if len(value) > LONGEST_VALUE or (whole and abs(float(value)) > LARGEST_INTEGER):
        raise RoofcastError(f"at most {LARGEST_INTEGER:,} is taken, got {shown(value)}", field=name)
