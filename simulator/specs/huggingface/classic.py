"""Decoders of 2019-2024 with layer norms, biases or learned positions: GPT-2 to Falcon, Phi and StarCoder2."""

from __future__ import annotations

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import (
    Norm,
    Trunk,
    grouped_attention,
    read_attention,
    read_trunk,
    split_heads,
    stack,
)
from simulator.specs.model.architecture import AttentionSpec, MlpSpec, ModelSpec

MLP_RATIO = 4  # n_inner null: GPT2Config, GPTJConfig; BloomMLP and FalconConfig
OPT_POSITION_OFFSET = 2  # OPTLearnedPositionalEmbedding keeps two rows before position 0


def _gpt_trunk(fields: Fields) -> Trunk:
    """GPT-2's short names, or the usual ones that transformers writes beside them."""
    positions = fields.optional_size(fields.either("n_positions", "n_ctx", "max_position_embeddings"))
    return Trunk(
        hidden_size=fields.size(fields.either("n_embd", "hidden_size")),
        num_hidden_layers=fields.depth(fields.either("n_layer", "num_hidden_layers")),
        vocab_size=fields.size("vocab_size"),
        max_position_embeddings=positions,
    )


def _full_heads(fields: Fields, *, heads: int, hidden_size: int, biased: bool) -> AttentionSpec:
    """Multi-head attention that fills hidden_size."""
    width = split_heads(fields, hidden_size, heads)
    spec = grouped_attention(fields, heads=heads, kv_heads=heads, head_dim=width)
    return spec.model_copy(update={"qkv_bias": biased, "o_bias": biased})


def read_gpt2(fields: Fields) -> ModelSpec:
    """GPT2Config: biases everywhere, learned positions, tied embeddings."""
    trunk = _gpt_trunk(fields)
    if trunk.max_position_embeddings is None:
        raise fields.refusal("n_positions", "is missing: GPT-2 stores one learned row per position")
    heads = fields.size(fields.either("n_head", "num_attention_heads"))
    attention = _full_heads(fields, heads=heads, hidden_size=trunk.hidden_size, biased=True)
    attention = attention.model_copy(update={"rotary": False})
    inner = fields.optional_size("n_inner") or MLP_RATIO * trunk.hidden_size
    mlp = MlpSpec(intermediate_size=inner, gated=False, bias=True)
    model = stack(fields, attention, mlp, trunk=trunk, norm="layer", tie_default=True)
    return model.model_copy(update={"position_embeddings": trunk.max_position_embeddings})


def read_gpt_bigcode(fields: Fields) -> ModelSpec:
    """GPTBigCodeConfig: GPT-2 whose heads share one key and value head (StarCoder, SantaCoder)."""
    shared = fields.flag("multi_query", default=True)
    model = read_gpt2(fields)
    heads = fields.size(fields.either("n_head", "num_attention_heads"))
    fields.expect("num_key_value_heads", value=1 if shared else heads, why="multi_query says how many there are")
    if not shared:
        return model
    layers = tuple(
        layer.model_copy(update={"mixer": layer.mixer.model_copy(update={"num_key_value_heads": 1})})
        for layer in model.layers
        if layer.mixer is not None
    )
    return model.model_copy(update={"layers": layers})


def read_mpt(fields: Fields) -> ModelSpec:
    """MptConfig: ALiBi, no biases, norms without bias, tied embeddings."""
    trunk = Trunk(
        hidden_size=fields.size("d_model"),
        num_hidden_layers=fields.depth("n_layers"),
        vocab_size=fields.size("vocab_size"),
        max_position_embeddings=fields.optional_size("max_seq_len"),
    )
    if fields.has("attn_config"):
        inner = fields.section("attn_config")
        inner.expect("alibi", value=True, why="without ALiBi positions are learned, which transformers does not run")
        inner.expect("qk_ln", value=False, why="norms on queries and keys are not modelled here")
        inner.expect("prefix_lm", value=False, why="prompts seen in both directions are not modelled")
        inner.expect("attn_type", value="multihead_attention", why="other layouts of heads are not modelled here")
        inner.costless("attn_impl", "attn_pdrop", "clip_qkv", "softmax_scale", "attn_uses_sequence_id")
        inner.costless("alibi_bias_max", "model_type")
    attention = _full_heads(fields, heads=fields.size("n_heads"), hidden_size=trunk.hidden_size, biased=False)
    attention = attention.model_copy(update={"rotary": False})
    width = fields.size("expansion_ratio", default=MLP_RATIO) * trunk.hidden_size
    mlp = MlpSpec(intermediate_size=width, gated=False)
    return stack(fields, attention, mlp, trunk=trunk, norm="layer_no_bias", tie_default=True)


def read_gptj(fields: Fields) -> ModelSpec:
    """GPTJConfig: parallel sublayers behind one norm; only the feed-forward part and the head have biases."""
    trunk = _gpt_trunk(fields)
    heads = fields.size(fields.either("n_head", "num_attention_heads"))
    attention = _full_heads(fields, heads=heads, hidden_size=trunk.hidden_size, biased=False)
    inner = fields.optional_size("n_inner") or MLP_RATIO * trunk.hidden_size
    mlp = MlpSpec(intermediate_size=inner, gated=False, bias=True)
    return stack(fields, attention, mlp, trunk=trunk, norms=1, norm="layer", lm_head_bias=True)


