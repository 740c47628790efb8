"""Models built differently: the laws that bytes, FLOPs and parameters follow, and contradictions."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.errors import RoofcastError
from simulator.operators.model_counts import parameter_counts
from simulator.operators.parallelism import kv_bytes_per_sequence, kv_bytes_per_token
from simulator.operators.work import decode_step, prefill_step
from simulator.phases.deployment import Deployment, deploy
from simulator.phases.step import StepEstimate, estimate_step
from simulator.reports.words.fields import note_texts
from simulator.specs.base import validate
from simulator.specs.engine.deployment import ParallelismSpec
from simulator.specs.engine.engine import EngineSpec
from simulator.specs.hardware.accelerator import load_hardware
from simulator.specs.model.loading import load_model
from simulator.specs.question.techniques import StructureSpec, TechniquesSpec
from simulator.techniques.structure import BusiestRank
from tests.techniques.scenarios import run, with_technique


def replica(
    structure: dict[str, Any] | None = None, *, model: str = "llama-2-7b", tp_size: int = 1, ep_size: int = 1
) -> Deployment:
    spec = validate(StructureSpec, structure, where="t") if structure else None
    return deploy(
        model=load_model(model),
        hardware=load_hardware("h100"),
        parallelism=ParallelismSpec(tp_size=tp_size, ep_size=ep_size),
        engine=EngineSpec(name="vllm", max_model_len=16384),
        techniques=TechniquesSpec(structure=spec),
    )


def kv(made: Deployment) -> float:
    return kv_bytes_per_token(made.model, plan=made.plan, tp_size=1)


def decode(made: Deployment, *, sequences: float = 16, context: float = 4096) -> StepEstimate:
    return estimate_step(made, decode_step(sequences=[sequences], context=context))


@pytest.mark.parametrize("heads", [1, 2, 4, 8, 16])
def test_the_cache_scales_with_kv_heads(heads: int) -> None:
    assert kv(replica({"num_key_value_heads": heads})) == kv(replica()) * heads / 32


def test_fewer_kv_heads_decode_faster_and_cut_the_projections() -> None:
    times = [decode(replica({"num_key_value_heads": heads})).step_s[0] for heads in (1, 4, 16)]
    assert times == sorted(times)
    assert times[-1] < decode(replica()).step_s[0]
    removed = (
        parameter_counts(replica().model).total - parameter_counts(replica({"num_key_value_heads": 8}).model).total
    )
    assert removed == 32 * 2 * 4096 * 24 * 128


def test_latents_replace_heads() -> None:
    made = replica({"mla": {"kv_lora_rank": 512}})
    assert kv(made) == 32 * (512 + 64) * 2
    assert decode(made, context=16000).step_s < decode(replica(), context=16000).step_s


def test_windows_bound_the_cache_of_the_layers_that_have_them() -> None:
    made, mixed = replica({"sliding_window": 1024}), replica({"sliding_window": 1024, "window_every": 4})

    def cache(which: Deployment) -> float:
        return float(kv_bytes_per_sequence(which.model, plan=which.plan, tp_size=1, context_tokens=8192)[0])

    assert cache(made) == cache(replica()) / 8
    assert cache(mixed) == pytest.approx(cache(replica()) * (1 / 4 + 3 / 4 / 8))
    assert parameter_counts(mixed.model) == parameter_counts(replica().model)


def test_experts_keep_all_parameters_and_use_their_share() -> None:
    made = replica({"moe": {"num_experts": 4, "num_experts_per_tok": 1}})
    before, after = parameter_counts(replica().model), parameter_counts(made.model)
    dense = 32 * 3 * 4096 * 11008
    router = 32 * 4096 * 4
    assert after.total == before.total + router
    assert after.active == pytest.approx(before.total - dense + dense / 4 + router)


def test_few_tokens_read_few_experts_and_many_read_all() -> None:
    """Activate a small part of a large model: decode reads the active share at batch 1, everything at batch 512."""
    made = replica({"moe": {"num_experts": 32, "num_experts_per_tok": 1}})

    def experts_read(sequences: float) -> float:
        rows = decode(made, sequences=sequences, context=1).rows
        return next(float(row.work.weight_bytes[0]) for row in rows if row.work.name == "experts")

    everything = 3 * 4096 * 11008 * 2
    assert experts_read(1) == pytest.approx(everything / 32)
    # Some experts are rarely chosen: a few of 32 are missed by 512 tokens.
    assert experts_read(512) == pytest.approx(everything, rel=0.1)
    assert experts_read(20000) == pytest.approx(everything, rel=2e-3)
    # Reading a thirty-second of the experts wins at batch 1; a grouped kernel that reads nearly all of them does not.
    gain = [
        float((decode(replica(), sequences=n, context=1).step_s / decode(made, sequences=n, context=1).step_s)[0])
        for n in (1, 128)
    ]
    assert gain[0] > 1.3 > gain[1]


def test_shared_experts_and_given_widths_are_taken() -> None:
    made = replica({"moe": {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 11008}})
    extra = parameter_counts(made.model).total - parameter_counts(replica().model).total
    assert extra == 32 * (7 * 3 * 4096 * 11008 + 8 * 4096)
    shared = replica({"moe": {"num_experts": 8, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 1408}})
    assert parameter_counts(shared.model).total == parameter_counts(replica().model).total + 32 * 8 * 4096


def test_depth_and_width_scale_what_they_should() -> None:
    half, narrow = replica({"layers_fraction": 0.5}), replica({"hidden_size": 2048})
    assert kv(half) == kv(replica()) / 2
    assert kv(narrow) == kv(replica()) / 2
    step = prefill_step(sequences=[1.0], tokens=512.0)
    blocks = [
        sum(
            float(row.work.count * row.work.flops[0])
            for row in estimate_step(made, step).rows
            if row.work.role == "mlp"
        )
        for made in (replica(), half, narrow)
    ]
    assert blocks[1] == blocks[0] / 2
    assert blocks[2] == blocks[0] / 4
    # A stack of two kinds in turn keeps both.
    gemma = replica({"layers_fraction": 0.5}, model="gemma-2-9b").model
    assert gemma.num_hidden_layers == 21
    assert set(gemma.layer_order) == {0, 1}


def test_the_busiest_rank_sets_the_pace() -> None:
    def moe_s(**changes: float) -> float:
        made = replica({"routing_skew": 0.0, **changes}, model="mixtral-8x7b", tp_size=4, ep_size=4)
        return float(estimate_step(made, prefill_step(sequences=[1.0], tokens=4096.0)).breakdown_s["moe"][0])

    made = replica({"expert_imbalance": 1.3}, model="mixtral-8x7b", tp_size=4, ep_size=4)
    assert made.techniques.rules == (BusiestRank(imbalance=1.3),)
    assert moe_s() < moe_s(expert_imbalance=1.3) < moe_s(expert_imbalance=2.0)
    assert moe_s(expert_imbalance=2.0) == pytest.approx(2 * moe_s(), rel=0.25)
    assert moe_s() < moe_s(routing_skew=0.5) < moe_s(routing_skew=1.0)


def test_uneven_routing_reads_fewer_experts_where_one_device_holds_them_all() -> None:
    def step_s(skew: float) -> float:
        made = replica({"routing_skew": skew}, model="qwen3-30b-a3b")
        return float(decode(made, sequences=16, context=512).step_s[0])

    assert step_s(2.0) < step_s(0.5) < step_s(0.0)


def test_a_changed_model_says_so() -> None:
    assert any(
        "not the released" in note for note in note_texts(with_technique("structure", {"layers_fraction": 0.5}).notes)
    )
    assert with_technique("structure", {"layers_fraction": 0.5}).run.tpot_s < 0.6 * run().run.tpot_s


REFUSED = [
    ({}, {}, "", "no override"),
    ({"routing_skew": 1.0}, {}, "routing_skew", "no experts"),
    ({"routing_skew": 3.5}, {"model": "mixtral-8x7b"}, "routing_skew", "3"),
    ({"routing_skew": -0.1}, {"model": "mixtral-8x7b"}, "routing_skew", "0"),
    ({"num_key_value_heads": 32}, {}, "num_key_value_heads", "changes nothing"),
    ({"num_key_value_heads": 5}, {}, "num_key_value_heads", "does not divide"),
    ({"num_key_value_heads": 4}, {"model": "mamba-2.8b"}, "num_key_value_heads", "no attention"),
    ({"num_key_value_heads": 4}, {"model": "deepseek-v2-lite"}, "num_key_value_heads", "latents"),
    ({"mla": {"kv_lora_rank": 512}}, {"model": "deepseek-v2-lite"}, "mla", "already"),
    ({"mla": {"kv_lora_rank": 512}, "num_key_value_heads": 4}, {}, "mla", "KV heads"),
    ({"mla": {"kv_lora_rank": 512}, "sliding_window": 64}, {}, "sliding_window", "takes no window"),
    ({"window_every": 4}, {}, "", "no override"),
    ({"window_every": 4, "layers_fraction": 0.5}, {}, "window_every", "without sliding_window"),
    ({"moe": {"num_experts": 8, "num_experts_per_tok": 9}}, {}, "moe.num_experts_per_tok", "cannot be chosen"),
    ({"moe": {"num_experts": 7, "num_experts_per_tok": 1}}, {}, "moe.num_experts", "do not divide"),
    ({"moe": {"num_experts": 8, "num_experts_per_tok": 1}}, {"model": "mixtral-8x7b"}, "moe", "no dense"),
    ({"hidden_size": 3000}, {}, "hidden_size", "num_attention_heads"),
    ({"layers_fraction": 1.5}, {}, "layers_fraction", "less than 1"),
    ({"expert_imbalance": 1.2}, {}, "expert_imbalance", "no experts"),
    ({"expert_imbalance": 1.2}, {"model": "mixtral-8x7b", "tp_size": 4}, "expert_imbalance", "ep_size 1"),
    ({"expert_placement": "even"}, {}, "expert_placement", "no experts"),
    ({"expert_placement": "even"}, {"model": "mixtral-8x7b", "tp_size": 4}, "expert_placement", "ep_size 1"),
    (
        {"expert_placement": "even", "expert_imbalance": 1.2},
        {"model": "mixtral-8x7b", "tp_size": 4, "ep_size": 4},
        "expert_placement",
        "beside expert_imbalance",
    ),
    ({"expert_placement": "odd"}, {"model": "mixtral-8x7b"}, "expert_placement", "as_trained"),
]


@pytest.mark.parametrize(("structure", "changes", "field", "words"), REFUSED)
def test_contradictions_name_both_sides(
    structure: dict[str, Any], changes: dict[str, Any], field: str, words: str
) -> None:
    with pytest.raises(RoofcastError) as caught:
        with_technique("structure", structure, **changes)
    assert caught.value.field.startswith("techniques.structure" + (f".{field}" if field else ""))
    assert words in str(caught.value)


def test_elementwise_passes_can_be_fused_or_not() -> None:
    plain, unfused = run(), with_technique("fusion", False)
    assert unfused.run.tpot_s > plain.run.tpot_s
    eager, fused = run(engine={"name": "torch-eager"}), with_technique("fusion", True, engine={"name": "torch-eager"})
    assert fused.run.tpot_s < eager.run.tpot_s
    for value, engine in ((True, "vllm"), (False, "torch-eager")):
        with pytest.raises(RoofcastError, match=f"what {engine} does"):
            with_technique("fusion", value, engine={"name": engine})
