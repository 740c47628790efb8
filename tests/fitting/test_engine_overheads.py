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


def slower(step_s: float, request_s: float = 0.0, prompt_s: float = 0.0) -> Deployment:
    engine = plain().engine
    updates = {"step_s": step_s, "request_s": request_s, "step_per_prompt_s": prompt_s}
    return replace(plain(), engine=replace(engine, overheads=engine.overheads.model_copy(update=updates)))


def run_of(
    deployment: Deployment,
    *,
    concurrency: int,
    requests: int = 16,
    ttft: float = 1.0,
    tpot: float = 1.0,
    spread: float = 0.0,
) -> MeasuredRun:
    """What a benchmark of closed-loop clients would have measured, perhaps with an error.

    spread : of lengths, without which all requests run in waves; then the median of first tokens is known too
    """
    lengths = LoopLengths(isl_tokens=ISL, osl_tokens=OSL, isl_cv=spread, osl_cv=spread)
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
        ttft_p50_s=result.spread.ttft.p50_s if spread and result.spread else None,
        isl_cv=spread,
        osl_cv=spread,
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


@pytest.mark.parametrize(("request_s", "prompt_s"), [(2e-2, 0.0), (0.0, 2e-2)])
def test_a_median_tells_whether_others_wait_for_a_prompt(request_s: float, prompt_s: float) -> None:
    measured = slower(1e-3, request_s, prompt_s)
    fit = fit_overheads(plain(), runs=[run_of(measured, concurrency=8, requests=64, spread=0.2)])
    assert (fit.request_s, fit.prompt_s) == pytest.approx((request_s, prompt_s), rel=0.1)
    # Delayed requests decode beside fewer prompts, which the time per step, found without the delay, does not know.
    assert fit.step_s == pytest.approx(1e-3, rel=0.15)


def test_two_loads_tell_it_without_medians() -> None:
    measured = slower(1e-3, prompt_s=2e-2)
    fit = fit_overheads(plain(), runs=[run_of(measured, concurrency=size, requests=64) for size in (2, 16)])
    assert fit.prompt_s == pytest.approx(2e-2, rel=0.1)
    assert fit.request_s == 0


def test_one_mean_does_not_tell_and_leaves_the_time_outside_the_steps() -> None:
    fit = fit_overheads(plain(), runs=[run_of(slower(1e-3, prompt_s=2e-2), concurrency=1)])
    assert fit.prompt_s == 0
    assert fit.request_s > 0


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


@pytest.mark.parametrize("share", [0.99, 0.97])
def test_runs_a_little_faster_than_the_kernels_have_no_overheads(share: float) -> None:
    """Prices of kernels are not known to a thousandth: a measurement within their 80 % interval contradicts nothing."""
    fit = fit_overheads(plain(), runs=[run_of(slower(0.0, 0.0), concurrency=2, ttft=share, tpot=share)])
    assert (fit.step_s, fit.request_s, fit.prompt_s) == (0.0, 0.0, 0.0)
    assert fit.errors[0].tpot_after == pytest.approx(1 / share - 1, rel=0.01)


@pytest.mark.parametrize(("changes", "field"), [({"tpot": 0.5}, "tpot"), ({"ttft": 0.3}, "ttft")])
def test_runs_faster_than_the_kernels_are_refused(changes: dict[str, float], field: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        fit_overheads(plain(), runs=[run_of(slower(0.0, 0.0), concurrency=2, **changes)])
    assert (refused.value.field, refused.value.code) == (field, "not_identifiable")
