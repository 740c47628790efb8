"""roofcast: forecast LLM inference from the roofline.

``plan``, ``simulate``, ``step``, ``serve``, ``capacity``, ``compare``, ``calibrate``, ``report``, ``crossover``,
``demand``, ``verify``, ``scorecard``, ``explain`` and ``sweep`` answer what the commands of those names answer,
``replay`` what ``roofcast validate --from`` does;
docs/api.md lists every public name. Below them, ``load_model``, ``load_hardware`` and ``deploy`` build a deployment,
``estimate_step`` prices one forward pass of it, ``memory_plan`` divides its memory, ``answer`` answers a scenario of
the contract.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from simulator.api.explanations import explain
    from simulator.api.measurements import calibrate, demand, replay, scorecard
    from simulator.api.planning import plan, plan_models
    from simulator.api.reporting import report, verify
    from simulator.api.scenarios import capacity, compare, serve, simulate
    from simulator.api.steps import crossover, step
    from simulator.api.sweeps import sweep
    from simulator.engine.runs.answers import answer
    from simulator.errors import RoofcastError
    from simulator.phases.deployment import deploy
    from simulator.phases.memory import memory_plan
    from simulator.phases.step import estimate_step
    from simulator.reports.answer import Answer
    from simulator.specs.hardware.accelerator import load_hardware
    from simulator.specs.model.loading import load_model
    from simulator.specs.question.plan import PlanSpec
    from simulator.specs.question.scenario import ScenarioSpec


# Imported on first use: a command that only lists profiles must not pay for the physics.
_NAMES = {
    "simulator.reports.answer": "Answer",
    "simulator.api.measurements": "calibrate demand replay scorecard",
    "simulator.api.scenarios": "capacity compare serve simulate",
    "simulator.api.steps": "crossover step",
    "simulator.api.explanations": "explain",
    "simulator.api.planning": "plan plan_models",
    "simulator.api.reporting": "report verify",
    "simulator.api.sweeps": "sweep",
    "simulator.engine.runs.answers": "answer",
    "simulator.errors": "RoofcastError",
    "simulator.phases.deployment": "deploy",
    "simulator.phases.memory": "memory_plan",
    "simulator.phases.step": "estimate_step",
    "simulator.specs.hardware.accelerator": "load_hardware",
    "simulator.specs.model.loading": "load_model",
    "simulator.specs.question.plan": "PlanSpec",
    "simulator.specs.question.scenario": "ScenarioSpec",
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names.split()}

__all__ = [
    "Answer", "PlanSpec", "RoofcastError", "ScenarioSpec", "__version__", "answer", "calibrate", "capacity",
    "compare", "crossover", "demand", "deploy", "estimate_step", "explain", "load_hardware", "load_model",
    "memory_plan", "plan", "plan_models", "replay", "report", "scorecard", "serve", "simulate", "step", "sweep",
    "verify",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
