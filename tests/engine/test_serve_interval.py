"""Intervals of served workloads: they hold their values, grow with every error, and say how they were made."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from simulator.engine.runs.intervals import (
    METRICS,
    RATES,
    IntervalMethod,
    engine_sigma,
    serve_interval,
    stage_values,
    step_sigma,
)
from simulator.engine.runs.metrics import ServeResult
from simulator.engine.runs.serving import simulate_serving
from simulator.engine.settings import SchedulerSettings
from simulator.kernels.intervals import DEVIATE
from simulator.phases.compiled import scale_tables, uniform_tables
from simulator.specs.engine.fits import EngineSpread
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.traffic.workload_requests import build_requests

TABLES = uniform_tables(
    step_s=0.01, max_tokens=256, max_sequences=16, per_token_s=2e-5, per_context_token_s=1e-7, max_context=1024
)
LIMITS = SchedulerSettings(max_num_batched_tokens=256, max_num_seqs=16, max_model_len=1024, kv_blocks=600)
EXACT = EngineSpread(ttft=0.0, tpot=0.0, e2e=0.0)


def run(factor: float = 1.0, *, seed: int = 0, rate_per_s: float = 12.0) -> ServeResult:
    workload = WorkloadSpec(
        arrival="poisson",
        stages=(StageSpec(rate_per_s=rate_per_s, duration_s=60),),
        isl_tokens=60,
        osl_tokens=50,
        seed=seed,
    )
    requests = build_requests(workload, block_size_tokens=LIMITS.block_size_tokens, context_tokens=LIMITS.max_model_len)
    return simulate_serving(scale_tables(TABLES, factor=factor), requests, settings=LIMITS)


def place(name: str) -> int:
    return METRICS.index(name)


def test_known_steps_and_no_chance_leave_a_point() -> None:
    result = run()
    interval = serve_interval(result, step_log_sigma=0.0, spread=EXACT, rerun=run)
    times = slice(-len(RATES))
    np.testing.assert_allclose(interval.overall.low[times], stage_values(result.overall)[times])
    np.testing.assert_allclose(interval.overall.high[times], stage_values(result.overall)[times])


def test_scaled_times_move_with_the_steps() -> None:
    result = run()
    interval = serve_interval(result, step_log_sigma=0.1, spread=EXACT)
    assert interval.source.steps is IntervalMethod.SCALED
    mean_s = result.overall.tpot.mean_s
    assert interval.overall.high[place("tpot_mean_s")] == pytest.approx(mean_s * exp(0.1 * DEVIATE))
    assert interval.overall.low[place("tpot_mean_s")] == pytest.approx(mean_s / exp(0.1 * DEVIATE))
    assert interval.overall.high[place("requests_per_s")] < result.overall.requests_per_s * exp(0.1 * DEVIATE)


def test_a_rerun_sees_how_queues_amplify() -> None:
    """Near saturation, steps that are a quarter slower cost far more than a quarter of TTFT."""
    result = run(rate_per_s=24.0)
    scaled = serve_interval(result, step_log_sigma=0.15, spread=EXACT)
    rerun = serve_interval(result, step_log_sigma=0.15, spread=EXACT, rerun=lambda factor: run(factor, rate_per_s=24.0))
    assert rerun.source.steps is IntervalMethod.RERUN
    assert rerun.overall.high[place("ttft_p95_s")] > 1.5 * scaled.overall.high[place("ttft_p95_s")]


def test_every_error_widens() -> None:
    result = run()
    width = []
    for spread, seeds in ((EXACT, 0), (EngineSpread(ttft=0.2, tpot=0.2, e2e=0.2), 0), (EXACT, 3)):
        interval = serve_interval(
            result, step_log_sigma=0.05, spread=spread, rerun=run, reseed=lambda number: run(seed=number), seeds=seeds
        )
        assert interval.source.further_seeds == seeds
        low, high = np.array(interval.overall.low), np.array(interval.overall.high)
        values = stage_values(result.overall)
        assert ((low <= values) & (values <= high)).all()
        width.append((high / low)[place("ttft_p99_s")])
    assert width[1] > width[0] < width[2]


def test_sigma_of_the_mean_step_is_weighted_by_time() -> None:
    assert step_sigma(prefill_sigma=0.2, decode_sigma=0.1, prompt_share=0.25) == pytest.approx(0.125)
    assert step_sigma(prefill_sigma=0.2, decode_sigma=0.1, prompt_share=7.0) == pytest.approx(0.2)


def test_slow_first_tokens_are_late_and_never_early() -> None:
    below, above = engine_sigma(EngineSpread(ttft=0.03, tpot=0.0, e2e=0.0, ttft_tail=0.04))
    assert below[place("ttft_p99_s")] == pytest.approx(0.03)
    assert above[place("ttft_p99_s")] == pytest.approx(0.05)
    assert above[place("ttft_p90_s")] == above[place("ttft_mean_s")] == pytest.approx(0.03)
    assert above[place("ttft_p90_s")] < above[place("ttft_p95_s")] < above[place("ttft_p99_s")]
    assert above[place("tpot_p99_s")] == above[place("requests_per_s")] == 0


def test_rates_hold_both_ways_of_counting() -> None:
    """60 s of sending and an answer of some seconds: over both or over the first."""
    result = run()
    overall = result.overall
    interval = serve_interval(result, step_log_sigma=0.0, spread=EXACT).overall
    low, high = interval.low[place("requests_per_s")], interval.high[place("requests_per_s")]
    ways = overall.finished / np.array([60.0, 60.0 + overall.e2e.mean_s])
    assert low < ways.min() < ways.max() < high
    assert high / low < 1.2


def test_rates_of_a_growing_queue_go_with_the_steps() -> None:
    result = run(rate_per_s=80.0)
    assert result.overall.saturated
    interval = serve_interval(result, step_log_sigma=0.1, spread=EXACT).overall
    assert interval.low[place("requests_per_s")] < result.overall.requests_per_s * exp(-0.1)


def test_a_stage_in_overload_is_busy_however_long_its_queue_drains() -> None:
    result = run(rate_per_s=80.0)
    assert result.stages[0].busy_fraction == pytest.approx(1.0, abs=0.02)
    assert 0.9 < result.overall.busy_fraction <= 1
