"""``simulator.specs.huggingface.moe`` and its layouts, counted tensor by tensor."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.specs.model.architecture import AttentionSpec, MlpSpec, MoeSpec
from tests.specs.huggingface.tensors import SIZES, Sizes, active, layer_norm, linear, plain_config, read, total


def attention(size: Sizes, *, head_dim: int | None = None, bias: bool = False, o_bias: bool = False) -> int:
    width = head_dim or size.head_dim
    return (
        linear(size.hidden, size.heads * width, bias=bias)
        + 2 * linear(size.hidden, size.kv_heads * width, bias=bias)
        + linear(size.heads * width, size.hidden, bias=o_bias)
    )


def around(size: Sizes, layers: int) -> int:
    return 2 * size.vocab * size.hidden + layers + size.hidden


def mixtral(size: Sizes, *, experts: int, picked: int = 2) -> dict[str, object]:
    return {
        **plain_config("mixtral", size),
        "num_local_experts": experts,
        "num_experts_per_tok": picked,
        "tie_word_embeddings": False,
    }


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("experts", [2, 8, 16])
def test_mixtral(size: Sizes, experts: int) -> None:
    expert = 3 * size.hidden * size.intermediate
    layer = attention(size) + experts * expert + size.hidden * experts + 2 * size.hidden
    assert total(mixtral(size, experts=experts)) == around(size, size.layers * layer)


@pytest.mark.parametrize("picked", [1, 2, 4, 8])
def test_active_parameters_count_the_picked_experts(picked: int) -> None:
    size = SIZES[1]
    config = mixtral(size, experts=8, picked=picked)
    idle = size.layers * (8 - picked) * 3 * size.hidden * size.intermediate
    assert total(config) - active(config) == pytest.approx(idle)


@pytest.mark.parametrize(
    ("size", "everything", "used"),
    [
        ((4096, 32, 32, 8, 14336, 32000), 46_702_792_704, 12_879_925_248),  # Mixtral-8x7B
        ((6144, 56, 48, 8, 16384, 32768), 140_630_071_296, 39_161_346_048),  # Mixtral-8x22B-v0.3
    ],
)
def test_published_mixtrals(size: tuple[int, int, int, int, int, int], everything: int, used: int) -> None:
    names = ("hidden", "layers", "heads", "kv_heads", "intermediate", "vocab")
    config = mixtral(Sizes(**dict(zip(names, size, strict=True))), experts=8)
    assert total(config) == pytest.approx(everything, rel=2e-4)
    assert active(config) == pytest.approx(used, rel=2e-3)


@pytest.mark.parametrize("size", SIZES)
def test_phi_3_5_moe(size: Sizes) -> None:
    config = {
        **plain_config("phimoe", size),
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "attention_bias": True,
        "lm_head_bias": True,
        "tie_word_embeddings": False,
    }
    expert = 3 * size.hidden * size.intermediate
    layer = attention(size, bias=True, o_bias=True) + 4 * expert + 4 * size.hidden + 2 * layer_norm(size.hidden)
    tables = 2 * size.vocab * size.hidden + size.vocab
    assert total(config) == tables + size.layers * layer + layer_norm(size.hidden)


def qwen_moe(model_type: str, size: Sizes, **changes: object) -> dict[str, object]:
    return {
        **plain_config(model_type, size),
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 48,
        "tie_word_embeddings": False,
        **changes,
    }


@pytest.mark.parametrize("size", SIZES)
def test_qwen2_moe_has_a_gated_shared_expert(size: Sizes) -> None:
    config = qwen_moe("qwen2_moe", size, shared_expert_intermediate_size=80)
    h = size.hidden
    block = 8 * 3 * h * 48 + 8 * h + 3 * h * 80 + h
    layer = attention(size, bias=True) + block + 2 * h
    assert total(config) == around(size, size.layers * layer)


@pytest.mark.parametrize("size", SIZES)
def test_qwen3_moe_has_none_and_norms_its_heads(size: Sizes) -> None:
    config = qwen_moe("qwen3_moe", size, head_dim=32)
    layer = attention(size, head_dim=32) + 2 * 32 + 8 * 3 * size.hidden * 48 + 8 * size.hidden + 2 * size.hidden
    assert total(config) == around(size, size.layers * layer)


def test_qwen3_30b_and_235b() -> None:
    small = Sizes(hidden=2048, layers=48, heads=32, kv_heads=4, intermediate=6144, vocab=151936)
    large = Sizes(hidden=4096, layers=94, heads=64, kv_heads=4, intermediate=12288, vocab=151936)
    common = {"num_experts": 128, "num_experts_per_tok": 8, "head_dim": 128}
    assert total(qwen_moe("qwen3_moe", small, moe_intermediate_size=768, **common)) == 30_532_122_624
    assert total(qwen_moe("qwen3_moe", large, moe_intermediate_size=1536, **common)) == 235_093_634_560


@pytest.mark.parametrize(("step", "dense_only"), [(1, []), (2, []), (3, []), (1, [0, 2]), (2, [1, 3])])
def test_qwen_layers_are_dense_where_the_step_or_the_list_says(step: int, dense_only: list[int]) -> None:
    size = Sizes(hidden=64, layers=6, heads=4, kv_heads=2, intermediate=128, vocab=100)
    spec = read(qwen_moe("qwen3_moe", size, decoder_sparse_step=step, mlp_only_layers=dense_only))
    kinds = [type(spec.layers[index].feed_forward[0]) for index in spec.layer_order]
    expected = [
        MoeSpec if (index + 1) % step == 0 and index not in dense_only else MlpSpec for index in range(size.layers)
    ]
    assert kinds == expected


def dbrx(size: Sizes, *, experts: int = 4, picked: int = 1) -> dict[str, object]:
    return {
        "model_type": "dbrx",
        "d_model": size.hidden,
        "n_layers": size.layers,
        "n_heads": size.heads,
        "vocab_size": size.vocab,
        "max_seq_len": 1024,
        "attn_config": {"kv_n_heads": size.kv_heads, "clip_qkv": 8},
        "ffn_config": {"moe_num_experts": experts, "moe_top_k": picked, "ffn_hidden_size": size.intermediate},
        "tie_word_embeddings": False,
    }


@pytest.mark.parametrize("size", SIZES)
def test_dbrx(size: Sizes) -> None:
    """Nested sections; norms without shift."""
    layer = attention(size) + 4 * 3 * size.hidden * size.intermediate + 4 * size.hidden + 2 * size.hidden
    assert total(dbrx(size)) == around(size, size.layers * layer)


def test_dbrx_132b() -> None:
    size = Sizes(hidden=6144, layers=40, heads=48, kv_heads=8, intermediate=10752, vocab=100352)
    config = dbrx(size, experts=16, picked=4)
    assert total(config) == 131_596_523_520
    assert active(config) / 1e9 == pytest.approx(36.5, abs=0.5)


def gpt_oss(size: Sizes, *, experts: int = 4) -> dict[str, object]:
    return {
        **plain_config("gpt_oss", size),
        "num_local_experts": experts,
        "num_experts_per_tok": 2,
        "head_dim": 64,
        "sliding_window": 128,
        "tie_word_embeddings": False,
    }


@pytest.mark.parametrize("size", SIZES)
def test_gpt_oss_has_biases_everywhere_and_a_sink_a_head(size: Sizes) -> None:
    h, inner = size.hidden, size.intermediate
    expert = linear(h, 2 * inner, bias=True) + linear(inner, h, bias=True)
    heads = attention(size, head_dim=64, bias=True, o_bias=True) + size.heads
    layer = heads + 4 * expert + linear(h, 4, bias=True) + 2 * h
    assert total(gpt_oss(size)) == around(size, size.layers * layer)


def test_gpt_oss_20b_and_120b() -> None:
    small = Sizes(hidden=2880, layers=24, heads=64, kv_heads=8, intermediate=2880, vocab=201088)
    large = Sizes(hidden=2880, layers=36, heads=64, kv_heads=8, intermediate=2880, vocab=201088)
    assert total(gpt_oss(small, experts=32)) == 20_914_757_184
    assert total(gpt_oss(large, experts=128)) == 116_829_156_672


def test_gpt_oss_slides_on_even_layers() -> None:
    spec = read(gpt_oss(Sizes(hidden=128, layers=4, heads=2, kv_heads=1, intermediate=64, vocab=100)))
    windows = []
    for index in spec.layer_order:
        mixer = spec.layers[index].mixer
        assert isinstance(mixer, AttentionSpec)
        windows.append(mixer.sliding_window)
    assert windows == [128, None, 128, None]


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (mixtral(SIZES[0], experts=2, picked=3), "num_experts_per_tok"),
        (qwen_moe("qwen3_moe", SIZES[0], num_experts_per_tok=9), "num_experts_per_tok"),
        (dbrx(SIZES[0], experts=2, picked=3), "ffn_config.moe_top_k"),
        ({**gpt_oss(SIZES[0]), "num_experts_per_tok": 5}, "num_experts_per_tok"),
    ],
    ids=["mixtral", "qwen3", "dbrx", "gpt-oss"],
)
def test_no_router_picks_more_experts_than_there_are(config: dict[str, object], field: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        read(config)
    assert refused.value.field == field


def test_two_names_of_one_size_must_agree() -> None:
    with pytest.raises(RoofcastError):
        read({**gpt_oss(SIZES[0]), "experts_per_token": 3})


def glm4_moe(size: Sizes, **changes: object) -> dict[str, object]:
    return {
        **plain_config("glm4_moe", size),
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 1,
        "moe_intermediate_size": 48,
        "first_k_dense_replace": 1,
        "head_dim": 32,
        "attention_bias": True,
        "use_qk_norm": False,
        "tie_word_embeddings": False,
        **changes,
    }


@pytest.mark.parametrize("size", [size for size in SIZES if size.layers > 1])
def test_glm_4_5_is_dense_first_and_sparse_after(size: Sizes) -> None:
    h = size.hidden
    block = 8 * 3 * h * 48 + 8 * h + 8 + 3 * h * 48
    common = attention(size, head_dim=32, bias=True) + 2 * h
    dense = 3 * h * size.intermediate
    assert total(glm4_moe(size)) == around(size, size.layers * common + dense + (size.layers - 1) * block)


def test_glm_4_5_norms_its_heads_where_told() -> None:
    size = SIZES[1]
    assert total(glm4_moe(size, use_qk_norm=True)) - total(glm4_moe(size)) == size.layers * 2 * 32


def minimax(size: Sizes) -> dict[str, object]:
    return {
        **plain_config("minimax_m2", size),
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "head_dim": 32,
        "tie_word_embeddings": False,
    }


@pytest.mark.parametrize("size", SIZES)
def test_minimax_m2_norms_all_heads_together(size: Sizes) -> None:
    h = size.hidden
    norms = (size.heads + size.kv_heads) * 32
    block = 8 * 3 * h * size.intermediate + 8 * h + 8
    layer = attention(size, head_dim=32) + norms + block + 2 * h
    assert total(minimax(size)) == around(size, size.layers * layer)
