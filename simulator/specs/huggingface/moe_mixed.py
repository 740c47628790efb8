"""Mixtures of experts that mix layer kinds: Llama 4, GLM-4.5, MiMo-V2."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.specs.huggingface.assembly import decoder
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import (
    FULL,
    SLIDING,
    attention_layers,
    grouped_attention,
    prediction_heads,
    read_attention,
    read_trunk,
    with_window,
)
from simulator.specs.huggingface.moe import check_top_k
from simulator.specs.model import AttentionSpec, FeedForward, LayerSpec, MlpSpec, ModelSpec, MoeSpec

DENSE, SPARSE = "dense", "sparse"
LLAMA4_NO_ROPE_INTERVAL = 4  # Llama4TextConfig


def sparse_after(fields: Fields, *, depth: int, first_default: int | None = None) -> tuple[bool, ...]:
    """Which layers hold experts: mlp_layer_types, moe_layer_freq (a list or 1) or first_k_dense_replace."""
    types = fields.words("mlp_layer_types", length=depth, allowed=(DENSE, SPARSE))
    first = fields.optional_count("first_k_dense_replace")
    listed = fields.raw("moe_layer_freq")
    if isinstance(listed, list):
        frequency = fields.integers("moe_layer_freq") or ()
        if len(frequency) != depth:
            raise fields.refusal("moe_layer_freq", f"has {len(frequency)} entries for {depth} layers")
        types = types or tuple(SPARSE if entry else DENSE for entry in frequency)
    else:
        fields.expect("moe_layer_freq", value=1, why="experts on every layer after the first dense ones")
    if types is not None:
        return tuple(kind == SPARSE for kind in types)
    if first is None and first_default is None:
        raise fields.refusal("first_k_dense_replace", "is missing: which layers hold experts is unknown")
    return tuple(index >= (first if first is not None else first_default or 0) for index in range(depth))


def choose(is_sparse: Sequence[bool], *, sparse: MoeSpec, dense: MlpSpec) -> tuple[tuple[FeedForward, ...], ...]:
    """One feed-forward part per layer."""
    return tuple((sparse,) if chosen else (dense,) for chosen in is_sparse)


def read_llama4(fields: Fields) -> ModelSpec:
    """Llama4TextConfig: chunked attention on rotary layers, one shared expert, experts on every n-th layer."""
    trunk = read_trunk(fields)
    depth = trunk.num_hidden_layers
    fields.costless("attn_temperature_tuning", "floor_scale", "attn_scale", "use_qk_norm")
    bias = fields.flag("attention_bias", default=False)
    attention = read_attention(fields, hidden_size=trunk.hidden_size, kv_heads_default=8, head_dim_default=128)
    attention = attention.model_copy(update={"qkv_bias": bias, "o_bias": bias})
    chunk = fields.size("attention_chunk_size", default=8192)
    experts = fields.size("num_local_experts")
    picked = fields.size("num_experts_per_tok", default=1)
    check_top_k(fields, "num_experts_per_tok", picked=picked, experts=experts)
    width = fields.size("intermediate_size")
    sparse = MoeSpec(
        num_experts=experts,
        num_experts_per_tok=picked,
        moe_intermediate_size=width,
        shared_expert_intermediate_size=width,
    )
    dense = MlpSpec(intermediate_size=fields.size("intermediate_size_mlp", default=16384))
    windows = tuple(chunk if rotary else None for rotary in _llama4_rotary(fields, depth=depth))
    layers = attention_layers(
        attention,
        windows=windows,
        feed_forwards=choose(_llama4_sparse(fields, depth=depth), sparse=sparse, dense=dense),
    )
    return decoder(fields, trunk=trunk, layers=layers)


def _llama4_rotary(fields: Fields, *, depth: int) -> tuple[bool, ...]:
    listed = fields.integers("no_rope_layers")
    interval = fields.size("no_rope_layer_interval", default=LLAMA4_NO_ROPE_INTERVAL)
    types = fields.words("layer_types", length=depth, allowed=("chunked_attention", FULL))
    if types is not None:
        return tuple(kind != FULL for kind in types)
    if not listed:
        return tuple((index + 1) % interval != 0 for index in range(depth))
    if len(listed) != depth:
        raise fields.refusal("no_rope_layers", f"has {len(listed)} entries for {depth} layers")
    return tuple(bool(entry) for entry in listed)


def _llama4_sparse(fields: Fields, *, depth: int) -> tuple[bool, ...]:
    step = fields.size("interleave_moe_layer_step", default=1)
    listed = fields.integers("moe_layers")
    sparse = frozenset(range(step - 1, depth, step) if listed is None else listed)
    return tuple(index in sparse for index in range(depth))


def read_glm4_moe(fields: Fields) -> ModelSpec:
    """Glm4MoeConfig: DeepSeek-style experts under ordinary attention, q, k, v biases where switched on."""
    trunk = read_trunk(fields)
    depth = trunk.num_hidden_layers
    bias = fields.flag("attention_bias", default=False)
    qk_norm = "head" if fields.flag("use_qk_norm", default=False) else "none"
    attention = read_attention(fields, hidden_size=trunk.hidden_size, kv_heads_default=8, head_dim_default=128)
    attention = attention.model_copy(update={"qkv_bias": bias, "qk_norm": qk_norm})
    width = fields.size("moe_intermediate_size")
    experts, picked = fields.size("n_routed_experts"), fields.size("num_experts_per_tok")
    check_top_k(fields, "num_experts_per_tok", picked=picked, experts=experts)
    sparse = MoeSpec(
        num_experts=experts,
        num_experts_per_tok=picked,
        moe_intermediate_size=width,
        shared_expert_intermediate_size=width * fields.count("n_shared_experts", default=1),
        correction_bias=True,
    )
    dense = MlpSpec(intermediate_size=fields.size("intermediate_size"))
    chosen = sparse_after(fields, depth=depth, first_default=1)
    layers = attention_layers(
        attention, windows=(None,) * depth, feed_forwards=choose(chosen, sparse=sparse, dense=dense)
    )
    notes = prediction_heads(fields, "num_nextn_predict_layers", "num_mtp_layers")
    return decoder(fields, trunk=trunk, layers=layers, notes=notes)


def read_mimo_v2(fields: Fields) -> ModelSpec:
    """MiMoV2FlashConfig: full layers between runs of sliding ones that have their own head layout and sinks."""
    trunk = read_trunk(fields)
    depth = trunk.num_hidden_layers
    # transformers counts the query itself into sliding_window, so that the published name wins where both are given.
    window = fields.size("sliding_window_size" if fields.has("sliding_window_size") else "sliding_window")
    fields.costless("sliding_window", "attention_chunk_size")
    full, swa = _mimo_attention(fields)
    fields.costless("attention_value_scale", "swa_rope_theta", "topk_method")
    slides = _mimo_sliding(fields, depth=depth)
    experts, picked = fields.size("n_routed_experts"), fields.size("num_experts_per_tok")
    check_top_k(fields, "num_experts_per_tok", picked=picked, experts=experts)
    width = fields.size("moe_intermediate_size")
    sparse = MoeSpec(
        num_experts=experts,
        num_experts_per_tok=picked,
        moe_intermediate_size=width,
        shared_expert_intermediate_size=width * fields.count("n_shared_experts"),
        correction_bias=True,
    )
    dense = MlpSpec(intermediate_size=fields.size("intermediate_size"))
    blocks = choose(sparse_after(fields, depth=depth, first_default=1), sparse=sparse, dense=dense)
    layers = tuple(
        LayerSpec(mixer=with_window(swa, window) if slide else full, feed_forward=feed_forward)
        for slide, feed_forward in zip(slides, blocks, strict=True)
    )
    notes = prediction_heads(fields, "num_nextn_predict_layers")
    return decoder(fields, trunk=trunk, layers=layers, notes=notes)


def _mimo_sliding(fields: Fields, *, depth: int) -> tuple[bool, ...]:
    types = fields.words("layer_types", length=depth, allowed=(SLIDING, FULL))
    pattern = fields.integers("hybrid_layer_pattern")
    if pattern is not None and len(pattern) == depth:
        return tuple(bool(entry) for entry in pattern)
    if types is None or pattern is not None:
        raise fields.refusal("hybrid_layer_pattern", f"must list {depth} entries: 0 full, 1 sliding")
    return tuple(kind == SLIDING for kind in types)


def _mimo_attention(fields: Fields) -> tuple[AttentionSpec, AttentionSpec]:
    """Attention of full and of sliding layers, which have twice the KV heads unless told otherwise."""
    heads, kv_heads = fields.size("num_attention_heads"), fields.size("num_key_value_heads")
    head_dim, value_dim = fields.size("head_dim"), fields.size("v_head_dim")
    bias = fields.flag("attention_bias", default=False)
    full = grouped_attention(fields, heads=heads, kv_heads=kv_heads, head_dim=head_dim)
    swa = grouped_attention(
        fields,
        heads=fields.size("swa_num_attention_heads", default=heads),
        kv_heads=fields.size("swa_num_key_value_heads", default=2 * kv_heads),
        head_dim=fields.size("swa_head_dim", default=head_dim),
    )
    swa_value_dim = fields.size("swa_v_head_dim", default=value_dim)
    sinks = fields.flag("add_full_attention_sink_bias", default=False)
    swa_sinks = fields.flag("add_swa_attention_sink_bias", default=True)
    return (
        full.model_copy(update={"v_head_dim": value_dim, "qkv_bias": bias, "sinks": sinks}),
        swa.model_copy(update={"v_head_dim": swa_value_dim, "qkv_bias": bias, "sinks": swa_sinks}),
    )
