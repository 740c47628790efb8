"""Attention-data-parallel ranks that share experts step together in the event simulation, as in closed loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.engine.events.simulation import simulate_requests
from simulator.engine.settings import Routing, SchedulerSettings
from simulator.engine.uniform.clock import StepClock
from simulator.engine.uniform.loop_requests import LoopDemand
from simulator.engine.uniform.loops import loop_work
from simulator.engine.uniform.scheduler import LoopPolicy
from simulator.engine.uniform.simulation import Engine, simulate_loop
from simulator.phases.compiled import uniform_tables
from simulator.traffic.requests import make_requests

PLAIN = uniform_tables(
    step_s=1.0, max_tokens=256, max_sequences=32, per_token_s=0.02, per_context_token_s=1e-3, max_context=512
)
TABLES = PLAIN._replace(shared_s=0.015 * np.arange(257))
"""Three quarters of what a token takes are experts, which all ranks share."""
SETTINGS = SchedulerSettings(
    max_num_batched_tokens=64,
    max_num_seqs=16,
    max_model_len=512,
    kv_blocks=4000,
    block_size_tokens=1,
    prefix_caching=False,
    replicas=3,
    ranks=3,
    routing=Routing.LEAST_OUTSTANDING,
)


def burst(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(count)
    return rng.integers(5, 150, size=count), rng.integers(2, 60, size=count)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("count", [1, 2, 7, 30])
def test_a_burst_takes_as_long_as_in_a_loop(count: int, ahead: bool) -> None:
    prompts, answers = burst(count)
    demand = LoopDemand(isl_tokens=prompts, osl_tokens=answers, at_once=count)
    policy = LoopPolicy(resident=16, step_tokens=64, ahead=ahead)
    loop = simulate_loop(demand, engines=[Engine(StepClock(TABLES), policy=policy, work=loop_work(demand), ranks=3)])
    requests = make_requests(arrival_s=np.zeros(count), prompt_tokens=prompts, output_tokens=answers)
    served = simulate_requests(TABLES, requests=requests, settings=replace(SETTINGS, async_scheduling=ahead)).records
    np.testing.assert_allclose(served.first_token_s, loop.first_token_s, rtol=1e-9)
    np.testing.assert_allclose(served.finish_s, loop.finish_s, rtol=1e-9)


def test_who_comes_to_an_idle_rank_waits_for_the_step_of_the_others() -> None:
    """A step of 40 tokens takes 1 + 40 x 0.005 of its own and, of two ranks, 20 x 0.015 of what they share."""
    requests = make_requests(
        arrival_s=np.array([0.0, 0.2]), prompt_tokens=np.array([40, 10]), output_tokens=np.array([1, 1])
    )
    two = replace(SETTINGS, replicas=2, ranks=2, async_scheduling=False)
    served = simulate_requests(TABLES, requests=requests, settings=two, trace_steps=10)
    assert served.records.first_token_s == pytest.approx([1.5, 1.5 + 1 + 0.05 + 0.075])
    assert served.records.replica.tolist() == [0, 1]
    assert [len(steps) for steps in served.trace] == [2, 2]


def test_replicas_of_such_ranks_are_apart() -> None:
    """In turn, two replicas of three ranks each serve every second request as one of them serves those alone."""
    prompts, answers = burst(40)
    requests = make_requests(arrival_s=np.arange(40) * 0.3, prompt_tokens=prompts, output_tokens=answers)
    turns = replace(SETTINGS, routing=Routing.ROUND_ROBIN)
    both = simulate_requests(TABLES, requests=requests, settings=replace(turns, replicas=6)).records
    for replica in range(2):
        own = np.arange(replica, 40, 2)
        alone = simulate_requests(TABLES, requests=requests.part(own), settings=turns).records
        np.testing.assert_array_equal(both.finish_s[own], alone.finish_s)
        assert set(both.replica[own]) == {3 * replica, 3 * replica + 1, 3 * replica + 2}
