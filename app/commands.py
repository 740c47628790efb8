"""The command lines that print what a page shows."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

from simulator.cli.step import StepQuestion
from simulator.specs.question.scenario import ScenarioSpec


def plan_command(flags: Mapping[str, object]) -> str:
    """``plan-capacity`` with the flags of the page."""
    words = ["plan-capacity"]
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
            continue
        for item in value if isinstance(value, tuple) else (value,):
            words.extend((flag, f"{item:g}" if isinstance(item, float) else str(item)))
    return shlex.join([*words, "--json"])


def scenario_line(scenario: ScenarioSpec) -> str:
    """The scenario as one line of the contract's input."""
    return json.dumps(scenario.model_dump(mode="json", exclude_unset=True, exclude_none=True))


SIMULATE = "roofcast simulate scenario.jsonl"


def step_command(scenario: ScenarioSpec, *, phase: str, batch: int, context: int) -> str:
    """``roofcast step`` with the deployment of the page."""
    words = ["roofcast", "step", "--model", scenario.model, "--hardware", scenario.hardware, "--phase", phase]
    words.extend(("--batch", str(batch), "--context", str(context), "--tp", str(scenario.tp_size)))
    words.extend(("--pp", str(scenario.pp_size), "--engine", scenario.engine.name))
    for flag, dtype in (("--weights", scenario.precision.weights), ("--kv-cache", scenario.precision.kv_cache)):
        if dtype is not None:
            words.extend((flag, dtype.value))
    if scenario.precision.scheme is not None:
        words.extend(("--scheme", scenario.precision.scheme))
    return shlex.join([*words, "--json"])


def step_question(scenario: ScenarioSpec, *, phase: str, batch: int, context: int) -> StepQuestion:
    """The same as the record that ``roofcast step`` makes of those flags."""
    weights, kv_cache = scenario.precision.weights, scenario.precision.kv_cache
    return StepQuestion(
        model=scenario.model,
        hardware=scenario.hardware,
        phase=phase,
        batch=batch,
        context=context,
        tp_size=scenario.tp_size,
        pp_size=scenario.pp_size,
        weights=weights.value if weights else None,
        activations=None,
        kv_cache=kv_cache.value if kv_cache else None,
        scheme=scenario.precision.scheme,
        engine=scenario.engine.name,
    )


def validate_command(hardware: str) -> str:
    """The scorecard of one accelerator's kernels."""
    return shlex.join(["roofcast", "validate", "--hardware", hardware, "--library", "vllm", "--json"])
