"""Changes to a scenario as a person writes them: ``weights=int4 scheme=gptq-g128``, ``tp_size=2``, ``sparsity=2:4``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.errors import Option, RoofcastError, did_you_mean
from simulator.records import dataclass
from simulator.specs.documents import validate
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.model.precision import PrecisionSpec
from simulator.specs.parsing import MalformedError, parse_yaml
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.technique_words import technique_value
from simulator.specs.question.techniques import TechniquesSpec
from simulator.specs.question.techniques_text import mixed_schemes
from simulator.specs.spellings import SHORT_FIELDS

FLAG = Option("with")
# Objects whose fields may be written without their name, in the order in which they are looked through.
PARTS: Mapping[str, type[PrecisionSpec] | type[TechniquesSpec] | type[EngineSpec]] = {
    "precision": PrecisionSpec,
    "techniques": TechniquesSpec,
    "engine": EngineSpec,
}
WHOLE = (
    "model",
    "hardware",
    "interconnect",
    "power_cap_w",
    "tp_size",
    "pp_size",
    "ep_size",
    "dp_size",
    "cp_size",
    "replicas",
    "routing",
    "batch_size",
    "concurrency",
)
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
    return RoofcastError(
        f"no field {name!r} can be changed", field=FLAG, code="unknown_field", hint=did_you_mean(name, known)
    )
