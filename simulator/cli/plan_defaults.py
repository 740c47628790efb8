"""Words of ``words.yaml`` with the library's own values: what stands for every option that is not given, and which
command is meant by a word for one of another name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from simulator.specs.base import read_yaml
from simulator.units import bound_text, percent_text

FILE = Path(__file__).with_name("words.yaml")


@lru_cache(maxsize=1)
def _written() -> Mapping[str, Mapping[str, str]]:
    return read_yaml(FILE)


_SHOWN: Mapping[str, Callable[[Any], str]] = {
    "mixer_tokens": lambda lengths: ", ".join(map(str, lengths)),
    "objectives": lambda found: ", ".join(f"{item.name} <= {bound_text(item.bound_s)}" for item in found),
    **{"utilization": percent_text, "autoscaler_lag": bound_text},
    **dict.fromkeys(("served_duration", "mttr_hours", "demand_sigma"), "{:g}".format),
}


class _Values(dict[str, str]):
    """Each in words, its module imported where the help of a command shows it."""

    def __missing__(self, name: str) -> str:
        return _SHOWN.get(name, str)(resolve_name(f"simulator.{_written()['values'][name]}"))


def _said(*commands: str) -> dict[str, str]:
    """Words of these commands by parameter, later ones over earlier ones."""
    values, parts = _Values(), [_written().get(command, {}) for command in commands]
    return {name: text.format_map(values) for part in parts for names, text in part.items() for name in names.split()}


def plan_defaults() -> Mapping[str, str]:
    """What the help of each field or parameter says after "default"; flags that are off need no words."""
    from simulator.specs.question.plan import PlanSpec

    own = {
        name: f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
        for name, field in PlanSpec.model_fields.items()
        if isinstance(field.default, int | float | str) and not isinstance(field.default, bool)
    }
    return own | _said("plan")


def command_defaults(command: str) -> Mapping[str, str]:
    """What the help of each parameter of a command (``prices list``) says after "default"."""
    return _said("every_command", *(["serve"] if command == "capacity" else []), command)


def meant_by(word: str, *, table: str = "meant") -> str | None:
    """What to type in place of a word for a command, or an option, of another name; None where nobody calls one so."""
    return next((text for text, words in _written()[table].items() if word in words.split()), None)
