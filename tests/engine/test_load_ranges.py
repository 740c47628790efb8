"""Ranges of batch and cache hold what slower and faster steps really do, and never leave what is possible."""

from __future__ import annotations

from math import exp

import pytest

from simulator.engine.runs.answers import ScenarioResult, answer
from simulator.engine.runs.load_sweep import LoadResult, at_share, demand_of, saturation_rate_per_s
from simulator.engine.runs.load_sweep import request_mix as mix_of
from simulator.engine.runs.scenario_setup import deployment_of
from simulator.engine.runs.served_run import ServedRun
from simulator.engine.runs.serving import step_tables
from simulator.kernels.intervals import DEVIATE
from simulator.phases.compiled import scale_tables
from simulator.specs.question.scenario import ScenarioSpec
from simulator.specs.question.workload import WorkloadSpec
from tests.engine.workload_runs import serve_workload

WORKLOAD = demand_of(isl_tokens=600, osl_tokens=80, isl_cv=0.5, osl_cv=0.5)
SCENARIO = ScenarioSpec(id=1, kind="serve", model="llama-3.1-8b", hardware="h100", workload=WORKLOAD)
DEPLOYMENT = deployment_of(SCENARIO)
SATURATION_PER_S = saturation_rate_per_s(DEPLOYMENT, mix=mix_of(WORKLOAD, DEPLOYMENT))


def _ranged(share: float) -> tuple[LoadResult, ServedRun, WorkloadSpec]:
    loaded = at_share(WORKLOAD, share=share, saturation_per_s=SATURATION_PER_S, requests=600)
    result: ScenarioResult = answer(SCENARIO.model_copy(update={"workload": loaded}))
    run = result.run
    assert isinstance(run, ServedRun)
    assert result.load is not None
    return result.load, run, loaded


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_ends_are_what_slower_and_faster_steps_show(share: float) -> None:
    load, run, loaded = _ranged(share)
    assert run.interval is not None
    for sign, batch, cache in zip((-1, 1), load.interval["mean_batch"], load.interval["kv_utilization"], strict=True):
        factor = exp(sign * DEVIATE * run.interval.source.step_log_sigma)
        tables = tuple(scale_tables(part, factor=factor) for part in step_tables(DEPLOYMENT))
        other = serve_workload(
            DEPLOYMENT, workload=loaded, tables=tables, step_scale=factor, requests=run.result.requests
        ).overall
        assert batch == pytest.approx(other.mean_batch, rel=0.06)
        assert cache == pytest.approx(other.kv_utilization, rel=0.06)


@pytest.mark.parametrize("share", [0.1, 0.7, 1.1])
def test_ranges_hold_their_value_and_stay_possible(share: float) -> None:
    load, run, _ = _ranged(share)
    overall = run.result.overall
    assert load.saturation_per_s == pytest.approx(SATURATION_PER_S, rel=1e-9)
    assert load.interval["saturation_per_s"][0] < SATURATION_PER_S < load.interval["saturation_per_s"][1]
    for (low, high), value in (
        (load.interval["mean_batch"], overall.mean_batch),
        (load.interval["kv_utilization"], overall.kv_utilization),
    ):
        assert 0 < low <= value * 1.0001
        assert value <= high * 1.0001
    assert load.interval["kv_utilization"][1] <= 1
