"""Fields of a question as the command line spells them: the only place that knows flags outside ``cli``."""

from __future__ import annotations

import re
from collections.abc import Iterable

from simulator.errors import Option, RoofcastError
from simulator.planner.plan_warnings import FieldValue
from simulator.reports.words.plan_command import option_word

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
