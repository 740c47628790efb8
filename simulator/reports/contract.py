"""Results as the JSON objects of the contract (DESIGN section 4): each field under its own name, nothing computed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.errors import RoofcastError
from simulator.kernels.timing import Provenance
from simulator.reports.words.fields import assumption_text, error_content
from simulator.specs.base import Assumption
from simulator.specs.question.workload import ObjectiveSpec

if TYPE_CHECKING:
    from simulator.engine.runs.answers import ScenarioResult
    from simulator.engine.runs.capacity import CapacityResult

SCHEMA_VERSION = "1.0"

Json = dict[str, Any]


def dump(value: object) -> Any:
    """A result as JSON holds it.

    Dataclasses become objects, provenances, objectives and assumptions their words, numbers that JSON has no word for
    null. A field that has a default is left out where it holds it; one marked ``flat`` puts its own fields beside it,
    its name before theirs; one marked ``inside`` is the library's alone.
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Provenance):
        return value.label
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Assumption):
        return assumption_text(value)
    if isinstance(value, ObjectiveSpec):
        # Most results have no objectives, and metrics of served requests are much to import.
        from simulator.engine.runs.metrics import objective_name

        return objective_name(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {key: dump(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [dump(item) for item in value]
    return _fields(value) if is_dataclass(value) else value


def _fields(value: Any) -> Json:
    found: Json = {}
    for item in fields(value):
        held = getattr(value, item.name)
        if "inside" in item.metadata or (item.default is not MISSING and held is item.default):
            continue
        if "flat" in item.metadata:
            found |= {f"{item.name}_{name}": part for name, part in dump(held).items()}
        else:
            found[item.name] = dump(held)
    return found


def finite(value: float) -> float | None:
    """``value``, or null where it is not a number that JSON can hold."""
    return value if math.isfinite(value) else None


def result_object(result: ScenarioResult | CapacityResult) -> Json:
    """The contract's result of one scenario, or of the search for what it sustains."""
    return {"id": result.scenario.id, "schema_version": SCHEMA_VERSION, **dump(result)}


def error_object(identifier: str | int | None, error: RoofcastError) -> Json:
    """The contract's refusal of one scenario."""
    return {"id": identifier, "error": error_content(error)}
