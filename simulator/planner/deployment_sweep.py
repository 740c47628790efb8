"""One deployment along two axes: the scenarios of a grid, each changed in two fields and otherwise as it is asked."""

from __future__ import annotations

from enum import StrEnum
from itertools import product
from typing import Any

from simulator.engine.runs.load_sweep import DEFAULT_REQUESTS, demand_of
from simulator.errors import RoofcastError
from simulator.planner.search.candidates import USUAL_TP_SIZES
from simulator.records import dataclass
from simulator.specs.base import validate
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.question.plan_values import COMPARED_HARDWARE
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.techniques import SpeculationSpec

Value = str | int | float
_NATIVE = "native"
_GUESSES = SpeculationSpec(method="eagle")
"""Stands for the method of an acceptance that is swept without one."""


class SweepAxis(StrEnum):
    """What is changed from point to point."""

    BATCH = "batch"
    TP = "TP"
    RATE = "rate"
    CONTEXT = "prompt tokens"
    PRECISION = "weights"
    ACCEPTANCE = "acceptance"
    HARDWARE = "accelerator"


_VALUES: dict[SweepAxis, tuple[Value, ...]] = {
    SweepAxis.BATCH: (1, 4, 16, 64, 256),
    SweepAxis.TP: USUAL_TP_SIZES,
    SweepAxis.RATE: (1, 2, 4, 8, 16, 32),
    SweepAxis.CONTEXT: (512, 2048, 8192, 32_768),
    SweepAxis.PRECISION: (_NATIVE, "fp8", "w8a8", "gptq-g128", "nvfp4"),
    SweepAxis.ACCEPTANCE: (0.5, 0.6, 0.7, 0.8, 0.9),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """A scenario of the grid, and the values of both axes that it has."""

    first: Value
    second: Value
    scenario: ScenarioSpec


def axis_values(axis: SweepAxis, *, scenario: ScenarioSpec, profiles: str | None = None) -> tuple[Value, ...]:
    """What an axis takes, the scenario's own value among it."""
    if axis is not SweepAxis.HARDWARE:
        return _VALUES[axis]
    names = [load_hardware(name, profiles=profiles).name for name in (scenario.hardware, *COMPARED_HARDWARE)]
    return tuple(dict.fromkeys(names))


def _changed(fields: dict[str, Any], axis: SweepAxis, value: Value) -> None:
    match axis:
        case SweepAxis.BATCH:
            fields["batch_size"] = value
        case SweepAxis.TP:
            fields["tp_size"] = value
        case SweepAxis.CONTEXT:
            fields["isl_tokens"] = value
        case SweepAxis.HARDWARE:
            fields["hardware"] = value
        case SweepAxis.PRECISION:
            kept = {"kv_cache": cache} if (cache := fields.get("precision", {}).get("kv_cache")) else {}
            fields["precision"] = kept if value == _NATIVE else {**kept, "scheme": value}
        case SweepAxis.ACCEPTANCE:
            techniques = fields.get("techniques", {})
            guesses = techniques.get("speculation") or _GUESSES.model_dump(exclude_unset=True)
            fields["techniques"] = {**techniques, "speculation": {**guesses, "acceptance": value}}
        case SweepAxis.RATE:
            fields["rate_per_s"] = value


def _served(fields: dict[str, Any]) -> dict[str, Any]:
    """A batch under a rate instead: as many requests as a load sweep has, of the batch's lengths, all alike."""
    rate = fields.pop("rate_per_s", None)
    if rate is None:
        return fields
    fields.pop("batch_size", None)
    lengths = {name: fields.pop(name) for name in ("isl_tokens", "osl_tokens")}
    workload = demand_of(**lengths, isl_cv=0.0, osl_cv=0.0).model_dump(exclude_unset=True)
    stage = {"rate_per_s": rate, "duration_s": DEFAULT_REQUESTS / rate}
    return {**fields, "kind": "serve", "workload": {**workload, "stages": [stage]}}


def sweep_points(
    scenario: ScenarioSpec, *, first: SweepAxis, second: SweepAxis, profiles: str | None = None
) -> tuple[SweepPoint, ...]:
    """The grid of a static batch; with a rate as an axis, of the same requests under that load.

    Raises RoofcastError: both axes are the same, or a batch and the rate that makes one.
    """
    partners = [axis for axis in SweepAxis if axis is not first and {first, axis} != {SweepAxis.BATCH, SweepAxis.RATE}]
    if second not in partners:
        names = ", ".join(partners)
        raise RoofcastError(
            f"{first} and {second} cannot be swept together", field="axes", hint=f"{first} can be with {names}"
        ).offering({"axes": partners[0]})
    points = []
    values = (axis_values(axis, scenario=scenario, profiles=profiles) for axis in (first, second))
    for one, two in product(*values):
        fields = scenario.model_dump(mode="json", exclude_unset=True, exclude_none=True)
        _changed(fields, first, one)
        _changed(fields, second, two)
        points.append(SweepPoint(first=one, second=two, scenario=validate(ScenarioSpec, _served(fields), where="")))
    return tuple(points)
