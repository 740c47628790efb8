"""The command lines that print what a page shows."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import fields

from app.fields.uploaded import session_profiles
from simulator.reports.words.fields import flag_of
from simulator.specs.measured.validation_rows import RunChoice
from simulator.specs.question.scenario import ScenarioSpec

OWN_FOLDER = "my-files"
"""What printed commands call the folder of a session's own files, as its download does."""


def _own_files() -> tuple[str, ...]:
    return () if session_profiles() is None else ("--profiles", OWN_FOLDER)


def plan_command(flags: Mapping[str, object]) -> str:
    """``plan-capacity`` with the flags of the page."""
    words = ["plan-capacity"]
    for name, value in flags.items():
        flag = flag_of(name)
        if value is True:
            words.append(flag)
            continue
        for item in value if isinstance(value, tuple) else (value,):
            words.extend((flag, f"{item:g}" if isinstance(item, float) else str(item)))
    return shlex.join([*words, *_own_files(), "--json"])


def scenario_line(scenario: ScenarioSpec) -> str:
    """The scenario as one line of the contract's input."""
    return json.dumps(scenario.model_dump(mode="json", exclude_unset=True, exclude_none=True))


def simulate_command() -> str:
    """``roofcast simulate`` for scenarios that stand beside it."""
    return shlex.join(["roofcast", "simulate", "scenario.jsonl", *_own_files()])


def step_command(scenario: ScenarioSpec, *, phase: str, batch: int, context: int) -> str:
    """``roofcast step`` with the deployment of the page."""
    words = ["roofcast", "step", "--model", scenario.model, "--hardware", scenario.hardware, "--phase", phase]
    words.extend(("--batch", str(batch), "--context", str(context)))
    for degree in ("tp", "pp", "ep", "dp", "cp"):
        size = getattr(scenario, f"{degree}_size")
        words.extend((f"--{degree}", str(size)) if size > 1 else ())
    words.extend(() if scenario.power_cap_w is None else ("--power-cap", f"{scenario.power_cap_w:g}"))
    words.extend(("--engine", scenario.engine.name) if "name" in scenario.engine.model_fields_set else ())
    for flag, dtype in (("--weights", scenario.precision.weights), ("--kv-cache", scenario.precision.kv_cache)):
        if dtype is not None:
            words.extend((flag, dtype.value))
    if scenario.precision.scheme is not None:
        words.extend(("--scheme", scenario.precision.scheme))
    return shlex.join([*words, *_own_files(), "--json"])


def today_command(choice: RunChoice) -> str:
    """The scorecard of today's closed loops that the page shows."""
    given = [
        word
        for item in fields(choice)
        if getattr(choice, item.name) is not None
        for word in (f"--{item.name}", getattr(choice, item.name))
    ]
    return shlex.join(["roofcast", "validate", "--today", *given, "--json"])


def validate_command(hardware: str) -> str:
    """The scorecard of one accelerator's kernels."""
    return shlex.join(["roofcast", "validate", "--hardware", hardware, "--library", "vllm", *_own_files(), "--json"])
