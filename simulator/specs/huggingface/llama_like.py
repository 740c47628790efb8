"""Dense decoders with rotary positions, RMS norms and gated feed-forward blocks, and their close relatives.

Nemotron-NAS (DeciLM): Llama whose layers were each resized, or emptied, by architecture search.
"""

from __future__ import annotations

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import (
    FULL,
    SLIDING,
    decoder,
    grouped_attention,
    qwen_windows,
    read_attention,
    read_mlp,
    read_trunk,
    split_heads,
    stack,
    windows_of_types,
    with_window,
)
from simulator.specs.model.architecture import AttentionSpec, LayerSpec, MlpSpec, ModelSpec


def read_llama(fields: Fields) -> ModelSpec:
    """LlamaConfig: attention_bias on all four projections, mlp_bias on all three."""
    return stack(fields, read_attention(fields, bias="attention_bias"), read_mlp(fields, bias="mlp_bias"))


CROSS_ATTENTION_LAYERS = (3, 8, 13, 18, 23, 28, 33, 38)  # MllamaTextConfig
EXTRA_ROWS = 8  # of MllamaTextModel's embedding, for the picture's token


def read_mllama(fields: Fields) -> ModelSpec:
    """MllamaConfig: Llama between layers that attend to a picture. They and the tower are stored and run for none."""
    text = fields.section("text_config")
    trunk = read_trunk(text)
    hidden, width = trunk.hidden_size, text.size("intermediate_size")
    attention = read_attention(text, kv_heads_default=8)
    crossing = len(text.integers("cross_attention_layers") or CROSS_ATTENTION_LAYERS)
    depth = trunk.num_hidden_layers - crossing
    if depth < 1:
        raise text.refusal("cross_attention_layers", f"are {crossing} of {trunk.num_hidden_layers} layers")
    queries, keys = attention.num_attention_heads, attention.num_key_value_heads
    projections = 2 * (queries + keys) * attention.head_dim * hidden
    block = projections + 3 * hidden * width + 2 * attention.head_dim + 2 * hidden + 2
    stored = crossing * block + EXTRA_ROWS * hidden + _mllama_tower(fields.section("vision_config"), width=hidden)
    fields.costless_rest("vision_config")
    note = f"{crossing} layers of cross attention and the tower are stored; they run for pictures alone, not simulated"
    layers = (LayerSpec(mixer=attention, feed_forward=(MlpSpec(intermediate_size=width),)),) * depth
    return decoder(text, trunk=trunk, layers=layers, extra_parameters=stored, notes=(note,))


