"""Mixtures of experts whose attention is that of a dense family: Mixtral, Qwen, Phi-3.5-MoE, DBRX, gpt-oss."""

from __future__ import annotations

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import (
    FULL,
    SLIDING,
    Trunk,
    attention_layers,
    decoder,
    grouped_attention,
    qwen_windows,
    read_attention,
    read_experts,
    read_trunk,
    same_layers,
    split_heads,
    windows_of_types,
)
from simulator.specs.model.architecture import FeedForward, MlpSpec, ModelSpec, MoeSpec

# Each of Mixtral's eight experts takes 9 to 16 % of the tokens of a text, whatever it is about [Jiang2024], Figure 7;
# read off the figure from memory, verify.
MIXTRAL_ROUTING_SKEW = 0.2


def read_mixtral(fields: Fields) -> ModelSpec:
    """MixtralConfig: every layer sparse, intermediate_size is one expert's."""
    trunk = read_trunk(fields)
    attention = read_attention(fields, hidden_size=trunk.hidden_size, kv_heads_default=8)
    window = fields.optional_size("sliding_window")
    experts = _top_two(fields, experts=8).model_copy(update={"routing_skew": MIXTRAL_ROUTING_SKEW})
    layers = same_layers(attention, experts, depth=trunk.num_hidden_layers, window=window)
    return decoder(fields, trunk=trunk, layers=layers)


def read_phimoe(fields: Fields) -> ModelSpec:
    """PhimoeConfig: Mixtral with biased layer norms, and biases that the configuration switches on."""
    trunk = read_trunk(fields)
    attention = read_attention(fields, hidden_size=trunk.hidden_size, kv_heads_default=8, bias="attention_bias")
    window = fields.optional_size("sliding_window")
    layers = same_layers(attention, _top_two(fields, experts=16), depth=trunk.num_hidden_layers, window=window)
    head_bias = fields.flag("lm_head_bias", default=False)
    return decoder(fields, trunk=trunk, layers=layers, norm="layer", lm_head_bias=head_bias)


def _top_two(fields: Fields, *, experts: int) -> MoeSpec:
    width = fields.size("intermediate_size")
    return read_experts(fields, total="num_local_experts", total_default=experts, picked_default=2, width=width)


def read_qwen2_moe(fields: Fields) -> ModelSpec:
    """Qwen2MoeConfig: biases on q, k, v, and a gated shared expert."""
    trunk = read_trunk(fields)
    bias = fields.flag("qkv_bias", default=True)
    attention = read_attention(fields, hidden_size=trunk.hidden_size).model_copy(update={"qkv_bias": bias})
    feed_forwards = qwen_experts(
        fields, depth=trunk.num_hidden_layers, shared=fields.size("shared_expert_intermediate_size", default=5632)
    )
    windows = qwen_windows(fields, depth=trunk.num_hidden_layers)
    layers = attention_layers(attention, windows=windows, feed_forwards=feed_forwards)
    return decoder(fields, trunk=trunk, layers=layers)


def read_qwen3_moe(fields: Fields) -> ModelSpec:
    """Qwen3MoeConfig: norms over query and key heads, no shared expert."""
    trunk = read_trunk(fields)
    bias = fields.flag("attention_bias", default=False)
    fields.expect("qkv_bias", value=bias, why="Qwen3MoeAttention has attention_bias on all projections")
    fields.expect("use_qk_norm", value=True, why="Qwen3MoeAttention always norms its heads")
    fields.expect("shared_expert_intermediate_size", value=0, why="Qwen3MoeSparseMoeBlock has no shared expert")
    attention = read_attention(fields, hidden_size=trunk.hidden_size, kv_heads_default=4)
    attention = attention.model_copy(update={"qkv_bias": bias, "o_bias": bias, "qk_norm": "head"})
    windows = qwen_windows(fields, depth=trunk.num_hidden_layers)
    feed_forwards = qwen_experts(fields, depth=trunk.num_hidden_layers, shared=0)
    layers = attention_layers(attention, windows=windows, feed_forwards=feed_forwards)
    return decoder(fields, trunk=trunk, layers=layers)


def qwen_experts(fields: Fields, *, depth: int, shared: int) -> tuple[tuple[FeedForward, ...], ...]:
    """Sparse on each ``decoder_sparse_step``-th layer that mlp_only_layers does not list, dense elsewhere."""
    sparse = read_experts(fields, total=fields.either("num_experts", "num_local_experts"))
    sparse = sparse.model_copy(update={"shared_expert_intermediate_size": shared, "shared_expert_gate": shared > 0})
    step = fields.size("decoder_sparse_step", default=1)
    dense_only = fields.integers("mlp_only_layers") or ()
    is_sparse = [index not in dense_only and (index + 1) % step == 0 for index in range(depth)]
    if all(is_sparse):
        fields.costless("intermediate_size")
        return ((sparse,),) * depth
    dense = MlpSpec(intermediate_size=fields.size("intermediate_size"))
    return tuple((sparse,) if chosen else (dense,) for chosen in is_sparse)


def read_dbrx(fields: Fields) -> ModelSpec:
    """DbrxConfig: nested attn_config and ffn_config, layer norms without bias."""
    trunk = Trunk(
        hidden_size=fields.size("d_model"),
        num_hidden_layers=fields.depth("n_layers"),
        vocab_size=fields.size("vocab_size"),
        max_position_embeddings=fields.optional_size("max_seq_len"),
    )
    heads = fields.size("n_heads")
    inner = fields.section("attn_config")
    inner.costless("clip_qkv", "attn_pdrop")
    kv_heads = inner.size("kv_n_heads", default=1)
    fields.expect("num_key_value_heads", value=kv_heads, why="it is attn_config.kv_n_heads")
    attention = grouped_attention(
        fields,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=split_heads(fields, trunk.hidden_size, heads),
    )
    experts = fields.section("ffn_config")
    experts.costless("ffn_act_fn", "moe_jitter_eps", "moe_loss_weight", "moe_normalize_expert_weights")
    experts.costless("uniform_expert_assignment")
    experts.expect("hidden_size", value=trunk.hidden_size, why="the experts work at d_model")
    width = experts.size("ffn_hidden_size", default=3584)
    block = read_experts(
        experts, total="moe_num_experts", picked="moe_top_k", total_default=4, picked_default=1, width=width
    )
    depth = trunk.num_hidden_layers
    fields.costless("emb_pdrop")
    layers = same_layers(attention, block, depth=depth)
    return decoder(fields, trunk=trunk, layers=layers, norm="layer_no_bias")


def read_gpt_oss(fields: Fields) -> ModelSpec:
    """GptOssConfig: biases everywhere, attention sinks, every other layer over a 128-key window."""
    trunk = read_trunk(fields)
    bias = fields.flag("attention_bias", default=True)
    attention = read_attention(fields, hidden_size=trunk.hidden_size, kv_heads_default=8, head_dim_default=64)
    attention = attention.model_copy(update={"qkv_bias": bias, "o_bias": bias, "sinks": True})
    depth = trunk.num_hidden_layers
    window = fields.size("sliding_window", default=128)
    default = tuple(FULL if index % 2 else SLIDING for index in range(depth))
    windows = windows_of_types(fields, depth=depth, window=window, default=default)
    picked = fields.either("num_experts_per_tok", "experts_per_token")
    width = fields.size("intermediate_size")
    block = read_experts(fields, total="num_local_experts", picked=picked, width=width)
    block = block.model_copy(update={"expert_bias": True, "router_bias": True})
    layers = attention_layers(attention, windows=windows, feed_forwards=((block,),) * depth)
    return decoder(fields, trunk=trunk, layers=layers)
