"""Queues of prompts behind round robin: against exact waits, laws of rates and turns, and the event simulation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.events.state import BUSY_S
from simulator.engine.lanes.load_curve import LoadCurve, lane_curve, saturation
from simulator.engine.lanes.prompt_queue import batched_load, prompt_batches, prompt_ttft_s
from simulator.engine.lanes.queueing import (
    arrivals_after_one,
    gg1_wait_mean_s,
    smooth_arrivals_factor,
    wait_probability,
)
from simulator.engine.lanes.steady_state import steady_state
from simulator.phases.deployment import Deployment, deploy
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.plan_values import LatencyMetric
from simulator.specs.question.workload import WorkloadSpec
from simulator.traffic.lengths import LengthDistribution, RequestMix
from simulator.traffic.workload_requests import requests_of_mix
from tests.engine.workload_runs import serve_workload

LOADS = np.array([0.4, 0.6, 0.8, 0.9])


def erlang_wait_s(*, load: float, phases: int) -> tuple[float, float]:
    """Mean wait of E_k/M/1 with a mean service of 1 s, and how many wait: the root of s = A*(1 - s) [Kleinrock1975]."""
    root = load
    for _ in range(10_000):
        root = (phases * load / (phases * load + 1 - root)) ** phases
    return root / (1 - root), root


class TestSmoothArrivals:
    @pytest.mark.parametrize("phases", [2, 4, 8])
    @pytest.mark.parametrize("load", LOADS)
    def test_the_factor_turns_poisson_waits_into_exact_erlang_ones(self, load: float, phases: int) -> None:
        exact_s, waiting = erlang_wait_s(load=load, phases=phases)
        poisson_s = gg1_wait_mean_s(arrival_rate_per_s=load, service_mean_s=1.0, service_cv=1.0, arrival_cv=1.0)
        gaps = 1 / phases**0.5
        found_s = poisson_s * smooth_arrivals_factor(load=load, service_cv=1.0, arrival_cv=gaps)
        assert found_s == pytest.approx(exact_s, rel=0.12)
        assert wait_probability(load=load, service_cv=1.0, arrival_cv=gaps) == pytest.approx(waiting, abs=0.03)

    @given(load=st.floats(0.01, 0.99), cv=st.floats(0, 3))
    def test_poisson_arrivals_are_left_alone(self, load: float, cv: float) -> None:
        assert smooth_arrivals_factor(load=load, service_cv=cv, arrival_cv=1.0) == pytest.approx(1.0)
        assert wait_probability(load=load, service_cv=cv, arrival_cv=1.0) == pytest.approx(load)

    @given(expected=st.floats(0, 50), phases=st.integers(1, 16))
    def test_after_an_arrival_of_an_even_stream_fewer_come(self, expected: float, phases: int) -> None:
        found = float(arrivals_after_one(expected, arrival_cv=phases**-0.5))
        assert max(0.0, expected - (1 - 1 / phases) / 2) - 1e-9 <= found <= expected
        if phases == 2:
            assert found == pytest.approx(expected - (1 - np.exp(-4 * expected)) / 4, abs=1e-12)


def prompts_alone(
    *, isl: float, cv: float = 1.0, budget: int = 8192, arrival_cv: float = 1.0
) -> tuple[Deployment, LoadCurve]:
    """Llama 8B on one H100 that ends every answer with its first token."""
    deployment = deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100"),
        engine=EngineSpec(max_num_batched_tokens=budget),
    )
    mix = RequestMix(
        isl=LengthDistribution(mean_tokens=isl, cv=cv), osl=LengthDistribution(mean_tokens=1.0), arrival_cv=arrival_cv
    )
    return deployment, lane_curve(deployment, mix=mix)


class TestPromptLane:
    @pytest.mark.parametrize("isl", [100, 900, 8192, 30_000])
    def test_full_steps_take_what_saturates_the_lane(self, isl: float) -> None:
        _, curve = prompts_alone(isl=isl)
        batches = prompt_batches(curve)
        assert (np.diff(batches.prompts) > 0).all()
        assert (np.diff(batches.step_s) >= 0).all()
        assert batches.step_s[-1] / batches.prompts[-1] == pytest.approx(1 / saturation(curve).rate_per_s)

    def test_of_equal_prompts_that_fill_a_step_waits_are_those_of_one_server(self) -> None:
        """M/D/1: rho / (1 - rho) * s / 2, where every prompt is a step."""
        _, curve = prompts_alone(isl=8192, cv=0.0)
        service_s = float(curve.full_prompt_s[0])
        lane = batched_load(curve, rates_per_s=LOADS / service_s)
        assert lane.busy == pytest.approx(LOADS, rel=1e-6)
        assert lane.busy * lane.wait_s == pytest.approx(LOADS / (1 - LOADS) * service_s / 2, rel=0.02)

    @pytest.mark.parametrize(("isl", "cv"), [(300, 1.0), (8192, 0.0), (30_000, 0.5)])
    def test_a_lane_whose_steps_are_full_has_a_finite_wait(self, isl: float, cv: float) -> None:
        _, curve = prompts_alone(isl=isl, cv=cv)
        lane = batched_load(curve, rates_per_s=np.array([0.99, 1.0, 1.5, 10.0]) * saturation(curve).rate_per_s)
        assert np.isfinite([lane.wait_s, lane.rest_s, lane.added_s]).all()
        assert (np.diff(lane.wait_s) >= -1e-9).all()

    def test_an_idle_lane_takes_its_own_time_alone(self) -> None:
        _, curve = prompts_alone(isl=500, cv=0.0)
        ttft_s = prompt_ttft_s(curve, rates_per_s=np.array([1e-6]), streams=4.0)
        host_s = curve.limits.request_s + 500 * curve.limits.prompt_token_s
        alone_s = curve.decode_s[0] + curve.costs.added_by_s(np.array([500.0]), sequences=np.zeros(1))[0, 0]
        assert ttft_s.max() == pytest.approx(host_s + alone_s, rel=1e-3)

    @pytest.mark.parametrize(("isl", "cv"), [(300, 1.0), (2000, 0.0), (4000, 1.0), (20_000, 0.5)])
    def test_more_load_waits_longer_and_more_turns_less(self, isl: float, cv: float) -> None:
        _, curve = prompts_alone(isl=isl, cv=cv)
        rates = np.linspace(0.05, 0.97, 24) * saturation(curve).rate_per_s
        mean_s = [prompt_ttft_s(curve, rates_per_s=rates, streams=turns).mean(axis=1) for turns in (1, 2, 4, 16)]
        assert all((np.diff(each) >= -1e-9).all() for each in mean_s)
        assert mean_s[0][0] < mean_s[0][-1] / 2
        assert all((fewer >= more - 1e-9).all() for fewer, more in pairwise(mean_s))

    @pytest.mark.parametrize("turns", [3, 12, 36])
    def test_in_many_turns_with_long_prompts_it_is_as_busy_and_as_slow_as_the_event_simulation(
        self, turns: int
    ) -> None:
        """More turns leave fewer prompts to a step, and the long prompts to wait for."""
        deployment, curve = prompts_alone(isl=3000, cv=1.0)
        rate = 0.85 * saturation(curve).rate_per_s
        simulated = serve_workload(
            deployment,
            workload=WorkloadSpec(timeout_s=None),
            replicas=turns,
            requests=requests_of_mix(curve.mix, rate_per_s=turns * rate, count=3000 * turns, seed=7),
        )
        span_s = float(simulated.run.records.finish_s.max()) * turns
        lane = batched_load(curve, rates_per_s=np.array([rate]), streams=turns)
        assert lane.busy[0] == pytest.approx(simulated.run.usage[:, BUSY_S].sum() / span_s, rel=0.03)
        found = prompt_ttft_s(curve, rates_per_s=np.array([rate]), streams=turns)[0]
        assert found.mean() == pytest.approx(simulated.overall.ttft.mean_s, rel=0.18)
        assert np.percentile(found, 95) == pytest.approx(simulated.overall.ttft.p95_s, rel=0.25)

    @pytest.mark.parametrize(
        ("isl", "cv", "replicas", "load"),
        [(600, 1.0, 4, 0.6), (600, 1.0, 4, 0.8), (3000, 0.5, 2, 0.8), (3000, 0.5, 8, 0.6), (2000, 0.0, 6, 0.8)],
    )
    def test_turns_agree_with_the_event_simulation(self, isl: float, cv: float, replicas: int, load: float) -> None:
        """Taken for Poisson arrivals, every one of these means is 30 % too high or more."""
        deployment, curve = prompts_alone(isl=isl, cv=cv)
        rates = np.array([load * saturation(curve).rate_per_s])
        simulated = serve_workload(
            deployment,
            workload=WorkloadSpec(timeout_s=None),
            replicas=replicas,
            requests=requests_of_mix(curve.mix, rate_per_s=replicas * float(rates[0]), count=5000 * replicas, seed=5),
        ).overall
        found, poisson = (np.sort(prompt_ttft_s(curve, rates_per_s=rates, streams=turns)[0]) for turns in (replicas, 1))
        assert found.mean() == pytest.approx(simulated.ttft.mean_s, rel=0.17)
        # Waits for equal steps are bounded, which an exponential law does not know: it is on the safe side there.
        above = 0.25 if cv else 0.45
        assert 0.75 <= np.percentile(found, 95) / simulated.ttft.p95_s <= 1 + above
        assert poisson.mean() > 1.3 * simulated.ttft.mean_s


@pytest.mark.parametrize(("replicas", "load"), [(4, 0.5), (4, 0.7), (8, 0.7)])
def test_turns_shorten_the_ttft_of_whole_replicas_as_in_the_event_simulation(replicas: int, load: float) -> None:
    """Every k-th of Poisson arrivals has gaps of variability 1 / sqrt(k); what answers take hardly changes."""
    deployment, _ = prompts_alone(isl=1000)
    mix = RequestMix(isl=LengthDistribution(mean_tokens=1000, cv=1.0), osl=LengthDistribution(mean_tokens=200, cv=0.7))
    poisson, turns = (
        lane_curve(deployment, mix=replace(mix, arrival_cv=arrival_cv)) for arrival_cv in (1.0, replicas**-0.5)
    )
    rate = load * saturation(poisson).rate_per_s
    at_random, in_turn = (steady_state(curve, rates_per_s=rate) for curve in (poisson, turns))
    simulated = serve_workload(
        deployment,
        workload=WorkloadSpec(timeout_s=None),
        replicas=replicas,
        requests=requests_of_mix(mix, rate_per_s=replicas * rate, count=3000 * replicas, seed=3),
    ).overall
    assert in_turn.ttft_mean_s[0] == pytest.approx(simulated.ttft.mean_s, rel=0.08)
    assert in_turn.percentile_s(LatencyMetric.TTFT, 95)[0] == pytest.approx(simulated.ttft.p95_s, rel=0.15)
    assert in_turn.percentile_s(LatencyMetric.E2E, 95)[0] == pytest.approx(simulated.e2e.p95_s, rel=0.08)
    assert at_random.ttft_mean_s[0] > 1.12 * simulated.ttft.mean_s
