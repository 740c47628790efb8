"""One scenario from a YAML or JSON file, with values from the command line over it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from simulator.errors import Option, ProfileError, RoofcastError, contradiction, missing_field, no_effect
from simulator.records import dataclass
from simulator.specs.documents import read_text, validate, yaml_mapping
from simulator.specs.parsing import MalformedError, parse_json
from simulator.specs.question.scenario import Kind, ScenarioSpec
from simulator.specs.question.scenario_changes import FLAG, changed_scenario, parse_change

STANDARD_STREAM = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioChanges:
    """Flags that replace fields of a scenario; None leaves them. Rate and duration are those of its only stage.

    what_if : ``FIELD=VALUE`` texts, as ``roofcast compare --with`` takes them, applied one after another
    """

    model: str | None = None
    hardware: str | None = None
    tp_size: int | None = None
    cp_size: int | None = None
    power_cap_w: float | None = None
    replicas: int | None = None
    rate_per_s: float | None = None
    duration_s: float | None = None
    seed: int | None = None
    routing: str | None = None
    what_if: tuple[str, ...] = ()


def _text(source: str) -> str:
    if source == STANDARD_STREAM:
        return sys.stdin.read()
    try:
        return read_text(source, field="SCENARIO")
    except MalformedError as error:
        raise RoofcastError(f"{source}: {error}", field="SCENARIO") from None


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


def _staged(workload: dict[str, Any], changes: ScenarioChanges) -> dict[str, Any]:
    """The workload with its stage changed, or with one new stage where rate and duration are both given."""
    rate, duration = changes.rate_per_s, changes.duration_s
    stages = workload.get("stages") or []
    if rate is not None and duration is not None:
        return {**workload, "stages": [{"rate_per_s": rate, "duration_s": duration}]}
    given, missing = ("rate", "duration") if rate is not None else ("duration", "rate")
    if not isinstance(stages, list) or len(stages) != 1 or not isinstance(stages[0], dict):
        raise RoofcastError(
            f"the scenario has {len(stages)} stages, of which one would have to be chosen",
            field=Option(given),
            hint=f"add `{missing}`: both together replace all stages by one",
        )
    change = {"rate_per_s": rate} if rate is not None else {"duration_s": duration}
    return {**workload, "stages": [{**stages[0], **change}]}


def _changed(data: dict[str, Any], changes: ScenarioChanges) -> dict[str, Any]:
    changed = dict(data)
    for field in ("model", "hardware", "tp_size", "cp_size", "power_cap_w", "replicas", "routing"):
        if getattr(changes, field) is not None:
            changed[field] = getattr(changes, field)
    if changes.seed is None and changes.rate_per_s is None and changes.duration_s is None:
        return changed
    workload = changed.get("workload") or {}
    if not isinstance(workload, dict):
        return changed
    if changes.rate_per_s is not None or changes.duration_s is not None:
        workload = _staged(workload, changes)
    if changes.seed is not None:
        workload = {**workload, "seed": changes.seed}
    return {**changed, "workload": workload}


def read_scenario(
    source: str, *, changes: ScenarioChanges | None = None, command: str, kinds: Sequence[Kind] = ("serve",)
) -> ScenarioSpec:
    """A scenario from a file ("-" is stdin); ``id`` defaults to the file's name, ``kind`` to the only one of ``kinds``.

    Raises FileError: the file cannot be read.
    Raises RoofcastError: it is neither YAML nor JSON, a field is unknown or out of range, or its kind is none of
    ``kinds``.
    """
    data = _mapping(_text(source), source=source)
    kind = data.get("kind") or (kinds[0] if len(kinds) == 1 else None)
    if kind is None:
        raise missing_field(f"is missing in {source}", field="kind", hint=f"one of {', '.join(kinds)}")
    if kind not in kinds:
        hint = "roofcast simulate answers the other kinds" if kind in get_args(Kind) else ""
        raise RoofcastError(f"{kind!r}; {command} takes kind {', '.join(kinds)}", field="kind", hint=hint)
    name = "stdin" if source == STANDARD_STREAM else Path(source).stem
    changed = _changed(data, changes or ScenarioChanges())
    scenario = validate(ScenarioSpec, {"id": name, **changed, "kind": kind}, where=source)
    return with_what_ifs(scenario, changes)


def with_what_ifs(scenario: ScenarioSpec, changes: ScenarioChanges | None) -> ScenarioSpec:
    """The scenario with its what-ifs, one after another."""
    for text in () if changes is None else changes.what_if:
        scenario = _what_if(scenario, text, changes=changes)
    return scenario


def _what_if(scenario: ScenarioSpec, text: str, *, changes: ScenarioChanges | None) -> ScenarioSpec:
    """``scenario`` with one change; refused where a flag says the same field or the scenario already does."""
    change = parse_change(text)
    for part, field, _ in change.updates:
        if not part and getattr(changes, field, None) is not None:
            option = field.removesuffix("_size")
            raise contradiction(f"{text!r} and `{option}` set the same field", field=FLAG, hint="give one of the two")
    changed = changed_scenario(scenario, change)
    if changed.model_dump() == scenario.model_dump():
        raise no_effect(f"{text!r} is what the scenario says already", field=FLAG)  # fmt: skip
    return changed
