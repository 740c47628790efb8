"""Readers of model configurations, each on one small configuration whose sizes can be counted by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulator.errors import RoofcastError
from simulator.specs.huggingface import deepseek, encoder, linear_attention, moe, recurrent
from simulator.specs.huggingface.experts import read_experts, sparse_after
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import choose, read_attention, read_layout, stack, with_window
from simulator.specs.huggingface.quantized.quantization import read_quantization
from simulator.specs.huggingface.registry import field_table, read_with
from simulator.specs.huggingface.windows import FULL, SLIDING, every_nth_full, windows_of_types
from simulator.specs.model.architecture import AttentionSpec, MambaSpec, MlaSpec, MlpSpec, ModelSpec, MoeSpec
from simulator.specs.model.precision import Dtype

TRUNK: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 4, "vocab_size": 100, "num_attention_heads": 4}
DENSE = {**TRUNK, "intermediate_size": 256}


def fields(**config: Any) -> Fields:
    return Fields(config, config_class="TestConfig")


def read(reader: Callable[[Fields], ModelSpec] | str, base: dict[str, Any], **changes: Any) -> ModelSpec:
    """With a function of one module, or with the layout of that name."""
    given = fields(**{**base, **changes})
    place = reader if isinstance(reader, str) else f"{reader.__module__}.{reader.__name__}"
    place = place.removeprefix("simulator.specs.huggingface.")
    model: ModelSpec = read_with(place, given)
    given.finish(field_table().costless)
    return model


def attention_of(model: ModelSpec, depth: int = 0) -> AttentionSpec:
    mixer = model.layers[model.layer_order[depth]].mixer
    assert isinstance(mixer, AttentionSpec)
    return mixer


def experts_of(model: ModelSpec, depth: int = -1) -> MoeSpec:
    block = model.layers[model.layer_order[depth]].feed_forward[0]
    assert isinstance(block, MoeSpec)
    return block


def test_a_field_is_used_known_to_be_free_or_refused() -> None:
    given = fields(hidden_size=64, hidden_size_2=8, rope_theta=1.0)
    assert given.size("hidden_size") == 64
    with pytest.raises(RoofcastError, match="hidden_size_2"):
        given.finish()
    given.costless("hidden_size_2")
    given.finish(field_table().costless)


@pytest.mark.parametrize("value", [0, -1, 1.5, "4", True])
def test_a_size_is_a_positive_integer(value: object) -> None:
    with pytest.raises(RoofcastError, match="allowed are integers"):
        fields(hidden_size=value).size("hidden_size")


def test_a_family_reads_usual_fields_under_its_own_names() -> None:
    given = fields(n_embd=64, hidden_size=64, n_layer=0)
    given.rename({"hidden_size": ("n_embd", "hidden_size"), "num_hidden_layers": ("n_layer",)})
    assert given.size("hidden_size") == 64
    with pytest.raises(RoofcastError) as refusal:
        given.depth("num_hidden_layers")
    assert refusal.value.field == "n_layer"
    given.finish()
    with pytest.raises(RoofcastError, match="but n_embd is 32"):
        fields(n_embd=32, hidden_size=64).rename({"hidden_size": ("n_embd", "hidden_size")})


def test_two_names_of_one_field_have_to_agree() -> None:
    assert fields(a=1, b=1).either("a", "b") == "a"
    with pytest.raises(RoofcastError, match="but a is 1"):
        fields(a=1, b=2).either("a", "b")


def test_heads_fill_the_width_and_biases_go_on_all_projections() -> None:
    plain = read_attention(fields(hidden_size=64, num_attention_heads=4))
    assert (plain.head_dim, plain.num_key_value_heads, plain.qkv_bias) == (16, 4, False)
    biased = read_attention(fields(hidden_size=64, num_attention_heads=4, b=True), bias="b", qk_norm="head")
    assert (biased.qkv_bias, biased.o_bias, biased.qk_norm) == (True, True, "head")
    with pytest.raises(RoofcastError, match="do not divide hidden_size 64"):
        read_attention(fields(hidden_size=64, num_attention_heads=5))
    with pytest.raises(RoofcastError, match="does not divide 4 attention heads"):
        read_attention(fields(hidden_size=64, num_attention_heads=4, num_key_value_heads=3))


def test_a_router_picks_no_more_experts_than_there_are() -> None:
    experts = read_experts(fields(e=8, k=2), total="e", picked="k", width=32, shared=16, correction_bias=True)
    assert (experts.num_experts, experts.num_experts_per_tok, experts.moe_intermediate_size) == (8, 2, 32)
    assert (experts.shared_expert_intermediate_size, experts.correction_bias) == (16, True)
    with pytest.raises(RoofcastError, match="is 9, more than the 8 experts"):
        read_experts(fields(e=8, k=9), total="e", picked="k", width=32)


@pytest.mark.parametrize(
    ("config", "sparse"),
    [
        ({"first_k_dense_replace": 1}, (False, True, True)),
        ({"moe_layer_freq": [0, 1, 0]}, (False, True, False)),
        ({"mlp_layer_types": ["sparse", "dense", "dense"]}, (True, False, False)),
    ],
)
def test_which_layers_hold_experts(config: dict[str, Any], sparse: tuple[bool, ...]) -> None:
    assert sparse_after(fields(num_hidden_layers=3, **config)) == sparse


def test_layer_types_give_the_windows() -> None:
    assert every_nth_full(4, 2) == (SLIDING, FULL, SLIDING, FULL)
    assert windows_of_types(fields(), window=128, default=(SLIDING, FULL)) == (128, None)
    with pytest.raises(RoofcastError, match="is missing while layer_types names sliding_attention"):
        windows_of_types(fields(), window=None, default=(SLIDING, FULL))


def test_one_block_stands_at_every_depth_under_its_window() -> None:
    attention = read_attention(fields(**DENSE))
    mixers = [with_window(attention, window) for window in (16, None, 16, 16)]
    model = stack(fields(**DENSE), mixers, MlpSpec(intermediate_size=8), norms=1)
    assert (len(model.layers), model.layer_order) == (2, (0, 1, 0, 0))
    assert isinstance(model.layers[0].mixer, AttentionSpec)
    assert (model.layers[0].mixer.sliding_window, model.layers[0].norms) == (16, 1)


def test_dense_blocks_are_read_where_some_layer_is_dense() -> None:
    sparse = MoeSpec(num_experts=4, num_experts_per_tok=1, moe_intermediate_size=8)
    assert choose(fields(), (True, True), sparse=sparse) == ((sparse,), (sparse,))
    assert choose(fields(intermediate_size=16), (False, True), sparse=sparse) == (
        (MlpSpec(intermediate_size=16),),
        (sparse,),
    )
    with pytest.raises(RoofcastError, match="is missing"):
        choose(fields(), (False, True), sparse=sparse)


@pytest.mark.parametrize(
    ("reader", "qk_norm", "qkv_bias", "norms"),
    [
        ("llama", "none", False, 2),
        ("qwen2", "none", True, 2),
        ("qwen3", "head", False, 2),
        ("olmo2", "full", False, 2),
        ("stablelm", "none", False, 2),
        ("cohere", "none", False, 1),
        ("glm4", "none", True, 4),
        ("gemma", "none", False, 2),
        ("gemma3", "head", False, 4),
        ("arcee", "none", False, 2),
    ],
)
def test_dense_families(reader: Callable[[Fields], ModelSpec] | str, qk_norm: str, qkv_bias: bool, norms: int) -> None:
    model = read(reader, DENSE, num_key_value_heads=2, head_dim=16)
    mixer = attention_of(model)
    assert (mixer.num_attention_heads, mixer.num_key_value_heads, mixer.head_dim) == (4, 2, 16)
    assert (mixer.qk_norm, mixer.qkv_bias, model.layers[0].norms) == (qk_norm, qkv_bias, norms)
    assert model.num_hidden_layers == 4


def test_a_layout_says_what_a_family_has() -> None:
    layout = {
        "kv_heads": 2,
        "windows": "periodic",
        "period": 2,
        "window": 8,
        "tied": True,
        "qkv_bias": {"flag": "biased", "default": True},
    }
    model = read_layout(fields(**DENSE), layout, where="a family")
    mixers = [attention_of(model, depth) for depth in range(model.num_hidden_layers)]
    assert [mixer.sliding_window for mixer in mixers] == [8, None, 8, None]
    assert all(mixer.num_key_value_heads == 2 and mixer.qkv_bias for mixer in mixers)
    assert model.tie_word_embeddings
    assert not attention_of(read_layout(fields(**DENSE, biased=False), layout, where="a family")).qkv_bias
    with pytest.raises(RoofcastError, match="a family"):
        read_layout(fields(**DENSE), {"windows": "some"}, where="a family")


def test_gpt2_stores_positions_and_its_relatives_share_a_key_head() -> None:
    short = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 32, "vocab_size": 100}
    model = read("gpt2", short)
    assert model.position_embeddings == 32
    assert model.layers[0].feed_forward == (MlpSpec(intermediate_size=256, gated=False, bias=True),)
    assert attention_of(read("gpt_bigcode", short)).num_key_value_heads == 1


def test_mixtral_takes_two_of_eight() -> None:
    block = experts_of(read("mixtral", DENSE, num_key_value_heads=2))
    assert (block.num_experts, block.num_experts_per_tok, block.moe_intermediate_size) == (8, 2, 256)


def test_llama4_has_a_shared_expert_and_chunks_on_rotary_layers() -> None:
    model = read(moe.read_llama4, DENSE, num_local_experts=16, head_dim=16, num_key_value_heads=2)
    assert experts_of(model).shared_expert_intermediate_size == 256
    assert [attention_of(model, depth).sliding_window for depth in range(4)] == [8192, 8192, 8192, None]


def test_trinity_starts_with_dense_layers_and_gates_its_attention() -> None:
    model = read(
        "afmoe",
        DENSE,
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        num_shared_experts=1,
        num_dense_layers=1,
        sliding_window=16,
    )
    assert model.layers[0].feed_forward == (MlpSpec(intermediate_size=256),)
    assert experts_of(model).shared_expert_intermediate_size == 32
    assert attention_of(model).output_gate == "elementwise"


LATENT = {"kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}


def test_deepseek_keeps_a_latent_and_its_rotary_key() -> None:
    model = read(
        deepseek.read_deepseek,
        DENSE,
        **LATENT,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        n_shared_experts=2,
        first_k_dense_replace=1,
    )
    mixer = model.layers[0].mixer
    assert isinstance(mixer, MlaSpec)
    assert mixer.kv_lora_rank + mixer.qk_rope_head_dim == 40
    assert experts_of(model).shared_expert_intermediate_size == 64


def test_kimi_linear_needs_to_know_which_layers_are_linear() -> None:
    with pytest.raises(RoofcastError, match="which layers are linear is unknown"):
        read(linear_attention.read_kimi_linear, DENSE, **LATENT)


def test_mamba_expands_twice_and_takes_the_rank_from_its_width() -> None:
    model = read(recurrent.read_mamba, {"hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100})
    mixer = model.layers[0].mixer
    assert isinstance(mixer, MambaSpec)
    assert (mixer.intermediate_size, mixer.time_step_rank, mixer.state_size) == (128, 4, 16)


def test_bert_sees_both_ways_and_t5_has_an_encoder() -> None:
    bert = read(encoder.read_bert, DENSE, max_position_embeddings=32)
    assert not attention_of(bert).causal
    assert bert.pooler
    t5 = read(
        encoder.read_t5, {"d_model": 64, "num_layers": 2, "vocab_size": 100, "num_heads": 4, "d_kv": 16, "d_ff": 128}
    )
    assert t5.encoder is not None
    assert t5.layers[0].cross_attention is not None


def test_quantized_checkpoints() -> None:
    section = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
    model = read("llama", DENSE)
    given = read_quantization(fields(quantization_config=section), dtype=Dtype.BF16, model=model)
    assert (given.weights, given.group_size) == (Dtype.INT4, 128)
