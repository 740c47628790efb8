"""Uniform runs: conservation between the three kinds, limits, refusals."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.uniform.loop_requests import LoopLengths
from simulator.engine.uniform.loops import closed_loop, offline, static_batch
from simulator.engine.uniform.steps import decode_phase, prompt_passes
from simulator.errors import InfeasibleError, RoofcastError
from simulator.operators.work import decode_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import estimate_step
from simulator.reports.words.fields import note_texts
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model


@pytest.fixture(scope="module")
def replica() -> Deployment:
    return deploy(
        model=load_model("llama-3.1-8b"),
        hardware=load_hardware("h100"),
        engine=EngineSpec(max_num_batched_tokens=2048, max_num_seqs=128),
    )


@given(sequences=st.integers(1, 300), isl=st.integers(1, 9000), limit=st.one_of(st.none(), st.integers(1, 8192)))
def test_every_prompt_token_passes_exactly_once(sequences: int, isl: int, limit: int | None) -> None:
    shape, weights = prompt_passes(sequences=sequences, isl_tokens=isl, limit_tokens=limit)
    assert weights @ shape.new_tokens == sequences * isl
    assert weights @ shape.prefill_logits == sequences
    assert limit is None or shape.new_tokens.max() <= max(limit, 1)


def test_decode_phase_integrates_every_step(replica: Deployment) -> None:
    phase = decode_phase(replica, sequences=16, isl_tokens=500, osl_tokens=301)
    assert phase is not None
    assert phase.steps == 300
    every = estimate_step(replica, decode_step(sequences=16, context=np.arange(501.0, 801.0))).step_s.sum()
    assert phase.total_s == pytest.approx(every, rel=0.003)


def test_one_output_token_has_no_decode_phase(replica: Deployment) -> None:
    run = static_batch(replica, batch_size=2, isl_tokens=100, osl_tokens=1, limit_tokens=None)
    assert run.decode is None
    assert run.e2e_s == run.ttft_s
    assert run.tpot_s == 0


def test_definitions_hold(replica: Deployment) -> None:
    for run in (
        static_batch(replica, batch_size=8, isl_tokens=700, osl_tokens=90, limit_tokens=None),
        closed_loop(replica, concurrency=32, lengths=LoopLengths(isl_tokens=700, osl_tokens=90)),
    ):
        assert run.tpot_s == pytest.approx((run.e2e_s - run.ttft_s) / (run.osl_tokens - 1))
        assert run.output_tokens_per_s == pytest.approx(run.requests_per_s * run.osl_tokens)


@pytest.mark.parametrize("concurrency", [1, 16, 64, 400])
def test_littles_law_of_a_closed_loop(replica: Deployment, concurrency: int) -> None:
    run = closed_loop(replica, concurrency=concurrency, lengths=LoopLengths(isl_tokens=400, osl_tokens=100))
    assert run.requests_per_s * run.e2e_s == pytest.approx(concurrency, rel=0.1)


def test_clients_without_a_request_are_said(replica: Deployment) -> None:
    lengths = LoopLengths(isl_tokens=400, osl_tokens=100)
    few = closed_loop(replica, concurrency=16, lengths=lengths, num_requests=4)
    assert note_texts(few.notes) == ["4 requests for 16 clients: some clients send none"]
    assert few.tpot_s == closed_loop(replica, concurrency=4, lengths=lengths, num_requests=4).tpot_s
    assert closed_loop(replica, concurrency=16, lengths=lengths, num_requests=16).notes == ()


def test_offline_is_at_least_as_fast_as_any_closed_loop(replica: Deployment) -> None:
    saturated = offline(
        replica, lengths=LoopLengths(isl_tokens=400, osl_tokens=100), num_requests=None
    ).output_tokens_per_s
    for concurrency in (1, 8, 64):
        run = closed_loop(replica, concurrency=concurrency, lengths=LoopLengths(isl_tokens=400, osl_tokens=100))
        assert run.output_tokens_per_s <= saturated * 1.001


def test_offline_run_of_many_requests_approaches_the_steady_rate(replica: Deployment) -> None:
    steady = offline(replica, lengths=LoopLengths(isl_tokens=400, osl_tokens=100), num_requests=None)
    long = offline(replica, lengths=LoopLengths(isl_tokens=400, osl_tokens=100), num_requests=50_000)
    assert long.output_tokens_per_s == pytest.approx(steady.output_tokens_per_s, rel=0.05)


def test_bigger_batches_trade_latency_for_throughput(replica: Deployment) -> None:
    runs = [
        static_batch(replica, batch_size=size, isl_tokens=256, osl_tokens=64, limit_tokens=None) for size in (1, 8, 64)
    ]
    assert [run.tpot_s for run in runs] == sorted(run.tpot_s for run in runs)
    assert [run.output_tokens_per_s for run in runs] == sorted(run.output_tokens_per_s for run in runs)


def test_a_batch_beyond_the_cache_is_said(replica: Deployment) -> None:
    run = static_batch(replica, batch_size=2000, isl_tokens=2000, osl_tokens=10, limit_tokens=None)
    assert any("of 2000 requests run at once; the others wait" in note for note in note_texts(run.notes))


def test_what_does_not_fit_is_refused_with_the_amount() -> None:
    large = deploy(model=load_model("llama-3.1-70b"), hardware=load_hardware("h100"))
    with pytest.raises(InfeasibleError, match=r"exceed the memory of a device by \d+\.\d GB"):
        static_batch(large, batch_size=1, isl_tokens=10, osl_tokens=10, limit_tokens=None)


@pytest.mark.parametrize(
    ("engine", "share", "isl_tokens"),
    [("vllm", 0.1, 10), ("sglang", 0.1, 10), ("vllm", 0.1, 3000), ("sglang", 0.1, 3000), ("tensorrt-llm", 0.01, 3000)],
)
def test_the_share_of_memory_that_a_refusal_names_is_the_smallest_that_holds(
    engine: str, share: float, isl_tokens: int
) -> None:
    """Llama-2-7B takes 13.5 of 80 GB, and 3,000 tokens 1.6: too much for a tenth, and for TensorRT-LLM's 0.01 of what
    weights leave free."""

    def run(share: float) -> None:
        asked = EngineSpec(name=engine, gpu_memory_utilization=share, max_model_len=4096, max_num_batched_tokens=2048)
        small = deploy(model=load_model("llama-2-7b"), hardware=load_hardware("h100"), engine=asked)
        static_batch(small, batch_size=1, isl_tokens=isl_tokens, osl_tokens=10, limit_tokens=None)

    with pytest.raises(InfeasibleError) as refused:
        run(share)
    named = re.match(
        rf"set engine\.gpu_memory_utilization to (0\.\d+) \({share} here\), or use ", refused.value.hint or ""
    )
    assert named is not None
    run(float(named[1]))
    with pytest.raises(InfeasibleError):
        run(float(named[1]) - 0.01)


def test_a_share_of_memory_is_not_named_where_none_holds() -> None:
    large = deploy(model=load_model("llama-3.1-70b"), hardware=load_hardware("h100"))
    with pytest.raises(InfeasibleError) as refused:
        static_batch(large, batch_size=1, isl_tokens=10, osl_tokens=10, limit_tokens=None)
    assert (refused.value.hint or "").startswith("use more tensor parallelism")


def test_a_request_longer_than_the_cache_is_refused() -> None:
    tight = deploy(model=load_model("llama-2-13b"), hardware=load_hardware("a100-sxm-40gb"))
    with pytest.raises(InfeasibleError, match="does not fit the cache"):
        closed_loop(tight, concurrency=1, lengths=LoopLengths(isl_tokens=100_000, osl_tokens=10))


@pytest.mark.parametrize("answers", [2, 8])
def test_further_answers_find_their_prompt(replica: Deployment, answers: int) -> None:
    """Best of n costs less than n requests, more than one; a prompt of one token has nothing to share."""
    for isl, gains in ((2000, True), (1, False)):
        one = LoopLengths(isl_tokens=isl, osl_tokens=100)
        many = LoopLengths(isl_tokens=isl, osl_tokens=100, answers=answers)
        apart = closed_loop(replica, concurrency=4 * answers, lengths=one, num_requests=40 * answers)
        shared = closed_loop(replica, concurrency=4, lengths=many, num_requests=40)
        assert shared.requests_per_s > apart.requests_per_s * (1.1 if gains else 0.95)
        single = closed_loop(replica, concurrency=4, lengths=one, num_requests=40)
        assert shared.tpot_s >= single.tpot_s
        full, halved = (offline(replica, lengths=found, num_requests=64).requests_per_s for found in (one, many))
        assert halved > full * (1.1 if gains else 0.95)


def test_more_requests_than_a_loop_simulates_are_refused_before_they_are_drawn() -> None:
    """A million prompts of 128 answers each took 12 GB before they were counted."""
    with pytest.raises(RoofcastError, match="128,000,000 requests; allowed: up to 500,000"):
        LoopLengths(isl_tokens=300, osl_tokens=20, answers=128).drawn(128_000_000)
