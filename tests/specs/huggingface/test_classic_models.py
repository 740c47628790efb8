"""``simulator.specs.huggingface.layers``: decoders before Llama, counted tensor by tensor."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.parallelism import kv_bytes_per_token
from simulator.specs.model.architecture import AttentionSpec, MlpSpec, ModelSpec
from simulator.specs.model.precision import PrecisionSpec
from tests.specs.huggingface.tensors import SIZES, Sizes, layer_norm, linear, plain_config, read, total

POSITIONS = 512


def mixer(spec: ModelSpec) -> AttentionSpec:
    found = spec.layers[0].mixer
    assert isinstance(found, AttentionSpec)
    return found


def kv_bytes(spec: ModelSpec) -> float:
    plan = precision_plan(spec, PrecisionSpec())
    return kv_bytes_per_token(spec, plan=plan, tp_size=1)


def gpt2(size: Sizes, **changes: object) -> dict[str, object]:
    return {
        "model_type": "gpt2",
        "n_embd": size.hidden,
        "n_layer": size.layers,
        "n_head": size.heads,
        "n_positions": POSITIONS,
        "vocab_size": size.vocab,
        **changes,
    }


@pytest.mark.parametrize("size", SIZES)
def test_gpt2(size: Sizes) -> None:
    """wte, wpe; per layer two norms, fused qkv, output, two products of four times the width; ln_f; tied head."""
    h = size.hidden
    layer = (
        2 * layer_norm(h)
        + linear(h, 3 * h, bias=True)
        + linear(h, h, bias=True)
        + linear(h, 4 * h, bias=True)
        + linear(4 * h, h, bias=True)
    )
    assert total(gpt2(size)) == size.vocab * h + POSITIONS * h + size.layers * layer + layer_norm(h)


def test_gpt2_of_the_paper_has_124_million_parameters() -> None:
    size = Sizes(hidden=768, layers=12, heads=12, kv_heads=12, intermediate=3072, vocab=50257)
    assert total(gpt2(size, n_positions=1024)) == 124_439_808


def test_an_inner_width_of_gpt2_replaces_the_fourfold_one() -> None:
    size = SIZES[1]
    difference = total(gpt2(size, n_inner=5 * size.hidden)) - total(gpt2(size))
    assert difference == size.layers * (2 * size.hidden**2 + size.hidden)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("multi_query", [True, False])
def test_gpt_bigcode(size: Sizes, multi_query: bool) -> None:
    """GPT-2 whose keys and values have one head: c_attn is hidden -> hidden + 2 head_dim."""
    h, kv = size.hidden, 2 * size.head_dim if multi_query else 2 * size.hidden
    config = {**gpt2(size), "model_type": "gpt_bigcode", "multi_query": multi_query}
    layer = (
        2 * layer_norm(h)
        + linear(h, h + kv, bias=True)
        + linear(h, h, bias=True)
        + linear(h, 4 * h, bias=True)
        + linear(4 * h, h, bias=True)
    )
    assert total(config) == (size.vocab + POSITIONS) * h + size.layers * layer + layer_norm(h)
    assert kv_bytes(read(config)) == size.layers * kv * 2


@pytest.mark.parametrize("size", SIZES)
def test_gptj(size: Sizes) -> None:
    """One norm before attention and products side by side; biases in the feed-forward and in the untied head."""
    h = size.hidden
    config = {**gpt2(size), "model_type": "gptj", "rotary_dim": 16}
    layer = layer_norm(h) + 4 * linear(h, h) + linear(h, 4 * h, bias=True) + linear(4 * h, h, bias=True)
    head = linear(h, size.vocab, bias=True)
    assert total(config) == size.vocab * h + size.layers * layer + layer_norm(h) + head


def test_gptj_6b() -> None:
    size = Sizes(hidden=4096, layers=28, heads=16, kv_heads=16, intermediate=16384, vocab=50400)
    assert total({**gpt2(size), "model_type": "gptj", "rotary_dim": 64}) == 6_050_882_784


@pytest.mark.parametrize("size", SIZES)
def test_gpt_neox(size: Sizes) -> None:
    """Biases everywhere but in the untied head."""
    h, inner = size.hidden, size.intermediate
    config = {**plain_config("gpt_neox", size)}
    del config["num_key_value_heads"]
    layer = (
        2 * layer_norm(h)
        + linear(h, 3 * h, bias=True)
        + linear(h, h, bias=True)
        + linear(h, inner, bias=True)
        + linear(inner, h, bias=True)
    )
    assert total(config) == 2 * size.vocab * h + size.layers * layer + layer_norm(h)


def test_pythia_6_9b() -> None:
    size = Sizes(hidden=4096, layers=32, heads=32, kv_heads=32, intermediate=16384, vocab=50432)
    config = plain_config("gpt_neox", size)
    del config["num_key_value_heads"]
    assert total(config) == 6_857_302_016


def opt(size: Sizes, **changes: object) -> dict[str, object]:
    config = plain_config("opt", size)
    del config["num_key_value_heads"], config["intermediate_size"]
    return {**config, "ffn_dim": size.intermediate, "max_position_embeddings": POSITIONS, **changes}


@pytest.mark.parametrize("size", SIZES)
def test_opt(size: Sizes) -> None:
    """Learned positions with two rows to spare, biases everywhere, tied head, norm behind the last layer."""
    h, inner = size.hidden, size.intermediate
    layer = 2 * layer_norm(h) + 4 * linear(h, h, bias=True) + linear(h, inner, bias=True) + linear(inner, h, bias=True)
    expected = size.vocab * h + (POSITIONS + 2) * h + size.layers * layer + layer_norm(h)
    assert total(opt(size)) == expected


def test_opt_350m_projects_its_narrow_embedding_in_and_out() -> None:
    size = SIZES[2]
    narrow = total(opt(size, word_embed_proj_dim=128))
    h = size.hidden
    saved = size.vocab * (h - 128)
    assert total(opt(size)) - narrow == saved - 2 * linear(128, h)


def test_opt_125m() -> None:
    size = Sizes(hidden=768, layers=12, heads=12, kv_heads=12, intermediate=3072, vocab=50272)
    assert total(opt(size, max_position_embeddings=2048)) == 125_239_296


@pytest.mark.parametrize("size", SIZES)
def test_bloom(size: Sizes) -> None:
    """ALiBi: no positions; the embedding has a norm of its own."""
    h = size.hidden
    config = {
        "model_type": "bloom",
        "hidden_size": h,
        "n_layer": size.layers,
        "n_head": size.heads,
        "vocab_size": size.vocab,
    }
    layer = (
        2 * layer_norm(h)
        + linear(h, 3 * h, bias=True)
        + linear(h, h, bias=True)
        + linear(h, 4 * h, bias=True)
        + linear(4 * h, h, bias=True)
    )
    assert total(config) == size.vocab * h + 2 * layer_norm(h) + size.layers * layer


def falcon(size: Sizes, **changes: object) -> dict[str, object]:
    config = plain_config("falcon", size)
    del config["num_key_value_heads"], config["intermediate_size"]
    return {
        **config,
        "alibi": False,
        "bias": False,
        "multi_query": True,
        "parallel_attn": True,
        "new_decoder_architecture": False,
        **changes,
    }


@pytest.mark.parametrize("size", SIZES)
def test_falcon_with_one_key_head(size: Sizes) -> None:
    """Falcon-7B: one norm, qkv of hidden + 2 head_dim, no biases, tied head."""
    h = size.hidden
    layer = layer_norm(h) + linear(h, h + 2 * size.head_dim) + linear(h, h) + 2 * linear(h, 4 * h)
    assert total(falcon(size)) == size.vocab * h + size.layers * layer + layer_norm(h)


@pytest.mark.parametrize("size", [size for size in SIZES if size.kv_heads > 1])
def test_falcon_of_the_new_decoder(size: Sizes) -> None:
    """Falcon-40B: grouped keys, a norm each for attention and feed-forward."""
    h = size.hidden
    config = falcon(size, new_decoder_architecture=True, num_kv_heads=size.kv_heads)
    qkv = linear(h, h + 2 * size.kv_heads * size.head_dim)
    layer = 2 * layer_norm(h) + qkv + linear(h, h) + 2 * linear(h, 4 * h)
    assert total(config) == size.vocab * h + size.layers * layer + layer_norm(h)


@pytest.mark.parametrize("size", SIZES)
def test_phi(size: Sizes) -> None:
    """Phi-2: one norm, attention and feed-forward side by side, biases everywhere, also in the head."""
    h, inner, kv = size.hidden, size.intermediate, size.kv_heads * size.head_dim
    layer = (
        layer_norm(h)
        + 2 * linear(h, h, bias=True)
        + 2 * linear(h, kv, bias=True)
        + linear(h, inner, bias=True)
        + linear(inner, h, bias=True)
    )
    expected = size.vocab * h + size.layers * layer + layer_norm(h) + linear(h, size.vocab, bias=True)
    assert total(plain_config("phi", size)) == expected


def test_phi_2() -> None:
    size = Sizes(hidden=2560, layers=32, heads=32, kv_heads=32, intermediate=10240, vocab=51200)
    assert total(plain_config("phi", size)) == 2_779_683_840


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("bias", [True, False])
def test_starcoder2(size: Sizes, bias: bool) -> None:
    h, inner, kv = size.hidden, size.intermediate, size.kv_heads * size.head_dim
    layer = (
        2 * layer_norm(h)
        + 2 * linear(h, h, bias=bias)
        + 2 * linear(h, kv, bias=bias)
        + linear(h, inner, bias=bias)
        + linear(inner, h, bias=bias)
    )
    config = {**plain_config("starcoder2", size), "use_bias": bias}
    assert total(config) == size.vocab * h + size.layers * layer + layer_norm(h)


@pytest.mark.parametrize("size", SIZES)
def test_mpt(size: Sizes) -> None:
    """No biases, no positions (ALiBi), norms without shift, tied head."""
    h = size.hidden
    config = {
        "model_type": "mpt",
        "d_model": h,
        "n_layers": size.layers,
        "n_heads": size.heads,
        "vocab_size": size.vocab,
        "max_seq_len": POSITIONS,
        "expansion_ratio": 4,
        "no_bias": True,
        "attn_config": {"alibi": True},
    }
    layer = 2 * h + linear(h, 3 * h) + linear(h, h) + 2 * linear(h, 4 * h)
    assert total(config) == size.vocab * h + size.layers * layer + h


@pytest.mark.parametrize("size", SIZES)
def test_one_feed_forward_matrix_pair_and_no_gate(size: Sizes) -> None:
    for config in (gpt2(size), opt(size), falcon(size), plain_config("phi", size)):
        for layer in read(config).layers:
            for block in layer.feed_forward:
                assert isinstance(block, MlpSpec)
                assert not block.gated


@pytest.mark.parametrize(
    ("config", "rotary"),
    [
        (gpt2(SIZES[0]), False),
        (opt(SIZES[0]), False),
        (falcon(SIZES[0]), True),
        (plain_config("phi", SIZES[0]), True),
        (plain_config("starcoder2", SIZES[0]), True),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else str(value),
)
def test_positions_are_learned_or_rotated(config: dict[str, object], rotary: bool) -> None:
    spec = read(config)
    assert mixer(spec).rotary is rotary
    assert (spec.position_embeddings > 0) is not rotary


def test_sizes_that_gpt2_does_not_give_are_refused_by_name() -> None:
    config = {name: value for name, value in gpt2(SIZES[0]).items() if name != "n_embd"}
    with pytest.raises(RoofcastError) as refused:
        read(config)
    assert refused.value.field == "n_embd"


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(RoofcastError):
        read({**gpt2(SIZES[0]), "n_head": 7})
