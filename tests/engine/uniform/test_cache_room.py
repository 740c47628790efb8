"""Requests that outgrow the cache together: the last admitted makes room, in loops as in the event simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.events.simulation import simulate_requests
from simulator.engine.settings import SchedulerPolicy, SchedulerSettings, TokenRatio
from simulator.engine.uniform.clock import StepClock
from simulator.engine.uniform.loop_requests import LoopDemand, LoopLengths
from simulator.engine.uniform.loops import loop_work
from simulator.engine.uniform.scheduler import LoopPolicy, Rank
from simulator.engine.uniform.simulation import Engine, simulate_loop
from simulator.phases.compiled import uniform_tables
from simulator.traffic.requests import make_requests

TABLES = uniform_tables(
    step_s=1.0, max_tokens=1024, max_sequences=64, per_token_s=0.02, per_context_token_s=1e-3, max_context=512
)


@pytest.mark.parametrize("policy", [SchedulerPolicy.CHUNKED_MIXED, SchedulerPolicy.PREFILL_FIRST])
@pytest.mark.parametrize("cache_tokens", [700, 1500, 8000])
def test_a_burst_takes_as_long_as_in_the_event_simulation(policy: SchedulerPolicy, cache_tokens: int) -> None:
    """48 equal requests of 40 + 60 tokens in 30 seats, which would take 3,000 tokens at their ends."""
    count, prompt, tokens, seats, apart = 48, 40, 60, 30, policy is SchedulerPolicy.PREFILL_FIRST
    asked = LoopDemand(isl_tokens=np.full(count, prompt), osl_tokens=np.full(count, tokens), at_once=count)
    mine = LoopPolicy(
        resident=seats,
        step_tokens=512,
        decodes_beside=not apart,
        cache_tokens=cache_tokens,
        token_ratio=TokenRatio() if apart else None,
    )
    engine = Engine(StepClock(TABLES), policy=mine, work=loop_work(asked))
    loop_s = simulate_loop(asked, engines=[engine]).finish_s
    requests = make_requests(
        arrival_s=np.zeros(count), prompt_tokens=np.full(count, prompt), output_tokens=np.full(count, tokens)
    )
    theirs = SchedulerSettings(
        max_num_batched_tokens=512,
        max_num_seqs=seats,
        max_model_len=256,
        kv_blocks=cache_tokens,
        block_size_tokens=1,
        prefix_caching=False,
        async_scheduling=False,
        policy=policy,
    )
    events = simulate_requests(TABLES, requests=requests, settings=theirs).records
    assert (events.preemptions.sum() > 0) == (cache_tokens < 2000)
    assert loop_s.max() == pytest.approx(events.finish_s.max(), rel=0.02)
    assert loop_s.mean() == pytest.approx(events.finish_s.mean(), rel=0.03)


@settings(max_examples=60, deadline=None)
@given(
    requests=st.integers(1, 40),
    isl=st.integers(1, 60),
    osl=st.integers(1, 40),
    ratio=st.floats(0.2, 1.0),
    room=st.floats(1.0, 6.0),
    apart=st.booleans(),
)
def test_the_cache_is_never_overdrawn_and_every_token_is_made(
    requests: int, isl: int, osl: int, ratio: float, room: float, apart: bool
) -> None:
    prompts, answers = LoopLengths(isl_tokens=isl, osl_tokens=osl, range_ratio=ratio).drawn(requests)
    asked = LoopDemand(isl_tokens=prompts, osl_tokens=answers, at_once=requests)
    policy = LoopPolicy(
        resident=16,
        step_tokens=100,
        decodes_beside=not apart,
        cache_tokens=room * (isl + osl),
        token_ratio=TokenRatio() if apart else None,
    )
    work = loop_work(asked)
    rank, made, steps = Rank(policy, work), 0, 0
    rank.waiting += [(0.0, request) for request in range(requests)]
    done: list[int] = []
    while len(done) < requests:
        if not rank.makes_room():
            assert rank.admit(0.0) == []
        rank.compose(verify_tokens=1)
        alone = rank.load - len(rank.waiting) == 1
        assert alone or rank.context + rank.held + rank.growth * rank.decodes <= policy.cache_tokens + 1e-6
        if rank.decodes:
            made += rank.running
            rank.advance(1, done)
        made += len(rank.starting)
        for request in rank.starting:
            context, further = rank.left(request)
            rank.held -= context
            rank.decode(request) if further else done.append(request)
        steps += 1
        assert steps < 20_000
    assert sorted(done) == list(range(requests))
    assert made == answers.sum()
    assert rank.held == rank.context == 0
