"""A real vLLM on one H200 against what is predicted, nothing fitted: ``python -m validation.end_to_end.vllm_visit``.

Runs of ``validation.measure.engines.vllm_loops``. Where a run's kernels were compiled while it served (gpt-oss, whose
Triton experts are, for each count of rows), only the median gap between tokens is of steps, and only it is compared.
The median TTFT of a loop of two rounds lies between those who begin together and the others, so p95 is shown.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.scenario_setup import ServeOptions, deployment_of
from simulator.engine.uniform.record import Percentiles
from simulator.fitting.replay import run_scenario
from simulator.phases.memory import memory_plan
from simulator.specs.base import validate
from simulator.specs.measured.serving_results import ServedSpec, load_serving_runs
from simulator.specs.question.scenario import ScenarioSpec
from simulator.units import GIB, MILLI
from validation.end_to_end.visits import MEASURED, pair

FOLDER = MEASURED / "h200" / "vllm"
SERVER = {
    "name": "vllm",
    "version": "0.25.1",
    "max_model_len": 16384,
    "max_num_seqs": 128,
    "max_num_batched_tokens": 8192,
    "gpu_memory_utilization": 0.92,
    "prefix_caching": False,
}
"""What it was started with or logged."""
COMPILED_MEANWHILE = ("gpt-oss-120b",)
CACHE_LOGGED_GIB = {"llama-3.1-8b": 112.28, "qwen3-30b-a3b": 70.31, "gpt-oss-120b": 65.41}
"""Memory that each server said it has for its cache; Qwen3 had no time left for a load."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmRun:
    """A run and its prediction; written : the result file's own fields."""

    path: Path
    written: dict[str, Any]
    predicted: ScenarioResult

    @property
    def load(self) -> str:
        """Clients, or requests/s."""
        return self.path.stem.rsplit("-", 1)[-1]

    @property
    def is_clean(self) -> bool:
        """Whether its kernels stood before it began."""
        return self.written["model_id"] not in COMPILED_MEANWHILE


def planned_cache_gib(model: str) -> float:
    """The memory that the plan leaves such a server's cache."""
    load = {"kind": "closed_loop", "concurrency": 1, "isl_tokens": 1024, "osl_tokens": 128}
    fields = {"id": model, "model": model, "hardware": "h200", "engine": SERVER, **load}
    scenario = validate(ScenarioSpec, fields, where="")
    return memory_plan(deployment_of(scenario)).kv_capacity_bytes / GIB


def predicted_run(path: Path) -> VllmRun:
    """The file's requests, length by length, on the server that answered them."""
    written = json.loads(path.read_text("utf-8"))
    served = validate(ServedSpec, {"model": written["model_id"], "hardware": "h200", "engine": SERVER}, where="")
    (run,) = load_serving_runs(str(path))
    scenario = run_scenario(run, identifier=path.name, served=served, unknown_cv=0.0)
    return VllmRun(path=path, written=written, predicted=answer(scenario, options=ServeOptions(intervals=False)))


def vllm_runs() -> list[VllmRun]:
    """Every run, by model, lengths and load."""
    return [
        predicted_run(path)
        for path in sorted(FOLDER.glob("*.json"), key=lambda path: (path.stem[0], len(path.stem), path.stem))
    ]


def _line(run: VllmRun) -> str:
    written, found = run.written, run.predicted
    lengths = (round(written[name] / written["completed"]) for name in ("total_input_tokens", "total_output_tokens"))
    joules = written["joules"] / written["total_output_tokens"]
    cells = [written["model_id"], " / ".join(f"{length}" for length in lengths), run.load]
    if run.is_clean:
        cells += [
            pair(written["mean_ttft_ms"] * MILLI, found.ttft_s),
            pair(Percentiles.of(np.array(written["ttfts"])).p95_s, found.ttft.p95_s) if found.ttft else "- | -",
            pair(written["mean_tpot_ms"] * MILLI, found.tpot_s or 0.0),
            f"{joules:.3f} | {found.energy_per_output_token_j:.3f}",
        ]
    else:
        step_s = found.decode.step_s if found.decode else 0.0
        cells += ["- | - | - | -", pair(written["median_itl_ms"] * MILLI, step_s), "- | -"]
    return f"| {' | '.join(cells)} |"


def vllm_table() -> str:
    """Markdown: each run, measured and predicted."""
    names = ["vLLM 0.25.1 on one H200", "mean ISL / OSL", "load", "TTFT, ms", "predicted", "p95", "predicted"]
    heading = [*names, "TPOT, ms", "predicted", "J/token", "predicted"]
    lines = [f"| {' | '.join(heading)} |", "|---|---|---|" + "--:|" * (len(heading) - 3)]
    return "\n".join([*lines, *map(_line, vllm_runs())])


if __name__ == "__main__":
    print(vllm_table())
