"""Bounded caches: bytes, time and capacity follow the budget; what they cannot do is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.operators.parallelism import kv_bytes_per_sequence
from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.memory import memory_plan, sequences_that_fit
from simulator.phases.step import StepEstimate, estimate_step
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import KvPolicySpec, TechniquesSpec
from tests.techniques.scenarios import run, with_technique

METHODS = ("h2o", "streaming", "window")


def replica(
    method: str | None, budget: int = 512, *, model: str = "llama-2-7b", engine: str = "vllm", hardware: str = "h100"
) -> Deployment:
    policy = KvPolicySpec(method=method, budget_tokens=budget) if method else None  # type: ignore[arg-type]
    return deploy(
        model=load_model(model),
        hardware=load_hardware(hardware),
        engine=EngineSpec(name=engine, max_model_len=32768),  # type: ignore[arg-type]
        techniques=TechniquesSpec(kv_policy=policy),
    )


def decode(made: Deployment, *, context: float = 8192, sequences: float = 16) -> StepEstimate:
    return estimate_step(made, decode_step(sequences=[sequences], context=context))


def named(estimate: StepEstimate) -> set[str]:
    return {row.work.name for row in estimate.rows}


@pytest.mark.parametrize("method", METHODS)
def test_the_budget_bounds_bytes_time_and_what_fits(method: str) -> None:
    plain, bounded = replica(None), replica(method, 512)
    assert decode(bounded).step_s < 0.6 * decode(plain).step_s
    memory = memory_plan(bounded)
    fits = sequences_that_fit(bounded, memory, tokens=8192)
    assert fits > 12 * sequences_that_fit(plain, memory_plan(plain), tokens=8192)
    assert fits == sequences_that_fit(bounded, memory, tokens=512)
    kept = kv_bytes_per_sequence(bounded.model, plan=bounded.plan, tp_size=1, context_tokens=[100, 512, 8192])
    assert kept[0] < kept[1] == kept[2]


def test_sinks_are_kept_beside_the_recent_tokens() -> None:
    within = KvPolicySpec(method="streaming", budget_tokens=1024)
    beside = KvPolicySpec(method="streaming", budget_tokens=1020, sinks=4)
    assert str(beside) == "streaming:1020,sinks=4"
    kept = [
        kv_bytes_per_sequence(made.model, plan=made.plan, tp_size=1, context_tokens=[8192])
        for policy in (within, beside)
        for made in [
            deploy(
                model=load_model("llama-2-7b"),
                hardware=load_hardware("h100"),
                techniques=TechniquesSpec(kv_policy=policy),
            )
        ]
    ]
    assert kept[0] == kept[1]
    with pytest.raises(ValueError, match="sinks are of streaming"):
        KvPolicySpec(method="window", budget_tokens=1020, sinks=4)


@pytest.mark.parametrize("method", METHODS)
def test_a_larger_budget_never_makes_decoding_cheaper(method: str) -> None:
    times = [float(decode(replica(method, budget)).step_s[0]) for budget in (128, 512, 2048, 8000)]
    assert times == sorted(times)


@pytest.mark.parametrize("method", METHODS)
def test_short_sequences_do_not_notice_the_bound_in_attention(method: str) -> None:
    def scores(made: Deployment) -> float:
        rows = decode(made, context=256).rows
        return sum(float(row.work.flops[0]) for row in rows if row.work.name == "decode_attention")

    assert scores(replica(method, 512)) == scores(replica(None))


def test_h2o_sees_the_prompt_in_full_and_the_others_do_not() -> None:
    step = prefill_step(sequences=[1.0], tokens=8192.0)

    def pairs(method: str | None) -> float:
        rows = estimate_step(replica(method, 512), step).rows
        return sum(float(row.work.flops[0]) for row in rows if row.work.name == "prefill_attention")

    assert pairs("h2o") == pairs(None)
    hand = (512 * 513 / 2 + (8192 - 512) * 512) / (8192 * 8193 / 2)
    assert pairs("window") / pairs(None) == pytest.approx(hand)
    assert pairs("streaming") == pairs("window")


def test_h2o_pays_for_scores_and_keeps_them() -> None:
    made, streamed = replica("h2o", 512), replica("streaming", 512)
    rows = {row.work.name: row for row in decode(made).rows}
    # One more read of the kept keys: half of the keys and values that attention reads.
    assert rows["h2o_probabilities"].work.kv_bytes[0] == pytest.approx(rows["decode_attention"].work.kv_bytes[0] / 2)
    assert rows["h2o_choice"].work.bytes[0] == 16 * 512 * 32 * 4 * 3
    assert decode(made).step_s > decode(streamed).step_s
    assert memory_plan(made).kv_bytes_per_token == memory_plan(streamed).kv_bytes_per_token + 32 * 32 * 4


def test_eager_engines_turn_the_kept_keys_one_operator_at_a_time() -> None:
    assert "sink_rotary" in named(decode(replica("streaming", engine="torch-eager")))
    assert "sink_rotary" not in named(decode(replica("streaming")))
    # OPT has no rotary embedding to repeat.
    assert "sink_rotary" not in named(decode(replica("streaming", model="opt-6.7b", engine="torch-eager")))


def test_prefixes_are_shared_only_where_every_sequence_keeps_the_same_tokens() -> None:
    assert replica(None).engine.prefix_caching
    assert replica("window").engine.prefix_caching
    assert not replica("h2o").engine.prefix_caching
    assert not replica("streaming").engine.prefix_caching


def test_layers_with_a_smaller_window_stay_as_they_are() -> None:
    plain, bounded = replica(None, model="gemma-2-9b"), replica("h2o", 4500, model="gemma-2-9b")
    windows = [layer.mixer.sliding_window for layer in bounded.model.layers]  # type: ignore[union-attr]
    assert 4096 in windows
    assert sum(layer.mixer.kept is not None for layer in bounded.model.layers) == 1  # type: ignore[union-attr]
    assert decode(bounded, context=16384).step_s < decode(plain, context=16384).step_s


def test_under_load_the_same_memory_holds_more_sequences() -> None:
    load = {"stages": [{"rate_per_s": 12, "duration_s": 30}], "isl_tokens": 2000, "osl_tokens": 128}
    serve: dict[str, Any] = {"kind": "serve", "workload": load, "batch_size": None, "isl_tokens": None}
    plain = run(**serve, osl_tokens=None)
    bounded = with_technique("kv_policy", {"method": "h2o", "budget_tokens": 512}, **serve, osl_tokens=None)
    assert bounded.run.ttft_s < plain.run.ttft_s
    assert bounded.run.result.overall.mean_batch != plain.run.result.overall.mean_batch  # type: ignore[union-attr]
    with pytest.raises(RoofcastError, match="changes nothing: 2128 tokens hold"):
        with_technique("kv_policy", {"method": "h2o", "budget_tokens": 2128}, **serve, osl_tokens=None)


def test_blocks_of_equal_requests_are_exact() -> None:
    from simulator.engine.runs.serving import bounded_blocks
    from simulator.traffic.requests import make_requests

    made = replica("window", 512)
    requests = make_requests(arrival_s=np.zeros(3), prompt_tokens=np.full(3, 5120), output_tokens=np.full(3, 1))
    assert bounded_blocks(made, requests, blocks=1000) == pytest.approx(10_000, abs=2)


REFUSED = [
    ({"method": "h2o", "budget_tokens": 2080}, {}, "budget_tokens", "the longest sequence"),
    ({"method": "streaming", "budget_tokens": 4}, {}, "budget_tokens", "first 4 tokens"),
    ({"method": "h2o", "budget_tokens": 64}, {"model": "mamba-2.8b"}, "kv_policy", "no attention layers"),
    ({"method": "h2o", "budget_tokens": 64}, {"model": "deepseek-v2-lite"}, "kv_policy", "latent"),
    ({"method": "h2o", "budget_tokens": 64}, {"model": "bert-base", "osl_tokens": 1}, "kv_policy", "both directions"),
    ({"method": "lru", "budget_tokens": 64}, {}, "kv_policy.method", "allowed"),
    ({"method": "h2o", "budget_tokens": 0}, {}, "budget_tokens", "greater than 0"),
]


@pytest.mark.parametrize(("policy", "changes", "field", "words"), REFUSED)
def test_what_it_cannot_do_is_refused(policy: dict[str, Any], changes: dict[str, Any], field: str, words: str) -> None:
    with pytest.raises(RoofcastError) as caught:
        with_technique("kv_policy", policy, **changes)
    assert field in caught.value.field
    assert words in str(caught.value)


def test_a_share_of_the_context_is_as_many_tokens_at_each_length() -> None:
    share = TechniquesSpec(kv_policy=KvPolicySpec(method="h2o", budget_fraction=0.25))
    kept = deploy(model=load_model("llama-2-7b"), hardware=load_hardware("h100"), techniques=share)
    for context in (1024, 4096):
        tokens = replica("h2o", context // 4)
        assert decode(kept, context=context).step_s == pytest.approx(decode(tokens, context=context).step_s)
        held = [
            kv_bytes_per_sequence(one.model, plan=one.plan, tp_size=1, context_tokens=context) for one in (kept, tokens)
        ]
        assert held[0] == pytest.approx(held[1])
