"""Latent attention with fine-grained experts: DeepSeek V2 to V4, Kimi K2, GLM-4.7-Flash, GLM-5, LongCat, Hy4."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.specs.base import Note
from simulator.specs.huggingface import layers as usual
from simulator.specs.huggingface.experts import read_experts, sparse_after
from simulator.specs.huggingface.fields import Fields
from simulator.specs.model import architecture as arch

OWN_INDEXER, SHARED_INDEXER = "full", "shared"


def read_deepseek(fields: Fields) -> arch.ModelSpec:
    """DeepseekV2Config and DeepseekV3Config; the correction bias belongs to the noaux_tc router of V3."""
    return _deepseek(fields, mixers=read_mla(fields))


def read_mistral4(fields: Fields) -> arch.ModelSpec:
    """Mistral4Config: DeepSeek-V3's layers without a correction bias beside the router."""
    read = read_deepseek(fields)
    return read.model_copy(update={"layers": tuple(_uncorrected(layer) for layer in read.layers)})


def _uncorrected(layer: arch.LayerSpec) -> arch.LayerSpec:
    blocks = tuple(
        block.model_copy(update={"correction_bias": False}) if isinstance(block, arch.MoeSpec) else block
        for block in layer.feed_forward
    )
    return layer.model_copy(update={"feed_forward": blocks})


def read_longcat(fields: Fields) -> arch.ModelSpec:
    """LongcatFlashConfig: two latent attentions and two dense blocks a layer, experts beside the first of them.

    Experts that do nothing (``zero_expert_num``) are picked like others: a token runs the share of its picks that are
    real, which the routing bias holds at their share of the pool; the router still has a column for each.
    """
    pairs = fields.depth("num_layers")
    fields.expect("num_hidden_layers", value=2 * pairs, why="each layer holds two attentions")
    trunk = usual.Trunk(
        hidden_size=fields.size("hidden_size"),
        num_hidden_layers=2 * pairs,
        vocab_size=fields.size("vocab_size"),
        max_position_embeddings=fields.optional_size("max_position_embeddings"),
    )
    mla = read_mla(fields)
    dense = arch.MlpSpec(intermediate_size=fields.size(fields.either("ffn_hidden_size", "intermediate_size")))
    real, empty = fields.size("n_routed_experts"), fields.count("zero_expert_num")
    picked = fields.size(fields.either("moe_topk", "num_experts_per_tok"))
    experts = arch.MoeSpec(
        num_experts=real,
        num_experts_per_tok=max(1, round(picked * real / (real + empty))),
        moe_intermediate_size=fields.size(fields.either("expert_ffn_hidden_size", "moe_intermediate_size")),
        correction_bias=True,
        router_parameters_extra=empty * (trunk.hidden_size + 1),
    )
    pair = (arch.LayerSpec(mixer=mla, feed_forward=(dense, experts)), arch.LayerSpec(mixer=mla, feed_forward=(dense,)))
    note = Note("real_experts", {"real": experts.num_experts_per_tok, "picked": picked})
    return usual.decoder(fields, trunk=trunk, layers=pair * pairs, notes=(note,) if empty else ())


def _indexer(fields: Fields) -> arch.IndexerSpec:
    return arch.IndexerSpec(**{name: fields.size(name) for name in ("index_n_heads", "index_head_dim", "index_topk")})


def read_deepseek_sparse(fields: Fields) -> arch.ModelSpec:
    """DeepseekV32Config and GlmMoeDsaConfig: an indexer picks index_topk keys; some layers reuse the last choice."""
    depth = fields.depth("num_hidden_layers")
    mla = read_mla(fields)
    if mla.q_lora_rank is None:
        raise fields.refusal("q_lora_rank", "is missing: the indexer reads the query's latent")
    indexer = _indexer(fields)
    fields.words("layer_types", length=depth, allowed=("indexed_attention", "deepseek_sparse_attention"))
    fields.costless("indexer_rope_interleave", "index_share_for_mtp_iteration", "index_skip_topk_offset")
    fields.expect("num_experts", value=fields.raw("n_routed_experts"), why="it repeats n_routed_experts")
    types = fields.words("indexer_types", length=depth, allowed=(OWN_INDEXER, SHARED_INDEXER))
    if types is None:
        fields.expect("index_topk_freq", value=1, why="which layers share an indexer must be listed in indexer_types")
        fields.expect("index_topk_pattern", value=None, why="list the layers in indexer_types instead")
    fields.costless("index_topk_freq", "index_topk_pattern")
    own = mla.model_copy(update={"indexer": indexer})
    reused = mla.model_copy(update={"indexer": indexer.model_copy(update={"reuses_previous": True})})
    chosen = types or (OWN_INDEXER,) * depth
    return _deepseek(fields, mixers=tuple(reused if kind == SHARED_INDEXER else own for kind in chosen))


