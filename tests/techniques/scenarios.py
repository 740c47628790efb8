"""One scenario, varied by techniques, for the tests of this folder."""

from __future__ import annotations

from typing import Any

from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.specs.base import validate
from simulator.specs.question.scenario import ScenarioSpec

BATCH: dict[str, Any] = {
    "id": "a",
    "kind": "batch",
    "model": "llama-2-7b",
    "hardware": "h100",
    "batch_size": 8,
    "isl_tokens": 2048,
    "osl_tokens": 32,
    "engine": {"name": "vllm"},
}


def run(**changes: Any) -> ScenarioResult:
    """The answer to the scenario with these fields replaced."""
    return answer(validate(ScenarioSpec, {**BATCH, **changes}, where="test"))


def with_technique(field: str, value: Any, **changes: Any) -> ScenarioResult:
    """The answer with one technique switched on."""
    return run(techniques={field: value}, **changes)
