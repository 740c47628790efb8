"""The plan for a trace, replayed: its objectives hold in nine of ten seeds, and hardly a replica is too many."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from simulator.engine.runs.serving import ServedDeployment
from simulator.phases.compiled import StepTables
from simulator.phases.tabulate import compile_steps
from simulator.planner.capacity_plan import CapacityPlan
from simulator.planner.plan import plan_capacity
from simulator.specs.question.plan import plan_spec
from simulator.traffic.recorded.traces import RequestTrace, read_trace, resampled_requests

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT.parent / "shared" / "data" / "traces" / "AzureLLMInferenceTrace2023_conv.csv"
SEEDS = 10
# Other draws than the planner's own.
FIRST_SEED = 1000

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not TRACE.exists(), reason="the trace is not here")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A plan's replica with the trace at the plan's rate."""

    plan: CapacityPlan
    tables: tuple[StepTables, ...]
    trace: RequestTrace

    def seeds_that_hold(self, replicas: int) -> int:
        """Of ten replays with that many replicas, those in which every objective holds over the whole trace."""
        return sum(self._holds(replicas, seed) for seed in range(SEEDS))

    def _holds(self, replicas: int, seed: int) -> bool:
        times = self.plan.demand.mean_rate_per_s / self.trace.mean_rate_per_s
        requests = resampled_requests(self.trace, times=times, seed=FIRST_SEED + seed)
        deployment = self.plan.best.replica.deployment
        served = ServedDeployment(deployment=deployment, replicas=replicas, tables=self.tables)
        records = served.run(requests).run.records
        ttft_s = records.first_token_s - requests.arrival_s
        tpot_s = (records.finish_s - records.first_token_s) / np.maximum(requests.output_tokens - 1, 1)
        values_s = {"ttft": ttft_s, "tpot": tpot_s}
        return all(
            np.percentile(values_s[item.metric.value], item.percentile) <= item.bound_s for item in self.plan.objectives
        )


@pytest.mark.parametrize(
    ("hardware", "rps", "ttft_p95", "tpot_p95"),
    [
        ("a100", 20, "1s", "50ms"),
        ("h100", 40, "1s", "50ms"),
        ("h100", 60, "500ms", "200ms"),
        ("l40s", 20, "2s", "100ms"),
    ],
)
def test_the_plan_holds_and_at_most_one_replica_is_too_many(
    hardware: str, rps: float, ttft_p95: str, tpot_p95: str
) -> None:
    plan = plan_capacity(
        plan_spec(
            {
                "model": "llama-3.1-8b",
                "hardware": hardware,
                "tp": 1,
                "trace": str(TRACE),
                "rps": rps,
                "ttft_p95": ttft_p95,
                "tpot_p95": tpot_p95,
                "round_to": "device",
                "spares": 0,
            }
        )
    )
    replay = Replay(plan=plan, tables=(compile_steps(plan.best.replica.deployment),), trace=read_trace(TRACE))
    planned = plan.best.replicas
    held = replay.seeds_that_hold(planned)
    assert held >= 9, f"{planned} replicas hold in {held} of {SEEDS}"
    two_fewer = replay.seeds_that_hold(planned - 2) if planned > 2 else 0
    assert two_fewer < 9, f"{planned - 2} replicas would hold in {two_fewer} of {SEEDS}"
