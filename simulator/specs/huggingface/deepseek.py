"""Multi-head latent attention with fine-grained experts: DeepSeek V2, V3, V3.2, Kimi K2, GLM-5."""

from __future__ import annotations

from simulator.specs.huggingface.assembly import decoder
from simulator.specs.huggingface.fields import Fields
from simulator.specs.huggingface.layers import prediction_heads, read_trunk
from simulator.specs.huggingface.moe import check_top_k
from simulator.specs.huggingface.moe_mixed import choose, sparse_after
from simulator.specs.model import IndexerSpec, LayerSpec, MlaSpec, MlpSpec, ModelSpec, MoeSpec

OWN_INDEXER, SHARED_INDEXER = "full", "shared"


def read_deepseek(fields: Fields) -> ModelSpec:
    """DeepseekV2Config and DeepseekV3Config; the correction bias belongs to the noaux_tc router of V3."""
    return _deepseek(fields, mixers=(read_mla(fields),) * fields.depth("num_hidden_layers"))


def read_deepseek_sparse(fields: Fields) -> ModelSpec:
    """DeepseekV32Config and GlmMoeDsaConfig: an indexer picks index_topk keys; some layers reuse the last choice."""
    depth = fields.depth("num_hidden_layers")
    mla = read_mla(fields)
    if mla.q_lora_rank is None:
        raise fields.refusal("q_lora_rank", "is missing: the indexer reads the query's latent")
    indexer = IndexerSpec(
        index_n_heads=fields.size("index_n_heads"),
        index_head_dim=fields.size("index_head_dim"),
        index_topk=fields.size("index_topk"),
    )
    fields.words("layer_types", length=depth, allowed=("indexed_attention",))
    fields.costless("indexer_rope_interleave", "index_share_for_mtp_iteration", "index_skip_topk_offset")
    types = fields.words("indexer_types", length=depth, allowed=(OWN_INDEXER, SHARED_INDEXER))
    if types is None:
        fields.expect("index_topk_freq", value=1, why="which layers share an indexer must be listed in indexer_types")
        fields.expect("index_topk_pattern", value=None, why="list the layers in indexer_types instead")
    fields.costless("index_topk_freq", "index_topk_pattern")
    own = mla.model_copy(update={"indexer": indexer})
    reused = mla.model_copy(update={"indexer": indexer.model_copy(update={"reuses_previous": True})})
    chosen = types or (OWN_INDEXER,) * depth
    return _deepseek(fields, mixers=tuple(reused if kind == SHARED_INDEXER else own for kind in chosen))


def read_mla(fields: Fields) -> MlaSpec:
    """Latent attention; num_key_value_heads and head_dim, where given, describe the expanded form and say no more."""
    heads = fields.size("num_attention_heads")
    nope, rope = fields.size("qk_nope_head_dim"), fields.size("qk_rope_head_dim")
    fields.expect("num_key_value_heads", value=heads, why="latent attention expands one key per head")
    fields.expect("qk_head_dim", value=nope + rope, why="it is qk_nope_head_dim + qk_rope_head_dim")
    fields.costless("head_dim")
    return MlaSpec(
        num_attention_heads=heads,
        q_lora_rank=fields.optional_size("q_lora_rank"),
        kv_lora_rank=fields.size("kv_lora_rank"),
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=fields.size("v_head_dim"),
        bias=fields.flag("attention_bias", default=False),
    )


def _deepseek(fields: Fields, *, mixers: tuple[MlaSpec, ...]) -> ModelSpec:
    trunk = read_trunk(fields)
    dense = MlpSpec(intermediate_size=fields.size("intermediate_size"))
    is_sparse = sparse_after(fields, depth=trunk.num_hidden_layers)
    fields.expect("mlp_bias", value=False, why="DeepSeek's feed-forward blocks have no biases")
    fields.costless("moe_router_dtype")
    blocks = choose(is_sparse, sparse=read_routed_experts(fields), dense=dense)
    layers = tuple(
        LayerSpec(mixer=mixer, feed_forward=feed_forward) for mixer, feed_forward in zip(mixers, blocks, strict=True)
    )
    notes = prediction_heads(fields, "num_nextn_predict_layers")
    return decoder(fields, trunk=trunk, layers=layers, notes=notes)


def read_routed_experts(fields: Fields) -> MoeSpec:
    """DeepSeek's experts: n_shared_experts of the same width see every token."""
    experts, picked = fields.size("n_routed_experts"), fields.size("num_experts_per_tok")
    check_top_k(fields, "num_experts_per_tok", picked=picked, experts=experts)
    width = fields.size("moe_intermediate_size")
    method = fields.text("topk_method", allowed=("greedy", "group_limited_greedy", "noaux_tc"), default="noaux_tc")
    return MoeSpec(
        num_experts=experts,
        num_experts_per_tok=picked,
        moe_intermediate_size=width,
        shared_expert_intermediate_size=width * fields.count("n_shared_experts"),
        correction_bias=method == "noaux_tc",
    )
