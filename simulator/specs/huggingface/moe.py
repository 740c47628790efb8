"""Mixtures of experts whose attention is that of a dense family: Mixtral, Qwen, Phi-3.5-MoE, DBRX, gpt-oss."""

from __future__ import annotations

from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import (
    Trunk,
    choose,
    grouped_attention,
    periodic_windows,
    qwen_windows,
    read_attention,
    read_experts,
    split_heads,
    stack,
    with_window,
)
from simulator.specs.model.architecture import FeedForward, ModelSpec, MoeSpec

# Each of Mixtral's eight experts takes 9 to 16 % of the tokens of a text, whatever it is about [Jiang2024], Figure 7;
# read off the figure from memory, verify.
MIXTRAL_ROUTING_SKEW = 0.2


def read_mixtral(fields: Fields) -> ModelSpec:
    """MixtralConfig: every layer sparse, intermediate_size is one expert's."""
    attention = with_window(read_attention(fields, kv_heads_default=8), fields.optional_size("sliding_window"))
    experts = _top_two(fields, experts=8).model_copy(update={"routing_skew": MIXTRAL_ROUTING_SKEW})
    return stack(fields, attention, experts)


def read_phimoe(fields: Fields) -> ModelSpec:
    """PhimoeConfig: Mixtral with biased layer norms, and biases that the configuration switches on."""
    attention = read_attention(fields, kv_heads_default=8, bias="attention_bias")
    attention = with_window(attention, fields.optional_size("sliding_window"))
    head_bias = fields.flag("lm_head_bias", default=False)
    return stack(fields, attention, _top_two(fields, experts=16), norm="layer", lm_head_bias=head_bias)


def _top_two(fields: Fields, *, experts: int) -> MoeSpec:
    width = fields.size("intermediate_size")
    return read_experts(fields, total="num_local_experts", total_default=experts, picked_default=2, width=width)


def read_qwen2_moe(fields: Fields) -> ModelSpec:
    """Qwen2MoeConfig: biases on q, k, v, and a gated shared expert."""
    bias = fields.flag("qkv_bias", default=True)
    attention = read_attention(fields).model_copy(update={"qkv_bias": bias})
    blocks = qwen_experts(fields, shared=fields.size("shared_expert_intermediate_size", default=5632))
    return stack(fields, attention, blocks, windows=qwen_windows(fields))


def read_qwen3_moe(fields: Fields) -> ModelSpec:
    """Qwen3MoeConfig: norms over query and key heads, no shared expert."""
    attention = read_attention(fields, kv_heads_default=4, bias="attention_bias", qk_norm="head")
    fields.expect("qkv_bias", value=attention.qkv_bias, why="Qwen3MoeAttention has attention_bias on all projections")
    return stack(fields, attention, qwen_experts(fields, shared=0), windows=qwen_windows(fields))


def qwen_experts(fields: Fields, *, shared: int) -> tuple[tuple[FeedForward, ...], ...]:
    """Sparse on each ``decoder_sparse_step``-th layer that mlp_only_layers does not list, dense elsewhere."""
    sparse = read_experts(fields, total=fields.either("num_experts", "num_local_experts"))
    sparse = sparse.model_copy(update={"shared_expert_intermediate_size": shared, "shared_expert_gate": shared > 0})
    step = fields.size("decoder_sparse_step", default=1)
    dense_only = fields.integers("mlp_only_layers") or ()
    depth = fields.depth("num_hidden_layers")
    is_sparse = [index not in dense_only and (index + 1) % step == 0 for index in range(depth)]
    return choose(fields, is_sparse, sparse=sparse)


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
    return stack(fields, attention, block, trunk=trunk, norm="layer_no_bias")


def read_gpt_oss(fields: Fields) -> ModelSpec:
    """GptOssConfig: biases everywhere, attention sinks, every other layer over a 128-key window."""
    bias = fields.flag("attention_bias", default=True)
    attention = read_attention(fields, kv_heads_default=8, head_dim_default=64)
    attention = attention.model_copy(update={"qkv_bias": bias, "o_bias": bias, "sinks": True})
    windows = periodic_windows(fields, period=2, window=fields.size("sliding_window", default=128))
    picked = fields.either("num_experts_per_tok", "experts_per_token")
    width = fields.size("intermediate_size")
    block = read_experts(fields, total="num_local_experts", picked=picked, width=width)
    block = block.model_copy(update={"expert_bias": True, "router_bias": True})
    return stack(fields, attention, block, windows=windows)
