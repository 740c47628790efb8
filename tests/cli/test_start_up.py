"""What a cold plan may load: start-up time is part of the contract, and imports are most of what grows unnoticed."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

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
    "simulator.kernels.attention.latent",
    "simulator.kernels.moe",
    "simulator.kernels.recurrent",
    "simulator.operators.compressed",
    "simulator.operators.mla",
    "simulator.operators.moe",
    "simulator.operators.recurrent",
    "simulator.operators.vision",
    "simulator.engine.events",
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
    "simulator.engine.runs",
    "simulator.fitting",
    "simulator.planner.gap",
    "simulator.planner.handoff",
    "simulator.reports.handoff",
    "simulator.planner.verification",
    "simulator.published",
    "simulator.reports.charts",
    "simulator.techniques.speculation",
    "simulator.traffic.recorded",
)
MODULES_AT_MOST = 95
"""Modules of the library behind one plan of a dense model, packages apart; the aim is 80. Only ever lower this."""


def loaded_by(code: str, *words: str, **variables: str) -> set[str]:
    """Modules that a process has loaded at its end, which prints their names to stderr."""
    command = [sys.executable, "-c", code, *words]
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | variables)
    return set(found.stderr.split())


def own(loaded: set[str]) -> set[str]:
    """Those of the library, packages apart."""
    found = {name for name in loaded if name.startswith("simulator.")}
    return found - {name.rpartition(".")[0] for name in found}


def test_a_plan_loads_what_it_uses(tmp_path: Path) -> None:
    # As a user's first plan: it looks for machine code and keeps what it found.
    loaded = loaded_by(PLAN, ROOFCAST_CACHE="on", ROOFCAST_CACHE_DIR=str(tmp_path))
    assert "simulator.planner.plan" in loaded
    assert not loaded & {*FOREIGN, *OWN, *PACKAGES}
    assert len(own(loaded)) <= MODULES_AT_MOST


ESTIMATE = """
import json, sys
from simulator.cli.roofcast import app
from simulator.cli.shared import run_process
line = {"kind": "closed_loop", "model": "llama-3.1-8b", "hardware": "h200", "concurrency": 4}
open(sys.argv[1], "w").write(json.dumps({**line, "id": "one", "isl_tokens": 1024, "osl_tokens": 128}) + "\\n")
sys.argv = ["roofcast", "simulate", sys.argv[1]]
run_process(app, name="roofcast")
print("\\n".join(sorted(sys.modules)), file=sys.stderr)
"""
OF_OTHERS = (
    "simulator.engine.encoders",
    "simulator.engine.events",
    "simulator.engine.lanes",
    "simulator.engine.runs.attention_ffn",
    "simulator.engine.runs.capacity",
    "simulator.engine.runs.served_run",
    "simulator.operators.vision",
    "simulator.phases.attention_ffn",
    "simulator.planner",
    "simulator.reports.charts",
    "simulator.reports.tables",
    "simulator.specs.model.checkpoints",
    "simulator.specs.model.fitted",
    "simulator.specs.money.prices",
    "simulator.techniques.speculation.scenario",
    "simulator.traffic.workload_requests",
    "simulator.traffic.recorded",
)
"""What other questions need: served loads, searches of rates, pictures, drafters, plans and their tables."""
ESTIMATE_AT_MOST = 80
"""Modules of the library behind one estimate, packages apart. Only ever lower this."""


def test_one_estimate_loads_what_it_uses(tmp_path: Path) -> None:
    loaded = loaded_by(ESTIMATE, str(tmp_path / "lines.jsonl"))
    assert "simulator.engine.uniform.loops" in loaded
    assert not loaded & {*FOREIGN, *OF_OTHERS}
    assert len(own(loaded)) <= ESTIMATE_AT_MOST


COMMAND = """
import sys
from simulator.cli.roofcast import app
from simulator.cli.shared import run_process
run_process(app, name="roofcast")
print("\\n".join(sorted(sys.modules)), file=sys.stderr)
"""
COMMANDS_AT_MOST = {
    "step --model llama-3.1-8b --hardware h100": 76,
    "crossover --model llama-3.1-8b --hardware h100": 76,
    "profiles show h100": 34,
    "prices list": 30,
    "step --help": 21,
}
"""Modules behind commands that answer in a moment. Only ever lower these."""


@pytest.mark.parametrize(("command", "most"), COMMANDS_AT_MOST.items())
def test_a_short_command_loads_little(command: str, most: int) -> None:
    loaded = loaded_by(COMMAND, *command.split())
    # A help is drawn by rich.
    assert not loaded & {*FOREIGN, "simulator.planner.plan", "simulator.engine.runs"} - {"rich"}
    assert len(own(loaded)) <= most


def test_arrays_leave_their_memory_to_the_next_where_glibc_is() -> None:
    code = "from simulator.allocation import keep_freed_memory; print(keep_freed_memory())"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == str(platform.libc_ver()[0] == "glibc")


ENDS = """
import atexit, sys, threading, time
from simulator.cli.shared import end_process
atexit.register(print, "at exit")
print("printed")
{before}
end_process(3)
"""
BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""Whoever writes at once has nothing left to say at the end."""
THREAD = "threading.Thread(target=lambda: (time.sleep(0.1), print('after'))).start()"


@pytest.mark.parametrize(("before", "then"), [("", ""), (THREAD, "after\n"), ("sys.setprofile(lambda *_: None)", "")])
def test_a_process_ends_with_all_that_it_had_to_say(before: str, then: str) -> None:
    command = [sys.executable, "-c", ENDS.format(before=before)]
    found = subprocess.run(command, capture_output=True, text=True, env=BUFFERED)
    assert (found.returncode, found.stdout, found.stderr) == (3, f"printed\n{then}at exit\n", "")


def test_what_cannot_be_written_is_no_success() -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", ENDS.format(before="")]
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=BUFFERED)
    assert found.returncode != 0
    assert b"No space left" in found.stderr


@pytest.mark.parametrize("words", [["--version"], ["plan", "--help"], ["model", "llama-3.1-8b", "--json"]])
def test_an_answer_on_a_full_disk_is_an_error_of_output_in_one_line(words: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "simulator.cli.roofcast", *words]
        found = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=BUFFERED)
    assert (found.returncode, found.stderr) == (5, "roofcast: standard output: No space left on device\n")


@pytest.mark.parametrize(
    ("given", "taken"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3"), ({"OMP_NUM_THREADS": "2"}, "2")]
)
def test_commands_multiply_matrices_on_one_core_unless_told_otherwise(given: dict[str, str], taken: str) -> None:
    rest = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    code = "import simulator.cli, os; print(os.environ['OPENBLAS_NUM_THREADS'])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=rest | given)
    assert found.stdout.strip() == taken
