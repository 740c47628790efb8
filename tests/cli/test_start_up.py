"""What a cold plan may load: start-up time is part of the contract, and imports are most of what grows unnoticed."""

from __future__ import annotations

import subprocess
import sys

import pytest

PLAN = """
import sys
from simulator.cli.plan_capacity import main
code = main(["--rps", "10", "--model", "llama-3.1-8b"])
print("\\n".join(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""
FOREIGN = ("numba", "scipy", "pandas", "plotly", "streamlit", "torch", "rich", "transformers", "numpy.ma", "asyncio")
OWN = (
    "simulator.engine.uniform.runs",
    "simulator.planner.studies.stock",
    "simulator.planner.studies.resilience",
    "simulator.reports.formats.html",
    "simulator.specs.engine.launch",
    "simulator.specs.question.scenario",
    "simulator.specs.measured.serving_results",
)
PACKAGES = (
    "simulator.engine.events",
    "simulator.engine.runs",
    "simulator.fitting",
    "simulator.planner.gap",
    "simulator.planner.handoff",
    "simulator.planner.verification",
    "simulator.published",
    "simulator.reports.charts",
    "simulator.traffic.recorded",
)


@pytest.fixture(scope="module")
def loaded() -> frozenset[str]:
    """Modules of a process that answered one plan."""
    found = subprocess.run([sys.executable, "-c", PLAN], capture_output=True, text=True, check=True)
    return frozenset(found.stderr.split())


@pytest.mark.parametrize("module", [*FOREIGN, *OWN, *PACKAGES])
def test_a_plan_does_without(module: str, loaded: frozenset[str]) -> None:
    assert "simulator.planner.plan" in loaded
    assert module not in loaded