def read_gpt_neox(fields: Fields) -> ModelSpec:
    """GPTNeoXConfig: two norms, biases in both sublayers, untied head without bias."""
    trunk = read_trunk(fields)
    heads = fields.size("num_attention_heads")
    biased = fields.flag("attention_bias", default=True)
    attention = _full_heads(fields, heads=heads, hidden_size=trunk.hidden_size, biased=biased)
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"), gated=False, bias=True)
    return stack(fields, attention, mlp, norm="layer")


def read_opt(fields: Fields) -> ModelSpec:
    """OPTConfig: learned positions with two rows ahead, ReLU, and for OPT-350m norms behind and a narrow embedding."""
    trunk = read_trunk(fields)
    if trunk.max_position_embeddings is None:
        raise fields.refusal("max_position_embeddings", "is missing: OPT stores one learned row per position")
    biased = fields.flag("enable_bias", default=True)
    norm: Norm = "layer" if fields.flag("layer_norm_elementwise_affine", default=True) else "none_affine"
    before = fields.flag("do_layer_norm_before", default=True)
    removed = fields.flag("_remove_final_layer_norm", default=False)
    heads = fields.size("num_attention_heads")
    attention = _full_heads(fields, heads=heads, hidden_size=trunk.hidden_size, biased=biased)
    attention = attention.model_copy(update={"rotary": False})
    mlp = MlpSpec(intermediate_size=fields.size("ffn_dim"), gated=False, bias=biased)
    narrow = fields.optional_size("word_embed_proj_dim")
    changed = {
        "position_embeddings": trunk.max_position_embeddings + OPT_POSITION_OFFSET,
        "embedding_size": None if narrow == trunk.hidden_size else narrow,
        "final_norm": before and not removed,
    }
    return stack(fields, attention, mlp, trunk=trunk, norm=norm, tie_default=True).model_copy(update=changed)


def read_bloom(fields: Fields) -> ModelSpec:
    """BloomConfig: ALiBi instead of stored positions, a norm behind the embedding, tied embeddings."""
    trunk = Trunk(
        hidden_size=fields.size(fields.either("hidden_size", "n_embed", "n_embd")),
        num_hidden_layers=fields.depth(fields.either("n_layer", "num_hidden_layers")),
        vocab_size=fields.size("vocab_size"),
        max_position_embeddings=fields.optional_size("seq_length"),
    )
    heads = fields.size(fields.either("n_head", "num_attention_heads"))
    attention = _full_heads(fields, heads=heads, hidden_size=trunk.hidden_size, biased=True)
    attention = attention.model_copy(update={"rotary": False})
    inner = fields.optional_size("n_inner") or MLP_RATIO * trunk.hidden_size
    mlp = MlpSpec(intermediate_size=inner, gated=False, bias=True)
    model = stack(fields, attention, mlp, trunk=trunk, norm="layer", tie_default=True)
    return model.model_copy(update={"embedding_norm": True})


def read_falcon(fields: Fields) -> ModelSpec:
    """FalconConfig: one KV head (7B) or grouped ones (new_decoder_architecture), parallel sublayers, tied."""
    trunk = Trunk(
        hidden_size=fields.size(fields.either("hidden_size", "n_embed")),
        num_hidden_layers=fields.depth(fields.either("num_hidden_layers", "n_layer")),
        vocab_size=fields.size("vocab_size"),
        max_position_embeddings=fields.size("max_position_embeddings", default=2048),
    )
    heads = fields.size(fields.either("num_attention_heads", "n_head"))
    grouped = fields.flag("new_decoder_architecture", default=False)
    single = fields.flag("multi_query", default=True) and not grouped
    given = fields.size(fields.either("num_kv_heads", "n_head_kv"), default=heads)
    kv_heads = given if grouped else 1 if single else heads
    width = split_heads(fields, trunk.hidden_size, heads)
    biased = fields.flag("bias", default=False)
    alibi = fields.flag("alibi", default=False)
    attention = grouped_attention(fields, heads=heads, kv_heads=kv_heads, head_dim=width)
    attention = attention.model_copy(update={"qkv_bias": biased, "o_bias": biased, "rotary": not alibi})
    inner = fields.size("ffn_hidden_size", default=MLP_RATIO * trunk.hidden_size)
    parallel = fields.flag("parallel_attn", default=True)
    norms_given = fields.optional_size("num_ln_in_parallel_attn")
    norms = (norms_given or 2) if grouped else (1 if parallel else 2)
    mlp = MlpSpec(intermediate_size=inner, gated=False, bias=biased)
    return stack(fields, attention, mlp, trunk=trunk, norms=norms, norm="layer", tie_default=True)


def read_phi(fields: Fields) -> ModelSpec:
    """PhiConfig: one norm before parallel sublayers, biases everywhere and on the head."""
    attention = read_attention(fields)
    qk_norm = "head" if fields.flag("qk_layernorm", default=False) else "none"
    attention = attention.model_copy(
        update={"qkv_bias": True, "o_bias": True, "qk_norm": qk_norm, "qk_norm_bias": qk_norm == "head"}
    )
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"), gated=False, bias=True)
    return stack(fields, attention, mlp, norms=1, norm="layer", lm_head_bias=True)


def read_starcoder2(fields: Fields) -> ModelSpec:
    """Starcoder2Config: grouped queries, biases, a window on every layer where it is given, tied embeddings."""
    biased = fields.flag("use_bias", default=True)
    window = fields.optional_size("sliding_window")
    attention = read_attention(fields, kv_heads_default=2)
    attention = attention.model_copy(update={"qkv_bias": biased, "o_bias": biased, "sliding_window": window})
    mlp = MlpSpec(intermediate_size=fields.size("intermediate_size"), gated=False, bias=biased)
    return stack(fields, attention, mlp, norm="layer", tie_default=True)
