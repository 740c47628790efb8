"""``simulator.specs.huggingface.dense``: wide heads, tied tables, windows between full layers."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.parallelism import kv_bytes_per_sequence
from simulator.specs.model.architecture import AttentionSpec, ModelSpec
from simulator.specs.model.precision import PrecisionSpec
from tests.specs.huggingface.tensors import SIZES, Sizes, linear, plain_config, read, total


def layer(size: Sizes, *, head_dim: int, norms: int, qk_norm: bool = False) -> int:
    heads = 2 * linear(size.hidden, size.heads * head_dim) + 2 * linear(size.hidden, size.kv_heads * head_dim)
    return heads + 3 * size.hidden * size.intermediate + norms * size.hidden + (2 * head_dim if qk_norm else 0)


def around(size: Sizes, each: int) -> int:
    return size.vocab * size.hidden + size.layers * each + size.hidden


def windows(spec: ModelSpec) -> list[int | None]:
    found = []
    for index in spec.layer_order:
        mixer = spec.layers[index].mixer
        assert isinstance(mixer, AttentionSpec)
        found.append(mixer.sliding_window)
    return found


@pytest.mark.parametrize("size", SIZES)
def test_gemma_has_heads_of_256_and_one_table(size: Sizes) -> None:
    assert total(plain_config("gemma", size)) == around(size, layer(size, head_dim=256, norms=2))


def test_gemma_7b_and_2b() -> None:
    seven = Sizes(hidden=3072, layers=28, heads=16, kv_heads=16, intermediate=24576, vocab=256000)
    two = Sizes(hidden=2048, layers=18, heads=8, kv_heads=1, intermediate=16384, vocab=256000)
    assert total(plain_config("gemma", seven)) == 8_537_680_896
    assert total(plain_config("gemma", two)) == 2_506_172_416


@pytest.mark.parametrize("size", SIZES)
def test_gemma2_has_four_norms_a_layer(size: Sizes) -> None:
    assert total(plain_config("gemma2", size)) == around(size, layer(size, head_dim=256, norms=4))


def test_gemma_2_9b() -> None:
    size = Sizes(hidden=3584, layers=42, heads=16, kv_heads=8, intermediate=14336, vocab=256000)
    assert total(plain_config("gemma2", size)) == 9_241_705_984


@pytest.mark.parametrize("size", SIZES)
def test_gemma3_norms_its_heads_too(size: Sizes) -> None:
    config = {**plain_config("gemma3_text", size), "head_dim": 128}
    assert total(config) == around(size, layer(size, head_dim=128, norms=4, qk_norm=True))


def test_gemma_3_1b() -> None:
    size = Sizes(hidden=1152, layers=26, heads=4, kv_heads=1, intermediate=6912, vocab=262144)
    assert total({**plain_config("gemma3_text", size), "head_dim": 256}) == 999_885_952


@pytest.mark.parametrize("depth", [1, 6, 7, 26])
def test_every_second_and_every_sixth_layer_sees_everything(depth: int) -> None:
    size = Sizes(hidden=64, layers=depth, heads=4, kv_heads=2, intermediate=128, vocab=100)
    second = windows(read({**plain_config("gemma2", size), "sliding_window": 32}))
    sixth = windows(read({**plain_config("gemma3_text", size), "sliding_window": 32}))
    assert second == [None if index % 2 == 1 else 32 for index in range(depth)]
    assert sixth == [None if index % 6 == 5 else 32 for index in range(depth)]


def test_the_pattern_may_be_given_per_layer() -> None:
    size = SIZES[1]
    types = ["full_attention", "sliding_attention", "sliding_attention"]
    spec = read({**plain_config("gemma3_text", size), "sliding_window": 32, "layer_types": types})
    assert windows(spec) == [None, 32, 32]


def test_far_beyond_the_window_only_full_layers_grow() -> None:
    size = Sizes(hidden=64, layers=12, heads=4, kv_heads=2, intermediate=128, vocab=100)
    spec = read({**plain_config("gemma3_text", size), "sliding_window": 32, "head_dim": 16})
    plan = precision_plan(spec, PrecisionSpec())
    short, one, two = kv_bytes_per_sequence(spec, plan=plan, tp_size=1, context_tokens=[32, 1000, 2000])
    token = 2 * size.kv_heads * 16 * 2
    assert short == 12 * 32 * token
    assert two - one == 2 * 1000 * token


def gemma4(size: Sizes, **changes: object) -> dict[str, object]:
    return {
        **plain_config("gemma4_text", size),
        "head_dim": 32,
        "global_head_dim": 64,
        "hidden_size_per_layer_input": 0,
        "sliding_window": 16,
        **changes,
    }


def test_full_layers_of_gemma4_have_wider_heads() -> None:
    size = Sizes(hidden=64, layers=6, heads=4, kv_heads=2, intermediate=128, vocab=100)
    narrow, wide = (
        2 * linear(64, 4 * width) + 2 * linear(64, 2 * width) + 2 * width + 3 * 64 * 128 + 4 * 64 for width in (32, 64)
    )
    assert total(gemma4(size)) == 100 * 64 + 5 * narrow + wide + 64


def test_keys_that_are_values_need_no_value_projection() -> None:
    size = Sizes(hidden=64, layers=6, heads=4, kv_heads=2, intermediate=128, vocab=100)
    apart = total(gemma4(size))
    shared = total(gemma4(size, attention_k_eq_v=True, num_global_key_value_heads=2))
    assert apart - shared == linear(64, 2 * 64)


def test_layers_that_reuse_an_earlier_cache_hold_no_keys() -> None:
    size = Sizes(hidden=64, layers=6, heads=4, kv_heads=2, intermediate=128, vocab=100)
    spec = read(gemma4(size, num_kv_shared_layers=2))
    plan = precision_plan(spec, PrecisionSpec())
    each = [
        float(kv_bytes_per_sequence(model, plan=plan, tp_size=1, context_tokens=10)[0])
        for model in (read(gemma4(size)), spec)
    ]
    # Of the last two layers one slides (32 wide) and one is full (64 wide).
    assert each[0] - each[1] == 10 * 2 * 2 * (32 + 64) * 2


def test_experts_stand_beside_the_dense_block() -> None:
    size = Sizes(hidden=64, layers=6, heads=4, kv_heads=2, intermediate=128, vocab=100)
    experts = {"enable_moe_block": True, "num_experts": 8, "top_k_experts": 2, "moe_intermediate_size": 32}
    added = total(gemma4(size, **experts)) - total(gemma4(size))
    # Experts, router, its scales of the input and of each expert, and three more norms a layer.
    assert added == 6 * (8 * 3 * 64 * 32 + 64 * 8 + 64 + 8 + 3 * 64)


@pytest.mark.parametrize("model_type", ["gemma3n", "gemma3n_text"])
def test_what_is_not_modelled_is_refused_with_the_nearest(model_type: str) -> None:
    with pytest.raises(RoofcastError) as refused:
        read(plain_config(model_type, SIZES[0]))
    assert "gemma" in refused.value.hint


def test_embedding_models_are_refused() -> None:
    with pytest.raises(RoofcastError) as refused:
        read({**plain_config("gemma", SIZES[0]), "use_bidirectional_attention": True})
    assert refused.value.field == "use_bidirectional_attention"
