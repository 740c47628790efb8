"""One scenario from a YAML or JSON file, with values from the command line over it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, get_args

from simulator.errors import Option, ProfileError, RoofcastError, contradiction, did_you_mean, no_effect, same_words
from simulator.records import dataclass
from simulator.specs.base import validate, yaml_mapping
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.parsing import MalformedError, argument_text, parse_json, parse_yaml
from simulator.specs.question.plan_values import SHORT_FIELDS
from simulator.specs.question.scenario import Kind, ScenarioSpec, kind_of
from simulator.specs.question.technique_words import technique_value
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.question.techniques_text import mixed_schemes
from simulator.specs.question.workload import WorkloadSpec

FLAG = Option("with")
# Objects whose fields may be written without their name, in the order in which they are looked through.
PARTS: Mapping[str, type[PrecisionSpec] | type[TechniquesSpec] | type[EngineSpec]] = {
    "precision": PrecisionSpec,
    "techniques": TechniquesSpec,
    "engine": EngineSpec,
}
WHOLE = (
    "model", "hardware", "interconnect", "power_cap_w", "tp_size", "pp_size", "ep_size", "dp_size", "cp_size",
    "replicas", "disaggregation", "routing", "batch_size", "concurrency",
)  # fmt: skip
"""Fields of the scenario itself that a comparison may change; the lengths stay what is compared."""
ABSENT = ("none", "null")
"""Takes a field back to what it is without being given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioChange:
    """One change as written, and the fields it sets: (object or "" for the scenario, field, value)."""

    text: str
    updates: tuple[tuple[str, str, Any], ...]


def parse_change(text: str) -> ScenarioChange:
    """``FIELD=VALUE``, or several of them with spaces between that belong together."""
    words = text.split()
    if not words:
        raise RoofcastError("empty", field=FLAG, hint=f"`{FLAG}` weights=fp8")
    return ScenarioChange(text=" ".join(words), updates=tuple(_update(word) for word in words))


def changed_scenario(scenario: ScenarioSpec, change: ScenarioChange) -> ScenarioSpec:
    """``scenario`` with the change, validated as if it had been written so."""
    data = scenario.model_dump(exclude_unset=True, mode="json")
    for part, field, value in change.updates:
        target = data if not part else data.setdefault(part, {})
        if value is None:
            target.pop(field, None)
        else:
            target[field] = value
    return validate(ScenarioSpec, data, where="")


def _update(word: str) -> tuple[str, str, Any]:
    name, equals, text = word.partition("=")
    if not equals or not text:
        raise RoofcastError(f"{word!r}; FIELD=VALUE is needed", field=FLAG, hint="weights=fp8, sparsity=2:4, tp_size=2")
    part, dot, field = name.strip().replace("-", "_").partition(".")
    if not dot:
        part, field = _home(part)
    elif part not in PARTS or field not in PARTS[part].model_fields:
        raise _unknown(name)
    if text.lower() in ABSENT:
        return part, field, None
    if part == "techniques":
        return part, field, technique_value(field, text)
    if field == "mixed":
        return part, field, mixed_schemes(text.split(","), flag=FLAG)
    return part, field, _plain(name, text)


def _plain(name: str, text: str) -> Any:
    """A number, a word or true/false as YAML reads it."""
    try:
        return parse_yaml(text)
    except MalformedError:
        raise RoofcastError(f"{text!r} is no value for {name}", field=FLAG, hint="weights=fp8, tp_size=2") from None


def _home(name: str) -> tuple[str, str]:
    """Which object a bare field name belongs to."""
    field = SHORT_FIELDS.get(name, name)
    if field == "engine":
        return "engine", "name"
    if field in WHOLE:
        return "", field
    for part, spec in PARTS.items():
        if field in spec.model_fields:
            return part, field
    raise _unknown(name)


def _unknown(name: str) -> RoofcastError:
    known = [*WHOLE, *(field for spec in PARTS.values() for field in spec.model_fields)]
    hint = did_you_mean(name, known)
    asked = {SHORT_FIELDS.get(name, name), *same_words(name)}
    if asked & {*ScenarioSpec.model_fields, *WorkloadSpec.model_fields, "rate_per_s"}:
        hint = "the load stays what is compared: roofcast sweep varies it"
    return RoofcastError(f"no field {name!r} can be changed", field=FLAG, code="unknown_field", hint=hint)


STANDARD_STREAM = "-"

