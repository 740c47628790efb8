"""Drawn requests have the mix they were drawn from, and keep it at any rate."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.engine.runs.serving import simulate_serving
from simulator.engine.settings import SchedulerSettings
from simulator.phases.compiled import uniform_tables
from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.traffic.workload_requests import at_rate, mean_rate_per_s, mix_of_requests, requests_of_mix


def mix(*, hit: float = 0.0, arrival_cv: float = 1.0) -> RequestMix:
    return RequestMix(
        isl=LengthDistribution(mean_tokens=800.0, cv=1.0),
        osl=LengthDistribution(mean_tokens=200.0, cv=0.5),
        prefix_hit_fraction=hit,
        arrival_cv=arrival_cv,
    )


@pytest.mark.parametrize("arrival_cv", [0.5, 1.0, 2.0])
def test_moments_are_those_of_the_mix(arrival_cv: float) -> None:
    requests = requests_of_mix(mix(arrival_cv=arrival_cv), rate_per_s=5.0, count=20_000, seed=3)
    measured = mix_of_requests(requests)
    assert measured.isl.mean_tokens == pytest.approx(800, rel=0.01)
    assert measured.isl.cv == pytest.approx(1.0, rel=0.05)
    assert measured.osl.cv == pytest.approx(0.5, rel=0.02)
    gaps = np.diff(requests.arrival_s)
    assert gaps.mean() == pytest.approx(0.2, rel=0.06)
    assert gaps.std() / gaps.mean() == pytest.approx(arrival_cv, rel=0.1)


def test_another_rate_keeps_requests_and_pattern() -> None:
    slow = requests_of_mix(mix(), rate_per_s=1.0, count=500, seed=0)
    fast = at_rate(slow, rate_per_s=25.0)
    assert mean_rate_per_s(fast) == pytest.approx(25.0)
    np.testing.assert_allclose(np.diff(fast.arrival_s) * 25.0, np.diff(slow.arrival_s) * mean_rate_per_s(slow))
    assert fast.prompt_tokens is slow.prompt_tokens


def test_seeds_differ_in_order_and_arrivals_only() -> None:
    one, same, other = (requests_of_mix(mix(), rate_per_s=1.0, count=300, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one.arrival_s, same.arrival_s)
    np.testing.assert_array_equal(one.prompt_tokens, same.prompt_tokens)
    assert (one.prompt_tokens != other.prompt_tokens).any()
    assert sorted(one.prompt_tokens) == sorted(other.prompt_tokens)


def test_prefix_hits_are_found_by_the_cache() -> None:
    requests = requests_of_mix(mix(hit=0.5), rate_per_s=2.0, count=2000, seed=0)
    limits = SchedulerSettings(max_num_batched_tokens=2048, max_num_seqs=64, max_model_len=65_536, kv_blocks=60_000)
    tables = uniform_tables(step_s=0.01, max_tokens=2048, max_sequences=64)
    result = simulate_serving(tables, requests, settings=limits)
    assert result.overall.prefix_hit_fraction == pytest.approx(0.5, abs=0.02)
