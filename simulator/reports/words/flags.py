"""Fields of a question as the command line spells them: the only place that knows flags outside ``cli``.

The command line that asks a plan's question: every field that was set, in the spelling of the flags.

How bursty recorded arrivals are, in words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from simulator.errors import Option, RoofcastError
from simulator.planner.records import FieldValue
from simulator.specs.question.plan import ObjectiveSpec, PlanSpec
from simulator.specs.spellings import SHORT_FIELDS

_JOINED = ("load_profile",)
"""Lists that are one flag with commas; all others repeat theirs."""


_SHORT_OF = {field: word for word, field in SHORT_FIELDS.items()}


def option_word(field: str) -> str:
    """The option that fills a field: ``--tp`` of ``tp_size``, ``--max-gpus`` of ``max_gpus``."""
    return "--" + _SHORT_OF.get(field, field).replace("_", "-")


def _words(name: str, value: object) -> list[str]:
    flag = option_word(name)
    if isinstance(value, bool):
        return [flag] if value else []
    if isinstance(value, tuple):
        return [word for item in value for word in _words(name, item)]
    if isinstance(value, float):
        return [flag, f"{value:.12g}"]
    return [flag, str(getattr(value, "value", value))]


def plan_command(spec: PlanSpec) -> str:
    """``plan-capacity --rps 1000 --ttft-p95 2s``, quoted for a shell."""
    words = ["plan-capacity"]
    for name in type(spec).model_fields:
        value = getattr(spec, name)
        if name not in spec.model_fields_set or value is None:
            continue
        if value is False and type(spec).model_fields[name].default is None:
            words.append(option_word(f"no_{name}"))
        elif name == "objectives":
            words += [word for item in value for word in _objective(item)]
        elif name in _JOINED:
            words += [option_word(name), ",".join(f"{item:.12g}" for item in value)] if value else []
        else:
            words += _words(name, value)
    return shlex.join(words)


def _objective(item: ObjectiveSpec) -> list[str]:
    return [f"--{item.metric}-p{item.percentile:g}", f"{item.bound_s:.12g}s"]


NAMED = re.compile(r"`([a-z0-9_]+)`")
"""A field that an error names, in the middle of its sentence."""


def flag_of(field: str) -> str:
    """``--max-gpus`` of ``max_gpus``, ``--tp`` of ``tp_size``: options are spelled as the fields that they fill."""
    return option_word(field)


def flag_text(item: FieldValue) -> str:
    """``--tp 4``; ``--tp`` alone where the value is open, ``no --tp`` where it is left out."""
    return flagged(str(item))


def flag_texts(items: Iterable[FieldValue]) -> str:
    """All of them in one line."""
    return " ".join(flag_text(item) for item in items)


def error_field(error: RoofcastError) -> str:
    """What was wrong, as the command line calls it."""
    return flag_of(error.field) if isinstance(error.field, Option) else error.field


def error_line(error: RoofcastError) -> str:
    """``str(error)`` with fields as flags."""
    return flagged(str(error))


def error_content(error: RoofcastError) -> dict[str, str]:
    """A refusal as it stands in a JSON document."""
    return {
        "code": error.code,
        "field": error_field(error),
        "message": flagged(error.message),
        "hint": flagged(error.hint),
    }


def flagged(sentence: str) -> str:
    """An error's sentence with its fields as flags."""
    return NAMED.sub(lambda found: flag_of(found[1]), sentence)


def burst_text(dispersion: float) -> str:
    """``counts in windows of seconds vary 37 times as much as Poisson's ...``."""
    own = f"counts within seconds vary {dispersion:.2g} times as much as Poisson's"
    return f"{own}: one of N replicas sees {flag_of('arrival_cv')} sqrt(1 + {dispersion - 1:.2g} / N)"
