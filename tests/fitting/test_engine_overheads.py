"""``simulator.fitting.engine_overheads``: the two host times come back from runs that had them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from simulator.engine.uniform.loop_requests import LoopLengths
from simulator.engine.uniform.loops import closed_loop
from simulator.errors import RoofcastError
from simulator.fitting.engine_overheads import MeasuredRun, fit_overheads
from simulator.fitting.replay import run_scenario
from simulator.phases.deployment import Deployment, deploy
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.measured.serving_results import ServedSpec, ServingRun
from simulator.specs.model.loading import load_model

ISL, OSL = 256, 16


@cache
def plain() -> Deployment:
    return deploy(model=load_model("llama-3.1-8b"), hardware=load_hardware("h100"))


def slower(step_s: float, request_s: float) -> Deployment:
    engine = plain().engine
    overheads = engine.overheads.model_copy(update={"step_s": step_s, "request_s": request_s})
    return replace(plain(), engine=replace(engine, overheads=overheads))


def run_of(
    deployment: Deployment, *, concurrency: int, requests: int = 16, ttft: float = 1.0, tpot: float = 1.0
) -> MeasuredRun:
    """What a benchmark of closed-loop clients would have measured, perhaps with an error."""
    lengths = LoopLengths(isl_tokens=ISL, osl_tokens=OSL)
    result = closed_loop(deployment, concurrency=concurrency, lengths=lengths, num_requests=requests)
    run = ServingRun(
        path="run.json",
        tool="vllm bench serve",
        requests=requests,
        isl_tokens=float(ISL),
        osl_tokens=float(OSL),
        concurrency=float(concurrency),
        request_rate_per_s=None,
        answered_per_s=result.requests_per_s,
        ttft_s=result.ttft_s * ttft,
        tpot_s=result.tpot_s * tpot,
    )
    served = ServedSpec(model="llama-3.1-8b", hardware="h100")
    return MeasuredRun(run=run, scenario=run_scenario(run, identifier="x", served=served, unknown_cv=0.0))


@pytest.mark.parametrize(("step_s", "request_s", "concurrency"), [(5e-4, 2e-3, 8), (4e-3, 3e-2, 1)])
def test_known_overheads_come_back(step_s: float, request_s: float, concurrency: int) -> None:
    fit = fit_overheads(plain(), runs=[run_of(slower(step_s, request_s), concurrency=concurrency)])
    assert fit.step_s == pytest.approx(step_s, rel=0.03)
    assert fit.request_s == pytest.approx(request_s, rel=0.05)
    (errors,) = fit.errors
    assert abs(errors.tpot_after) < 0.01
    assert abs(errors.ttft_after) < 0.02


def test_one_odd_run_of_three_does_not_decide() -> None:
    measured = slower(1e-3, 5e-3)
    runs = [run_of(measured, concurrency=size) for size in (1, 2)]
    odd = run_of(measured, concurrency=1, tpot=1.6)
    fit = fit_overheads(plain(), runs=[*runs, odd])
    assert fit.step_s == pytest.approx(1e-3, rel=0.05)
    assert len(fit.errors) == 3


def test_no_overheads_are_found_where_there_are_none() -> None:
    fit = fit_overheads(plain(), runs=[run_of(slower(0.0, 0.0), concurrency=4)])
    assert fit.step_s == pytest.approx(0.0, abs=2e-5)
    assert fit.request_s == pytest.approx(0.0, abs=1e-3)


@pytest.mark.parametrize(("changes", "field"), [({"tpot": 0.5}, "tpot"), ({"ttft": 0.3}, "ttft")])
def test_runs_faster_than_the_kernels_are_refused(changes: dict[str, float], field: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        fit_overheads(plain(), runs=[run_of(slower(0.0, 0.0), concurrency=2, **changes)])
    assert (refused.value.field, refused.value.code) == (field, "not_identifiable")
