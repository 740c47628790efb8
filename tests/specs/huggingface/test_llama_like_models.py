"""``simulator.specs.huggingface.dense``: dense decoders with rotary positions, counted tensor by tensor."""

from __future__ import annotations

import numpy as np
import pytest

from simulator.errors import RoofcastError
from simulator.operators.formats.tensor_formats import precision_plan
from simulator.operators.model_counts import model_flops, parameter_counts
from simulator.operators.parallelism import kv_bytes_per_sequence, kv_bytes_per_token
from simulator.operators.work import decode_step
from simulator.reports.words.fields import note_texts
from simulator.specs.huggingface.dense import FFN_MULTIPLE
from simulator.specs.model.architecture import AttentionSpec
from simulator.specs.model.loading import load_model
from simulator.specs.model.precision import PrecisionSpec
from tests.specs.huggingface.tensors import SIZES, Sizes, linear, plain_config, read, total


def gated(size: Sizes, *, bias: bool = False) -> int:
    """Gate, up and down projections."""
    inner = size.intermediate
    return 2 * linear(size.hidden, inner, bias=bias) + linear(inner, size.hidden, bias=bias)


def grouped(size: Sizes, *, head_dim: int | None = None, qkv_bias: bool = False, o_bias: bool = False) -> int:
    """Query, key, value and output projections."""
    width = head_dim or size.head_dim
    return (
        linear(size.hidden, size.heads * width, bias=qkv_bias)
        + 2 * linear(size.hidden, size.kv_heads * width, bias=qkv_bias)
        + linear(size.heads * width, size.hidden, bias=o_bias)
    )


def around(size: Sizes, layer: int, *, tied: bool = False, norm: int | None = None) -> int:
    """Embedding, layers, last norm, head."""
    tables = 1 if tied else 2
    return tables * size.vocab * size.hidden + size.layers * layer + (size.hidden if norm is None else norm)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("attention_bias", [False, True])
