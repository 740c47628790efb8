"""The scenario as JSON Schema: fields with units, defaults and allowed values, for editors that complete from it."""

from __future__ import annotations

import re
from typing import Any

from simulator.operators.formats.schemes import SCHEME_NAMES
from simulator.specs.base import LARGEST_INTEGER, LARGEST_NUMBER
from simulator.specs.model.precision import NumberFormat
from simulator.specs.profiles import list_profiles
from simulator.specs.question.scenario import IDLE_FIELDS, NOMINAL_LENGTHS, REQUIRED_FIELDS, ScenarioSpec
from simulator.specs.question.technique_words import OF_PARTS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
UNITS = {
    "_per_s": "1/s",
    "_tokens": "tokens",
    "_bytes": "bytes",
    "_s": "s",
    "_pixels": "pixels",
    "_len": "tokens",
    "_cv": "standard deviation over mean",
    "_fraction": "share of 1",
}
_BOUNDS = (LARGEST_INTEGER, -LARGEST_INTEGER, LARGEST_NUMBER, -LARGEST_NUMBER)
"""Limits against mistakes, which say nothing of a field."""
_SENTENCE = re.compile(r"(?<=[.)])\s+(?=[A-Z`])")

Schema = dict[str, Any]


def scenario_schema() -> Schema:
    """JSON Schema of one line of ``roofcast simulate``'s input, and of a scenario file as YAML."""
    document = ScenarioSpec.model_json_schema()
    for part in (document, *document["$defs"].values()):
        _describe(part)
    precision, techniques, engine = (document["$defs"][f"{name}Spec"] for name in ("Precision", "Techniques", "Engine"))
    for field in ("weights", "activations", "kv_cache"):
        _or_word(precision["properties"], field, [item.value for item in NumberFormat])
    _or_word(precision["properties"], "scheme", SCHEME_NAMES)
    for field, example in OF_PARTS.items():
        _or_word(techniques["properties"], field, [example])
    _or_word(engine["properties"], "name", list_profiles("engines"))
    _or_word(engine["properties"], "kv_tiers", ["host:1e12|nvme:15e12,bytes_per_s=25e9"])
    fields = document["properties"]
    _or_word(fields, "engine", list_profiles("engines"))
    _or_word(fields, "precision", SCHEME_NAMES)
    _or_word(fields, "slo", ["ttft-p95=2s"])
    _or_word(fields, "hardware", list_profiles("hardware"))
    _or_word(fields, "model", list_profiles("models"))
    _allow(engine["properties"]["version"], {"type": "number"})
    _allow(techniques["properties"]["weight_offload"], {"type": "number"})
    _allow(precision["properties"]["mixed"], {"type": "object", "additionalProperties": {"type": "string"}})
    rules = [_rule(kind) for kind in REQUIRED_FIELDS]
    return {"$schema": DIALECT, **document, "title": "roofcast scenario", "allOf": rules}


def _rule(kind: str) -> Schema:
    """What a kind needs, and what would silently change nothing under it."""
    idle: Schema = {field: {"type": "null"} for field in IDLE_FIELDS[kind]}
    needed = list(REQUIRED_FIELDS[kind])
    then: Schema = {"required": needed, "properties": idle}
    if kind == "closed_loop":
        # The lengths that are said, or those of a file.
        then["required"] = [field for field in needed if field not in NOMINAL_LENGTHS]
        then["anyOf"] = [{"required": list(NOMINAL_LENGTHS)}, {"required": ["lengths_trace"]}]
    return {"if": {"properties": {"kind": {"const": kind}}, "required": ["kind"]}, "then": then}


def _describe(part: Schema) -> None:
    """Say of every field what its class says of it, and its unit; null is "not given" everywhere."""
    sentences = _SENTENCE.split(" ".join(str(part.get("description", "")).split()))
    for name, field in part.get("properties", {}).items():
        field.pop("title", None)
        _without_bounds(field)
        if isinstance(field.get("default"), dict):
            del field["default"]
        said = " ".join(sentence for sentence in sentences if f"``{name}``" in sentence).replace("``", "`")
        unit = next((unit for suffix, unit in UNITS.items() if name.endswith(suffix)), "")
        text = " ".join(filter(None, (f"[{unit}]" if unit else "", said)))
        if text:
            field["description"] = text
        _allow(field, {"type": "null"})


def _without_bounds(field: Schema) -> None:
    for limit in ("minimum", "maximum"):
        if field.get(limit) in _BOUNDS:
            del field[limit]
    for inner in (*field.get("anyOf", ()), *([field["items"]] if isinstance(field.get("items"), dict) else ())):
        _without_bounds(inner)


_AROUND = ("description", "default")


def _allow(field: Schema, other: Schema) -> None:
    """Let ``other`` stand in a field's place too."""
    if "anyOf" not in field:
        inner = {key: field.pop(key) for key in list(field) if key not in _AROUND}
        field["anyOf"] = [inner]
    if other not in field["anyOf"]:
        field["anyOf"].append(other)


def _or_word(fields: Schema, name: str, known: Any) -> None:
    """Let any word stand in a field, and name those that are known: other spellings of them are understood too."""
    words: Schema = {"type": "string", "examples": list(known)} if known else {"type": "string"}
    _allow(fields[name], words)
