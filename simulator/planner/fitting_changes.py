"""What would make a refused deployment fit, one change at a time: the nearest of each kind that can be answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from simulator.engine.runs.scenario_setup import deployment_of
from simulator.engine.uniform.record import require_fit
from simulator.errors import RoofcastError
from simulator.phases.memory import memory_plan
from simulator.planner.search.candidates import LARGE_TP_SIZES, USUAL_TP_SIZES
from simulator.records import dataclass
from simulator.specs.question.scenario import ScenarioSpec

_SCHEMES = ("fp8", "gptq-g128")
"""Of weights, from the one that changes answers least."""
_KV_CACHE = "fp8"


@dataclass(frozen=True, slots=True, kw_only=True)
class FittingChange:
    """A field of the scenario, or of its precision, and the value with which the deployment fits its devices."""

    field: str
    value: str | int


def _with(scenario: ScenarioSpec, field: str, value: str | int) -> ScenarioSpec:
    fields: dict[str, Any] = scenario.model_dump(exclude_unset=True)
    if field in ("scheme", "kv_cache"):
        kept = {} if field == "scheme" else fields.get("precision", {})
        fields["precision"] = {**kept, field: value}
    else:
        fields[field] = value
    return ScenarioSpec.model_validate(fields)


def _tokens(scenario: ScenarioSpec) -> int:
    workload = scenario.workload
    if workload is None:
        return (scenario.isl_tokens or 1) + (scenario.osl_tokens or 0)
    prompt = workload.isl_tokens or (workload.system_prompt_tokens + (workload.question_tokens or 0))
    return prompt + (workload.osl_tokens or 0)


def _tried(scenario: ScenarioSpec) -> Iterator[tuple[FittingChange, ...]]:
    sizes = (*USUAL_TP_SIZES, *LARGE_TP_SIZES)
    yield tuple(FittingChange(field="tp_size", value=size) for size in sizes if size > scenario.tp_size)
    yield tuple(FittingChange(field="scheme", value=name) for name in _SCHEMES)
    yield (FittingChange(field="kv_cache", value=_KV_CACHE),)


def fitting_changes(scenario: ScenarioSpec, *, profiles: str | None = None) -> tuple[FittingChange, ...]:
    """The nearest change of each kind with which a request of the scenario fits; empty where none is enough, or where
    it fits as it is and was refused for something else."""

    def fits(change: FittingChange | None) -> bool:
        try:
            changed = scenario if change is None else _with(scenario, change.field, change.value)
            deployment = deployment_of(changed, profiles=profiles)
            require_fit(deployment, memory_plan(deployment), tokens=_tokens(scenario))
        except (RoofcastError, ValueError):
            return False
        return True

    if fits(None):
        return ()
    nearest = (next((change for change in changes if fits(change)), None) for changes in _tried(scenario))
    return tuple(change for change in nearest if change is not None)
