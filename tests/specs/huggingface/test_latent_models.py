"""``simulator.specs.huggingface.deepseek`` and ``simulator.specs.huggingface.linear_attention``, tensor by tensor."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.parallelism import kv_bytes_per_token, state_bytes_per_sequence
from simulator.reports.words.fields import note_texts
from simulator.specs.model.architecture import (
    AttentionSpec,
    GatedDeltaSpec,
    LightningSpec,
    MlaSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
)
from simulator.specs.model.precision import PrecisionSpec
from tests.specs.huggingface.tensors import active, linear, read, total

H, HEADS, NOPE, ROPE, VALUE, KV_RANK, Q_RANK = 256, 8, 32, 16, 24, 64, 96
DENSE, EXPERT, EXPERTS, PICKED, VOCAB = 512, 48, 16, 4, 1000


def deepseek(*, layers: int = 4, dense: int = 1, **changes: object) -> dict[str, object]:
    return {
        "model_type": "deepseek_v3",
        "hidden_size": H,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "q_lora_rank": Q_RANK,
        "kv_lora_rank": KV_RANK,
        "qk_nope_head_dim": NOPE,
        "qk_rope_head_dim": ROPE,
        "v_head_dim": VALUE,
        "intermediate_size": DENSE,
        "moe_intermediate_size": EXPERT,
        "n_routed_experts": EXPERTS,
        "n_shared_experts": 1,
        "num_experts_per_tok": PICKED,
        "first_k_dense_replace": dense,
        "vocab_size": VOCAB,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        **changes,
    }


def latent_attention(*, q_rank: int | None = Q_RANK) -> int:
    """Down and up projections with their norms; one latent and one rotary key for all heads."""
    query = (
        linear(H, q_rank) + q_rank + linear(q_rank, HEADS * (NOPE + ROPE))
        if q_rank
        else linear(H, HEADS * (NOPE + ROPE))
    )
    latent = linear(H, KV_RANK + ROPE) + KV_RANK + linear(KV_RANK, HEADS * (NOPE + VALUE))
    return query + latent + linear(HEADS * VALUE, H)


def experts(*, shared: int = 1, bias: bool = True) -> int:
    return (EXPERTS + shared) * 3 * H * EXPERT + H * EXPERTS + (EXPERTS if bias else 0)


@pytest.mark.parametrize("dense", [0, 1, 3])
@pytest.mark.parametrize("q_rank", [Q_RANK, None])
@pytest.mark.parametrize("shared", [0, 1, 2])
def test_deepseek(dense: int, q_rank: int | None, shared: int) -> None:
    config = deepseek(dense=dense, q_lora_rank=q_rank, n_shared_experts=shared)
    layers = (
        4 * (latent_attention(q_rank=q_rank) + 2 * H) + dense * 3 * H * DENSE + (4 - dense) * experts(shared=shared)
    )
    assert total(config) == 2 * VOCAB * H + layers + H


def test_the_correction_bias_belongs_to_its_router() -> None:
    biased, greedy = (total(deepseek(topk_method=method)) for method in ("noaux_tc", "greedy"))
    assert biased - greedy == 3 * EXPERTS


@pytest.mark.parametrize(
    ("changes", "everything", "used"),
    [
        ({}, 671_026_419_200, 37e9),  # DeepSeek-V3
        (
            {"num_attention_heads": 64, "n_routed_experts": 384, "first_k_dense_replace": 1, "vocab_size": 163840},
            1_026_408_232_448,
            32e9,
        ),  # Kimi K2
    ],
)
def test_published_totals(changes: dict[str, object], everything: int, used: float) -> None:
    v3 = {
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "num_attention_heads": 128,
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "intermediate_size": 18432,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "first_k_dense_replace": 3,
        "vocab_size": 129280,
    }
    config = deepseek(**{**v3, **changes})
    assert total(config) == pytest.approx(everything, rel=1e-4)
    assert active(config) == pytest.approx(used, rel=0.03)


@pytest.mark.parametrize("layers", [1, 4, 7])
def test_one_latent_and_one_rotary_key_are_cached_however_many_heads(layers: int) -> None:
    for heads in (HEADS, 4 * HEADS):
        spec = read(deepseek(layers=layers, dense=1, num_attention_heads=heads))
        plan = precision_plan(spec, PrecisionSpec())
        assert kv_bytes_per_token(spec, plan=plan, tp_size=1) == layers * (KV_RANK + ROPE) * 2
        # No rank can hold less than the whole latent.
        assert kv_bytes_per_token(spec, plan=plan, tp_size=8) == layers * (KV_RANK + ROPE) * 2


INDEX = {"index_n_heads": 4, "index_head_dim": 32, "index_topk": 128}


@pytest.mark.parametrize("layers", [1, 4])
def test_an_indexer_adds_its_projections_and_norm(layers: int) -> None:
    plain = total(deepseek(layers=layers, dense=1))
    sparse = total(deepseek(layers=layers, dense=1, model_type="deepseek_v32", **INDEX))
    indexer = linear(Q_RANK, 4 * 32) + linear(H, 32) + linear(H, 4) + 2 * 32
    assert sparse - plain == layers * indexer


def test_layers_that_share_a_choice_hold_no_indexer() -> None:
    config = deepseek(model_type="deepseek_v32", indexer_types=["full", "shared", "shared", "full"], **INDEX)
    everywhere = deepseek(model_type="deepseek_v32", **INDEX)
    plain = deepseek()
    assert total(config) - total(plain) == (total(everywhere) - total(plain)) / 2


def test_an_indexer_without_a_query_latent_is_refused() -> None:
    with pytest.raises(RoofcastError) as refused:
        read(deepseek(model_type="deepseek_v32", q_lora_rank=None, **INDEX))
    assert refused.value.field == "q_lora_rank"


@pytest.mark.parametrize(("name", "value"), [("num_key_value_heads", 2), ("qk_head_dim", 64), ("mlp_bias", True)])
def test_fields_that_contradict_latent_attention_are_refused(name: str, value: object) -> None:
    with pytest.raises(RoofcastError) as refused:
        read(deepseek(**{name: value}))
    assert refused.value.field == name


def test_fields_that_repeat_it_are_accepted() -> None:
    plain = read(deepseek())
    again = read(deepseek(num_key_value_heads=HEADS, qk_head_dim=NOPE + ROPE, mlp_bias=False, head_dim=ROPE))
    assert again.layers == plain.layers


def test_prediction_layers_are_told_and_left_out() -> None:
    spec = read(deepseek(num_nextn_predict_layers=1))
    assert total(deepseek(num_nextn_predict_layers=1)) == total(deepseek())
    assert any("multi-token-prediction" in note for note in note_texts(spec.notes))


KEY_HEADS, VALUE_HEADS, KEY, STATE, KERNEL = 4, 8, 16, 24, 4


def hybrid(*, layers: int = 8, **changes: object) -> dict[str, object]:
    """Qwen3-Next in small: three gated-delta layers, then full attention."""
    return {
        "model_type": "qwen3_next",
        "hidden_size": H,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "linear_num_key_heads": KEY_HEADS,
        "linear_num_value_heads": VALUE_HEADS,
        "linear_key_head_dim": KEY,
        "linear_value_head_dim": STATE,
        "linear_conv_kernel_dim": KERNEL,
        "num_experts": EXPERTS,
        "num_experts_per_tok": PICKED,
        "moe_intermediate_size": EXPERT,
        "shared_expert_intermediate_size": EXPERT,
        "vocab_size": VOCAB,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
        **changes,
    }


def delta_layer() -> int:
    """in_proj of q, k, v and the gate z, in_proj of b and a, convolution, A_log, dt_bias, gated norm, output."""
    keys, values = KEY_HEADS * KEY, VALUE_HEADS * STATE
    projections = linear(H, 2 * keys + 2 * values) + linear(H, 2 * VALUE_HEADS) + linear(values, H)
    return projections + (2 * keys + values) * KERNEL + 2 * VALUE_HEADS + STATE


def full_layer() -> int:
    """Queries with as wide a gate, two heads of keys and values, norms over heads, output."""
    return linear(H, 2 * 4 * 32) + 2 * linear(H, 2 * 32) + 2 * 32 + linear(4 * 32, H)


def hybrid_block() -> int:
    return EXPERTS * 3 * H * EXPERT + H * EXPERTS + 3 * H * EXPERT + H


@pytest.mark.parametrize("layers", [4, 8, 10])
def test_qwen3_next(layers: int) -> None:
    full = layers // 4
    mixers = full * full_layer() + (layers - full) * delta_layer()
    assert total(hybrid(layers=layers)) == 2 * VOCAB * H + mixers + layers * (hybrid_block() + 2 * H) + H


def test_qwen3_next_without_experts_is_dense() -> None:
    config = hybrid(intermediate_size=DENSE)
    for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size"):
        del config[name]
    assert total(config) - total(hybrid()) == 8 * (3 * H * DENSE - hybrid_block())


def kinds(spec: ModelSpec) -> list[type]:
    return [type(spec.layers[index].mixer) for index in spec.layer_order]


@pytest.mark.parametrize("interval", [2, 3, 4])
def test_full_attention_stands_on_every_nth_layer(interval: int) -> None:
    spec = read(hybrid(full_attention_interval=interval))
    expected = [AttentionSpec if (index + 1) % interval == 0 else GatedDeltaSpec for index in range(8)]
    assert kinds(spec) == expected


def test_only_full_layers_cache_tokens_and_only_delta_layers_keep_states() -> None:
    spec = read(hybrid())
    plan = precision_plan(spec, PrecisionSpec())
    assert kv_bytes_per_token(spec, plan=plan, tp_size=1) == 2 * (2 * 2 * 32) * 2
    state = VALUE_HEADS * STATE * KEY * 4
    window = (2 * KEY_HEADS * KEY + VALUE_HEADS * STATE) * (KERNEL - 1) * 2
    assert state_bytes_per_sequence(spec, plan=plan, tp_size=1) == 6 * (state + window)


def test_value_heads_must_be_a_multiple_of_key_heads() -> None:
    with pytest.raises(RoofcastError) as refused:
        read(hybrid(linear_num_value_heads=6))
    assert refused.value.field == "linear_num_value_heads"


def kimi_linear(**changes: object) -> dict[str, object]:
    """Kimi Linear in small: three delta layers with a decay per channel, then latent attention."""
    config = deepseek(q_lora_rank=None)
    for name in ("n_routed_experts", "n_shared_experts", "num_experts_per_tok"):
        del config[name]
    return {
        **config,
        "model_type": "kimi_linear",
        "mla_use_nope": True,
        "num_experts": EXPERTS,
        "num_experts_per_token": PICKED,
        "num_shared_experts": 1,
        "linear_attn_config": {
            "kda_layers": [1, 2, 3],
            "full_attn_layers": [4],
            "num_heads": HEADS,
            "head_dim": KEY,
            "short_conv_kernel_size": KERNEL,
        },
        **changes,
    }


def test_kimi_linear() -> None:
    width = HEADS * KEY
    delta = (
        3 * linear(H, width)  # q, k, v
        + 3 * width * KERNEL  # their convolutions
        + linear(H, KEY) + linear(KEY, width) + width  # decay through a low rank, and its bias
        + linear(H, KEY) + linear(KEY, width)  # gate through a low rank
        + linear(H, HEADS) + HEADS  # write strength, A_log
        + KEY  # norm
        + linear(width, H)
    )  # fmt: skip
    blocks = 3 * H * DENSE + 3 * experts()
    expected = 2 * VOCAB * H + 3 * delta + latent_attention(q_rank=None) + blocks + 4 * 2 * H + H
    assert total(kimi_linear()) == expected


def test_kimi_linear_layers_stand_where_the_lists_say() -> None:
    assert kinds(read(kimi_linear())) == [GatedDeltaSpec] * 3 + [MlaSpec]
    spec = read(kimi_linear())
    blocks = [type(spec.layers[index].feed_forward[0]) for index in spec.layer_order]
    assert blocks == [MlpSpec, MoeSpec, MoeSpec, MoeSpec]


@pytest.mark.parametrize(
    ("linear_layers", "full_layers"), [([1, 2, 3], [3, 4]), ([1, 2], [4]), ([0, 1, 2], [3]), ([1, 2, 3, 4], [5])]
)
def test_every_layer_must_be_named_once(linear_layers: list[int], full_layers: list[int]) -> None:
    section = {"kda_layers": linear_layers, "full_attn_layers": full_layers, "num_heads": HEADS, "head_dim": KEY}
    with pytest.raises(RoofcastError) as refused:
        read(kimi_linear(linear_attn_config=section))
    assert refused.value.field.endswith("kda_layers")


def longcat(**changes: object) -> dict[str, object]:
    config = deepseek(**changes)
    for name in ("num_hidden_layers", "n_shared_experts", "first_k_dense_replace", "num_experts_per_tok"):
        del config[name]
    return {
        **config, "model_type": "longcat_flash", "num_layers": 3, "ffn_hidden_size": DENSE, "intermediate_size": None,
        "moe_intermediate_size": None, "expert_ffn_hidden_size": EXPERT, "moe_topk": 6, "zero_expert_num": 8, **changes,
    }  # fmt: skip


def test_a_longcat_layer_is_two_attentions_with_experts_beside_the_first() -> None:
    model = read(longcat())
    assert model.layer_order == (0, 1) * 3
    kinds = [tuple(block.kind for block in layer.feed_forward) for layer in model.layers]
    assert kinds == [("mlp", "moe"), ("mlp",)]


def test_experts_that_do_nothing_take_their_share_of_the_picks_and_a_row_of_the_router() -> None:
    """16 of 24 experts are real, so that 4 of 6 picks are."""
    block = read(longcat()).layers[0].feed_forward[1]
    assert isinstance(block, MoeSpec)
    assert block.num_experts_per_tok == 4
    assert total(longcat()) - total(longcat(zero_expert_num=0)) == 3 * 8 * (H + 1)


def test_a_longcat_of_an_odd_depth_is_refused() -> None:
    with pytest.raises(RoofcastError, match="two attentions"):
        read(longcat(num_hidden_layers=5))


def bailing(**changes: object) -> dict[str, object]:
    return {
        **deepseek(layers=6, dense=2), "model_type": "bailing_hybrid", "n_routed_experts": None, "num_experts": EXPERTS,
        "n_shared_experts": None, "num_shared_experts": 1, "moe_shared_expert_intermediate_size": EXPERT,
        "head_dim": 32, "layer_group_size": 3, **changes,
    }  # fmt: skip


def test_ling_ends_each_group_with_latent_attention() -> None:
    for changes, linear_kind in (({"no_kda_lora": True}, GatedDeltaSpec), ({}, LightningSpec)):
        model = read(bailing(**changes))
        kinds = [type(model.layers[index].mixer) for index in model.layer_order]
        assert kinds == [linear_kind, linear_kind, MlaSpec] * 2


@pytest.mark.parametrize(("field", "value"), [("use_bias", True), ("use_kda_lora", True), ("layer_group_size", 0)])
def test_what_ling_never_published_is_refused(field: str, value: object) -> None:
    with pytest.raises(RoofcastError, match=field):
        read(bailing(**{field: value}))


def minimax(**changes: object) -> dict[str, object]:
    return {
        "model_type": "minimax", "hidden_size": H, "num_hidden_layers": 4, "num_attention_heads": HEADS,
        "num_key_value_heads": 2, "head_dim": 32, "intermediate_size": EXPERT, "num_local_experts": EXPERTS,
        "num_experts_per_tok": 2, "vocab_size": VOCAB, "attn_type_list": [0, 0, 0, 1], "torch_dtype": "bfloat16",
        **changes,
    }  # fmt: skip


def test_minimax_attends_where_its_list_says() -> None:
    model = read(minimax())
    assert [type(model.layers[index].mixer) for index in model.layer_order] == [LightningSpec] * 3 + [AttentionSpec]
    written = minimax(attn_type_list=None, layer_types=["linear_attention"] * 3 + ["full_attention"])
    assert read(written).layers == model.layers


@pytest.mark.parametrize("listed", [None, [0, 1], [0, 0, 2, 1]])
def test_a_minimax_without_a_kind_for_every_layer_is_refused(listed: list[int] | None) -> None:
    with pytest.raises(RoofcastError, match="attn_type_list"):
        read(minimax(attn_type_list=listed))
