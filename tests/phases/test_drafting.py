"""Drafters as deployments: memory that adds up, costs that follow the model, nothing changed without speculation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.operators.model_counts import parameter_counts
from simulator.operators.work import decode_step, mixed_step
from simulator.phases.deployment import Deployment, Speculation, deploy, without_speculation
from simulator.phases.draft_cost import (
    decode_round,
    drafting_s,
    drafting_steps,
    per_token_step,
    prompt_draft_s,
    round_draft_s,
)
from simulator.phases.memory import memory_plan
from simulator.phases.step import estimate_step
from simulator.planner.search.screen_rows import DistinctRows, RowPrices, draft_pass, draft_pass_s
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineName, EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import SpeculationSpec, TechniquesSpec


def deployed(
    *,
    model: str = "llama-2-7b",
    hardware: str = "a100",
    engine: EngineName = "vllm",
    tp_size: int = 1,
    pp_size: int = 1,
    **fields: Any,
) -> Deployment:
    techniques = TechniquesSpec(speculation=SpeculationSpec(**fields) if fields else None)
    return deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        parallelism=ParallelismSpec(tp_size=tp_size, pp_size=pp_size),
        engine=EngineSpec(name=engine),
        techniques=techniques,
    )


def speculation(deployment: Deployment) -> Speculation:
    assert deployment.speculation is not None
    return deployment.speculation


def test_a_draft_model_takes_its_weights_and_its_cache() -> None:
    with_draft, plain = deployed(method="draft", draft_model="vicuna-68m"), memory_plan(deployed())
    memory = memory_plan(with_draft)
    parameters = parameter_counts(load_model("vicuna-68m")).total
    assert memory.draft_weights_bytes == pytest.approx(2 * parameters)
    assert memory.weights_bytes - memory.draft_weights_bytes == plain.weights_bytes
    # 2 layers x 12 heads x 64 numbers x K and V x 2 bytes.
    assert memory.draft_kv_bytes_per_token == 2 * 12 * 64 * 2 * 2
    assert memory.kv_bytes_per_token == plain.kv_bytes_per_token + memory.draft_kv_bytes_per_token
    assert memory.kv_blocks < plain.kv_blocks
    assert memory.kv_capacity_bytes == pytest.approx(plain.kv_capacity_bytes - memory.draft_weights_bytes)


def test_eagle_adds_one_layer_and_borrows_the_rest() -> None:
    memory, model = memory_plan(deployed(method="eagle")), load_model("llama-2-7b")
    hidden, inner = 4096, 11008
    # Attention, gated feed-forward, two norms and the final one, and the product that joins embedding and feature.
    layer = 4 * hidden**2 + 3 * hidden * inner + 3 * hidden + 2 * hidden**2 + hidden
    assert memory.draft_weights_bytes == pytest.approx(2 * layer, rel=1e-3)
    assert memory.draft_kv_bytes_per_token == memory_plan(deployed()).kv_bytes_per_token / model.num_hidden_layers


def test_medusa_heads_hold_a_block_and_a_vocabulary_each() -> None:
    memory = memory_plan(deployed(method="medusa", k=5))
    assert memory.draft_weights_bytes == pytest.approx(5 * 2 * (4096**2 + 4096 + 4096 * 32000))
    assert memory.draft_kv_bytes_per_token == 0
    shared = memory_plan(deployed(method="blockwise", k=5))
    assert shared.draft_weights_bytes == pytest.approx(5 * 2 * 2 * (4096**2 + 4096))


def test_heads_stand_on_the_last_stage_only() -> None:
    step = decode_step(sequences=1, context=100)
    estimate = estimate_step(deployed(method="medusa", pp_size=2), step)
    assert {row.stage for row in estimate.rows if row.work.name.startswith("head_")} == {1}


@pytest.mark.parametrize("method", ["ngram", "lookup", "llma", "rest", "lookahead"])
def test_methods_without_weights_take_no_memory(method: str) -> None:
    guessing, plain = memory_plan(deployed(method=method)), memory_plan(deployed())
    assert guessing.draft_weights_bytes == guessing.draft_kv_bytes_per_token == 0
    assert (guessing.weights_bytes, guessing.kv_bytes_per_token) == (plain.weights_bytes, plain.kv_bytes_per_token)


@pytest.mark.parametrize("device", ["other", "cpu"])
def test_a_draft_elsewhere_leaves_the_memory_alone(device: str) -> None:
    fields = {"method": "draft", "draft_model": "tinyllama-1.1b", "draft_device": device}
    assert memory_plan(deployed(**fields)) == memory_plan(deployed())


def test_where_the_draft_runs_changes_what_it_costs() -> None:
    def drafting(**more: Any) -> float:
        replica = deployed(method="draft", draft_model="tinyllama-1.1b", k=4, **more)
        return float(round_draft_s(replica, sequences=1, context=500)[0])

    assert drafting(draft_device="other", draft_hardware="h100") < drafting() < drafting(draft_device="cpu")
    assert drafting(draft_device="other") == pytest.approx(drafting())
    # 1.1 billion 16-bit weights over 307 GB/s, four times; the embedding table is not read.
    read = 2 * (parameter_counts(load_model("tinyllama-1.1b")).total - 32000 * 2048)
    assert drafting(draft_device="cpu") == pytest.approx(4 * read / 307.2e9, rel=0.02)


def test_drafting_takes_k_passes() -> None:
    times = [
        float(round_draft_s(deployed(method="draft", draft_model="vicuna-68m", k=k), sequences=8, context=500)[0])
        for k in (1, 2, 4)
    ]
    assert times[1] == pytest.approx(2 * times[0], rel=0.02)
    assert times[2] == pytest.approx(4 * times[0], rel=0.05)


def test_a_verify_step_scores_its_tokens_of_every_sequence() -> None:
    replica = deployed(method="draft", draft_model="vicuna-68m", k=4)
    estimate = decode_round(replica, sequences=[1, 8], context=300)
    assert estimate.step.new_tokens.tolist() == [5, 40]
    assert estimate.draft_s is not None
    assert sum(estimate.breakdown_s.values()) == pytest.approx(estimate.step_s)
    assert estimate.breakdown_s["draft"] == pytest.approx(estimate.draft_s)
    # The cache holds the 300 tokens and the 4 guesses: a last one's keys are its own.
    assert estimate.step.decode_context.tolist() == [304, 304]


def test_without_speculation_nothing_changes() -> None:
    plain = deployed()
    round_of_one, step = decode_round(plain, sequences=[1, 8], context=300), decode_step(sequences=[1, 8], context=300)
    assert (round_of_one.step_s == estimate_step(plain, step).step_s).all()
    assert round_of_one.draft_s is None
    assert "draft" not in round_of_one.breakdown_s
    assert round_draft_s(plain, sequences=4, context=100) == 0
    assert prompt_draft_s(plain, mixed_step(prefill_sequences=1, prefill_tokens=100)) == 0
    off = without_speculation(deployed(method="medusa"))
    assert (estimate_step(off, step).step_s == estimate_step(plain, step).step_s).all()
    assert memory_plan(off) == memory_plan(plain)


def test_the_drafter_reads_the_prompt_too() -> None:
    shape = mixed_step(prefill_sequences=1, prefill_tokens=[500, 1000])
    assert (np.diff(prompt_draft_s(deployed(method="eagle"), shape)) > 0).all()
    assert (prompt_draft_s(deployed(method="ngram"), shape) == 0).all()


DRAFTERS: tuple[dict[str, Any], ...] = (
    {"method": "eagle"},
    {"method": "draft", "draft_model": "vicuna-68m"},
    {"method": "ngram"},
    {"method": "medusa"},
)


@pytest.mark.parametrize("fields", DRAFTERS, ids=lambda fields: str(fields["method"]))
def test_guesses_and_prompts_together_take_what_they_take_alone(fields: dict[str, Any]) -> None:
    replica = deployed(**fields)
    step = mixed_step(decode_sequences=[1.0, 8.0, 64.0], decode_context=700, prefill_sequences=1, prefill_tokens=300)
    prompts = mixed_step(prefill_sequences=[1.0, 1.0, 1.0], prefill_tokens=300, decode_context=700)
    guesses_s, prompts_s = drafting_s(replica, step)
    assert guesses_s == pytest.approx(round_draft_s(replica, sequences=step.decode_sequences, context=700))
    assert prompts_s == pytest.approx(prompt_draft_s(replica, prompts))


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
@pytest.mark.parametrize("fields", DRAFTERS[:2], ids=lambda fields: str(fields["method"]))
def test_a_search_prices_the_passes_of_a_drafter_as_a_step(fields: dict[str, Any], engine: EngineName) -> None:
    replica = deployed(engine=engine, **fields)
    assert replica.speculation is not None
    draft = replica.speculation.draft
    assert draft is not None
    known, prices = DistinctRows(), RowPrices(draft.kernels)
    step = mixed_step(decode_sequences=[1.0, 8.0, 64.0], decode_context=700, prefill_sequences=1, prefill_tokens=300)
    for shape in drafting_steps(replica.speculation, step):
        exact = estimate_step(draft, shape).step_s
        assert draft_pass_s(draft, draft_pass(draft, shape, known), prices) == pytest.approx(exact)


def test_a_token_takes_its_part_of_a_round_and_prompts_add_what_they_cost() -> None:
    replica = deployed(method="ngram", k=3, accepted_tokens=2.0)
    alone = mixed_step(decode_sequences=[4.0], decode_context=500)
    mixed = mixed_step(decode_sequences=[4.0], decode_context=500, prefill_sequences=1, prefill_tokens=400)

    def seconds(estimate: Any) -> np.ndarray:
        return np.asarray(estimate.step_s)

    per_token = per_token_step(replica, alone, seconds=seconds)
    assert per_token == pytest.approx(decode_round(replica, sequences=4, context=500).step_s / 2.0)
    added = per_token_step(replica, mixed, seconds=seconds) - per_token
    prompt = estimate_step(without_speculation(replica), mixed).step_s
    plain = estimate_step(without_speculation(replica), alone).step_s
    assert added == pytest.approx(prompt - plain, rel=0.3)
    assert per_token_step(without_speculation(replica), mixed, seconds=seconds) == prompt


def test_a_draft_is_split_where_its_heads_allow_it() -> None:
    split = speculation(deployed(method="draft", draft_model="vicuna-68m", tp_size=4)).draft
    whole = speculation(deployed(method="draft", draft_model="vicuna-68m", tp_size=8)).draft
    assert split is not None
    assert whole is not None
    assert (split.parallelism.tp_size, whole.parallelism.tp_size) == (4, 1)


def test_eager_frameworks_pay_for_bookkeeping_and_engines_do_not() -> None:
    eager = deployed(method="medusa", engine="torch-eager")
    overheads = eager.engine.overheads
    assert round_draft_s(eager, sequences=1, context=100) == overheads.speculation_tree_s > 0
    assert round_draft_s(deployed(method="medusa"), sequences=1, context=100) == 0
    lookup = deployed(method="lookup", engine="torch-eager")
    assert round_draft_s(lookup, sequences=1, context=100) == overheads.speculation_chain_s > 0
    rest = deployed(method="rest", engine="torch-eager")
    assert round_draft_s(rest, sequences=1, context=100) > overheads.speculation_tree_s


def test_a_host_that_walks_the_guesses_takes_its_time_for_each_sequence() -> None:
    found = deployed(method="lookup", engine="sglang", hardware="mi300x")
    one_s, many_s = round_draft_s(found, sequences=[1, 11], context=100)
    assert many_s - one_s == pytest.approx(10 * found.engine.overheads.speculation_sequence_s)
    assert many_s > one_s