def _mllama_tower(vision: Fields, *, width: int) -> int:
    """Weights of MllamaVisionModel and the projection behind it: tiles of a picture, each with positions of its own."""
    hidden, inner, patch = vision.size("hidden_size"), vision.size("intermediate_size"), vision.size("patch_size")
    positions = (vision.size("image_size") // patch) ** 2 + 1
    tiles, ratios = vision.size("max_num_tiles", default=4), vision.raw("supported_aspect_ratios")
    shapes = 1 + (len(ratios) if isinstance(ratios, list) else 8)
    gated = vision.depth("num_global_layers", default=8)
    block = 4 * hidden**2 + 2 * hidden * inner + inner + 5 * hidden
    layers = (vision.depth("num_hidden_layers") + gated) * block + 2 * gated
    embedded = vision.size("num_channels", default=3) * patch**2 * hidden + hidden + 4 * hidden
    tables = positions * hidden + shapes * tiles * (positions + 2) * hidden + 3
    outputs = vision.size("vision_output_dim")
    return layers + embedded + tables + (outputs + 1) * width


def read_mistral(fields: Fields) -> ModelSpec:
    """MistralConfig: a sliding window on every layer where it is given; layer_types may mix (Ministral)."""
    window = fields.optional_size("sliding_window")
    default = (SLIDING if window else FULL,) * fields.depth("num_hidden_layers")
    windows = windows_of_types(fields, window=window, default=default)
    return stack(fields, read_attention(fields, heads_default=32), read_mlp(fields), windows=windows)


def read_qwen2(fields: Fields) -> ModelSpec:
    """Qwen2Config: biases on q, k and v."""
    attention = read_attention(fields).model_copy(update={"qkv_bias": True})
    fields.costless("use_mrope")
    return stack(fields, attention, read_mlp(fields), windows=qwen_windows(fields))


def read_mimo(fields: Fields) -> ModelSpec:
    """MiMoConfig (of the checkpoint): Qwen2 with one multi-token-prediction layer behind it."""
    return read_qwen2(fields)


def read_qwen3(fields: Fields, *, tie_default: bool = False) -> ModelSpec:
    """Qwen3Config: a norm over each query and key head, head_dim 128 unless given."""
    attention = read_attention(fields, head_dim_default=128, bias="attention_bias", qk_norm="head")
    return stack(fields, attention, read_mlp(fields), windows=qwen_windows(fields), tie_default=tie_default)


def read_phi3(fields: Fields) -> ModelSpec:
    """Phi3Config: llama with fused projections and an optional window on every layer."""
    attention = with_window(read_attention(fields), fields.optional_size("sliding_window"))
    return stack(fields, attention, read_mlp(fields))


def read_cohere(fields: Fields) -> ModelSpec:
    """CohereConfig: attention and feed-forward side by side behind one norm that has no bias; tied embeddings."""
    qk_norm = "each_head" if fields.flag("use_qk_norm", default=False) else "none"
    attention = read_attention(fields, bias="attention_bias", qk_norm=qk_norm)
    return stack(fields, attention, read_mlp(fields), norms=1, norm="layer_no_bias", tie_default=True)


def read_olmo2(fields: Fields) -> ModelSpec:
    """Olmo2Config: norms behind the sublayers, and one norm over all query and one over all key heads."""
    return stack(fields, read_attention(fields, bias="attention_bias", qk_norm="full"), read_mlp(fields))


def read_glm(fields: Fields) -> ModelSpec:
    """GlmConfig: biases on q, k and v, head_dim 128 unless given."""
    return _glm(fields, norms=2)


def read_glm4(fields: Fields) -> ModelSpec:
    """Glm4Config: GLM with a second norm behind attention and feed-forward."""
    return _glm(fields, norms=4)


def _glm(fields: Fields, *, norms: int) -> ModelSpec:
    bias = fields.flag("attention_bias", default=True)
    attention = read_attention(fields, head_dim_default=128, kv_heads_default=2)
    return stack(fields, attention.model_copy(update={"qkv_bias": bias}), read_mlp(fields), norms=norms)


FFN_MULTIPLE = 256  # find_multiple in the checkpoint's modeling_decilm.py


def read_nemotron_nas(fields: Fields) -> ModelSpec:
    """DeciLMConfig (of the checkpoint): block_configs give each layer's group size and feed-forward multiple."""
    trunk = read_trunk(fields)
    heads = fields.size("num_attention_heads")
    bias = fields.flag("attention_bias", default=False)
    mlp_bias = fields.flag("mlp_bias", default=False)
    layers = []
    for block in fields.sections("block_configs", length=trunk.num_hidden_layers):
        attention = _attention(block.section("attention"), heads=heads, hidden_size=trunk.hidden_size)
        width = _width(block.section("ffn"), hidden_size=trunk.hidden_size)
        block.costless("parallel_blocks")
        mixer = None if attention is None else attention.model_copy(update={"qkv_bias": bias, "o_bias": bias})
        mlp = () if width is None else (MlpSpec(intermediate_size=width, bias=mlp_bias),)
        layers.append(LayerSpec(mixer=mixer, feed_forward=mlp, norms=(mixer is not None) + (width is not None)))
    return decoder(fields, trunk=trunk, layers=layers)


def _attention(section: Fields, *, heads: int, hidden_size: int) -> AttentionSpec | None:
    section.expect("replace_with_linear", value=False, why="a linear layer in place of attention is not modelled")
    section.expect("sparsify", value=None, why="sparsified blocks are not modelled")
    section.expect("num_sink_tokens", value=None, why="attention sinks in a window are not modelled")
    section.expect("unshifted_sink", value=False, why="attention sinks in a window are not modelled")
    section.costless("use_prefill_window_in_sink_attention")
    window = section.optional_size("window_length")
    empty = section.flag("no_op", default=False)
    group = section.optional_size("n_heads_in_group")
    if empty:
        return None
    if group is None or heads % group:
        raise section.refusal("n_heads_in_group", f"is {group}, which must divide {heads} attention heads")
    width = split_heads(section, hidden_size, heads)
    spec = grouped_attention(section, heads=heads, kv_heads=heads // group, head_dim=width)
    return spec.model_copy(update={"sliding_window": window})


def _width(section: Fields, *, hidden_size: int) -> int | None:
    section.expect("replace_with_linear", value=False, why="a linear layer in place of the block is not modelled")
    section.expect("sparsify", value=None, why="sparsified blocks are not modelled")
    if section.flag("no_op", default=False):
        section.costless("ffn_mult")
        return None
    if not section.has("ffn_mult"):
        raise section.refusal("ffn_mult", "is missing: the width of the feed-forward block is unknown")
    width = int(2 * section.number("ffn_mult", default=1.0) * hidden_size / 3)
    return -(-width // FFN_MULTIPLE) * FFN_MULTIPLE
