"""What a cold plan may load: start-up time is part of the contract, and imports are most of what grows unnoticed."""

from __future__ import annotations

import subprocess
import sys

PLAN = """
import sys
from simulator.cli.plan_capacity import main
code = main(["--rps", "10", "--model", "llama-3.1-8b"])
print("\\n".join(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""
FOREIGN = ("numba", "scipy", "pandas", "plotly", "streamlit", "torch", "rich", "transformers", "numpy.ma", "asyncio")
OWN = (
    "simulator.kernels.attention.latent",
    "simulator.kernels.moe",
    "simulator.kernels.recurrent",
    "simulator.operators.compressed",
    "simulator.operators.mla",
    "simulator.operators.moe",
    "simulator.operators.recurrent",
    "simulator.operators.vision",
    "simulator.phases.compiled",
    "simulator.phases.draft_cost",
    "simulator.phases.power",
    "simulator.engine.uniform.loops",
    "simulator.planner.studies.stock",
    "simulator.planner.studies.resilience",
    "simulator.reports.formats.files",
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
    "simulator.techniques.speculation",
    "simulator.traffic.recorded",
)
MODULES_AT_MOST = 107
"""Modules of the library behind one plan of a dense model, packages apart; the aim is 80. Only ever lower this."""


def test_a_plan_loads_what_it_uses() -> None:
    found = subprocess.run([sys.executable, "-c", PLAN], capture_output=True, text=True, check=True)
    loaded = found.stderr.split()
    assert "simulator.planner.plan" in loaded
    assert not set(loaded) & {*FOREIGN, *OWN, *PACKAGES}
    own = {name for name in loaded if name.startswith("simulator.")}
    packages = {name.rpartition(".")[0] for name in own}
    assert len(own - packages) <= MODULES_AT_MOST
