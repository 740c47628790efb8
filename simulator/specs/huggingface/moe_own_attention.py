"""Mixtures of experts whose attention is their own: MiniMax M2 and M3, Step 3.7."""

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
)
from simulator.specs.huggingface.moe import check_top_k
from simulator.specs.huggingface.moe_mixed import choose, sparse_after
from simulator.specs.model import IndexerSpec, LayerSpec, MlpSpec, ModelSpec, MoeSpec


def read_minimax_m2(fields: Fields) -> ModelSpec:
    """MiniMaxM2Config: softmax attention on every layer, norms over all heads together, 256 small experts."""
    trunk = read_trunk(fields)
    depth = trunk.num_hidden_layers
    fields.expect("attn_type_list", value=[1] * depth, why="1 is softmax attention; other kinds are not in M2")
    fields.expect("qk_norm_type", value="per_layer", why="one norm over all heads of a layer")
    fields.expect("use_qk_norm", value=True, why="MiniMaxM2Attention always norms")
    fields.expect("shared_intermediate_size", value=0, why="MiniMax-M2 has no shared expert")
    attention = read_attention(fields, hidden_size=trunk.hidden_size, kv_heads_default=8)
    attention = attention.model_copy(update={"qk_norm": "full"})
    sparse = _minimax_experts(fields, shared=0)
    layers = attention_layers(attention, windows=(None,) * depth, feed_forwards=((sparse,),) * depth)
    fields.costless("use_mtp", "mtp_transformer_layers", "max_model_len", "layernorm_full_attention_beta")
    notes = prediction_heads(fields, "num_mtp_modules")
    return decoder(fields, trunk=trunk, layers=layers, notes=notes)


def _minimax_experts(fields: Fields, *, shared: int) -> MoeSpec:
    experts, picked = fields.size("num_local_experts"), fields.size("num_experts_per_tok")
    check_top_k(fields, "num_experts_per_tok", picked=picked, experts=experts)
    return MoeSpec(
        num_experts=experts,
        num_experts_per_tok=picked,
        moe_intermediate_size=fields.size(fields.either("intermediate_size", "moe_intermediate_size")),
        shared_expert_intermediate_size=shared,
        correction_bias=fields.flag("use_routing_bias", default=True),
    )


def read_minimax_m3(fields: Fields) -> ModelSpec:
    """MiniMaxM3VLTextConfig: a block indexer on most layers picks topk_blocks x block_size keys."""
    trunk = read_trunk(fields)
    depth = trunk.num_hidden_layers
    fields.expect("attention_output_gate", value=False, why="MiniMaxM3VLAttention has no gate")
    fields.expect("qk_norm_type", value="per_head", why="one norm over each head")
    fields.expect("use_qk_norm", value=True, why="MiniMaxM3VLAttention always norms")
    fields.costless("use_gemma_norm")
    attention = read_attention(fields, hidden_size=trunk.hidden_size, kv_heads_default=4, head_dim_default=128)
    attention = attention.model_copy(update={"qk_norm": "head"})
    shared = fields.size("shared_intermediate_size", default=3072) * fields.count("n_shared_experts", default=1)
    sparse = _minimax_experts(fields, shared=shared)
    dense = MlpSpec(intermediate_size=fields.size("dense_intermediate_size", default=12288))
    blocks = choose(sparse_after(fields, depth=depth, first_default=0), sparse=sparse, dense=dense)
    indexer, indexed = _minimax_indexer(fields, depth=depth)
    layers = tuple(
        LayerSpec(mixer=attention.model_copy(update={"indexer": indexer if picks else None}), feed_forward=feed_forward)
        for picks, feed_forward in zip(indexed, blocks, strict=True)
    )
    notes = (
        "the block indexer is priced as a token indexer over topk_blocks x block_size keys",
        *prediction_heads(fields, "num_nextn_predict_layers", "num_mtp_modules"),
    )
    return decoder(fields, trunk=trunk, layers=layers, notes=notes)


def _minimax_indexer(fields: Fields, *, depth: int) -> tuple[IndexerSpec, tuple[bool, ...]]:
    section = fields.section("sparse_attention_config")
    section.expect("use_sparse_attention", value=True, why="a dense MiniMax-M3 is not published")
    section.costless("sparse_disable_index_value", "sparse_init_block", "sparse_local_block", "sparse_score_type")
    indexer = IndexerSpec(
        index_n_heads=section.size("sparse_num_index_heads", default=4),
        index_head_dim=section.size("sparse_index_dim", default=128),
        index_topk=section.size("sparse_topk_blocks", default=16) * section.size("sparse_block_size", default=128),
    )
    frequency = section.integers("sparse_attention_freq")
    if frequency is None or len(frequency) != depth:
        raise section.refusal("sparse_attention_freq", f"must list {depth} entries, one per layer")
    return indexer, tuple(bool(entry) for entry in frequency)


def read_step3p7(fields: Fields) -> ModelSpec:
    """Step3p7TextConfig: a gate per head, norms over heads, one shared expert beside many small ones."""
    trunk = read_trunk(fields)
    depth = trunk.num_hidden_layers
    bias = fields.flag("attention_bias", default=False)
    fields.expect("gating", value=True, why="Step3p7Attention gates each head")
    attention = read_attention(fields, hidden_size=trunk.hidden_size, kv_heads_default=8, head_dim_default=128)
    attention = attention.model_copy(
        update={"qkv_bias": bias, "o_bias": bias, "qk_norm": "head", "output_gate": "headwise"}
    )
    sliding_heads = fields.size("num_sliding_attention_heads", default=attention.num_attention_heads)
    window = fields.size("sliding_window")
    slides = attention.model_copy(update={"sliding_window": window, "num_attention_heads": sliding_heads})
    types = fields.words("layer_types", length=depth, allowed=(SLIDING, FULL))
    if types is None:
        raise fields.refusal("layer_types", "is missing: which layers slide is unknown")
    experts = fields.size(fields.either("n_routed_experts", "num_experts", "moe_num_experts", "num_local_experts"))
    picked = fields.size(fields.either("num_experts_per_tok", "moe_top_k"))
    check_top_k(fields, "num_experts_per_tok", picked=picked, experts=experts)
    shared = fields.size(fields.either("share_expert_dim", "share_expert_dims"), default=1280)
    sparse = MoeSpec(
        num_experts=experts,
        num_experts_per_tok=picked,
        moe_intermediate_size=fields.size("moe_intermediate_size"),
        shared_expert_intermediate_size=shared * fields.count("n_shared_experts", default=1),
        correction_bias=fields.flag("use_moe_router_bias", default=True),
    )
    mlp_bias = fields.flag("mlp_bias", default=False)
    dense = MlpSpec(intermediate_size=fields.size("intermediate_size"), bias=mlp_bias)
    fields.costless("moe_router_scaling_factor", "swiglu_limits", "swiglu_limits_shared", "use_head_wise_attn_gate")
    blocks = choose(sparse_after(fields, depth=depth, first_default=3), sparse=sparse, dense=dense)
    layers = tuple(
        LayerSpec(mixer=slides if kind == SLIDING else attention, feed_forward=feed_forward)
        for kind, feed_forward in zip(types, blocks, strict=True)
    )
    notes = prediction_heads(fields, "num_nextn_predict_layers")
    return decoder(fields, trunk=trunk, layers=layers, notes=notes)
