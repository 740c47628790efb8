"""What the default search leaves on the table: ten public workloads, planned by default and as widely as can be.

Run with ``python -m benchmarks.search_breadth [NAME ...]``. The widest search varies parallelism, ranks of attention,
pipeline depth, engine limits and the shape of the fleet; formats and techniques that change answers stay as they are.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.plan import plan_capacity
from simulator.specs.question.plan import plan_spec

HARDWARE = ("h100", "h200", "b200", "mi300x")
BAR = 1.15
# Lengths: Azure 2023 conversation and code traces [Patel2024a], Mooncake [Qin2024], InferenceX's 1k/1k and 1k/8k; RAG,
# agents and batch as the library's presets.
WORKLOADS: dict[str, dict[str, object]] = {
    "chat": {"model": "llama-3.1-70b", "rps": 1000},
    "rag": {"model": "qwen3-32b", "rps": 400, "isl": 4096, "osl": 256, "ttft_p95": "3s", "tpot_p95": "50ms"},
    "code": {"model": "llama-3.1-8b", "rps": 2000, "isl": 2048, "osl": 28, "ttft_p95": "1s", "tpot_p95": "100ms"},
    "agents": {
        "model": "qwen3-235b-a22b",
        "rps": 200,
        "isl": 8192,
        "osl": 512,
        "prefix_hit": 0.8,
        "ttft_p95": "2s",
        "tpot_p95": "50ms",
    },
    "reasoning": {"model": "deepseek-r1", "rps": 100, "isl": 1024, "osl": 8192, "ttft_p95": "2s", "tpot_p95": "50ms"},
    "long context": {
        "model": "llama-3.1-70b-fp8",
        "rps": 20,
        "isl": 60000,
        "osl": 350,
        "isl_cv": 0.5,
        "ttft_p95": "20s",
        "tpot_p95": "50ms",
    },
    "batch": {"model": "llama-3.1-70b", "rps": 500, "isl": 2048, "osl": 512, "ttft_p95": "60s", "tpot_p95": "1s"},
    "moe": {"model": "deepseek-v3", "rps": 600, "isl": 2000, "osl": 500, "ttft_p95": "2s", "tpot_p95": "50ms"},
    "small model": {"model": "qwen3-1.7b", "rps": 5000, "ttft_p95": "500ms", "tpot_p95": "20ms"},
    "mixed": {
        "model": "gpt-oss-120b",
        "rps": 1000,
        "isl": 3000,
        "osl": 600,
        "isl_cv": 1.5,
        "osl_cv": 1.2,
        "ttft_p95": "2s",
        "tpot_p95": "50ms",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A plan and the processor time that it took [s]."""

    plan: CapacityPlan
    cpu_s: float

    @property
    def cost(self) -> float:
        """Money an hour of the recommended fleet."""
        return self.plan.best.cost.per_hour or float("inf")


def timed(fields: dict[str, object]) -> Timed:
    """Plan once; modules are imported before."""
    begin = time.process_time()
    plan = plan_capacity(plan_spec({"hardware": HARDWARE, **fields}))
    return Timed(plan=plan, cpu_s=time.process_time() - begin)


def widest(fields: dict[str, object]) -> dict[str, object]:
    """The same question, searched as widely as answers stay."""
    return {**fields, "search": "wide", "serving": ("aggregated", "disaggregated")}


def main() -> None:
    """Print one row a workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(WORKLOADS), help="of the workloads")
    names = parser.parse_args().names
    timed(WORKLOADS["chat"])
    timed(widest(WORKLOADS["chat"]))
    each = f"{'cost/h':>9} {'s':>6}"
    print(f"{'workload':<13} {'default':<64} {each}  {'widest':<64} {each} {'ratio':>6}")
    worst = 0.0
    for name in names:
        usual, wide = timed(WORKLOADS[name]), timed(widest(WORKLOADS[name]))
        cells = []
        for item in (usual, wide):
            best = item.plan.best
            label = f"{best.devices} {best.hardware} {best.label}"
            cells.append(f"{label[:64]:<64} {item.cost:9,.0f} {item.cpu_s:6.2f}")
        ratio = usual.cost / wide.cost
        worst = max(worst, ratio)
        print(f"{name:<13} {cells[0]}  {cells[1]} {ratio:6.2f}", flush=True)
    print(f"worst ratio {worst:.2f}, bar {BAR}")


if __name__ == "__main__":
    main()