REPLACED = ("model", "hardware", "tp_size", "cp_size", "power_cap_w", "replicas", "routing")
OF_ITS_STAGE = ("rate_per_s", "duration_s")
"""Fields of a scenario that flags replace, and those of its only stage."""


def _text(source: str) -> str:
    return sys.stdin.read() if source == STANDARD_STREAM else argument_text(source, field="SCENARIO")


def _mapping(text: str, *, source: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            data = parse_json(text)
            if isinstance(data, dict):
                return data
        except MalformedError as error:
            message = f"{error.place(source)}: not valid JSON: {error.reason}"
            raise RoofcastError(message, field="SCENARIO", code="malformed_json") from None
    try:
        return yaml_mapping(text, where=source)
    except ProfileError as error:
        raise RoofcastError(error.message, field="SCENARIO", hint=error.hint) from None


def _staged(workload: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The workload with its stage changed, or with one new stage where rate and duration are both given."""
    stages = workload.get("stages") or []
    if len(change) == len(OF_ITS_STAGE):
        return {**workload, "stages": [change]}
    given, missing = ("rate", "duration") if "rate_per_s" in change else ("duration", "rate")
    if not isinstance(stages, list) or len(stages) != 1 or not isinstance(stages[0], dict):
        raise RoofcastError(
            f"the scenario has {len(stages)} stages, of which one would have to be chosen",
            field=Option(given),
            hint=f"add `{missing}`: both together replace all stages by one",
        )
    return {**workload, "stages": [{**stages[0], **change}]}


def given_of(changes: Mapping[str, Any], fields: Sequence[str]) -> dict[str, Any]:
    """Those of ``fields`` that are given."""
    return {field: changes[field] for field in fields if changes.get(field) is not None}


def _changed(data: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    changed = data | given_of(changes, REPLACED)
    stage, seed = given_of(changes, OF_ITS_STAGE), given_of(changes, ("seed",))
    workload = changed.get("workload") or {}
    if not (stage or seed) or not isinstance(workload, dict):
        return changed
    return changed | {"workload": (_staged(workload, stage) if stage else workload) | seed}


def read_scenario(
    source: str, *, changes: Mapping[str, Any] = MappingProxyType({}), command: str, kinds: Sequence[Kind] = ("serve",)
) -> ScenarioSpec:
    """A scenario from a file ("-" is stdin); ``id`` defaults to the file's name, ``kind`` to the only one of ``kinds``
    or to what its fields ask for.

    changes : what flags replace, by field; ``what_if`` : ``FIELD=VALUE`` texts, as for ``roofcast compare --with``

    Raises FileError: the file cannot be read.
    Raises RoofcastError: it is neither YAML nor JSON, a field is unknown or out of range, or its kind is none of
    ``kinds``.
    """
    data = _mapping(_text(source), source=source)
    kind = data.get("kind") or (kinds[0] if len(kinds) == 1 else kind_of(data))
    if kind not in kinds:
        hint = "roofcast simulate answers the other kinds" if kind in get_args(Kind) else ""
        raise RoofcastError(f"{kind!r}; {command} takes kind {', '.join(kinds)}", field="kind", hint=hint)
    name = "stdin" if source == STANDARD_STREAM else Path(source).stem
    changed = _changed(data, changes)
    scenario = validate(ScenarioSpec, {"id": name, **changed, "kind": kind}, where=source)
    return with_what_ifs(scenario, changes)


def with_what_ifs(scenario: ScenarioSpec, changes: Mapping[str, Any]) -> ScenarioSpec:
    """The scenario with its what-ifs, one after another."""
    for text in changes.get("what_if") or ():
        scenario = _what_if(scenario, text, changes=changes)
    return scenario


def _what_if(scenario: ScenarioSpec, text: str, *, changes: Mapping[str, Any]) -> ScenarioSpec:
    """``scenario`` with one change; refused where a flag says the same field or the scenario already does."""
    change = parse_change(text)
    for part, field, _ in change.updates:
        if not part and changes.get(field) is not None:
            option = field.removesuffix("_size")
            raise contradiction(f"{text!r} and `{option}` set the same field", field=FLAG, hint="give one of the two")
    changed = changed_scenario(scenario, change)
    if changed.model_dump() == scenario.model_dump():
        raise no_effect(f"{text!r} is what the scenario says already", field=FLAG)  # fmt: skip
    return changed
