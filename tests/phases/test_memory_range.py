"""How sure the room for the KV cache is."""

from __future__ import annotations

import pytest

from simulator import deploy, load_hardware, load_model
from simulator.kernels.timing import Provenance
from simulator.phases.deployment import Deployment
from simulator.phases.memory import (
    LARGEST_SHARE,
    LEAST_SHARE,
    MemoryPlan,
    cache_room,
    cache_use,
    memory_plan,
    memory_provenance,
    sequences_that_fit,
)
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec

# vLLM 0.15.1 on H100 80GB, max_num_seqs 128, max_model_len 4096, blocks of 16 tokens (serving runs of the project's
# data, 2026-02): model, TP, max_num_batched_tokens, blocks as logged.
LOGGED = [
    ("llama-4-scout-fp8-dynamic", 2, 2048, 8253),
    ("llama-3.1-70b", 4, 8192, 30251),
    ("llama-3.1-70b", 4, 2048, 30425),
    ("mistralai/Mistral-Nemo-Instruct-2407", 2, 1024, 48009),
    ("mistralai/Mistral-Nemo-Instruct-2407", 1, 2048, 19251),
    ("Qwen/Qwen2.5-7B-Instruct", 1, 2048, 65352),
    ("Qwen/Qwen2.5-7B-Instruct", 1, 1024, 65368),
    ("01-ai/Yi-34B", 2, 2048, 20793),
    ("meta-llama/Llama-2-7b-hf", 1, 2048, 7463),
]


def replica(model: str, *, tp: int = 1, tokens: int = 2048, engine: str = "vllm") -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware("h100"),
        parallelism=ParallelismSpec(tp_size=tp),
        engine=EngineSpec(name=engine, max_num_batched_tokens=tokens, max_num_seqs=128, max_model_len=4096),
    )


def room(plan: MemoryPlan) -> tuple[int, int]:
    found = cache_room(plan, block_size_tokens=16)
    return found.low_tokens, found.high_tokens


def test_the_shares_are_the_extremes_of_the_logs() -> None:
    shares = []
    for model, tp, tokens, blocks in LOGGED:
        plan = memory_plan(replica(model, tp=tp, tokens=tokens))
        shares.append((blocks - plan.kv_blocks) * 16 * plan.kv_bytes_per_token / plan.budget_bytes)
    # The interval of a further case between the extremes of n covers (n - 1) / (n + 1).
    assert (len(shares) - 1) / (len(shares) + 1) == pytest.approx(0.8)
    assert min(shares) == pytest.approx(LEAST_SHARE, abs=0.001)
    assert max(shares) == pytest.approx(LARGEST_SHARE, abs=0.001)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b"])
def test_the_room_lies_within_its_interval(model: str) -> None:
    plan = memory_plan(replica(model))
    low, high = room(plan)
    assert 0 < low < plan.kv_capacity_tokens < high
    assert low % 16 == high % 16 == 0


def test_a_tight_cache_may_be_none() -> None:
    plan = memory_plan(replica("llama-3.1-70b", tp=2))
    low, high = room(plan)
    assert low >= 0
    assert (high - low) / high > 2 * (LARGEST_SHARE - LEAST_SHARE)


def test_a_model_without_a_cache_has_no_room_to_be_sure_of() -> None:
    assert room(memory_plan(replica("mamba-2.8b"))) == (0, 0)


def test_use_is_counted_as_sequences_that_fit_are() -> None:
    deployment = replica("llama-3.1-8b")
    plan = memory_plan(deployment)
    fitting = sequences_that_fit(deployment, plan, tokens=2000)
    assert 0.98 < cache_use(deployment, plan, sequences=fitting, tokens=2000) <= 1
    assert cache_use(deployment, plan, sequences=10 * fitting, tokens=2000) == 1
    half = cache_use(deployment, plan, sequences=fitting / 2, tokens=2000)
    assert half == pytest.approx(cache_use(deployment, plan, sequences=fitting, tokens=1000))


def test_a_sequence_with_room_for_the_longest_request_takes_all_of_it() -> None:
    paged = replica("llama-3.1-8b")
    engine = EngineSpec(name="vllm", max_num_seqs=128, max_model_len=4096, kv_allocation="max_length")
    whole = deploy(model=paged.model, hardware=paged.hardware, engine=engine)
    short, long = (cache_use(whole, memory_plan(whole), sequences=4, tokens=tokens) for tokens in (100, 4096))
    assert short == long > cache_use(paged, memory_plan(paged), sequences=4, tokens=100)


def test_logs_of_one_engine_say_less_about_another() -> None:
    assert memory_provenance(replica("llama-3.1-8b")) is Provenance.CALIBRATED
    assert memory_provenance(replica("llama-3.1-8b", engine="sglang")) is Provenance.EXTRAPOLATED
