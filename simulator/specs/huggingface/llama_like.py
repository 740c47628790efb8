"""Dense decoders with rotary positions, RMS norms and gated feed-forward blocks, and their close relatives."""

from __future__ import annotations

from simulator.specs.huggingface.assembly import decoder
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import (
    FULL,
    SLIDING,
    attention_layers,
    prediction_heads,
    read_attention,
    read_trunk,
    uniform,
    windows_of_types,
)
from simulator.specs.model import MlpSpec, ModelSpec


def qwen_windows(fields: Fields, *, depth: int) -> tuple[int | None, ...]:
    """Qwen: the window holds from layer ``max_window_layers`` on, and only where ``use_sliding_window`` is set."""
    used = fields.flag("use_sliding_window", default=False)
    given = fields.optional_count("sliding_window") or None
    first = fields.optional_count("max_window_layers")
    if not used:
        fields.costless("layer_types")
        return (None,) * depth
    if given is None or (first is None and not fields.has("layer_types")):
        missing = "sliding_window" if given is None else "max_window_layers"
        raise fields.refusal(missing, "is missing while use_sliding_window is true")
    default = tuple(SLIDING if index >= (first or 0) else FULL for index in range(depth))
    return windows_of_types(fields, depth=depth, window=given, default=default)


def read_llama(fields: Fields) -> ModelSpec:
    """LlamaConfig: attention_bias on all four projections, mlp_bias on all three."""
    trunk = read_trunk(fields)
    bias = fields.flag("attention_bias", default=False)
    attention = read_attention(fields, hidden_size=trunk.hidden_size)
    attention = attention.model_copy(update={"qkv_bias": bias, "o_bias": bias})
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"), bias=fields.flag("mlp_bias", default=False))
    depth = trunk.num_hidden_layers
    layers = attention_layers(attention, windows=(None,) * depth, feed_forwards=uniform(mlp, depth))
    return decoder(fields, trunk=trunk, layers=layers)


def read_mistral(fields: Fields) -> ModelSpec:
    """MistralConfig: a sliding window on every layer where it is given; layer_types may mix (Ministral)."""
    trunk = read_trunk(fields)
    attention = read_attention(fields, hidden_size=trunk.hidden_size)
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"))
    depth = trunk.num_hidden_layers
    window = fields.optional_size("sliding_window")
    default = (SLIDING if window else FULL,) * depth
    windows = windows_of_types(fields, depth=depth, window=window, default=default)
    layers = attention_layers(attention, windows=windows, feed_forwards=uniform(mlp, depth))
    return decoder(fields, trunk=trunk, layers=layers)


def read_qwen2(fields: Fields) -> ModelSpec:
    """Qwen2Config: biases on q, k and v."""
    trunk = read_trunk(fields)
    attention = read_attention(fields, hidden_size=trunk.hidden_size).model_copy(update={"qkv_bias": True})
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"))
    windows = qwen_windows(fields, depth=trunk.num_hidden_layers)
    fields.costless("use_mrope")
    layers = attention_layers(attention, windows=windows, feed_forwards=uniform(mlp, trunk.num_hidden_layers))
    return decoder(fields, trunk=trunk, layers=layers)


def read_mimo(fields: Fields) -> ModelSpec:
    """MiMoConfig (of the checkpoint): Qwen2 with one multi-token-prediction layer behind it."""
    fields.expect("attention_bias", value=True, why="MiMo is Qwen2, whose q, k and v carry biases")
    notes = prediction_heads(fields, "num_nextn_predict_layers")
    return read_qwen2(fields).model_copy(update={"notes": notes})


def read_qwen3(fields: Fields, *, tie_default: bool = False) -> ModelSpec:
    """Qwen3Config: a norm over each query and key head, head_dim 128 unless given."""
    trunk = read_trunk(fields)
    bias = fields.flag("attention_bias", default=False)
    attention = read_attention(fields, hidden_size=trunk.hidden_size, head_dim_default=128)
    attention = attention.model_copy(update={"qkv_bias": bias, "o_bias": bias, "qk_norm": "head"})
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"))
    windows = qwen_windows(fields, depth=trunk.num_hidden_layers)
    layers = attention_layers(attention, windows=windows, feed_forwards=uniform(mlp, trunk.num_hidden_layers))
    return decoder(fields, trunk=trunk, layers=layers, tie_default=tie_default)


def read_phi3(fields: Fields) -> ModelSpec:
    """Phi3Config: llama with fused projections and an optional window on every layer."""
    trunk = read_trunk(fields)
    fields.expect("attention_bias", value=False, why="Phi3Attention has no biases")
    fields.costless("full_attn_mod", "interpolate_factor")
    attention = read_attention(fields, hidden_size=trunk.hidden_size)
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"))
    depth = trunk.num_hidden_layers
    window = fields.optional_size("sliding_window")
    layers = attention_layers(attention, windows=(window,) * depth, feed_forwards=uniform(mlp, depth))
    return decoder(fields, trunk=trunk, layers=layers)


def read_cohere(fields: Fields) -> ModelSpec:
    """CohereConfig: attention and feed-forward side by side behind one norm that has no bias; tied embeddings."""
    trunk = read_trunk(fields)
    bias = fields.flag("attention_bias", default=False)
    qk_norm = "full" if fields.flag("use_qk_norm", default=False) else "none"
    attention = read_attention(fields, hidden_size=trunk.hidden_size)
    attention = attention.model_copy(update={"qkv_bias": bias, "o_bias": bias, "qk_norm": qk_norm})
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"))
    depth = trunk.num_hidden_layers
    fields.costless("use_embedding_sharing", "use_parallel_block", "use_parallel_embedding", "use_gated_activation")
    layers = attention_layers(attention, windows=(None,) * depth, feed_forwards=uniform(mlp, depth), norms=1)
    return decoder(fields, trunk=trunk, layers=layers, norm="layer_no_bias", tie_default=True)


def read_olmo2(fields: Fields) -> ModelSpec:
    """Olmo2Config: norms behind the sublayers, and one norm over all query and one over all key heads."""
    trunk = read_trunk(fields)
    bias = fields.flag("attention_bias", default=False)
    attention = read_attention(fields, hidden_size=trunk.hidden_size)
    attention = attention.model_copy(update={"qkv_bias": bias, "o_bias": bias, "qk_norm": "full"})
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"))
    depth = trunk.num_hidden_layers
    layers = attention_layers(attention, windows=(None,) * depth, feed_forwards=uniform(mlp, depth))
    return decoder(fields, trunk=trunk, layers=layers)


def read_glm(fields: Fields) -> ModelSpec:
    """GlmConfig: biases on q, k and v, head_dim 128 unless given."""
    return _glm(fields, norms=2)


def read_glm4(fields: Fields) -> ModelSpec:
    """Glm4Config: GLM with a second norm behind attention and feed-forward."""
    return _glm(fields, norms=4)


def _glm(fields: Fields, *, norms: int) -> ModelSpec:
    trunk = read_trunk(fields)
    bias = fields.flag("attention_bias", default=True)
    attention = read_attention(fields, hidden_size=trunk.hidden_size, head_dim_default=128, kv_heads_default=2)
    attention = attention.model_copy(update={"qkv_bias": bias})
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"))
    depth = trunk.num_hidden_layers
    layers = attention_layers(attention, windows=(None,) * depth, feed_forwards=uniform(mlp, depth), norms=norms)
    return decoder(fields, trunk=trunk, layers=layers)
