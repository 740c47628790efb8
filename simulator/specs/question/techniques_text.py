"""Techniques as text on a command line: ``2:4``, ``eagle:k=4,acceptance=0.7``, ``h2o:1024``, ``lora:rank=16,count=8``.

A value is its main word, then ``key=value`` pairs with the names of the scenario's fields: whatever a scenario file
can say, text can. ``a|b|c`` is a list, ``part.key=value`` reaches into a part, and JSON is taken as it is.

A fine-tuning method as text on a command line: ``full``, ``lora:16``, ``qlora:rank=64,targets=attention``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from simulator.errors import Option, RoofcastError, did_you_mean
from simulator.specs.documents import validate
from simulator.specs.parsing import MalformedError, parse_json
from simulator.specs.question.techniques import AdaptersSpec, TechniquesSpec

# Field -> (key of the main word, key of a bare number after it).
_MAIN_WORDS: dict[str, tuple[str, str]] = {
    "sparsity": ("pattern", "fraction"),
    "speculation": ("method", "k"),
    "kv_policy": ("method", "budget_tokens"),
    "adapters": ("method", "rank"),
}
_OTHER_NUMBERS = {"prompt_tuning": "prompt_tokens"}
"""Key of a bare number after these main words."""
_SHORT_KEYS: dict[str, dict[str, str]] = {
    "contextual_sparsity": {"attention": "attention_fraction", "mlp": "mlp_fraction", "rank": "predictor_rank"},
    "kv_policy": {"budget": "budget_tokens"},
}
_EXAMPLES = {
    "sparsity": "2:4",
    "contextual_sparsity": "attention=0.5,mlp=0.2",
    "speculation": "eagle:k=4,acceptance=0.7",
    "attention": "standard",
    "kv_policy": "h2o:1024",
    "adapters": "lora:rank=16,count=8",
    "structure": "num_key_value_heads=8",
    "early_exit": "mean_fraction=0.6",
    "fusion": "true",
    "weight_offload": "0.5",
    "sequence_parallel": "true",
}
_PLAIN = ("attention", "fusion", "sequence_parallel")
_PATTERN = re.compile(r"(\d+:\d+)(?:[:,](.*))?", re.ASCII)
# Longer ones stay text, which no number is made of.
_NUMBER = re.compile(r"[-+]?(\d{1,30}\.?\d{0,30}|\.\d{1,30})([eE][-+]?\d{1,3})?", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniquesText:
    """What the technique options of a command were given; None where one was left out."""

    sparsity: str | None = None
    contextual_sparsity: str | None = None
    speculation: str | None = None
    attention: str | None = None
    kv_policy: str | None = None
    adapters: str | None = None
    structure: str | None = None
    early_exit: str | None = None
    fusion: bool | None = None
    weight_offload: str | None = None
    sequence_parallel: bool | None = None


def techniques_spec(text: TechniquesText) -> TechniquesSpec:
    """The techniques that a command line asks for, or a refusal that names the option's field."""
    data: dict[str, object] = {}
    for item in fields(text):
        value = getattr(text, item.name)
        if value is not None:
            data[item.name] = value if isinstance(value, bool) else technique_value(item.name, value)
    try:
        return validate(TechniquesSpec, data, where="")
    except RoofcastError as error:
        option, _, inside = error.field.partition(".")
        message = f"{inside}: {error.message}" if inside else error.message
        raise RoofcastError(
            message,
            field=Option(option),
            code=error.code,
            hint=error.hint or f"such as {_example(option)}",
        ) from None


def mixed_schemes(pairs: Sequence[str], *, flag: str = Option("mixed")) -> tuple[tuple[str, str], ...] | None:
    """``attention=fp8`` and the like as ``precision.mixed``; None for none."""
    found: dict[str, str] = {}
    for pair in pairs:
        role, equals, scheme = (part.strip() for part in pair.partition("="))
        if not equals or not role or not scheme or role in found:
            raise RoofcastError(
                f"{pair!r} is not ROLE=SCHEME with each role once", field=flag, hint="such as attention=fp8"
            )
        found[role] = scheme
    return tuple(sorted(found.items())) or None


