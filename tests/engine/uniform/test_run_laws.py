"""``simulator.engine.uniform.loops``: laws of equal requests on any engine, model and accelerator."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import pytest

from simulator.engine.uniform.loop_requests import LoopLengths
from simulator.engine.uniform.loops import closed_loop, offline, static_batch
from simulator.engine.uniform.record import UniformRun
from simulator.phases.deployment import Deployment, deploy
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model

CASES = (
    ("llama-3.1-8b", "h100", 1, "vllm"),
    ("llama-3.1-8b", "h100", 1, "sglang"),
    ("llama-3.1-8b", "h100", 1, "trtllm"),
    ("llama-3.1-8b", "l40s", 1, "vllm"),
    ("llama-3.1-8b", "mi300x", 1, "vllm"),
    ("llama-3.1-70b", "h100", 4, "vllm"),
    ("mixtral-8x7b", "h200", 2, "vllm"),
)
ISL, OSL = 512, 64


@cache
def replica(model: str, hardware: str, tp_size: int, engine: str) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp_size),
        engine=EngineSpec(name=engine, max_model_len=8192),
    )


@cache
def loop(case: tuple[str, str, int, str], concurrency: int) -> UniformRun:
    sent = 8 * concurrency
    lengths = LoopLengths(isl_tokens=ISL, osl_tokens=OSL)
    return closed_loop(replica(*case), concurrency=concurrency, lengths=lengths, num_requests=sent)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
class TestEveryCase:
    def test_definitions(self, case: tuple[str, str, int, str]) -> None:
        run = loop(case, 8)
        assert run.e2e_s == pytest.approx(run.ttft_s + (OSL - 1) * run.tpot_s)
        assert run.ttft_s > 0
        assert run.tpot_s > 0

    def test_littles_law(self, case: tuple[str, str, int, str]) -> None:
        """No more than the clients are in the system, and all but the ends of the run nearly as many."""
        run = loop(case, 16)
        inside = run.requests_per_s * run.e2e_s
        assert inside <= 16 * 1.001
        assert inside > 16 * 0.8

    def test_more_clients_wait_longer_and_get_more_done(self, case: tuple[str, str, int, str]) -> None:
        runs = [loop(case, concurrency) for concurrency in (1, 4, 16, 64)]
        for fewer, more in pairwise(runs):
            assert more.requests_per_s > fewer.requests_per_s
            assert more.tpot_s > 0.98 * fewer.tpot_s
            assert more.e2e_s > 0.98 * fewer.e2e_s

    def test_longer_answers_take_longer_and_are_slower_to_finish(self, case: tuple[str, str, int, str]) -> None:
        deployment = replica(*case)
        runs = [
            static_batch(deployment, batch_size=4, isl_tokens=ISL, osl_tokens=osl, limit_tokens=None)
            for osl in (16, 64, 256)
        ]
        for short, long in pairwise(runs):
            assert long.e2e_s > short.e2e_s
            assert long.ttft_s == pytest.approx(short.ttft_s, rel=0.02)

    def test_longer_prompts_answer_later(self, case: tuple[str, str, int, str]) -> None:
        deployment = replica(*case)
        runs = [
            static_batch(deployment, batch_size=2, isl_tokens=isl, osl_tokens=8, limit_tokens=None)
            for isl in (128, 1024, 4096)
        ]
        for short, long in pairwise(runs):
            assert long.ttft_s > short.ttft_s
            assert long.tpot_s > 0.98 * short.tpot_s

    def test_everything_queued_at_once_is_at_least_as_fast_as_few_clients(
        self, case: tuple[str, str, int, str]
    ) -> None:
        whole = offline(replica(*case), lengths=LoopLengths(isl_tokens=ISL, osl_tokens=OSL), num_requests=256)
        assert whole.requests_per_s > loop(case, 4).requests_per_s


def test_engines_agree_within_a_factor_of_two() -> None:
    runs = [loop(case, 16) for case in CASES[:3]]
    for run in runs:
        assert 0.5 < run.tpot_s / runs[0].tpot_s < 2
        assert 0.3 < run.requests_per_s / runs[0].requests_per_s < 3


def test_four_devices_answer_a_large_model_faster_than_one_a_small_one_only_where_they_pay() -> None:
    large, small = loop(CASES[5], 16), loop(CASES[0], 16)
    # 70 billion parameters on four devices read more than twice what 8 billion on one do.
    assert large.tpot_s > 1.5 * small.tpot_s
    assert large.tpot_s < 8 * small.tpot_s
