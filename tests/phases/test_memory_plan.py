"""What fits, and how vLLM's own block counts compare."""

from __future__ import annotations

import pytest

from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan, sequences_that_fit, stage_weights_bytes
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model

# vLLM 0.15.1 on H100 80GB, max_num_batched_tokens 2048, max_num_seqs 128, utilisation 0.9, blocks of 16 tokens:
# blocks as logged (serving runs of the project's data, 2026-02); tolerance as DESIGN section 5 asks.
LOGGED_BLOCKS = [
    ("meta-llama/Llama-2-7b-hf", 1, 7463),
    ("Qwen/Qwen2.5-7B-Instruct", 1, 65352),
    ("mistralai/Mistral-Nemo-Instruct-2407", 1, 19251),
    ("mistralai/Mistral-Nemo-Instruct-2407", 2, 48009),
    ("01-ai/Yi-34B", 2, 20793),
    ("meta-llama/Llama-3.1-70B-Instruct", 4, 30425),
]


def replica(model: str, *, tp: int = 1, pp: int = 1, hardware: str = "h100", sequences: int = 128) -> Deployment:
    return deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp, pp_size=pp),
        engine=EngineSpec(max_num_batched_tokens=2048, max_num_seqs=sequences, max_model_len=4096),
    )


@pytest.mark.parametrize(("model", "tp", "blocks"), LOGGED_BLOCKS)
def test_block_count_matches_the_engines_own(model: str, tp: int, blocks: int) -> None:
    assert memory_plan(replica(model, tp=tp)).kv_blocks == pytest.approx(blocks, rel=0.03)


def test_13b_in_16_bit_on_40_gb_leaves_about_10_gb_for_the_cache() -> None:
    plan = memory_plan(replica("llama-2-13b", hardware="a100-sxm-40gb"))
    assert plan.weights_bytes == pytest.approx(26.03e9, rel=0.01)
    assert plan.kv_capacity_bytes == pytest.approx(10e9, rel=0.2)


def test_parts_add_up_to_the_budget() -> None:
    plan = memory_plan(replica("llama-3.1-8b"))
    parts = plan.weights_bytes + plan.activation_bytes + plan.reserve_bytes + plan.kv_capacity_bytes
    assert parts == pytest.approx(plan.budget_bytes)
    assert plan.kv_blocks * 16 == plan.kv_capacity_tokens
    assert plan.fits


def test_a_model_that_does_not_fit_says_by_how_much() -> None:
    plan = memory_plan(replica("llama-3.1-70b"))
    assert not plan.fits
    assert plan.shortfall_bytes == pytest.approx(
        plan.weights_bytes + plan.activation_bytes + plan.reserve_bytes - plan.budget_bytes
    )
    assert plan.kv_blocks == 0


def test_pipeline_stages_hold_the_whole_model() -> None:
    whole = stage_weights_bytes(replica("llama-3.1-8b"))[0]
    assert sum(stage_weights_bytes(replica("llama-3.1-8b", pp=4))) == pytest.approx(whole)


def test_more_sequences_at_once_cost_sampling_memory() -> None:
    few, many = (memory_plan(replica("llama-3.1-8b", sequences=count)) for count in (16, 256))
    assert many.activation_bytes > few.activation_bytes
    assert many.kv_blocks < few.kv_blocks


def test_windows_bound_what_a_sequence_keeps() -> None:
    deployment = replica("gpt-oss-20b")
    memory = memory_plan(deployment)
    short, long = (sequences_that_fit(deployment, memory, tokens=tokens) for tokens in (1000, 100_000))
    assert long > short / 100, "half of the layers keep 128 tokens at most"


def test_recurrent_states_leave_room_for_the_cache() -> None:
    # 397 GB of weights on 8 H200 leave 59 GB a device beside 2,048 sampled sequences, whose states would take 49.
    few, many = (
        memory_plan(replica("qwen3.5-397b-a17b-fp8", tp=8, hardware="h200", sequences=count)) for count in (64, 2048)
    )
    assert few.running_sequences == 64
    assert 64 < many.running_sequences < 2048
    assert few.kv_blocks > many.kv_blocks > 0
    for plan in (few, many):
        states = plan.running_sequences * plan.state_bytes_per_sequence
        assert states + plan.kv_capacity_tokens * plan.kv_bytes_per_token <= plan.kv_capacity_bytes * (1 + 1e-9)
    assert memory_plan(replica("mamba-2.8b", sequences=100_000)).running_sequences < 100_000


def test_models_without_states_run_as_many_sequences_as_the_engine_allows() -> None:
    assert memory_plan(replica("llama-3.1-8b", sequences=2048)).running_sequences == 2048