def technique_value(field: str, text: str) -> object:
    """One field of TechniquesSpec as plain data, from its text on a command line."""
    known = TechniquesSpec.model_fields
    if field not in known:
        raise RoofcastError(
            f"{field!r} is not a technique", field="techniques", code="unknown_field", hint=did_you_mean(field, known)
        )
    stripped = text.strip()
    if not stripped:
        raise _bad(field, text, "is empty")
    if stripped[0] in "{[":
        return _json(field, stripped)
    if field in _PLAIN:
        return scalar(stripped)
    if field == "sparsity" and (pattern := _PATTERN.fullmatch(stripped)) is not None:
        return {"pattern": pattern[1], **_pairs(field, pattern[2] or "", bare="fraction")}
    if field not in _MAIN_WORDS:
        return _pairs(field, stripped, bare="fraction" if field == "weight_offload" else "")
    word_key, number_key = _MAIN_WORDS[field]
    word, _, rest = stripped.partition(":")
    if "=" in word:
        return _pairs(field, stripped, bare="")
    return {word_key: word, **_pairs(field, rest, bare=_OTHER_NUMBERS.get(word, number_key))}


def _pairs(field: str, text: str, *, bare: str) -> dict[str, object]:
    """``key=value`` pairs, of which the first may be a number alone where ``bare`` names its key."""
    found: dict[str, Any] = {}
    for place, part in enumerate(piece for piece in text.split(",") if piece.strip()):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            if place or not bare or not _NUMBER.fullmatch(key):
                raise _bad(field, part.strip(), "is not key=value")
            key, value = bare, key
        _put(field, found, _SHORT_KEYS.get(field, {}).get(key, key).replace("-", "_"), scalar(value))
    return found


def _put(field: str, found: dict[str, Any], key: str, value: object) -> None:
    """Set ``a.b`` in nested mappings; a key given twice is refused."""
    *parents, last = key.split(".")
    place = found
    for parent in parents:
        place = place.setdefault(parent, {})
        if not isinstance(place, dict):
            raise _bad(field, key, "is given as a value and as a part")
    if last in place:
        raise _bad(field, key, "is given twice")
    place[last] = value


def scalar(text: str) -> object:
    """Numbers, true and false, lists with bars between, otherwise the text."""
    if "|" in text:
        return [scalar(part.strip()) for part in text.split("|")]
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if _NUMBER.fullmatch(text):
        return int(text) if text.lstrip("-+").isdecimal() else float(text)
    return text


def _json(field: str, text: str) -> object:
    try:
        value: object = parse_json(text)
    except MalformedError as error:
        raise _bad(field, text, f"is not JSON: {error.reason}") from None
    if not isinstance(value, Mapping | list):
        raise _bad(field, text, "is not an object")
    return value


def _bad(field: str, text: str, reason: str) -> RoofcastError:
    return RoofcastError(
        f"{text!r} {reason}",
        field=Option(field),
        code="invalid_input",
        hint=f"such as {_example(field)}",
    )


def _example(field: str) -> str:
    return _EXAMPLES.get(field, "key=value,key=value")


FLAG = Option("fine_tune")
FULL = "full"
_SERVING_ONLY = ("count", "merged")


@dataclass(frozen=True, slots=True, kw_only=True)
class FineTuneText:
    """One method as written; ``adapters`` is None where every weight is trained."""

    text: str
    method: Literal["full", "lora", "qlora", "adapter", "prompt_tuning", "bitfit"]
    adapters: AdaptersSpec | None


def parse_fine_tune(text: str) -> FineTuneText:
    """The method and its sizes, or a refusal that names the option."""
    stripped = text.strip()
    if stripped == FULL:
        return FineTuneText(text=stripped, method="full", adapters=None)
    if stripped.startswith(f"{FULL}:"):
        raise RoofcastError(f"{stripped!r}: full takes no sizes", field=FLAG, hint="full")
    try:
        data = technique_value("adapters", stripped)
        spec = validate(AdaptersSpec, data if isinstance(data, dict) else {}, where="")
    except RoofcastError as error:
        inside = f"{error.field}: " if error.field and not isinstance(error.field, Option) else ""
        methods = "full, lora:16, qlora:16, adapter:64, bitfit or prompt_tuning:20"
        raise RoofcastError(
            f"{stripped!r}: {inside}{error.message}", field=FLAG, code=error.code, hint=f"such as {methods}"
        ) from None
    idle = [field for field in _SERVING_ONLY if field in spec.model_fields_set]
    if idle:
        raise RoofcastError(
            f"{stripped!r}: {idle[0]} has no effect on fine-tuning",
            field=FLAG,
            code="ignored_option",
            hint="leave it out",
        )
    return FineTuneText(text=stripped, method=spec.method, adapters=spec)