@pytest.mark.parametrize("mlp_bias", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_llama(size: Sizes, attention_bias: bool, mlp_bias: bool, tied: bool) -> None:
    config = {
        **plain_config("llama", size),
        "attention_bias": attention_bias,
        "mlp_bias": mlp_bias,
        "tie_word_embeddings": tied,
    }
    layer = grouped(size, qkv_bias=attention_bias, o_bias=attention_bias) + gated(size, bias=mlp_bias) + 2 * size.hidden
    assert total(config) == around(size, layer, tied=tied)


@pytest.mark.parametrize(
    ("published", "size", "tied"),
    [
        (6_738_415_616, (4096, 32, 32, 32, 11008, 32000), False),  # Llama-2-7b
        (13_015_864_320, (5120, 40, 40, 40, 13824, 32000), False),  # Llama-2-13b
        (68_976_648_192, (8192, 80, 64, 8, 28672, 32000), False),  # Llama-2-70b
        (8_030_261_248, (4096, 32, 32, 8, 14336, 128256), False),  # Llama-3.1-8B
        (70_553_706_496, (8192, 80, 64, 8, 28672, 128256), False),  # Llama-3.1-70B
        (405_853_388_800, (16384, 126, 128, 8, 53248, 128256), False),  # Llama-3.1-405B
        (3_212_749_824, (3072, 28, 24, 8, 8192, 128256), True),  # Llama-3.2-3B
    ],
)
def test_published_llamas(published: int, size: tuple[int, int, int, int, int, int], tied: bool) -> None:
    names = ("hidden", "layers", "heads", "kv_heads", "intermediate", "vocab")
    config = plain_config("llama", Sizes(**dict(zip(names, size, strict=True))))
    assert total({**config, "tie_word_embeddings": tied}) == published


def test_llama_with_a_head_width_of_its_own() -> None:
    size = SIZES[1]
    layer = grouped(size, head_dim=48) + gated(size) + 2 * size.hidden
    assert total({**plain_config("llama", size), "head_dim": 48, "tie_word_embeddings": False}) == around(size, layer)


@pytest.mark.parametrize("size", SIZES)
def test_qwen2_has_biases_on_queries_keys_and_values(size: Sizes) -> None:
    layer = grouped(size, qkv_bias=True) + gated(size) + 2 * size.hidden
    assert total({**plain_config("qwen2", size), "tie_word_embeddings": False}) == around(size, layer)


def test_qwen2_5_7b() -> None:
    size = Sizes(hidden=3584, layers=28, heads=28, kv_heads=4, intermediate=18944, vocab=152064)
    assert total({**plain_config("qwen2", size), "tie_word_embeddings": False}) == 7_615_616_512


@pytest.mark.parametrize("size", SIZES)
def test_qwen3_norms_each_head(size: Sizes) -> None:
    """Head width 128 whatever the hidden size; one norm of that width for queries and one for keys."""
    layer = grouped(size, head_dim=128) + 2 * 128 + gated(size) + 2 * size.hidden
    assert total({**plain_config("qwen3", size), "tie_word_embeddings": False}) == around(size, layer)


def test_qwen3_8b() -> None:
    size = Sizes(hidden=4096, layers=36, heads=32, kv_heads=8, intermediate=12288, vocab=151936)
    config = {**plain_config("qwen3", size), "head_dim": 128, "tie_word_embeddings": False}
    assert total(config) == 8_190_735_360


@pytest.mark.parametrize("size", SIZES)
def test_phi3(size: Sizes) -> None:
    layer = grouped(size) + gated(size) + 2 * size.hidden
    assert total({**plain_config("phi3", size), "tie_word_embeddings": False}) == around(size, layer)


def test_phi_3_mini() -> None:
    size = Sizes(hidden=3072, layers=32, heads=32, kv_heads=32, intermediate=8192, vocab=32064)
    assert total({**plain_config("phi3", size), "tie_word_embeddings": False}) == 3_821_079_552


@pytest.mark.parametrize("size", SIZES)
def test_cohere_has_one_norm_a_layer_and_a_tied_head(size: Sizes) -> None:
    layer = grouped(size) + gated(size) + size.hidden
    assert total(plain_config("cohere", size)) == around(size, layer, tied=True)


@pytest.mark.parametrize("size", SIZES)
def test_cohere_norms_every_head_by_weights_of_its_own(size: Sizes) -> None:
    plain, normed = (total({**plain_config("cohere", size), "use_qk_norm": use}) for use in (False, True))
    assert normed - plain == size.layers * (size.heads + size.kv_heads) * size.head_dim


@pytest.mark.parametrize("size", SIZES)
def test_olmo2_norms_all_query_heads_together(size: Sizes) -> None:
    norms = (size.heads + size.kv_heads) * size.head_dim
    layer = grouped(size) + gated(size) + norms + 2 * size.hidden
    assert total({**plain_config("olmo2", size), "tie_word_embeddings": False}) == around(size, layer)


@pytest.mark.parametrize(("model_type", "norms"), [("glm", 2), ("glm4", 4)])
@pytest.mark.parametrize("size", SIZES)
def test_glm(model_type: str, norms: int, size: Sizes) -> None:
    layer = grouped(size, head_dim=128, qkv_bias=True) + gated(size) + norms * size.hidden
    assert total({**plain_config(model_type, size), "tie_word_embeddings": False}) == around(size, layer)


@pytest.mark.parametrize("size", SIZES)
def test_mistral_is_llama_with_a_window(size: Sizes) -> None:
    config = {**plain_config("mistral", size), "tie_word_embeddings": False}
    llama = {**plain_config("llama", size), "tie_word_embeddings": False}
    assert total({**config, "sliding_window": 64}) == total({**config, "sliding_window": None}) == total(llama)


def test_a_window_bounds_what_a_sequence_keeps() -> None:
    size = SIZES[1]
    spec = read({**plain_config("mistral", size), "sliding_window": 64})
    plan = precision_plan(spec, PrecisionSpec())
    per_token = kv_bytes_per_token(spec, plan=plan, tp_size=1)
    kept = kv_bytes_per_sequence(spec, plan=plan, tp_size=1, context_tokens=[32, 64, 65, 4096])
    assert kept.tolist() == [32 * per_token, 64 * per_token, 64 * per_token, 64 * per_token]


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((4096, 32, 32, 8, 14336, 128256), 131_072),  # Llama-3.1-8B: 2 x 32 x 8 x 128 x 2 bytes
        ((8192, 80, 64, 8, 28672, 128256), 327_680),
        ((4096, 32, 32, 32, 11008, 32000), 524_288),
    ],
)
def test_cache_of_published_llamas(size: tuple[int, int, int, int, int, int], expected: int) -> None:
    names = ("hidden", "layers", "heads", "kv_heads", "intermediate", "vocab")
    spec = read(plain_config("llama", Sizes(**dict(zip(names, size, strict=True)))))
    assert kv_bytes_per_token(spec, plan=precision_plan(spec, PrecisionSpec()), tp_size=1) == expected


