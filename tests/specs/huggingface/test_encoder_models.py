"""``simulator.specs.huggingface.encoder``: BERT, T5 and vision towers, counted tensor by tensor."""

from __future__ import annotations

import pytest

from simulator.errors import RoofcastError
from simulator.operators.transformer import layer_rows
from simulator.operators.vision import vision_parameters
from tests.specs.huggingface.tensors import SIZES, Sizes, layer_norm, linear, plain_config, read, total

POSITIONS = 128


def bert(size: Sizes, **changes: object) -> dict[str, object]:
    config = plain_config("bert", size)
    del config["num_key_value_heads"]
    return {**config, "max_position_embeddings": POSITIONS, "type_vocab_size": 2, **changes}


def bert_body(size: Sizes) -> int:
    h, inner = size.hidden, size.intermediate
    layer = 4 * linear(h, h, bias=True) + linear(h, inner, bias=True) + linear(inner, h, bias=True) + 2 * layer_norm(h)
    return (size.vocab + POSITIONS + 2) * h + layer_norm(h) + size.layers * layer


@pytest.mark.parametrize("size", SIZES)
def test_bert_with_its_pooler(size: Sizes) -> None:
    assert total(bert(size)) == bert_body(size) + linear(size.hidden, size.hidden, bias=True)


@pytest.mark.parametrize("size", SIZES)
def test_bert_with_its_masked_head(size: Sizes) -> None:
    """A transform and its norm before the tied vocabulary product, whose bias is its own; no pooler."""
    h = size.hidden
    head = linear(h, h, bias=True) + layer_norm(h) + size.vocab
    assert total(bert(size, architectures=["BertForMaskedLM"])) == bert_body(size) + head


def test_bert_base_and_large() -> None:
    base = Sizes(hidden=768, layers=12, heads=12, kv_heads=12, intermediate=3072, vocab=30522)
    large = Sizes(hidden=1024, layers=24, heads=16, kv_heads=16, intermediate=4096, vocab=30522)
    assert total(bert(base, max_position_embeddings=512)) == 109_482_240
    assert total(bert(large, max_position_embeddings=512)) == 335_141_888


def test_other_heads_of_bert_are_refused() -> None:
    with pytest.raises(RoofcastError) as refused:
        read(bert(SIZES[0], architectures=["BertForQuestionAnswering"]))
    assert refused.value.field == "architectures"


def t5(*, layers: int, decoder_layers: int | None = None, gated: bool = False, **changes: object) -> dict[str, object]:
    extra = {} if decoder_layers is None else {"num_decoder_layers": decoder_layers}
    return {
        "model_type": "t5",
        "d_model": 64,
        "d_kv": 16,
        "d_ff": 96,
        "num_heads": 8,
        "num_layers": layers,
        "vocab_size": 300,
        "feed_forward_proj": "gated-gelu" if gated else "relu",
        "torch_dtype": "bfloat16",
        **extra,
        **changes,
    }


@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("layers", "decoder_layers"), [(1, 1), (3, 3), (6, 2)])
def test_t5(gated: bool, layers: int, decoder_layers: int) -> None:
    """Heads wider than the stream; one bias table a stack; no biases; norms without shift."""
    attention = 4 * linear(64, 128)
    block = (3 if gated else 2) * linear(64, 96)
    encoder = layers * (attention + block + 2 * 64) + 32 * 8 + 64
    decoder = decoder_layers * (2 * attention + block + 3 * 64) + 32 * 8 + 64
    config = t5(layers=layers, decoder_layers=decoder_layers, gated=gated)
    assert total(config) == 300 * 64 + encoder + decoder


def test_t5_small_and_large() -> None:
    common = {"d_kv": 64, "vocab_size": 32128}
    small = t5(layers=6, d_model=512, d_ff=2048, num_heads=8, **common)
    large = t5(layers=24, d_model=1024, d_ff=4096, num_heads=16, **common)
    assert total(small) == 60_506_624
    assert total(large) == 737_668_096


def test_an_untied_head_of_t5_is_a_table_more() -> None:
    assert total(t5(layers=2, tie_word_embeddings=False)) - total(t5(layers=2)) == 300 * 64


def vision_block(hidden: int, intermediate: int) -> int:
    feed_forward = linear(hidden, intermediate, bias=True) + linear(intermediate, hidden, bias=True)
    return 4 * linear(hidden, hidden, bias=True) + feed_forward + 2 * layer_norm(hidden)


def nested(
    model_type: str, text_type: str, size: Sizes, vision: dict[str, object], **text: object
) -> dict[str, object]:
    inner = {**plain_config(text_type, size), **text}
    return {"model_type": model_type, "text_config": inner, "vision_config": vision, "torch_dtype": "bfloat16"}


def stored_tower(config: dict[str, object]) -> float:
    vision = read(config).vision
    assert vision is not None
    return vision_parameters(vision, layer_rows)


def test_the_siglip_tower_of_gemma3_is_stored() -> None:
    size = SIZES[1]
    vision = {
        "hidden_size": 48,
        "intermediate_size": 80,
        "patch_size": 14,
        "image_size": 56,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "model_type": "siglip_vision_model",
        "vision_use_head": False,
    }
    config = nested("gemma3", "gemma3_text", size, vision, head_dim=32)
    patches = (56 // 14) ** 2
    tower = (
        linear(3 * 14**2, 48, bias=True)
        + patches * 48
        + 3 * vision_block(48, 80)
        + layer_norm(48)
        + linear(48, size.hidden)
        + 48
    )
    alone = {**plain_config("gemma3_text", size), "head_dim": 32}
    assert total(config) == total(alone) + tower
    assert stored_tower(config) == tower


@pytest.mark.parametrize("deepstack", [[], [5], [5, 11, 17]])
def test_the_tower_of_qwen3_vl(deepstack: list[int]) -> None:
    size = SIZES[1]
    vision = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "in_channels": 3,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
        "out_hidden_size": size.hidden,
        "num_position_embeddings": 100,
        "depth": 4,
        "deepstack_visual_indexes": deepstack,
        "num_heads": 4,
    }
    config = nested("qwen3_vl", "qwen3_vl_text", size, vision)
    merged = 32 * 4
    merger = linear(merged, merged, bias=True) + linear(merged, size.hidden, bias=True)
    tower = (
        linear(3 * 2 * 16**2, 32, bias=True)
        + 100 * 32
        + 4 * vision_block(32, 64)
        + merger
        + layer_norm(32)
        + len(deepstack) * (merger + layer_norm(merged))
    )
    assert stored_tower(config) == tower


def test_a_nested_configuration_without_its_text_part_is_refused() -> None:
    with pytest.raises(RoofcastError) as refused:
        read({"model_type": "gemma3", "vision_config": {}})
    assert refused.value.field == "text_config"


def test_a_text_part_alone_has_no_tower() -> None:
    size = SIZES[1]
    config = {"model_type": "gemma3", "text_config": {**plain_config("gemma3_text", size), "head_dim": 32}}
    assert read(config).vision is None
