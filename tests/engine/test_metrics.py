"""Latency definitions, rates, saturation, goodput: hand numbers, then what must hold between them."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.events.arrays import SimulationRun
from simulator.engine.events.state import USAGES
from simulator.engine.runs.metrics import (
    ServeResult,
    is_saturated,
    meets_objectives,
    outstanding,
    queue_growth,
    serve_result,
    summarise,
)
from simulator.engine.runs.serving import simulate_serving
from simulator.engine.settings import SchedulerSettings
from simulator.phases.compiled import uniform_tables
from simulator.specs.question.plan_values import ObjectiveSpec
from simulator.specs.question.workload import StageSpec, WorkloadSpec
from simulator.traffic.requests import Outcome, RequestRecords, Requests, make_requests
from simulator.traffic.workload_requests import build_requests

FINISHED, TIMED_OUT, TOO_LONG = int(Outcome.FINISHED), int(Outcome.TIMED_OUT), int(Outcome.TOO_LONG)


def records(*, first_s: list[float], finish_s: list[float], outcome: list[int]) -> RequestRecords:
    none = np.zeros(len(outcome), dtype=np.int64)
    return RequestRecords(
        outcome=np.array(outcome, dtype=np.int64),
        admitted_s=np.array(first_s),
        first_token_s=np.array(first_s),
        finish_s=np.array(finish_s),
        cached_tokens=none,
        preemptions=none,
        replica=none,
    )


def by_hand() -> tuple[Requests, RequestRecords]:
    """Four requests in two stages: 11 tokens, 1 token, given up, rejected."""
    requests = make_requests(
        arrival_s=np.array([0.0, 1.0, 12.0, 13.0]),
        prompt_tokens=np.array([10, 10, 10, 900]),
        output_tokens=np.array([11, 1, 5, 5]),
        stage=np.array([0, 0, 1, 1]),
        stage_end_s=np.array([10.0, 20.0]),
    )
    return requests, records(
        first_s=[0.5, 1.25, np.nan, np.nan],
        finish_s=[2.5, 1.25, np.nan, np.nan],
        outcome=[FINISHED, FINISHED, TIMED_OUT, TOO_LONG],
    )


Objectives = tuple[ObjectiveSpec, ...]


def bounds(
    *, ttft_s: float | None = None, tpot_s: float | None = None, e2e_s: float | None = None, percentile: float = 95.0
) -> Objectives:
    given = (("ttft", ttft_s), ("tpot", tpot_s), ("e2e", e2e_s))
    return tuple(
        ObjectiveSpec(metric=metric, percentile=percentile, bound_s=bound_s)
        for metric, bound_s in given
        if bound_s is not None
    )


def hand_result(objectives: Objectives = ()) -> ServeResult:
    requests, kept = by_hand()
    run = SimulationRun(records=kept, usage=np.zeros((3, USAGES)), trace=(), steps=0, free_blocks=0)
    return serve_result(requests, run, kv_blocks=100, timeout_s=3.0, objectives=objectives)


def test_latencies_follow_their_definitions() -> None:
    """TTFT = first token - arrival; TPOT = (E2E - TTFT) / (OSL - 1), none for one token; E2E = last - arrival."""
    stage = hand_result().stages[0]
    assert stage.ttft.mean_s == pytest.approx((0.5 + 0.25) / 2)
    assert stage.e2e.mean_s == pytest.approx((2.5 + 0.25) / 2)
    assert stage.tpot.mean_s == pytest.approx(2.0 / 10)
    assert stage.requests_per_s == pytest.approx(2 / 10)
    assert stage.output_tokens_per_s == pytest.approx(12 / 10)


def test_outcomes_are_counted_by_stage() -> None:
    result = hand_result()
    assert (result.stages[1].finished, result.stages[1].timed_out, result.stages[1].rejected) == (0, 1, 1)
    assert np.isnan(result.stages[1].ttft.mean_s)
    assert (result.overall.requests, result.overall.finished) == (4, 2)
    assert result.stages[1].saturated, "a client that gives up tells of saturation"


def test_goodput_counts_only_requests_within_every_bound() -> None:
    requests, kept = by_hand()
    assert meets_objectives(requests, kept, objectives=bounds(ttft_s=0.3)).tolist() == [False, True, False, False]
    assert meets_objectives(requests, kept, objectives=bounds(tpot_s=0.2)).tolist() == [True, True, False, False]
    assert meets_objectives(requests, kept, objectives=bounds(ttft_s=0.6, e2e_s=1.0)).tolist() == [
        False,
        True,
        False,
        False,
    ]
    result = hand_result(bounds(ttft_s=0.3, percentile=50))
    assert result.stages[0].goodput_per_s == pytest.approx(1 / 10)
    assert result.stages[0].meets_slo is False
    assert hand_result(bounds(ttft_s=0.5)).stages[0].meets_slo is True
    assert hand_result(bounds(ttft_s=0.5)).overall.meets_slo is False, "requests without an answer miss every objective"
    assert hand_result().overall.goodput_per_s is None


def test_percentiles_are_linear_between_order_statistics() -> None:
    summary = summarise(np.append(np.arange(1.0, 101.0), np.nan))
    assert summary.mean_s == pytest.approx(50.5)
    assert (summary.p50_s, summary.p99_s) == (pytest.approx(50.5), pytest.approx(99.01))


def test_outstanding_requests_are_those_sent_and_not_gone() -> None:
    requests, kept = by_hand()
    counts = [outstanding(requests, kept, at_s=at_s, timeout_s=3.0) for at_s in (0.0, 1.1, 2.0, 5.0, 14.0, 15.5)]
    # The rejected request never leaves by itself: it is not in the system at all.
    assert counts == [1, 2, 1, 0, 1, 0]


TABLES = uniform_tables(
    step_s=0.01, max_tokens=256, max_sequences=16, per_token_s=2e-5, per_context_token_s=1e-7, max_context=1024
)
LIMITS = SchedulerSettings(max_num_batched_tokens=256, max_num_seqs=16, max_model_len=1024, kv_blocks=600)


def served(rate_per_s: float, *, stages: int = 1, objectives: Objectives = ()) -> ServeResult:
    workload = WorkloadSpec(
        arrival="poisson",
        stages=tuple(StageSpec(rate_per_s=rate_per_s * (k + 1), duration_s=200) for k in range(stages)),
        isl_tokens=60,
        osl_tokens=50,
        osl_cv=0.5,
        seed=5,
    )
    requests = build_requests(workload, block_size_tokens=LIMITS.block_size_tokens, context_tokens=LIMITS.max_model_len)
    return simulate_serving(TABLES, requests, settings=LIMITS, objectives=objectives)


def test_saturation_is_seen_and_only_where_it_is() -> None:
    """A batch of 16 answers 50 tokens in about 0.56 s: capacity is some 27 requests per second."""
    assert not served(10.0).overall.saturated
    assert not served(20.0).overall.saturated
    assert served(35.0).overall.saturated


def test_a_stage_that_fills_up_is_not_saturated_by_its_start() -> None:
    requests = make_requests(
        arrival_s=np.arange(100.0),
        prompt_tokens=np.ones(100, dtype=np.int64),
        output_tokens=np.ones(100, dtype=np.int64),
    )
    steady = records(
        first_s=list(np.arange(100.0) + 20), finish_s=list(np.arange(100.0) + 20), outcome=[FINISHED] * 100
    )
    assert not is_saturated(*queue_growth(requests, steady, start_s=0.0, end_s=100.0, timeout_s=None))
    slow = np.arange(100.0) * 2 + 1
    growing = records(first_s=list(slow), finish_s=list(slow), outcome=[FINISHED] * 100)
    assert is_saturated(*queue_growth(requests, growing, start_s=0.0, end_s=100.0, timeout_s=None))


@pytest.mark.parametrize(("given_up", "saturated"), [(1, False), (20, True)])
def test_few_answers_longer_than_clients_wait_saturate_nothing(given_up: int, saturated: bool) -> None:
    """One of a thousand reasoned for longer than 300 s, and even an idle deployment was said not to keep up."""
    ones = np.ones(100, dtype=np.int64)
    requests = make_requests(arrival_s=np.arange(100.0), prompt_tokens=ones, output_tokens=ones)
    outcome = [TIMED_OUT] * given_up + [FINISHED] * (100 - given_up)
    at_s = list(np.arange(100.0) + 1)
    run = records(first_s=at_s, finish_s=at_s, outcome=outcome)
    assert is_saturated(*queue_growth(requests, run, start_s=0.0, end_s=100.0, timeout_s=1.0)) is saturated


def test_mean_batch_obeys_littles_law() -> None:
    """Mean number in the system = rate x mean E2E, counted by sampling the clock."""
    result = served(15.0)
    window_s = np.linspace(20.0, 190.0, 4000)
    kept = result.run.records
    in_system = np.mean(
        [outstanding(result.requests, kept, at_s=float(at_s), timeout_s=None) for at_s in window_s[::8]]
    )
    inside = (result.requests.arrival_s > 20) & (result.requests.arrival_s < 190)
    rate = np.count_nonzero(inside) / 170.0
    e2e_s = np.mean((kept.finish_s - result.requests.arrival_s)[inside])
    assert in_system == pytest.approx(rate * e2e_s, rel=0.05)
    # Nobody queues at this load, so that the batch is what is in the system while the engine runs.
    assert result.overall.mean_batch * result.overall.busy_fraction == pytest.approx(rate * e2e_s, rel=0.08)


def test_stages_add_up_to_the_whole() -> None:
    result = served(4.0, stages=3)
    for name in ("requests", "finished", "preemptions"):
        assert sum(getattr(stage, name) for stage in result.stages) == getattr(result.overall, name)
    tpots = [stage.tpot.mean_s for stage in result.stages]
    assert tpots == sorted(tpots), "more load, slower steps"
    means = [stage.e2e.mean_s for stage in result.stages]
    weights = [stage.finished for stage in result.stages]
    assert np.average(means, weights=weights) == pytest.approx(result.overall.e2e.mean_s)
    assert 0 < result.overall.kv_utilization < 1
    assert 0 < result.overall.busy_fraction <= 1


def test_goodput_never_exceeds_throughput_and_falls_with_tighter_bounds() -> None:
    loose, tight = (served(12.0, objectives=bounds(e2e_s=bound_s)).overall for bound_s in (5.0, 0.5))
    assert loose.goodput_per_s is not None
    assert tight.goodput_per_s is not None
    assert tight.goodput_per_s < loose.goodput_per_s <= loose.requests_per_s
