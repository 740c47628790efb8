"""What a served scenario says of its load beside its latencies, and when it says nothing."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.engine.runs.answers import answer
from simulator.engine.runs.load_sweep import at_share, demand_of
from simulator.reports.answer import result_object
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import StageSpec, WorkloadSpec

DEMAND = demand_of(isl_tokens=400, osl_tokens=40, isl_cv=0.3, osl_cv=0.3)
LOADED = at_share(DEMAND, share=0.5, saturation_per_s=40.0, requests=200)


def _document(workload: WorkloadSpec, *, replicas: int = 1) -> dict[str, Any]:
    spec = ScenarioSpec(id=1, kind="serve", model="llama-3.1-8b", hardware="h100", workload=workload, replicas=replicas)
    found: dict[str, Any] = result_object(answer(spec))
    return found


def test_intervals_hold_what_the_run_shows() -> None:
    document = _document(LOADED)
    load, overall = document["load"], document["overall"]
    for value, (low, high) in (
        (load["saturation_per_s"], load["interval"]["saturation_per_s"]),
        (overall["mean_batch"], load["interval"]["mean_batch"]),
        (overall["kv_utilization"], load["interval"]["kv_utilization"]),
    ):
        assert 0 < low < value < high


def test_two_replicas_saturate_at_twice_the_rate() -> None:
    one, two = _document(LOADED), _document(LOADED, replicas=2)
    assert two["load"]["saturation_per_s"] == pytest.approx(2 * one["load"]["saturation_per_s"])


def test_a_load_that_changes_has_no_single_range() -> None:
    stages = (StageSpec(rate_per_s=5.0, duration_s=20.0), StageSpec(rate_per_s=10.0, duration_s=20.0))
    assert "load" not in _document(DEMAND.model_copy(update={"stages": stages}))
