"""The library's public functions: a question in keywords, a record or a mapping; an answer that shows itself."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulator.api.capacities import capacity
    from simulator.api.explanations import explain
    from simulator.api.measurements import calibrate, demand, scorecard
    from simulator.api.model_plans import plan_models
    from simulator.api.planning import plan, report, verify
    from simulator.api.results import Answer
    from simulator.api.scenarios import compare, serve, simulate
    from simulator.api.steps import crossover, step
    from simulator.api.sweeps import sweep

# Imported on first use: a plan does not wait for what simulates.
_HOMES = {
    "Answer": "results",
    "calibrate": "measurements",
    "capacity": "capacities",
    "compare": "scenarios",
    "crossover": "steps",
    "explain": "explanations",
    "demand": "measurements",
    "plan": "planning",
    "plan_models": "model_plans",
    "report": "planning",
    "scorecard": "measurements",
    "serve": "scenarios",
    "simulate": "scenarios",
    "step": "steps",
    "sweep": "sweeps",
    "verify": "planning",
}

__all__ = [
    "Answer",
    "calibrate",
    "capacity",
    "compare",
    "crossover",
    "demand",
    "explain",
    "plan",
    "plan_models",
    "report",
    "scorecard",
    "serve",
    "simulate",
    "step",
    "sweep",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
