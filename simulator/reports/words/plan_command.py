"""The command line that asks a plan's question: every field that was set, in the spelling of the flags."""

from __future__ import annotations

import shlex

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
        if name == "objectives":
            words += [word for item in value for word in _objective(item)]
        elif name in _JOINED:
            words += [option_word(name), ",".join(f"{item:.12g}" for item in value)] if value else []
        else:
            words += _words(name, value)
    return shlex.join(words)


def _objective(item: ObjectiveSpec) -> list[str]:
    return [f"--{item.metric}-p{item.percentile:g}", f"{item.bound_s:.12g}s"]