def read_hunyuan4(fields: Fields) -> arch.ModelSpec:
    """HYV4Config: gated latent attention with an indexer and a sink for each head; residual streams that do not mix."""
    for name in ("use_mla", "use_dsa", "enable_ihc", "gated_mla", "learnable_sink"):
        fields.expect(name, value=True, why="HYV4Attention and HYV4HyperConnection have it always")
    model = read_deepseek_sparse(fields)
    layers = tuple(_gated_with_sinks(layer) for layer in model.layers)
    hyper = arch.HyperConnectionSpec(streams=fields.size("hc_mult", default=4), sinkhorn_iterations=0, mix=False)
    return model.model_copy(update={"layers": layers, "hyper_connections": hyper})


def _gated_with_sinks(layer: arch.LayerSpec) -> arch.LayerSpec:
    assert isinstance(layer.mixer, arch.MlaSpec)
    mixer = layer.mixer.model_copy(update={"output_gate": "elementwise"})
    return layer.model_copy(update={"mixer": mixer, "extra_parameters": mixer.num_attention_heads})


def read_latent_dense(fields: Fields) -> arch.ModelSpec:
    """MiniCPM3Config, YoutuConfig: latent attention, dense blocks, tied embeddings."""
    mla = read_mla(fields, value_dim=fields.size("hidden_size") // fields.size("num_attention_heads"))
    return usual.stack(fields, mla, usual.read_mlp(fields, bias="mlp_bias"), tie_default=True)


def read_mla(fields: Fields, *, value_dim: int | None = None) -> arch.MlaSpec:
    """Latent attention; num_key_value_heads and head_dim, where given, describe the expanded form and say no more."""
    heads = fields.size("num_attention_heads")
    nope, rope = fields.size("qk_nope_head_dim"), fields.size("qk_rope_head_dim")
    if not fields.has("use_mla"):  # beside that flag it tells what the same class would hold without latents
        fields.expect("num_key_value_heads", value=heads, why="latent attention expands one key per head")
    fields.expect("qk_head_dim", value=nope + rope, why="it is qk_nope_head_dim + qk_rope_head_dim")
    fields.costless("head_dim")
    return arch.MlaSpec(
        num_attention_heads=heads,
        q_lora_rank=fields.optional_size("q_lora_rank"),
        kv_lora_rank=fields.size("kv_lora_rank"),
        qk_nope_head_dim=nope,
        qk_rope_head_dim=rope,
        v_head_dim=fields.size("v_head_dim", default=value_dim),
        bias=fields.flag("attention_bias", default=False),
    )


def _deepseek(fields: Fields, *, mixers: arch.Mixer | Sequence[arch.Mixer]) -> arch.ModelSpec:
    fields.expect("mlp_bias", value=False, why="DeepSeek's feed-forward blocks have no biases")
    fields.costless("moe_router_dtype")
    return usual.stack(fields, mixers, usual.choose(fields, sparse_after(fields), sparse=read_routed_experts(fields)))


def read_routed_experts(fields: Fields) -> arch.MoeSpec:
    """DeepSeek's experts: n_shared_experts of the same width see every token."""
    method = fields.text("topk_method", allowed=("greedy", "group_limited_greedy", "noaux_tc"), default="noaux_tc")
    corrected = method == "noaux_tc"
    return read_experts(fields, total="n_routed_experts", shared_count="n_shared_experts", correction_bias=corrected)


INDEXED_RATIO = 4
"""Layers of this ratio overlap their pools and have an indexer; all others see every entry [DeepSeek2026]."""

_RATE_OF = {"sliding_attention": 0, "compressed_sparse_attention": INDEXED_RATIO, "heavily_compressed_attention": 128}
"""DeepseekV4Config's names of its layers, and their default rates."""


def read_deepseek_v4(fields: Fields) -> arch.ModelSpec:
    """DeepseekV4Config: a compression ratio for every layer, routing by token id in the first ones."""
    trunk = usual.read_trunk(fields)
    depth = trunk.num_hidden_layers
    ratios, hashed = _ratios(fields, depth=depth), _hashed(fields, depth=depth)
    attention = _attention(fields)
    experts = read_routed_experts(fields)
    by_id = experts.model_copy(update={"correction_bias": False})
    mixers = {ratio: _with_ratio(fields, attention, ratio) for ratio in set(ratios)}
    layers = tuple(
        arch.LayerSpec(mixer=mixers[ratio], feed_forward=(by_id if by_table else experts,))
        for ratio, by_table in zip(ratios, hashed, strict=True)
    )
    notes = [Note("pooled_in_16_bit"), Note("compressed_keys")]
    if any(hashed):
        notes.append(Note("routed_by_id", {"layers": sum(hashed)}))
    model = usual.decoder(
        fields,
        trunk=trunk,
        layers=layers,
        extra_parameters=sum(hashed) * trunk.vocab_size * experts.num_experts_per_tok,
        notes=tuple(notes),
    )
    hyper = arch.HyperConnectionSpec(
        streams=fields.size("hc_mult"), sinkhorn_iterations=fields.count("hc_sinkhorn_iters")
    )
    return model.model_copy(update={"hyper_connections": hyper})


def _ratios(fields: Fields, *, depth: int) -> tuple[int, ...]:
    """One ratio per layer, 0 for the window alone; those of prediction layers behind them are dropped."""
    given, types = fields.integers("compress_ratios"), fields.words("layer_types", length=depth, allowed=_RATE_OF)
    extra = fields.count("num_nextn_predict_layers")
    if given is None and types is None:
        raise fields.refusal("compress_ratios", "is missing: how far each layer compresses its keys is not known")
    if given is not None and len(given) not in (depth, depth + extra):
        raise fields.refusal(
            "compress_ratios",
            f"has {len(given)} entries, allowed are one per layer ({depth})"
            + (f", or one more per prediction layer ({depth + extra})" if extra else ""),
        )
    if fields.has("compress_rates"):
        rates = fields.section("compress_rates")
        for name, ratio in _RATE_OF.items():
            rates.expect(name, value=ratio, why="other rates are known only per layer: list them in compress_ratios")
    if types is None:
        return (given or ())[:depth]
    named = tuple(_RATE_OF[kind] for kind in types)
    if given is not None and named != given[:depth]:
        raise fields.refusal("layer_types", "names other layers than compress_ratios")
    return named


def _hashed(fields: Fields, *, depth: int) -> tuple[bool, ...]:
    """Which layers route by token id."""
    count = fields.optional_count("num_hash_layers")
    if count is not None and count > depth:
        raise fields.refusal("num_hash_layers", f"is {count}, allowed are 0 to num_hidden_layers {depth}")
    types = fields.words("mlp_layer_types", length=depth, allowed=("hash_moe", "moe"))
    if count is None and types is None:
        raise fields.refusal("num_hash_layers", "is missing: how many layers route by token id is not known")
    counted = tuple(index < (count or 0) for index in range(depth))
    named = counted if types is None else tuple(kind == "hash_moe" for kind in types)
    if count is not None and named != counted:
        raise fields.refusal("mlp_layer_types", f"names other layers than num_hash_layers {count}")
    return named


def _attention(fields: Fields) -> arch.CompressedAttentionSpec:
    heads, groups = fields.size("num_attention_heads"), fields.size("o_groups")
    if heads % groups:
        raise fields.refusal("o_groups", f"is {groups}, which does not divide {heads} attention heads")
    fields.expect("num_key_value_heads", value=1, why="all heads share one vector of keys and values")
    head_dim, rotary = fields.size("head_dim"), fields.size("qk_rope_head_dim")
    if rotary > head_dim:
        raise fields.refusal("qk_rope_head_dim", f"is {rotary}, allowed are up to head_dim {head_dim}")
    return arch.CompressedAttentionSpec(
        num_attention_heads=heads,
        head_dim=head_dim,
        qk_rope_head_dim=rotary,
        q_lora_rank=fields.size("q_lora_rank"),
        o_groups=groups,
        o_lora_rank=fields.size("o_lora_rank"),
        sliding_window=fields.size("sliding_window"),
    )


def _with_ratio(fields: Fields, attention: arch.CompressedAttentionSpec, ratio: int) -> arch.CompressedAttentionSpec:
    if ratio == 0:
        return attention
    if ratio == 1:
        raise fields.refusal("compress_ratios", "holds 1, allowed are 0 (window alone) and ratios above 1")
    if ratio != INDEXED_RATIO:
        return attention.model_copy(update={"compress_ratio": ratio})
    return attention.model_copy(update={"compress_ratio": ratio, "overlaps": True, "indexer": _indexer(fields)})
