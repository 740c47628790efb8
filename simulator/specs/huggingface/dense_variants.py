"""Dense decoders that change one part of Llama: the activation, norms of heads, windows, parallel blocks, biases."""

from __future__ import annotations

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import (
    FULL,
    SLIDING,
    Trunk,
    Windows,
    every_nth_full,
    grouped_attention,
    patterned_windows,
    periodic_windows,
    read_attention,
    read_mlp,
    stack,
    windows_of_types,
    with_window,
)
from simulator.specs.model.architecture import MlpSpec, ModelSpec

_PATTERN = {"L": SLIDING, "G": FULL}


def exaone_windows(fields: Fields) -> Windows:
    """Window of every layer: ``sliding_window_pattern`` is LLLG or the distance of full layers."""
    depth = fields.depth("num_hidden_layers")
    window = fields.optional_size("sliding_window")
    pattern = fields.raw("sliding_window_pattern")
    default: tuple[str, ...] = (FULL,) * depth
    if window is not None and isinstance(pattern, str) and pattern and set(pattern) <= set(_PATTERN):
        default = tuple(_PATTERN[pattern[index % len(pattern)]] for index in range(depth))
    elif window is not None and isinstance(pattern, int) and pattern > 0:
        default = every_nth_full(depth, pattern)
    return windows_of_types(fields, window=window, default=default)


def read_exaone4(fields: Fields) -> ModelSpec:
    """Exaone4Config: norms over heads and behind the sublayers; ``LLLG`` is three sliding layers, then a full one."""
    return stack(fields, read_attention(fields, qk_norm="head"), read_mlp(fields), windows=exaone_windows(fields))


def read_seed_oss(fields: Fields) -> ModelSpec:
    """SeedOssConfig: Llama with biases on q, k and v, and one flag of its own for the output projection."""
    biases = {
        "qkv_bias": fields.flag("attention_bias", default=True),
        "o_bias": fields.flag("attention_out_bias", default=False),
    }
    attention = read_attention(fields, head_dim_default=128).model_copy(update=biases)
    return stack(fields, attention, read_mlp(fields, bias="mlp_bias"))


def read_smollm3(fields: Fields) -> ModelSpec:
    """SmolLM3Config: Llama that leaves every fourth layer without rotary positions; tied embeddings."""
    fields.words("layer_types", length=fields.depth("num_hidden_layers"), allowed=(FULL,))
    attention = read_attention(fields, kv_heads_default=4, bias="attention_bias")
    return stack(fields, attention, read_mlp(fields, bias="mlp_bias"), tie_default=True)


def read_olmo3(fields: Fields) -> ModelSpec:
    """Olmo3Config: OLMo 2 (norms behind the sublayers, over all heads together) with three sliding layers in four."""
    attention = read_attention(fields, bias="attention_bias", qk_norm="full")
    windows = periodic_windows(fields, period=4, window=fields.size("sliding_window", default=4096))
    return stack(fields, attention, read_mlp(fields), windows=windows)


def read_arcee(fields: Fields) -> ModelSpec:
    """ArceeConfig: Llama whose feed-forward block has two matrices and a squared ReLU."""
    mlp = read_mlp(fields, gated=False, bias="mlp_bias")
    return stack(fields, read_attention(fields, bias="attention_bias"), mlp)


def read_bitnet(fields: Fields) -> ModelSpec:
    """BitNetConfig: Llama with a norm before the output and before the down projection, over all their inputs."""
    attention, mlp = read_attention(fields, bias="attention_bias"), read_mlp(fields)
    inner = attention.num_attention_heads * attention.head_dim + mlp.intermediate_size
    return stack(fields, attention, mlp, extra_parameters=inner)


def read_apertus(fields: Fields) -> ModelSpec:
    """ApertusConfig: norms over heads, two matrices and xIELU, whose two learned numbers a layer are stored."""
    attention = read_attention(fields, bias="attention_bias", qk_norm="head")
    return stack(fields, attention, read_mlp(fields, gated=False), extra_parameters=2)


def read_hunyuan_dense(fields: Fields) -> ModelSpec:
    """HunYuanDenseV1Config: Llama with norms over query and key heads; ids of tokens and of unused heads beside it."""
    return stack(fields, read_attention(fields, bias="attention_bias", qk_norm="head"), read_mlp(fields))


def read_ministral3(fields: Fields) -> ModelSpec:
    """Ministral3Config: Mistral whose queries are scaled by their position; head_dim 128 unless given."""
    attention = read_attention(fields, head_dim_default=128, kv_heads_default=8)
    return stack(fields, with_window(attention, fields.optional_size("sliding_window")), read_mlp(fields))


def read_cohere2(fields: Fields) -> ModelSpec:
    """Cohere2Config: parallel sublayers behind one norm, and three sliding layers before each full one."""
    attention = read_attention(fields, bias="attention_bias")
    windows = patterned_windows(fields, period=4, window=4096)
    mlp = read_mlp(fields)
    return stack(fields, attention, mlp, windows=windows, norms=1, norm="layer_no_bias", tie_default=True)


def read_chatglm(fields: Fields) -> ModelSpec:
    """ChatGLMConfig (of the checkpoint): GLM under Megatron's names; biases on q, k and v, few KV heads."""
    trunk = Trunk(
        hidden_size=fields.size("hidden_size"),
        num_hidden_layers=fields.depth(fields.either("num_layers", "num_hidden_layers")),
        vocab_size=fields.size("padded_vocab_size"),
        max_position_embeddings=fields.optional_size("seq_length"),
    )
    heads = fields.size("num_attention_heads")
    grouped = fields.flag("multi_query_attention", default=False)
    kv_heads = fields.size("multi_query_group_num", default=heads)
    attention = grouped_attention(
        fields, heads=heads, kv_heads=kv_heads if grouped else heads, head_dim=fields.size("kv_channels")
    ).model_copy(update={"qkv_bias": fields.flag("add_qkv_bias", default=False)})
    mlp = MlpSpec(intermediate_size=fields.size("ffn_hidden_size"))
    return stack(fields, attention, mlp, trunk=trunk)


def read_muse_glimmer(fields: Fields) -> ModelSpec:
    """MuseGlimmerTextConfig: a gate on every element of attention, three sliding layers to a full one, four norms."""
    attention = read_attention(fields, kv_heads_default=2, bias="attention_bias")
    gated = attention.model_copy(update={"output_gate": "elementwise"})
    windows = periodic_windows(fields, period=4, window=fields.size("sliding_window", default=2048))
    return stack(fields, gated, read_mlp(fields), windows=windows, norms=4)
