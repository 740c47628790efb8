"""Techniques as text: ``2:4``, ``eagle:k=4,acceptance=0.7``, ``h2o:20%``, ``lora:rank=16,count=8``.

A value is its main word, then ``key=value`` pairs with the names of the scenario's fields: whatever a scenario file
can say, text can, and a scenario file may say it so too. ``a|b|c`` is a list, ``part.key=value`` reaches into a part,
and JSON is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from simulator.errors import RoofcastError, did_you_mean
from simulator.specs.parsing import MalformedError, parse_json

PLACE = "techniques"
_OTHER_NUMBERS = {"prompt_tuning": "prompt_tokens"}
"""Key of a bare number after these main words."""
_BARE_WORDS = {"draft": "draft_model"}
"""Key of a bare word after these main words: draft:llama-3.2-1b,k=4."""
_SHARES = {"budget_tokens": "budget_fraction"}
"""Key of a share where a number of tokens may stand: h2o:20%."""


class Spelling(NamedTuple):
    """How a technique is written.

    example : such a text; is_scalar : a word or a truth value, taken as it is
    word, number : keys of the main word, and of a bare number behind it or, without a main word, alone
    short : keys by the shorter words that may stand for them
    """

    example: str
    is_scalar: bool = False
    word: str = ""
    number: str = ""
    short: Mapping[str, str] = {}


SPELLINGS: Mapping[str, Spelling] = {
    "sparsity": Spelling("2:4", word="pattern", number="fraction"),
    "contextual_sparsity": Spelling(
        "attention=0.5,mlp=0.2",
        short={"attention": "attention_fraction", "mlp": "mlp_fraction", "rank": "predictor_rank"},
    ),
    "speculation": Spelling("eagle:k=4,acceptance=0.7", word="method", number="k", short={"draft": "draft_model"}),
    "attention": Spelling("standard", is_scalar=True),
    "kv_policy": Spelling("h2o:1024", word="method", number="budget_tokens", short={"budget": "budget_tokens"}),
    "adapters": Spelling("lora:rank=16,count=8", word="method", number="rank"),
    "structure": Spelling("num_key_value_heads=8"),
    "early_exit": Spelling("mean_fraction=0.6", number="mean_fraction"),
    "fusion": Spelling("true", is_scalar=True),
    "weight_offload": Spelling("0.5", number="fraction"),
    "sequence_parallel": Spelling("true", is_scalar=True),
    "two_batch_overlap": Spelling("true", is_scalar=True),
}
OF_PARTS: Mapping[str, str] = {
    field: spelling.example for field, spelling in SPELLINGS.items() if not spelling.is_scalar
}
"""Examples of the techniques that have fields of their own."""
_PATTERN = re.compile(r"(\d+:\d+)(?:[:,](.*))?", re.ASCII)
# Longer ones stay text, which no number is made of.
_NUMBER = re.compile(r"[-+]?(\d{1,30}\.?\d{0,30}|\.\d{1,30})([eE][-+]?\d{1,3})?", re.ASCII)


def technique_value(field: str, text: str) -> object:
    """One field of a scenario's ``techniques`` as plain data, from its text."""
    spelling = SPELLINGS.get(field)
    if spelling is None:
        hint = did_you_mean(field, SPELLINGS)
        raise RoofcastError(f"{field!r} is not a technique", field=PLACE, code="unknown_field", hint=hint)
    stripped = text.strip()
    if not stripped:
        raise _bad(field, text, "is empty")
    if stripped[0] in "{[":
        return _json(field, stripped)
    if spelling.is_scalar:
        return scalar(stripped)
    if field == "sparsity" and (pattern := _PATTERN.fullmatch(stripped)) is not None:
        return {"pattern": pattern[1], **_pairs(field, pattern[2] or "", bare="fraction")}
    if not spelling.word:
        return _pairs(field, stripped, bare=spelling.number)
    word, _, rest = stripped.partition(":")
    if "=" in word:
        return _pairs(field, stripped, bare="")
    bare = _OTHER_NUMBERS.get(word, spelling.number)
    return {spelling.word: word, **_pairs(field, rest, bare=bare, bare_word=_BARE_WORDS.get(word, ""))}


def _pairs(field: str, text: str, *, bare: str, bare_word: str = "") -> dict[str, object]:
    """``key=value`` pairs, of which the first may be a number (``bare``) or a word (``bare_word``) alone."""
    found: dict[str, Any] = {}
    for place, part in enumerate(piece for piece in text.split(",") if piece.strip()):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            alone = bare if _NUMBER.fullmatch(key.removesuffix("%")) else bare_word
            if place or not alone:
                raise _bad(field, part.strip(), "is not key=value")
            key, value = alone, key
        name = SPELLINGS[field].short.get(key, key).replace("-", "_")
        number = scalar(value)
        if name in _SHARES and isinstance(number, float):
            name = _SHARES[name]
        _put(field, found, name, number)
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
    """Numbers, shares as 20%, true and false, lists with bars between, otherwise the text."""
    if "|" in text:
        return [scalar(part.strip()) for part in text.split("|")]
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.endswith("%") and _NUMBER.fullmatch(text[:-1]):
        return float(text[:-1]) / 100
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
        f"{text!r} {reason}", field=f"{PLACE}.{field}", code="invalid_input", hint=f"such as {SPELLINGS[field].example}"
    )