def nas_block(*, group: int | None, multiple: float | None) -> dict[str, object]:
    attention = {"no_op": True} if group is None else {"n_heads_in_group": group}
    ffn = {"no_op": True} if multiple is None else {"ffn_mult": multiple}
    return {"attention": attention, "ffn": ffn}


def nas(size: Sizes, blocks: list[dict[str, object]]) -> dict[str, object]:
    config = plain_config("nemotron-nas", size)
    del config["num_key_value_heads"], config["intermediate_size"]
    return {**config, "num_hidden_layers": len(blocks), "block_configs": blocks, "tie_word_embeddings": False}


def test_searched_layers_hold_what_their_block_says() -> None:
    size = Sizes(hidden=768, layers=3, heads=8, kv_heads=8, intermediate=0, vocab=1000)
    blocks = [nas_block(group=8, multiple=5.25), nas_block(group=None, multiple=1.0), nas_block(group=2, multiple=None)]
    h = size.hidden
    widths = [-(-int(2 * multiple * h / 3) // FFN_MULTIPLE) * FFN_MULTIPLE for multiple in (5.25, 1.0)]
    first = 2 * h * h + 2 * h * (h // 8) + 3 * h * widths[0] + 2 * h
    second = 3 * h * widths[1] + h
    third = 2 * h * h + 2 * h * (4 * h // 8) + h
    assert total(nas(size, blocks)) == 2 * size.vocab * h + first + second + third + h


@pytest.mark.parametrize(
    ("hidden", "multiple", "said"),
    [
        (768, 1e7, "allowed are numbers of 0.001 to 1,000"),
        (768, 1.7e308, "allowed are numbers of 0.001 to 1,000"),
        (8_000_000, 999.0, "gives a width of 5.33e\\+09"),
    ],
)
def test_a_width_that_no_layer_has_is_refused(hidden: int, multiple: float, said: str) -> None:
    size = Sizes(hidden=hidden, layers=1, heads=8, kv_heads=8, intermediate=0, vocab=1000)
    with pytest.raises(RoofcastError, match=said) as caught:
        read(nas(size, [nas_block(group=8, multiple=multiple)]))
    assert "ffn_mult" in str(caught.value.field)


def test_an_emptied_layer_keeps_no_cache() -> None:
    size = SIZES[0]
    full = read(nas(size, [nas_block(group=1, multiple=1.0)] * 2))
    half = read(nas(size, [nas_block(group=1, multiple=1.0), nas_block(group=None, multiple=1.0)]))
    each = [kv_bytes_per_token(spec, plan=precision_plan(spec, PrecisionSpec()), tp_size=1) for spec in (full, half)]
    assert each[1] == each[0] / 2


def test_a_group_that_does_not_divide_the_heads_is_refused() -> None:
    with pytest.raises(RoofcastError) as refused:
        read(nas(SIZES[0], [nas_block(group=3, multiple=1.0)]))
    assert refused.value.field.endswith("n_heads_in_group")


@pytest.mark.parametrize("used", [False, True])
def test_qwen_slides_from_a_layer_on_and_only_where_told(used: bool) -> None:
    size = SIZES[3]
    config = {**plain_config("qwen2", size), "use_sliding_window": used, "sliding_window": 256, "max_window_layers": 5}
    spec = read(config)
    windows = []
    for index in spec.layer_order:
        mixer = spec.layers[index].mixer
        assert isinstance(mixer, AttentionSpec)
        windows.append(mixer.sliding_window)
    assert windows == [None] * 5 + [256 if used else None] * (size.layers - 5)


def test_mimo_leaves_its_prediction_layer_out_and_says_so() -> None:
    size = SIZES[1]
    config = {**plain_config("mimo", size), "attention_bias": True, "tie_word_embeddings": False}
    with_head = read({**config, "num_nextn_predict_layers": 1})
    plain = {**plain_config("qwen2", size), "tie_word_embeddings": False}
    assert total({**config, "num_nextn_predict_layers": 1}) == total(plain)
    assert any("num_nextn_predict_layers" in note or "predict" in note for note in note_texts(with_head.notes))


def test_llama_with_cross_attention_runs_as_the_llama_inside_it() -> None:
    """Text alone skips the layers that attend to a picture; they and the tower are held all the same."""
    seeing, plain = load_model("meta-llama/Llama-3.2-90B-Vision-Instruct"), load_model("llama-3.1-70b")
    assert parameter_counts(seeing).active == parameter_counts(plain).total
    step = decode_step(sequences=8, context=1000)
    assert np.array_equal(model_flops(seeing, step), model_flops(plain, step))
    assert parameter_counts(seeing).total > 1.2 * parameter_counts(plain).total
